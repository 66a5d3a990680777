"""Matching: whether each of some needs can have something of its own that serves it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Need = TypeVar("Need")
Means = TypeVar("Means")


def all_served(needs: Sequence[Need], means: Sequence[Means], serves: Callable[[Need, Means], bool]) -> bool:
    """Whether every need has one of the means to itself that serves it: augmenting paths, a need after the other."""
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
