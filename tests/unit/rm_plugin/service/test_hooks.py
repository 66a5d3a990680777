"""Web hooks: what is sent when an app ends, what is kept over a restart, and what a bad receiver costs."""

import asyncio
import contextlib
import json
import logging

import pytest
from aiohttp import web
from pydantic import ValidationError
from service_cases import app

from rm_plugin.service import hooks
from rm_plugin.service.hooks import HOOKS, Delivery, post_document
from rm_plugin.service.memory_service import MemoryService, memory_service, until
from rm_plugin.service.restoring import restored_value
from themis.config.rm_settings import RmSettings
from themis.errors import ThemisError
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb

ONE, TWO = "http://one.example/hook", "https://user:secret@two.example/hook"


class Receiver:
    """Takes documents, after it refused some."""

    def __init__(self, refusals=0):
        self.refusals = refusals
        self.got = []

    async def post(self, url, body):
        if self.refusals:
            self.refusals -= 1
            raise ThemisError("the hook answered", value=500)
        self.got.append((url, json.loads(body)))


def run(tmp_path, scenario, urls=(ONE,), receiver=None):
    receiver = receiver or Receiver()

    async def whole():
        async with memory_service(tmp_path, hooks=urls) as rm:
            rm.manager.hooks._post = receiver.post
            try:
                await scenario(rm, receiver)
            finally:
                await rm.manager.hooks.close()

    asyncio.run(asyncio.wait_for(whole(), 20))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(hooks, "RETRY_AFTER_S", (0.0, 0.0))


async def ended(rm, state="FINISHED", **finish):
    entry, session = await rm.registered(app("mine"))
    await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, finish=pb.Finish(state=state, **finish)))
    return entry


def stored(rm):
    return json.loads(rm.store.meta(HOOKS) or "[]")


def test_each_address_hears_of_an_end_once(tmp_path):
    async def scenario(rm, receiver):
        await ended(rm, best="job-0", best_checkpoint="/best")
        await until(lambda: len(receiver.got) == 2 and stored(rm) == [])
        assert sorted(url for url, _ in receiver.got) == [ONE, TWO]
        document = receiver.got[0][1]
        assert (document["event"], document["app_id"], document["state"]) == ("app_ended", "app-0001", "FINISHED")
        assert (document["best_checkpoint"], document["page_url"]) == ("/best", None)

    run(tmp_path, scenario, (ONE, TWO))


def test_killed_app_is_an_end_and_a_paused_one_is_not(tmp_path):
    async def scenario(rm, receiver):
        entry, session = await rm.registered(app("mine"))
        await rm.manager.pause(entry.app_id)
        await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, finish=pb.Finish(state="PAUSED")))
        assert entry.state is AppState.PAUSED
        await rm.manager.kill(entry.app_id, "no longer wanted")
        await until(lambda: bool(receiver.got))
        assert [(each["state"], each["diagnostics"]) for _, each in receiver.got] == [("KILLED", "no longer wanted")]

    run(tmp_path, scenario)


def test_refused_end_is_tried_again(tmp_path):
    async def scenario(rm, receiver):
        await ended(rm)
        await until(lambda: len(receiver.got) == 1 and stored(rm) == [])

    run(tmp_path, scenario, receiver=Receiver(refusals=2))


def test_end_that_no_try_delivers_is_given_up_without_the_secret_in_the_log(tmp_path, caplog):
    async def scenario(rm, receiver):
        await ended(rm)
        await until(lambda: stored(rm) == [] and "given up for two.example" in caplog.text)
        assert receiver.got == []
        assert "secret" not in caplog.text

    caplog.set_level(logging.WARNING)
    run(tmp_path, scenario, (TWO,), Receiver(refusals=3))


def test_end_is_written_before_it_is_sent_and_sent_after_a_restart(tmp_path):
    async def scenario(rm, _receiver):
        rm.manager.hooks._send = lambda deliveries: None
        await ended(rm)
        assert stored(rm) == [{"app_id": "app-0001", "url": ONE}]
        after = MemoryService(tmp_path, store=rm.store, clock=rm.clock, hooks=(ONE,))
        receiver = Receiver()
        after.manager.hooks._post = receiver.post
        after.manager.hooks.restore(restored_value(rm.store, HOOKS, list[Delivery], []))
        after.manager.hooks.start()
        await until(lambda: stored(rm) == [])
        assert [url for url, _ in receiver.got] == [ONE]
        await after.close()

    run(tmp_path, scenario)


def test_address_that_the_settings_lack_now_gets_nothing(tmp_path):
    async def scenario(rm, _receiver):
        rm.manager.hooks.restore([Delivery("app-0001", TWO)])
        assert rm.manager.hooks.pending == ()

    run(tmp_path, scenario)


def test_end_that_cannot_be_written_is_not_sent(tmp_path):
    async def scenario(rm, receiver):
        entry, session = await rm.registered(app("mine"))
        rm.store.trouble = "disk full"
        message = pb.AmMessage(id=1, finish=pb.Finish(state="FINISHED"))
        waiting = asyncio.ensure_future(rm.manager.sessions.receive(entry, session, message))
        await asyncio.sleep(0.05)
        assert receiver.got == []
        rm.store.trouble = ""
        await waiting
        await until(lambda: len(receiver.got) == 1)

    run(tmp_path, scenario)


def test_oldest_ends_are_given_up_beyond_the_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(hooks, "MAX_PENDING", 2)

    async def scenario(rm, _receiver):
        rm.manager.hooks._send = lambda deliveries: None
        for _ in range(3):
            await ended(rm)
        assert [each["app_id"] for each in stored(rm)] == ["app-0002", "app-0003"]

    run(tmp_path, scenario)


def test_without_hooks_nothing_is_written(tmp_path):
    async def scenario(rm, _receiver):
        await ended(rm)
        assert rm.store.meta(HOOKS) is None

    run(tmp_path, scenario, ())


@pytest.mark.parametrize(
    "url", ["ftp://host/x", "file:///etc/passwd", "chat.example", "http://", "http://a b/", "http:///x"]
)
def test_address_that_is_none_of_http_is_refused(url):
    with pytest.raises(ValidationError):
        RmSettings(cluster="small-8", hooks=(url,))


@contextlib.asynccontextmanager
async def receiving(answer):
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    finally:
        await runner.cleanup()


def test_document_is_posted_as_json():
    got = []

    async def answer(request):
        got.append((request.method, request.content_type, await request.json()))
        return web.Response(status=204)

    async def scenario():
        async with receiving(answer) as url:
            await post_document(url, b'{"app_id": "a"}')
        assert got == [("POST", "application/json", {"app_id": "a"})]

    asyncio.run(scenario())


def test_end_of_an_app_reaches_the_address_of_the_settings(tmp_path):
    got = []

    async def answer(request):
        got.append((await request.json())["app_id"])
        return web.Response(status=204)

    async def scenario():
        async with receiving(answer) as url, memory_service(tmp_path, hooks=(url,)) as rm:
            entry = await ended(rm)
            await until(lambda: got == [entry.app_id])
            await until(lambda: stored(rm) == [])

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_redirect_is_not_followed():
    asked = []

    async def answer(request):
        asked.append(request.path)
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    async def scenario():
        async with receiving(answer) as url:
            with pytest.raises(ThemisError, match="302"):
                await post_document(url, b"{}")
        assert asked == ["/hook"]

    asyncio.run(scenario())


def test_receiver_that_hangs_costs_a_bounded_time(monkeypatch):
    monkeypatch.setattr(hooks, "TIMEOUT_S", 0.1)

    async def answer(_request):
        await asyncio.sleep(5)

    async def scenario():
        async with receiving(answer) as url:
            with pytest.raises(ThemisError, match="cannot be reached"):
                await post_document(url, b"{}")

    asyncio.run(scenario())


def test_receiver_that_is_gone_is_an_error_of_ours():
    async def scenario():
        with pytest.raises(ThemisError, match="cannot be reached"):
            await post_document("http://127.0.0.1:9/hook", b"{}")

    asyncio.run(scenario())


def test_delivery_is_what_the_store_keeps():
    assert Delivery("a", ONE) == Delivery("a", ONE)


def test_answer_that_is_not_http_leaves_the_secret_of_the_address_out():
    async def babble(reader, writer):
        await reader.readline()
        writer.write(b"what?\r\n\r\n")
        writer.close()

    async def scenario():
        server = await asyncio.start_server(babble, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            with pytest.raises(ThemisError, match="cannot be reached") as raised:
                await post_document(f"http://127.0.0.1:{port}/secret", b"{}")
        assert "secret" not in str(raised.value)

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_end_that_newer_ones_replaced_is_not_sent(tmp_path, monkeypatch):
    monkeypatch.setattr(hooks, "MAX_PENDING", 1)
    answers = asyncio.Event()

    class Slow(Receiver):
        async def post(self, url, body):
            await answers.wait()
            await super().post(url, body)

    async def scenario(rm, receiver):
        await ended(rm)
        await ended(rm)
        answers.set()
        await until(lambda: not rm.manager.hooks._tasks)
        assert [document["app_id"] for _url, document in receiver.got] == ["app-0002"]

    run(tmp_path, scenario, receiver=Slow(refusals=1))
