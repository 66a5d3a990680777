"""How long each step took on the way to the containers of a gang."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class Steps:
    """Steps of a gang's containers in the order in which they follow each other; each is over with its last container.

    Args:
        now_s: A steady clock, in seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._begun_s = now_s()
        self._over_s: dict[str, float] = {}

    def over(self, step: str) -> None:
        """The step is over for one more container."""
        self._over_s[step] = self._now_s()

    def join(self, other: Steps) -> None:
        """Steps of a container that somebody else asked for, before: what is left of them counts."""
        for step, over_s in other._over_s.items():
            self._over_s[step] = max(over_s, self._over_s.get(step, over_s))

    def seconds(self) -> Mapping[str, float]:
        """Seconds of each step, from the end of the one before; together they are all the time since the beginning."""
        took: dict[str, float] = {}
        before_s = self._begun_s
        for step, over_s in self._over_s.items():
            # One container may be asked for when another has been granted already.
            took[step] = max(0.0, over_s - before_s)
            before_s = max(before_s, over_s)
        return took
