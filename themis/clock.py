"""The clock port: where a part learns what time it is."""

from __future__ import annotations

import time
from typing import Protocol

from themis.errors import InvariantError


class Clock(Protocol):
    """Source of the present time in seconds since the epoch."""

    def now_s(self) -> float:
        """The present time, in seconds since the epoch."""
        ...


class WallClock:
    """Real time that never runs backwards: wall time at the start, advanced by the monotonic clock."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def now_s(self) -> float:
        """The present time, in seconds since the epoch."""
        return self._offset_s + time.monotonic()


class VirtualClock:
    """A clock that moves only when told to."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        """The present virtual time, in seconds."""
        return self._now_s

    def advance_to(self, time_s: float) -> None:
        """Move to `time_s`; going backwards is a defect and raises InvariantError."""
        if time_s < self._now_s:
            raise InvariantError("the virtual clock cannot run backwards", value=(self._now_s, time_s))
        self._now_s = time_s
