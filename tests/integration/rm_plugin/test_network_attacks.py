"""A client on the network: what it sends to the port of gRPC and to that of the pages, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest
from live_rm import Live, live, replay_app, settings
from msgspec.structs import replace

from rm_plugin.service import manager
from rm_plugin.service.web.stream import MAX_STREAMS
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc

LIMIT_S = 120


def attack(tmp_path: Path, scenario) -> None:
    async def whole() -> None:
        async with live(settings(tmp_path, page="127.0.0.1:0")) as rm, asyncio.timeout(LIMIT_S):
            await scenario(rm)

    asyncio.run(whole())


async def exchange(address: str, sent: bytes) -> bytes:
    """Send bytes and return what comes until the other side closes the connection."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    received = b""
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(sent)
            await writer.drain()
            while part := await reader.read(65536):
                received += part
    finally:
        # Without a look at what is not sent yet.
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return received


async def ask(rm: Live, line: str, *headers: str, body: bytes = b"", host: str = "127.0.0.1") -> bytes:
    """Send a request to the page, as it is written here."""
    lines = [line, f"Host: {host}", "Connection: close", f"Content-Length: {len(body)}", *headers]
    return await exchange(urlsplit(rm.server.manager.page_url).netloc, "\r\n".join([*lines, "", ""]).encode() + body)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def token_of(rm: Live, user: str) -> str:
    manager = rm.server.manager
    return await manager.identities.add(manager.changes, user, valid_s=600.0, by="root")


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../../{secret}",
        "/static/%2e%2e/%2e%2e/%2e%2e/%2e%2e/{secret}",
        "/static//{secret}",
        "/api/v1/apps/app-0001/logs/../../secret.txt",
        "/api/v1/apps/app-0001/logs/job-00/..%2f..%2f..%2f..%2fsecret.txt",
        "/api/v1/apps/app-0001/logs/..%2F..%2Fsecret.txt",
        "/api/v1/apps/app-0001/logs/job-00%2f..%2f..%2f..%2fsecret.txt",
        "/api/v1/apps/..%2f..%2fsecret.txt",
        "/api/v1/apps/app-0001/logs/{secret}",
    ],
)
def test_no_path_leads_out_of_the_folders_that_are_served(tmp_path: Path, path: str) -> None:
    async def scenario(rm: Live) -> None:
        (tmp_path / "secret.txt").write_text("of the service")
        await rm.submit(replace(replay_app("mine", iterations=10), user="ann"))
        # The reader is the service's own user, who may read every log.
        answer = await ask(rm, f"GET {path.format(secret=str(tmp_path / 'secret.txt').lstrip('/'))} HTTP/1.1")
        assert status(answer) in (400, 403, 404)
        assert b"of the service" not in answer

    attack(tmp_path, scenario)


def test_no_request_puts_a_header_or_another_address_into_an_answer(tmp_path: Path) -> None:
    async def scenario(rm: Live) -> None:
        for line in (
            "GET /api/v1/apps/x%0d%0aSet-Cookie:%20a=b HTTP/1.1",
            "GET /apps/x%0d%0aSet-Cookie:%20a=b HTTP/1.1",
            "GET /api/v1/apps?after=%0d%0aSet-Cookie:%20a=b HTTP/1.1",
            "GET /apps?search=%0d%0aSet-Cookie:%20a=b HTTP/1.1",
            "GET //evil.example/cluster HTTP/1.1",
            "GET /cluster//evil.example HTTP/1.1",
            "GET http://evil.example/cluster HTTP/1.1",
            "GET /cluster?next=//evil.example HTTP/1.1",
        ):
            head = (await ask(rm, line)).partition(b"\r\n\r\n")[0]
            assert b"\r\nset-cookie" not in head.lower()
            location = [text for text in head.splitlines() if text.lower().startswith(b"location:")]
            assert location in ([], [b"Location: ./"])

    attack(tmp_path, scenario)


def test_other_site_in_a_browser_of_this_machine_neither_reads_nor_changes(tmp_path: Path) -> None:
    async def scenario(rm: Live) -> None:
        app = await rm.submit(replace(replay_app("mine", iterations=100_000), user="ann"))
        kill = f"/api/v1/apps/{app}/kill HTTP/1.1"
        origin, plain = "Origin: http://evil.example", "Content-Type: text/plain"
        # A form, or a script without a preflight, can send these, with a Basic header that the browser remembers.
        token = await token_of(rm, "ann")
        assert status(await ask(rm, f"POST {kill}", origin, plain, body=b"{}")) == 401
        assert status(await ask(rm, f"POST {kill}", origin, "Authorization: Basic YW5uOg==", body=b"{}")) == 401
        assert status(await ask(rm, f"POST {kill}", origin, "X-Themis-Action: guessed", body=b"{}")) == 401
        # What a header of its own would need.
        asked = "Access-Control-Request-Headers: x-themis-action"
        preflight = await ask(rm, f"OPTIONS {kill}", origin, "Access-Control-Request-Method: POST", asked)
        assert status(preflight) == 405 and b"access-control-allow" not in preflight.lower()
        answer = await ask(rm, f"GET /api/v1/apps/{app} HTTP/1.1", origin)
        assert status(answer) == 200 and b"access-control-allow" not in answer.lower()
        # Its name resolves to this machine. Local names that only begin like one are others' too.
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0", "127.0.0.1@evil"):
            answer = await ask(rm, f"GET /api/v1/apps/{app} HTTP/1.1", host=host)
            assert b"learning_rate" not in answer
            assert b"action.Y" not in await ask(rm, f"GET /apps/{app} HTTP/1.1", host=host)
        # A token in an address would be in histories and logs.
        for name in ("token", "access_token", "authorization", "auth"):
            answer = await ask(rm, f"GET /api/v1/apps/{app}?{name}={token} HTTP/1.1", host="evil.example")
            assert b"learning_rate" not in answer
        assert b"learning_rate" in await ask(rm, f"GET /api/v1/apps/{app} HTTP/1.1")
        assert (await rm.show(app)).state not in ("KILLED", "FINISHED")
        await rm.stub.Kill(pb.KillRequest(app_id=app))

    attack(tmp_path, scenario)


def test_revoked_token_is_refused_when_it_is_sent_again(tmp_path: Path) -> None:
    async def scenario(rm: Live) -> None:
        token, manager = await token_of(rm, "ann"), rm.server.manager
        line, header = "GET /api/v1/apps HTTP/1.1", f"Authorization: Bearer {token}"
        assert status(await ask(rm, line, header)) == 200
        await manager.identities.revoke(manager.changes, "ann", by="root")
        assert status(await ask(rm, line, header)) == 401
        await token_of(rm, "ann")
        assert status(await ask(rm, line, header)) == 401

    attack(tmp_path, scenario)


def test_oversized_and_malformed_requests_are_refused_and_others_are_served(tmp_path: Path) -> None:
    async def scenario(rm: Live) -> None:
        chunked = "Transfer-Encoding: chunked"
        for answer in await asyncio.gather(
            ask(rm, "GET / HTTP/1.1", "X-Long: " + "x" * 2**20),
            ask(rm, "GET / HTTP/1.1", *[f"X-{place}: y" for place in range(20_000)]),
            ask(rm, "GET /" + "x" * 2**20 + " HTTP/1.1"),
            ask(rm, "POST /api/v1/apps/app-0001/kill HTTP/1.1", body=b"x" * 2**24),
            ask(rm, "POST /api/v1/apps/app-0001/kill HTTP/1.1", chunked, body=b"ffffffffffffffff\r\n"),
            ask(rm, "GET / HTTP/9.9"),
            ask(rm, "\x00\x01\x02"),
        ):
            assert answer == b"" or status(answer) in (400, 401, 413, 414, 431)
        assert status(await ask(rm, "GET /healthz HTTP/1.1")) == 200

    attack(tmp_path, scenario)


def test_readers_who_take_every_stream_leave_pages_to_others(tmp_path: Path) -> None:
    async def scenario(rm: Live) -> None:
        host, _, port = urlsplit(rm.server.manager.page_url).netloc.rpartition(":")
        held = []
        for _ in range(MAX_STREAMS):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /api/v1/stream HTTP/1.1\r\nHost: evil.example\r\n\r\n")
            held.append((reader, writer))
        for reader, _ in held:
            assert b"200" in await reader.readline()
        assert status(await ask(rm, "GET /api/v1/stream HTTP/1.1")) == 503
        assert status(await ask(rm, "GET /api/v1/apps HTTP/1.1")) == 200
        for _, writer in held:
            writer.close()

    attack(tmp_path, scenario)


# ---- HTTP/2, on the port of gRPC -------------------------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 1, 3, 4, 6, 9


def frame(kind: int, content: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    """One frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def field(name: str, value: str) -> bytes:
    """A header field, literal and without indexing (RFC 7541, section 6.2.2)."""
    texts = (name.encode(), value.encode())
    return b"\x00" + b"".join(bytes([len(text)]) + text for text in texts)


CALL = b"".join(
    field(*pair)
    for pair in (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/themis.v1.ClientService/List"),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    )
)

FLOODS = {
    "pings": b"".join(frame(PING, bytes(8)) for _ in range(20_000)),
    "settings": b"".join(frame(SETTINGS, struct.pack(">HI", 4, 65_535 + place)) for place in range(20_000)),
    # Calls that are cancelled at once.
    "resets": b"".join(
        frame(HEADERS, CALL, flags=4, stream=place) + frame(RST_STREAM, struct.pack(">I", 8), stream=place)
        for place in range(1, 20_001, 2)
    ),
    # A header without an end.
    "continuations": frame(HEADERS, CALL, stream=1)
    + b"".join(frame(CONTINUATION, field("x", "y" * 100) * 100, stream=1) for _ in range(1_000)),
    "calls": b"".join(frame(HEADERS, CALL, flags=4, stream=place) for place in range(1, 8_001, 2)),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_flood_of_frames_does_not_keep_others_from_the_service(tmp_path: Path, flood: str) -> None:
    async def scenario(rm: Live) -> None:
        sent = PREFACE + frame(SETTINGS) + FLOODS[flood]

        async def send() -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await exchange(rm.address, sent)

        floods = [asyncio.ensure_future(send()) for _ in range(2)]
        async with grpc.aio.insecure_channel(rm.address) as channel:
            token = await token_of(rm, "ann")
            calls = rpc.ClientServiceStub(channel)
            answered = 0
            while answered < 5:
                try:
                    await calls.List(pb.ListRequest(), metadata=(("authorization", f"Bearer {token}"),), timeout=60)
                    answered += 1
                except grpc.aio.AioRpcError as error:
                    # gRPC drops calls while more than 1,000 wait to be refused.
                    assert error.code() is grpc.StatusCode.CANCELLED
                    await asyncio.sleep(0.2)
        await asyncio.gather(*floods)

    attack(tmp_path, scenario)


@pytest.mark.parametrize("sent", [b"", PREFACE + frame(SETTINGS)], ids=["silent", "without a call"])
def test_idle_connections_to_every_place_of_grpc_keep_nobody_out(
    tmp_path: Path, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "max_connections", lambda: 60)

    async def scenario(rm: Live) -> None:
        app = await rm.submit(replay_app("mine", iterations=60))
        await rm.wait(app, lambda status: status.gpus > 0)
        host, _, port = rm.address.rpartition(":")
        held = []
        for _ in range(200):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            held.append((reader, writer))
        metadata = (("authorization", f"Bearer {await token_of(rm, 'ann')}"),)
        for _ in range(3):
            # A subchannel of its own, as a new client has.
            async with grpc.aio.insecure_channel(rm.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
                calls = rpc.ClientServiceStub(channel)
                await calls.List(pb.ListRequest(), metadata=metadata, timeout=30, wait_for_ready=True)
        # Its app master keeps its session.
        assert (await rm.ended(app)).attempts == 1
        for _, writer in held:
            writer.transport.abort()

    attack(tmp_path, scenario)
