"""Connections of a page: a bounded number of them, and none that sends no request."""

import asyncio

import pytest
from aiohttp import web

from themis.web import answers, connections
from themis.web.answers import listen, site, text_answer

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


async def hello(_request):
    return text_answer("hello")


async def served(attack):
    application = site(is_document=lambda _path: False)
    application.add_routes([web.get("/", hello)])
    runner, port = await listen(application, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(60):
            await attack(port)
    finally:
        await runner.cleanup()


async def opened(port, sent=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    return reader, writer


async def answer(port, sent):
    """What comes until the server closes the connection."""
    reader, writer = await opened(port, sent)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def test_connection_beyond_the_bound_is_closed_until_another_ends(monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)

    async def attack(port):
        held = [await opened(port, REQUEST) for _ in range(3)]
        await asyncio.sleep(0.2)
        assert await answer(port, REQUEST + b"\r\n") == b""
        held[0][1].close()
        while not (await answer(port, REQUEST + b"Connection: close\r\n\r\n")).endswith(b"hello"):
            await asyncio.sleep(0.05)
        for _, writer in held:
            writer.close()

    asyncio.run(served(attack))


@pytest.mark.parametrize("sent", [b"", REQUEST, REQUEST + b"\r\n" + REQUEST])
def test_connection_without_a_whole_request_is_closed(monkeypatch, sent):
    monkeypatch.setattr(answers, "IDLE_S", 0.3)

    async def attack(port):
        assert (await answer(port, sent)).endswith(b"hello") is (b"\r\n\r\n" in sent)

    asyncio.run(served(attack))
