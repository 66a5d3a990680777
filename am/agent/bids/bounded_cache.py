"""A bounded cache by value, for an owner that computes the same results again and again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

R = TypeVar("R")


class BoundedCache(Generic[R]):
    """Results by key. Past `limit` results the older half is dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._results: dict[Hashable, R] = {}

    def __len__(self) -> int:
        return len(self._results)

    def of(self, key: Hashable, compute: Callable[[], R]) -> R:
        """The result for a key, computed if it is new."""
        try:
            return self._results[key]
        except KeyError:
            pass
        result = self._results[key] = compute()
        if len(self._results) > self._limit:
            self._results = dict(list(self._results.items())[self._limit // 2 :])
        return result
