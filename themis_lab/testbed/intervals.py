"""Time intervals: merge them, and subtract some from another."""

from __future__ import annotations

from collections.abc import Iterable

from themis.values import Value


class Interval(Value, frozen=True):
    """A time interval in seconds, from `start_s` up to `end_s`."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Its length; 0 if it is empty."""
        return max(0.0, self.end_s - self.start_s)


def merged(intervals: Iterable[Interval], gap_s: float = 0.0) -> list[Interval]:
    """Return the intervals in order. Those that overlap or are at most `gap_s` apart are merged."""
    joined: list[Interval] = []
    for interval in sorted(intervals, key=lambda each: (each.start_s, each.end_s)):
        if joined and interval.start_s <= joined[-1].end_s + gap_s:
            joined[-1] = Interval(joined[-1].start_s, max(joined[-1].end_s, interval.end_s))
        else:
            joined.append(interval)
    return joined


def without(whole: Interval, taken: Iterable[Interval]) -> list[Interval]:
    """Return the rest of an interval after others are subtracted."""
    left: list[Interval] = []
    begin_s = whole.start_s
    for interval in merged(taken):
        if interval.start_s > begin_s:
            left.append(Interval(begin_s, min(interval.start_s, whole.end_s)))
        begin_s = max(begin_s, interval.end_s)
        if begin_s >= whole.end_s:
            break
    if begin_s < whole.end_s:
        left.append(Interval(begin_s, whole.end_s))
    return [interval for interval in left if interval.length_s > 0.0]
