"""The web server of the ResourceManager: where it listens, that it ends, that it does not hold up the loop."""

import asyncio
import threading
import time
import urllib.request

import pytest
from web_cases import RmCase, busy, run, served

from rm_plugin.service.web.documents import apps_document, cluster_document
from rm_plugin.service.web.event_index import EventIndex
from rm_plugin.service.web.home_page import home_page
from rm_plugin.service.web.metrics import metrics_text
from rm_plugin.service.web.page_state import PageState
from rm_plugin.service.web.rm_page import RmPage
from rm_plugin.service.web.usage_history import UsageHistory
from themis.errors import InputError


def test_health_needs_no_log():
    async def scenario():
        async with served(RmCase(((1,),))) as site:
            assert await site.text("/healthz") == "ok\n"

    run(scenario)


def test_slow_directory_of_users_does_not_hold_up_the_loop(monkeypatch):
    asked = threading.Event()

    def user_name(_uid):
        assert asked.wait(30), "the loop stood still"
        return "ann"

    monkeypatch.setattr("rm_plugin.service.web.readers.user_name", user_name)

    async def scenario():
        async with served(busy()) as site:
            page = asyncio.ensure_future(site.text("/apps"))
            assert await site.text("/healthz") == "ok\n"
            assert not page.done()
            asked.set()
            assert "hungry" in await page

    run(scenario)


def test_plain_http_clients_are_served():
    async def scenario():
        page = RmPage(busy().manager, "themis")
        url = await page.start("127.0.0.1:0")
        try:
            answer = await asyncio.to_thread(urllib.request.urlopen, url + "healthz", timeout=30)
            assert answer.read() == b"ok\n"
            answer.close()
        finally:
            await page.stop()

    run(scenario)


@pytest.mark.parametrize("listen", ["8080", "here:many", ":80", "127.0.0.1:99999", "127.0.0.1:"])
def test_an_invalid_address_is_refused(listen):
    async def scenario():
        with pytest.raises(InputError, match="HOST:PORT"):
            await RmPage(RmCase(((1,),)).manager, "themis").start(listen)

    run(scenario)


def test_healthz_says_that_the_store_cannot_be_written():
    async def scenario():
        case = RmCase(((1,),))
        async with served(case) as site:
            case.manager.changes.trouble = "the store cannot be written: 'disk full'"
            status, _, text = await site.get("/healthz")
            assert (status, text) == (503, "the store cannot be written: 'disk full'\n")

    run(scenario)


def test_a_port_that_is_taken_is_refused_and_stopping_gives_it_back():
    async def scenario():
        case = RmCase(((1,),))
        first, second = RmPage(case.manager, "themis"), RmPage(case.manager, "themis")
        url = await first.start("127.0.0.1:0")
        address = url.removeprefix("http://").rstrip("/")
        with pytest.raises(InputError, match="cannot listen"):
            await second.start(address)
        await first.stop()
        assert await second.start(address) == url
        await second.stop()

    run(scenario)


def test_a_hundred_apps_of_75_jobs_take_milliseconds():
    """The loop has sessions and rounds to serve; the bounds are several times what was measured."""

    async def scenario():
        case = RmCase(*([((2, 2, 2, 2),) * 8] * 2))
        for place in range(100):
            case.running(f"app-{place}", unmet=1, jobs=75)
        rho = {f"app-{place + 1:04d}": float(place) for place in range(100)}
        for round_id in range(1, 12):
            case.round(round_id, rho, offered=list(rho)[:20], won=dict.fromkeys(list(rho)[:20], 1))
        page_state = PageState(case.manager, "themis", EventIndex(case.recorder), UsageHistory())
        for event in case.recorder.events(0, "", 100_000):
            page_state.event_index.take(event)
        page = await case.manager.page_of_apps(limit=200)
        for make in (home_page, metrics_text, cluster_document, lambda seen: apps_document(seen, page, [])):
            took_s = min(timed(make, page_state) for _ in range(20))
            assert took_s < 0.05

    run(scenario)


def timed(make, page_state):
    started_s = time.process_time()
    make(page_state)
    return time.process_time() - started_s
