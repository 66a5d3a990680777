"""Results remembered for the jobs that they were worked out for: an app that waits is asked in every round."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

R = TypeVar("R")

_MOST_PARTS = 20_000
"""So many jobs and other parts are kept in all, unless said otherwise."""


class Memo(Generic[R]):
    """Remembers results by the objects that they rest on, told apart by identity, and by values beside them.

    Comparing a hundred jobs takes longer than working most things out again, and those who ask hand the same tuple of
    jobs over again while nothing changed in it. The objects are kept, so that nothing else can take their identity.

    Args:
        most_parts: Past so many parts the older half goes, and what is still in use comes back.
    """

    def __init__(self, most_parts: int = _MOST_PARTS) -> None:
        self._most_parts = most_parts
        self._known: dict[tuple[Hashable, ...], tuple[tuple[object, ...], R]] = {}
        self._parts = 0

    def of(self, objects: tuple[object, ...], values: tuple[Hashable, ...], work_out: Callable[[], R]) -> R:
        """The result for these objects and values, worked out if it is new."""
        key: tuple[Hashable, ...] = tuple(map(id, objects))
        if values:
            key += values
        known = self._known.get(key)
        if known is not None:
            return known[1]
        result = work_out()
        self._known[key] = objects, result
        self._parts += _parts(objects)
        if self._parts > self._most_parts:
            for old in list(self._known)[: (len(self._known) + 1) // 2]:
                self._parts -= _parts(self._known.pop(old)[0])
        return result


def _parts(objects: tuple[object, ...]) -> int:
    first = objects[0]
    return 1 + (len(first) if isinstance(first, tuple) else 0)
