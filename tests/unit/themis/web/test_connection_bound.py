"""Connections of a page: a bounded number of them, and none that sends no request."""

import asyncio
import contextlib
import ssl

import pytest
from aiohttp import web
from connection_cases import read_until_closed

from rm_plugin.service.certificates import init_tls
from themis import peers
from themis.web import answers, connections
from themis.web.answers import listen, site, text_answer

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


async def hello(_request):
    return text_answer("hello")


async def served(attack, tls=None):
    application = site(is_document=lambda _path: False)
    application.add_routes([web.get("/", hello)])
    runner, port = await listen(application, "127.0.0.1", 0, tls)
    try:
        async with asyncio.timeout(60):
            await attack(port)
    finally:
        await runner.cleanup()


async def opened(port, sent=b"", source="127.0.0.1"):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(sent)
    return reader, writer


async def closed(writer):
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def ended(connection):
    """Whether the server has ended a connection, without an answer."""
    try:
        return await connection[0].read() == b""
    except ConnectionResetError:
        return True
    finally:
        await closed(connection[1])


async def completed(connection):
    """Send the rest of a request. Returns whether it is answered."""
    reader, writer = connection
    writer.write(b"Connection: close\r\n\r\n")
    try:
        return (await reader.read()).endswith(b"hello")
    finally:
        await closed(writer)


async def answer(port, sent):
    """What comes until the server closes the connection."""
    return await read_until_closed(*await opened(port, sent))


def test_peer_that_takes_all_connections_keeps_nobody_out(monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)

    async def attack(port):
        held = [await opened(port, REQUEST) for _ in range(3)]
        # Whoever shares its address ends its oldest connection, and no other one.
        assert (await answer(port, REQUEST + b"Connection: close\r\n\r\n")).endswith(b"hello")
        assert await ended(held[0])
        for connection in held[1:]:
            assert await completed(connection)

    asyncio.run(served(attack))


def test_peer_with_fewer_connections_keeps_them_when_another_takes_more(monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 5)
    # On one machine there are two networks of loopback.
    monkeypatch.setattr(peers, "network_of", lambda address: address)

    async def attack(port):
        mine = await opened(port, REQUEST, source="127.0.0.2")
        others = [await opened(port, REQUEST) for _ in range(20)]
        for connection in others[:16]:
            assert await ended(connection)
        assert await completed(mine)
        for _, writer in others:
            writer.close()

    asyncio.run(served(attack))


def test_connections_in_the_handshake_of_tls_count(monkeypatch, tmp_path):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    init_tls(tmp_path, ["127.0.0.1"])
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "server.pem", tmp_path / "server-key.pem")
    asking = ssl.create_default_context(cafile=tmp_path / "ca.pem")

    async def attack(port):
        held = [await opened(port) for _ in range(3)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=asking)
        writer.write(REQUEST + b"Connection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"hello")
        writer.close()
        assert await ended(held[0])
        for _, writer in held:
            writer.close()

    asyncio.run(served(attack, serving))


@pytest.mark.parametrize("sent", [b"", REQUEST, REQUEST + b"\r\n" + REQUEST])
def test_connection_without_a_whole_request_is_closed(monkeypatch, sent):
    monkeypatch.setattr(answers, "IDLE_S", 0.3)

    async def attack(port):
        assert (await answer(port, sent)).endswith(b"hello") is (b"\r\n\r\n" in sent)

    asyncio.run(served(attack))
