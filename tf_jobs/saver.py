"""Save checkpoints in the background: training pauses only to copy its state, which a thread then writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from am.checkpoints.store import Meta
from tf_jobs.recorder import Recorder, SaveEvent
from themis.values import Value

Snapshot = Callable[[Path], dict[str, Path]]
"""The state at one iteration, kept in memory. A call writes it as files into a folder and returns them by name."""


class _Offer(Value, frozen=True):
    iteration: int
    snapshot: Snapshot


class BackgroundSaver:
    """Writes one checkpoint at a time, in a thread of its own.

    A state that is offered during a write waits; a newer state replaces it. So training never waits for the store, at
    most two copies of the state are in memory, and a slow store gets fewer checkpoints. `save` is for the last state of
    a run: it waits for the write in progress.

    If the store is full, training goes on: later states are saved once it has room, and tried less and less often. If a
    write fails for another reason, the next call raises its error: a job that cannot keep checkpoints should end and
    report it.

    Args:
        recorder: Writes checkpoints, log lines and history.
        scratch: A folder of this task, for files before they are in the store.
        meta: Written into every checkpoint.
    """

    def __init__(self, recorder: Recorder, scratch: Path, meta: Meta) -> None:
        self._recorder = recorder
        self._scratch = scratch
        self._meta = meta
        self._changed = threading.Condition()
        self._waiting: _Offer | None = None
        self._writing = False
        self._failure: Exception | None = None
        threading.Thread(target=self._write_on, name="checkpoints", daemon=True).start()

    def offer(self, iteration: int, take: Callable[[], Snapshot]) -> None:
        """Copy the state with `take` and have it saved as the checkpoint at `iteration`. Returns once it is copied.

        Does nothing if the store was full a short time ago.
        """
        if self._recorder.backs_off:
            return
        begun_s = time.monotonic()
        offer = _Offer(iteration, take())
        with self._changed:
            self._waiting = offer
            self._changed.notify_all()
        self._recorder.log.copied(iteration, time.monotonic() - begun_s)

    def save(self, iteration: int, event: SaveEvent, take: Callable[[], Snapshot]) -> bool:
        """Save the state at `iteration` and return once it is written. An older waiting state is dropped.

        Returns:
            Whether it is saved; False if the store is full.
        """
        with self._changed:
            self._waiting = None
        self.settle()
        self.check()
        return self._write(_Offer(iteration, take()), event)

    def settle(self, limit_s: float | None = None) -> None:
        """Wait until every offered state is written, for at most `limit_s` seconds if given."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writing and (self._waiting is None or self._failed), limit_s)

    def check(self) -> None:
        """Raise the error of a failed write, if any."""
        if self._failure is not None:
            raise self._failure

    @property
    def _failed(self) -> bool:
        return self._failure is not None

    def _write_on(self) -> None:
        """Write the offered states, until a write fails. This is the thread's main function."""
        while not self._failed:
            self._write_next()

    def _write_next(self) -> None:
        """Write one state. A method of its own, so that the waiting thread keeps no reference to a written state."""
        offer = self._next()
        try:
            self._write(offer, "checkpoint")
        except Exception as error:
            self._failure = error
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()

    def _next(self) -> _Offer:
        """Wait for an offered state and return it."""
        with self._changed:
            while (offer := self._waiting) is None:
                self._changed.wait()
            self._waiting, self._writing = None, True
            return offer

    def _write(self, offer: _Offer, event: SaveEvent) -> bool:
        return self._recorder.try_save(offer.iteration, event, lambda: offer.snapshot(self._scratch), self._meta)
