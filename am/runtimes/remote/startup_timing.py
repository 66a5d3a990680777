"""Measure how long each step of starting a gang's containers took."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class StartupTiming:
    """Times of the steps of starting a gang's containers. A step ends with its last container.

    Example: two containers. Both are asked for by second 2, granted by 4, started by 4.5, and their hosts connect by 6.
    `seconds()` is {"ask": 2.0, "grant": 2.0, "start": 0.5, "connect": 1.5}.

    Args:
        now_s: A monotonic clock, in seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._begun_s = now_s()
        self._over_s: dict[str, float] = {}

    def step_done(self, step: str) -> None:
        """Note that one more container has completed the step."""
        self._over_s[step] = self._now_s()

    def merge(self, other: StartupTiming) -> None:
        """Add the steps of a container that was requested earlier. Only the time after this gang's start counts."""
        for step, over_s in other._over_s.items():
            self._over_s[step] = max(over_s, self._over_s.get(step, over_s))

    def seconds(self) -> Mapping[str, float]:
        """Return the seconds of each step since the end of the previous one. Their sum is the time since the start."""
        took: dict[str, float] = {}
        before_s = self._begun_s
        for step, over_s in self._over_s.items():
            # A container may be asked for after another one was granted.
            took[step] = max(0.0, over_s - before_s)
            before_s = max(before_s, over_s)
        return took
