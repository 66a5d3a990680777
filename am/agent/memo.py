"""Results remembered for the jobs that they were worked out for: an app that waits is asked in every round."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

R = TypeVar("R")

_MOST = 2048


class Memo(Generic[R]):
    """Remembers results by the objects that they rest on, told apart by identity, and by values beside them.

    Comparing a hundred jobs takes longer than working most things out again, and those who ask hand the same tuple of
    jobs over again while nothing changed in it. The objects are kept, so that nothing else can take their identity.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Hashable, ...], tuple[tuple[object, ...], R]] = {}

    def of(self, objects: tuple[object, ...], values: tuple[Hashable, ...], work_out: Callable[[], R]) -> R:
        """The result for these objects and values, worked out if it is new."""
        key = (*map(id, objects), *values)
        known = self._known.get(key)
        if known is not None:
            return known[1]
        result = work_out()
        if len(self._known) >= _MOST:
            # The oldest half goes: what is still in use comes back at once.
            for old in list(self._known)[: _MOST // 2]:
                del self._known[old]
        self._known[key] = objects, result
        return result
