"""The tool that makes the documents' pictures, on a page that is served."""

import asyncio
import importlib.util
import shutil
import struct

import pytest
from documents import ROOT
from web_cases import busy, served

pytest.importorskip("playwright", reason="playwright comes with the extra `dev`")
CHROMIUM = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="needs Chromium (Debian: apt install chromium)")


def test_picture_shows_the_upper_part_of_a_page(tmp_path):
    spec = importlib.util.spec_from_file_location("make_screenshots", ROOT / "tools/make_screenshots.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    picture = tmp_path / "cluster-page.png"

    def take(url):
        with tool.browser() as page:
            tool.photograph(page, url, picture)
            assert page.locator("#chart-usage canvas").is_visible()

    async def scenario():
        async with served(busy()) as site:
            # The tool's driver has a loop of its own.
            await asyncio.to_thread(take, site.url)

    asyncio.run(scenario())
    assert struct.unpack(">II", picture.read_bytes()[16:24]) == tool.SIZES[picture.name]
