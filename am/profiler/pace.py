"""How fast a job was at one placement: a robust summary of the newest intervals."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

from themis.cluster import Level

WINDOW = 50
"""How many of the newest intervals count."""

_SHORTEST_S = 1e-9
_LONGEST_S = 1e9


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """What an iteration time depends on: how many GPUs, and how far apart they lie."""

    gpus: int
    level: Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds an iteration at one placement.

    Attributes:
        iteration_s: Median of the intervals.
        spread_s: Median distance from the median (MAD).
        count: Number of intervals behind them, at most WINDOW.
    """

    iteration_s: float
    spread_s: float
    count: int

    @property
    def settled(self) -> bool:
        """Whether enough intervals are in for a ratio of two paces to mean anything."""
        return self.count >= 3


class Intervals:
    """The newest intervals at one placement, in seconds an iteration.

    The first interval after a start holds set-up work (graph tracing, cold caches); it is used only for as long as
    there is no other. Intervals that no clock can have measured are left aside.
    """

    def __init__(self) -> None:
        self._steady: deque[float] = deque(maxlen=WINDOW)
        self._first: deque[float] = deque(maxlen=WINDOW)

    def add(self, iteration_s: float, *, first: bool) -> None:
        """Take in one interval."""
        if _SHORTEST_S <= iteration_s <= _LONGEST_S:
            (self._first if first else self._steady).append(iteration_s)

    @property
    def pace(self) -> Pace | None:
        """The summary, None before any interval. One of first intervals only counts as a single one."""
        known = self._steady or self._first
        if not known:
            return None
        middle = median(known)
        spread = median(abs(interval - middle) for interval in known)
        return Pace(iteration_s=middle, spread_s=spread, count=len(self._steady) or 1)
