"""Collects every event of a run into a file, from a thread of its own, and picks the stream up again when it breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from themis.errors import InputError, ThemisError
from themis.events import UNREADABLE
from themis.wire import themis_pb2 as pb
from themis_lab.testbed.events import Event, event_from_message, event_to_line

_RETRY_S = 0.3


class Watchable(Protocol):
    """What the collector needs of a client."""

    def watch(self, app_id: str = "", *, after_sequence: int = 0, follow: bool = True) -> Iterator[pb.Event]:
        """Events after a sequence number."""
        ...

    def close(self) -> None:
        """End the connection, and with it every stream."""
        ...


class Collector:
    """Follows a ResourceManager's events until it is closed.

    Args:
        connect: Makes a client of the collector's own.
        path: File to append to, one line an event; it holds whole lines at all times.
    """

    def __init__(self, connect: Callable[[], Watchable], path: Path) -> None:
        self._client = connect()
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()
        self._last = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="events", daemon=True)
        self._thread.start()

    def drain(self, settle_s: float, limit_s: float) -> None:
        """Wait until no event has come for `settle_s` seconds, no longer than `limit_s`."""
        deadline_s = time.monotonic() + limit_s
        last, since_s = self._last, time.monotonic()
        while (now_s := time.monotonic()) < deadline_s and now_s - since_s < settle_s:
            time.sleep(0.05)
            if self._last != last:
                last, since_s = self._last, now_s

    def close(self) -> None:
        """End the stream and the file."""
        self._closed.set()
        self._client.close()
        self._thread.join(timeout=5.0)
        with self._lock:
            self._file.close()

    def _follow(self) -> None:
        while not self._closed.is_set():
            # Whatever ends the stream, a restart or a shutdown: what is missing is asked for again.
            with suppress(ThemisError, ValueError):
                for message in self._client.watch(after_sequence=self._last, follow=True):
                    self._take(_event(message))
            self._closed.wait(_RETRY_S)

    def _take(self, event: Event) -> None:
        with self._lock:
            if event.sequence > self._last and not self._file.closed:
                self._file.write(event_to_line(event) + "\n")
                self._last = event.sequence


def _event(message: pb.Event) -> Event:
    try:
        return event_from_message(message)
    except InputError as error:
        # Asked for again it would be the same: what comes after it counts.
        return Event(sequence=message.sequence, time_s=message.time_s, kind=UNREADABLE, detail={"problem": str(error)})
