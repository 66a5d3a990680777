"""The page of a standby says whom it waits for, at every address."""

import asyncio
import urllib.error
import urllib.request

import pytest

from rm_plugin.service.web.standby_page import StandbyPage


def asked(url):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, timeout=60)
    return refused.value.code, refused.value.read()


@pytest.mark.parametrize("path", ["", "healthz", "api/v1/apps"])
def test_every_address_answers_503_and_names_the_active_one(path):
    async def scenario():
        page = StandbyPage()
        url = await page.start("127.0.0.1:0")
        page.holder = "process 7 on rm1"
        try:
            assert await asyncio.to_thread(asked, url + path) == (503, b"standby of process 7 on rm1\n")
        finally:
            await page.stop()

    asyncio.run(scenario())


def test_the_address_is_free_once_the_page_ended():
    async def scenario():
        page = StandbyPage()
        url = await page.start("127.0.0.1:0")
        await page.stop()
        again = StandbyPage()
        assert await again.start(url.removeprefix("http://").rstrip("/")) == url
        await again.stop()

    asyncio.run(scenario())


def test_browser_gets_a_page_that_says_that_nobody_is_signed_in():
    async def scenario():
        page = StandbyPage()
        url = await page.start("127.0.0.1:0")
        page.holder = "process <7> on rm1"
        try:
            request = urllib.request.Request(url, headers={"Accept": "text/html,*/*"})
            with pytest.raises(urllib.error.HTTPError) as refused:
                await asyncio.to_thread(urllib.request.urlopen, request, timeout=60)
            code, body, headers = refused.value.code, refused.value.read(), refused.value.headers
            assert (code, headers["Refresh"]) == (503, "5")
            # The script would show it as out of date.
            assert b'data-refresh="0"' in body
            assert b"waits for <strong>process &lt;7&gt; on rm1</strong>" in body
            assert b"Not signed in" in body
        finally:
            await page.stop()

    asyncio.run(scenario())
