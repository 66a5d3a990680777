"""Checkpoints in the background: training stands still only to keep its state, which a thread then writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from am.checkpoints.store import Meta
from tf_jobs.recorder import Recorder, SaveEvent
from themis.values import Value

Snapshot = Callable[[Path], dict[str, Path]]
"""The state at one iteration, kept in memory: writes it as files below a folder, and gives them by their names."""


class _Offer(Value, frozen=True):
    iteration: int
    snapshot: Snapshot


class BackgroundSaver:
    """Writes one checkpoint at a time, in a thread of its own.

    A state that is offered while another is being written waits; a newer one takes its place. So training never waits
    for the store, at most two copies of the state are in memory, and a store that is slower than the checkpoints are
    frequent gets fewer of them. `save` is for the last state of a run: it waits for the write that is under way.

    What a write fails of, the next call raises: a job whose checkpoints cannot be kept should end and say so.

    Args:
        recorder: Saves, logs and notes.
        scratch: A folder of this task alone, for files on their way to the store.
        meta: Noted in every checkpoint.
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
        """Have the state that `take` keeps saved as the checkpoint at `iteration`; returns when it is kept."""
        begun_s = time.monotonic()
        offer = _Offer(iteration, take())
        with self._changed:
            self._waiting = offer
            self._changed.notify_all()
        self._recorder.log.copied(iteration, time.monotonic() - begun_s)

    def save(self, iteration: int, event: SaveEvent, take: Callable[[], Snapshot]) -> None:
        """Save the state at `iteration` and return when it is whole; what waited is older, and dropped."""
        with self._changed:
            self._waiting = None
        self.settle()
        self.check()
        self._write(_Offer(iteration, take()), event)

    def settle(self, limit_s: float | None = None) -> None:
        """Wait until everything offered is written, for `limit_s` seconds at most where that is given."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writing and (self._waiting is None or self._failed), limit_s)

    def check(self) -> None:
        """Raise what a write has failed of, if any has."""
        if self._failure is not None:
            raise self._failure

    @property
    def _failed(self) -> bool:
        return self._failure is not None

    def _write_on(self) -> None:
        """The thread: write what is offered, until that fails."""
        while not self._failed:
            self._write_next()

    def _write_next(self) -> None:
        """A method of its own, so that a thread that waits holds no state that is written already."""
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
        """Wait for an offer, and take it."""
        with self._changed:
            while (offer := self._waiting) is None:
                self._changed.wait()
            self._waiting, self._writing = None, True
            return offer

    def _write(self, offer: _Offer, event: SaveEvent) -> None:
        self._recorder.save(offer.iteration, event, offer.snapshot(self._scratch), self._meta)
