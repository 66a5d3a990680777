"""Collect all events of a run into a file, in a thread. The stream is resumed if it breaks."""

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
    """The collector's requirements on a client."""

    def watch(self, app_id: str = "", *, after_sequence: int = 0, follow: bool = True) -> Iterator[pb.Event]:
        """Events after a sequence number."""
        ...

    def close(self) -> None:
        """Close the connection and with it every stream."""
        ...


class Collector:
    """Follow a ResourceManager's events until `close`.

    Args:
        connect: Makes a client for the collector.
        path: File to append to, one line per event. It contains whole lines at all times.
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
        """Wait until no event has arrived for `settle_s` seconds, but at most `limit_s`."""
        deadline_s = time.monotonic() + limit_s
        last, since_s = self._last, time.monotonic()
        while (now_s := time.monotonic()) < deadline_s and now_s - since_s < settle_s:
            time.sleep(0.05)
            if self._last != last:
                last, since_s = self._last, now_s

    def close(self) -> None:
        """Close the stream and the file."""
        self._closed.set()
        self._client.close()
        self._thread.join(timeout=5.0)
        with self._lock:
            self._file.close()

    def _follow(self) -> None:
        while not self._closed.is_set():
            # Whether a restart or a shutdown ended the stream: missing events are requested again.
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
        # Requesting it again would give the same event, so continue after it.
        return Event(sequence=message.sequence, time_s=message.time_s, kind=UNREADABLE, detail={"problem": str(error)})
