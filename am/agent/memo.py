"""Results remembered for the jobs that they were worked out for: an app that waits is asked in every round.

Comparing a hundred jobs takes longer than working most things out again, and those who ask hand the same tuple of jobs
over again while nothing changed in it: objects are told apart by identity. They are kept, so that nothing else can take
their identity.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

R = TypeVar("R")

_MOST_PARTS = 20_000
"""So many jobs and other parts are kept in all, unless said otherwise."""


class Memo(Generic[R]):
    """Remembers results by the objects that they rest on, and by values beside them.

    Args:
        most_parts: Past so many parts the older half goes, and what is still in use comes back.
    """

    def __init__(self, most_parts: int = _MOST_PARTS) -> None:
        self._most_parts = most_parts
        self._known: dict[tuple[Hashable, ...], tuple[tuple[object, ...], R]] = {}
        self._parts = 0

    def __len__(self) -> int:
        return len(self._known)

    def of(self, objects: tuple[object, ...], values: tuple[Hashable, ...], work_out: Callable[[], R]) -> R:
        """The result for these objects, one or more, and values, worked out if it is new."""
        key = (*map(id, objects), values)
        known = self._known.get(key)
        if known is not None:
            return known[1]
        result = work_out()
        if key not in self._known:
            self._parts += _parts(objects)
        self._known[key] = objects, result
        if self._parts > self._most_parts:
            entries = list(self._known.items())
            kept = entries[(len(entries) + 1) // 2 :]
            # What goes may ask this memo, which is whole again by then.
            self._parts = sum([_parts(entry[0]) for _, entry in kept])
            self._known = dict(kept)
        return result


def _parts(objects: tuple[object, ...]) -> int:
    first = objects[0]
    return 1 + (len(first) if isinstance(first, tuple) else 0)
