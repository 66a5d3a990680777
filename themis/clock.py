"""The clock port: where a part learns what time it is."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, Self

from themis.errors import InvariantError


class Clock(Protocol):
    """Source of the present time in seconds since the epoch."""

    def now_s(self) -> float:
        """The present time, in seconds since the epoch."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockMark:
    """A moment by a clock and by the machine's monotonic one, from which a later process counts on.

    Attributes:
        time_s: The clock's time, in seconds since the epoch.
        boot_id: The boot during which `monotonic_s` was read; empty if unknown.
        monotonic_s: The monotonic clock then, in seconds.
    """

    time_s: float
    boot_id: str = ""
    monotonic_s: float = 0.0

    def to_text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The inverse of `to_text`.

        Raises:
            ValueError: The text is not such a mark.
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
    """Real time that never runs backwards: wall time at the start, advanced by the monotonic clock.

    Args:
        mark: A moment of the former process, which this one never precedes. Without it the wall clock alone counts.
        follow: Whether time goes on from the mark by the monotonic clock, if that has run since. A wall clock that was
            set meanwhile then changes nothing. Otherwise time starts from the wall clock or the mark, the later one.
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
        """By how much this clock is ahead of the wall clock now, in seconds; negative if it is behind."""
        return self.now_s() - time.time()


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


def boot_id() -> str:
    """What tells this boot of the machine from all others; empty if the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
