"""Bipartite matching: whether each need can have a resource of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Need = TypeVar("Need")
Means = TypeVar("Means")


def all_served(needs: Sequence[Need], means: Sequence[Means], serves: Callable[[Need, Means], bool]) -> bool:
    """Whether every need can have its own resource that serves it. Uses augmenting paths, one need after another.

    >>> all_served([3, 5], [4, 6], lambda need, gpus: need <= gpus), all_served([5, 5], [4, 6], lambda n, g: n <= g)
    (True, False)
    """
    holder: dict[int, int] = {}

    def find(index: int, tried: set[int]) -> bool:
        for place, each in enumerate(means):
            if place not in tried and serves(needs[index], each):
                tried.add(place)
                if place not in holder or find(holder[place], tried):
                    holder[place] = index
                    return True
        return False

    return all(find(index, set()) for index in range(len(needs)))
