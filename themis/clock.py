"""The clock port and its adapters."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Protocol, Self

from msgspec import to_builtins

from themis.errors import InvariantError
from themis.values import Value


class Clock(Protocol):
    """Source of the present time in seconds since the epoch."""

    def now_s(self) -> float:
        """The present time, in seconds since the epoch."""
        ...


class ClockMark(Value, frozen=True, kw_only=True):
    """One moment by two clocks, from which a later process can continue.

    Attributes:
        time_s: The clock's time, in seconds since the epoch.
        boot_id: The boot of the machine in which `monotonic_s` was read; empty if unknown.
        monotonic_s: The machine's monotonic clock at that moment, in seconds.
    """

    time_s: float
    boot_id: str = ""
    monotonic_s: float = 0.0

    def to_text(self) -> str:
        """Return the mark as JSON.

        >>> ClockMark(time_s=1000.0, boot_id="b1", monotonic_s=20.0).to_text()
        '{"time_s": 1000.0, "boot_id": "b1", "monotonic_s": 20.0}'
        """
        return json.dumps(to_builtins(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The inverse of `to_text`.

        Raises:
            ValueError: The text is no mark.
        """
        values = json.loads(text)
        try:
            mark = cls(**values)
            if math.isfinite(mark.time_s) and math.isfinite(mark.monotonic_s):
                return mark
        except TypeError:
            pass
        raise ValueError(f"not a mark of a clock: {text[:200]!r}")


class WallClock:
    """Real time that never runs backwards: the wall clock at the start, advanced by the monotonic clock.

    Args:
        mark: The last moment of the former process. Time never starts before it.
        follow: Whether to continue from the mark by the monotonic clock, if the machine has not rebooted since. A wall
            clock that was set in between then has no effect. Otherwise time starts at the later of wall clock and mark.

    Example: the mark says 12:00:00, and 30 s later the wall clock says 14:00:00, since an operator set it. With
        `follow`, time continues at 12:00:30, else at 14:00:00. If the wall clock says 10:00:00, time continues at
        12:00:30 with `follow`, else at 12:00:00.
    """

    def __init__(self, mark: ClockMark | None = None, *, follow: bool = False) -> None:
        monotonic_s = time.monotonic()
        start_s = time.time()
        if mark is not None:
            same_boot = bool(mark.boot_id) and mark.boot_id == boot_id() and mark.monotonic_s <= monotonic_s
            if follow and same_boot:
                start_s = mark.time_s + (monotonic_s - mark.monotonic_s)
            else:
                start_s = max(start_s, mark.time_s)
        self._offset_s = start_s - monotonic_s

    def now_s(self) -> float:
        """The present time, in seconds since the epoch."""
        return self._offset_s + time.monotonic()

    @property
    def ahead_s(self) -> float:
        """Seconds by which this clock is ahead of the wall clock now; negative if it is behind."""
        return self.now_s() - time.time()


class VirtualClock:
    """A clock that moves only when `advance` is called."""

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


def boot_id() -> str:
    """Return the id of this boot of the machine; empty if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
