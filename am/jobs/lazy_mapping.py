"""A mapping that is computed on first access.

Use it for results that are expensive and rarely read. It must not be empty: `bool()` is always True.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LazyMapping(Mapping[K, V]):
    """A mapping that computes its entries on first access. Only `bool()` is cheap.

    Example: `wait = LazyMapping(lambda: plan_starts(jobs))` plans nothing. `if wait:` is true without planning, and
    `wait["a"]` calls `plan_starts`.

    Args:
        compute: Returns the entries, at least one. It is called at most once.
    """

    def __init__(self, compute: Callable[[], Mapping[K, V]]) -> None:
        self._compute: Callable[[], Mapping[K, V]] | None = compute
        self._entries: Mapping[K, V] = {}

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, key: K) -> V:
        return self._computed()[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._computed())

    def __len__(self) -> int:
        return len(self._computed())

    def __repr__(self) -> str:
        return repr(self._computed())

    def _computed(self) -> Mapping[K, V]:
        if self._compute is not None:
            # Drop the function: it keeps its inputs alive.
            self._entries, self._compute = self._compute(), None
        return self._entries
