"""A clock that stops while an engine does not answer. Pure."""

from __future__ import annotations


class AnsweredTime:
    """Counts seconds, but at most `gap_s` of them between two answers of the engine.

    Deadlines of an engine's work use this clock, because the engine cannot work while it is unavailable.

    >>> time = AnsweredTime(gap_s=2.0, now_s=0.0)
    >>> time.answered(1.0)
    >>> time.at(50.0)
    3.0
    >>> time.answered(100.0)
    >>> time.at(101.0)
    4.0

    Args:
        gap_s: Longest time between two answers of an engine that works, in seconds.
        now_s: The present time, from any origin.
    """

    def __init__(self, *, gap_s: float, now_s: float) -> None:
        self._gap_s = gap_s
        self._answered_at_s = now_s
        self._left_out_s = 0.0

    def answered(self, now_s: float) -> None:
        """Note an answer of the engine."""
        self._left_out_s += max(0.0, now_s - self._answered_at_s - self._gap_s)
        self._answered_at_s = now_s

    def at(self, now_s: float) -> float:
        """Return the counted time in seconds, from the origin of `now_s`."""
        return min(now_s, self._answered_at_s + self._gap_s) - self._left_out_s
