"""The pictures of the pages: those that the tool makes are there, small, and shown in the documents."""

import importlib.util
import struct

import pytest
from documents import PAGES, ROOT, text_of

FIGURES = ROOT / "docs/figures"
MOST_BYTES = 150_000


@pytest.fixture(scope="module")
def tool():
    pytest.importorskip("playwright", reason="playwright comes with the extra `dev`")
    spec = importlib.util.spec_from_file_location("make_screenshots", ROOT / "tools/make_screenshots.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_are_those_of_the_tool_and_small(tool):
    for name, size in tool.SIZES.items():
        picture = (FIGURES / name).read_bytes()
        assert len(picture) < MOST_BYTES
        assert struct.unpack(">II", picture[16:24]) == size


def test_each_picture_is_shown_with_a_text_in_its_place(tool):
    text = "\n".join(map(text_of, PAGES))
    for name in tool.SIZES:
        [before] = [part.rpartition("![")[2] for part in text.split(f"figures/{name})")[:-1]]
        assert len(before.partition("](")[0]) > 20
