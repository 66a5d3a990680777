"""Ctrl-C and similar signals as a flag, so that the running code decides when it is safe to stop."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Within this context SIGINT, SIGTERM and SIGHUP are counted and have no other effect. Main thread only."""

    def __init__(self) -> None:
        # A plain number: the code that a signal interrupts could hold an Event's lock.
        self._count = 0
        self._former: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in _NUMBERS:
            self._former[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)  # type: ignore[arg-type]

    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self._count > 0

    def urgent(self) -> bool:
        """Whether a stop was requested twice."""
        return self._count > 1

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
