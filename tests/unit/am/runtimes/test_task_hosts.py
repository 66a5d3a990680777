"""Where an app master listens for its task hosts, and what strangers at that port can take of it."""

import asyncio
import contextlib

import pytest

from am.runtimes.remote import frames, hosts
from am.runtimes.remote.hosts import TaskHosts


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_listen_returns_the_open_port(host):
    async def scenario():
        hosts = TaskHosts()
        port = await hosts.listen(host)
        # With a port per address family, the returned one would be random.
        assert len(hosts._server.sockets) == 1
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await hosts.close()

    asyncio.run(scenario())


async def hello(port, seat_id, token):
    """Connect as a task host, prove the token, and return the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frames.encode("hello", seat=seat_id, nonce="host"))
    answer = await frames.read(reader)
    nonces = (seat_id, "host", answer.fields["nonce"])
    assert frames.is_proven(answer, frames.proof(token, frames.APP_MASTER, *nonces))
    proof = frames.proof(token, frames.TASK_HOST, *nonces)
    writer.write(frames.encode("join", proof=proof, pid=41, task_run=1, address="", job_dir=""))
    return await frames.read(reader), writer


async def until_closed(reader):
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""


def test_strangers_who_say_nothing_keep_no_task_host_out(monkeypatch):
    monkeypatch.setattr(hosts, "MAX_UNPROVEN", 3)

    async def scenario():
        served = TaskHosts()
        port = await served.listen("127.0.0.1")
        token = served.expect("seat")
        strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        for reader, _ in strangers[:7]:
            await until_closed(reader)
        welcome, joined = await hello(port, "seat", token)
        assert welcome.kind == "welcome" and len(served._unproven) <= 3
        # One that has proven itself takes none of their places.
        more = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        await until_closed(more[0][0])
        assert not joined.is_closing() and served.pid("seat") == 41
        for _, writer in (*strangers, *more, (None, joined)):
            writer.close()
        await served.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("sent", [b"", b'{"kind": "hello"', frames.encode("hello", seat="seat", nonce="once")])
def test_connection_that_does_not_prove_itself_in_time_is_closed(monkeypatch, sent):
    monkeypatch.setattr(hosts, "WELCOME_S", 0.2)

    async def scenario():
        served = TaskHosts()
        port = await served.listen("127.0.0.1")
        served.expect("seat")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        while await reader.read(1000):
            pass
        assert served._unproven == []
        writer.close()
        await served.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
