"""The iteration time of a job at one placement: a robust summary of the newest intervals.

Example: the intervals 0.9, 0.10, 0.11, 0.10 and 0.30 s per iteration, the first of them after a start. The first one
holds set-up work and is left out. The median of the others is 0.105 s, and their median distance from it 0.005 s.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from themis.cluster import Level
from themis.values import Value

WINDOW = 50
"""Number of newest intervals that the summary uses."""

_SHORTEST_S = 1e-9
_LONGEST_S = 1e9


class Placement(Value, frozen=True, order=True):
    """A number of GPUs, the locality level that they span, and their type. A job's iteration time depends on all."""

    gpus: int
    level: Level
    device: str = ""


class IterationTime(Value, frozen=True, kw_only=True):
    """Seconds per iteration at one placement.

    Attributes:
        iteration_s: Median of the intervals.
        spread_s: Median absolute deviation (MAD) of the intervals.
        count: Number of intervals, at most WINDOW.
        is_steady: False if only the first interval after a start is known.
    """

    iteration_s: float
    spread_s: float
    count: int
    is_steady: bool = True

    @property
    def is_reliable(self) -> bool:
        """Whether there are enough intervals to compare this iteration time with another."""
        return self.count >= 3


class Intervals:
    """The newest intervals at one placement, in seconds per iteration.

    The first interval after a start includes set-up work (graph tracing, cold caches). It counts only while there is no
    other interval. Intervals outside 1e-9 to 1e9 seconds are ignored.

    Args:
        earlier: The summary of an earlier attempt. It counts until there are enough newer intervals.
    """

    def __init__(self, earlier: IterationTime | None = None) -> None:
        self._earlier = earlier
        self._steady: deque[float] = deque(maxlen=WINDOW)
        self._first: deque[float] = deque(maxlen=WINDOW)

    def add(self, iteration_s: float, *, first: bool) -> None:
        """Add one interval."""
        if _SHORTEST_S <= iteration_s <= _LONGEST_S:
            (self._first if first else self._steady).append(iteration_s)

    @property
    def pace(self) -> IterationTime | None:
        """The summary, or None before any interval. First intervals alone count as one interval."""
        newer = self._newer
        return self._earlier if self._earlier is not None and not (newer and newer.is_reliable) else newer

    @property
    def _newer(self) -> IterationTime | None:
        known = self._steady or self._first
        if not known:
            return None
        middle = median(known)
        spread = median(abs(interval - middle) for interval in known)
        steady = len(self._steady)
        return IterationTime(iteration_s=middle, spread_s=spread, count=steady or 1, is_steady=steady > 0)
