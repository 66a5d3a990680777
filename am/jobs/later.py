"""Mappings that are worked out where somebody looks into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Later(Mapping[K, V]):
    """A mapping of which nobody knows more, until it is asked, than that something is in it.

    Args:
        work_out: What is in it, at least one thing; called once at most.
    """

    def __init__(self, work_out: Callable[[], Mapping[K, V]]) -> None:
        self._work_out: Callable[[], Mapping[K, V]] | None = work_out
        self._known: Mapping[K, V] = {}

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, key: K) -> V:
        return self._there()[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._there())

    def __len__(self) -> int:
        return len(self._there())

    def __repr__(self) -> str:
        return repr(self._there())

    def _there(self) -> Mapping[K, V]:
        if self._work_out is not None:
            # What it was worked out from is needed no more.
            self._known, self._work_out = self._work_out(), None
        return self._known
