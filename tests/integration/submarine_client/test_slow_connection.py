"""A ResourceManager on a starved machine: its port takes connections, and it answers on them a while later."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from fake_rm import FakeRm

from submarine_client.connection import Connection
from themis.errors import UnreachableError

DELAY_S = 1.0


class SlowDoor:
    """Takes one connection, and hands on what is said over it only after `DELAY_S` seconds."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        outer, _ = self._listener.accept()
        time.sleep(DELAY_S)
        inner = socket.create_connection(self._to)
        back = threading.Thread(target=_hand_on, args=(inner, outer))
        self._threads.append(back)
        back.start()
        _hand_on(outer, inner)

    def close(self) -> None:
        self._listener.close()
        for thread in self._threads:
            thread.join()


def _hand_on(source: socket.socket, target: socket.socket) -> None:
    with source:
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            # The other direction has ended.
            return


@pytest.fixture
def rm() -> Iterator[FakeRm]:
    fake = FakeRm()
    yield fake
    fake.stop()


def test_a_connection_may_take_its_time(rm: FakeRm) -> None:
    rm.service.add("app-0001", "RUNNING")
    door = SlowDoor(("127.0.0.1", rm.port))
    begun_s = time.monotonic()
    with Connection(door.address) as client:
        assert [app.app_id for app in client.list()] == ["app-0001"]
    door.close()
    assert time.monotonic() - begun_s >= DELAY_S


def test_a_call_without_a_listener_fails_at_once(rm: FakeRm) -> None:
    rm.stop()
    begun_s = time.monotonic()
    with Connection(rm.address) as client, pytest.raises(UnreachableError, match="no ResourceManager answers"):
        client.list()
    assert time.monotonic() - begun_s < 25.0
