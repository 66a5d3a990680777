"""The socket that gives tokens to local users: none of them takes all file handles or threads of the service."""

import asyncio
import os
import threading

from connection_cases import read_until_closed
from free_ports import free_port

from rm_plugin.service import authentication, receiving
from rm_plugin.service.authentication import LocalTokens
from rm_plugin.service.identities import Identities
from themis.clock import WallClock
from themis.identity import local_socket

PORT = free_port("127.0.0.1")
"""The socket's name has it, and is the same to all processes of this machine."""


async def asked() -> bytes:
    return await read_until_closed(*await asyncio.open_unix_connection(local_socket(PORT)))


def test_user_who_asks_without_end_is_closed_and_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr(receiving, "MAX_STREAMS", 12)
    answering = threading.Event()
    most_at_once: list[int] = []
    uids = iter([os.getuid()] * 20 + [os.getuid() + 1])
    at_once: set[int] = set()

    def slow_name(uid: int) -> str:
        at_once.add(threading.get_ident())
        most_at_once.append(len(at_once))
        if uid == os.getuid():
            answering.wait(60)
        at_once.discard(threading.get_ident())
        return f"user{uid}"

    class Credentials:
        size = 12

        @staticmethod
        def unpack(_content: bytes) -> tuple[int, int, int]:
            return 1, next(uids), 1

    monkeypatch.setattr(authentication, "user_name", slow_name)
    monkeypatch.setattr(authentication, "_CREDENTIALS", Credentials)

    async def scenario() -> None:
        identities = Identities(admins=(), anonymous=False, clock=WallClock(), user="themis")
        tokens = LocalTokens(identities)
        await tokens.start(PORT)
        flood = [asyncio.ensure_future(asked()) for _ in range(20)]
        # Eight are being answered, four wait, and eight are closed.
        while sum(call.done() for call in flood) < 8:
            await asyncio.sleep(0.01)
        other = await asyncio.wait_for(asked(), 60)
        assert identities.of_token(other.decode()).user == f"user{os.getuid() + 1}"
        answering.set()
        answers = await asyncio.gather(*flood)
        assert sorted(answer == b"" for answer in answers) == [False] * 12 + [True] * 8
        await tokens.stop()

    asyncio.run(scenario())
    assert max(most_at_once) <= 9
