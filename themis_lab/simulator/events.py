"""A queue of events in phases, so that a run does not depend on the order in which events were scheduled.

Events at the same time are taken by phase; within a phase in the order in which they were scheduled. The phases:

1. `MACHINE`: machines are lost or return.
2. `TARGET`: jobs reach the target iteration that their tuner set.
3. `STOPPED`: jobs have written their checkpoint, and their GPUs are idle.
4. `ARRIVAL`: apps arrive.

A moment lasts one microsecond. Its events are taken in order of time, whatever their phases. Then the affected apps act
in turns: first each of them once, smallest id first, then those that got GPUs after their turn, and so on. So an app
that only gets GPUs divides all GPUs that others give back at once, not one by one. When no app has anything to do, a
round runs if there is a reason for one. Events that a round causes in the same moment, for example jobs that stop at
once, are taken in the same way before the next round.
"""

from __future__ import annotations

import heapq
import itertools
import math
from enum import IntEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class Phase(IntEnum):
    """The order of events at the same time."""

    MACHINE = 1
    TARGET = 2
    STOPPED = 3
    ARRIVAL = 4


class EventQueue(Generic[T]):
    """A queue of events, ordered by (time, phase, sequence)."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Phase, int, T]] = []
        self._sequence = itertools.count()

    def add(self, time_s: float, phase: Phase, event: T) -> None:
        """Schedule an event."""
        heapq.heappush(self._heap, (time_s, phase, next(self._sequence), event))

    def next_s(self) -> float:
        """Return the time of the next event, or infinity if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def pop(self) -> T:
        """Remove and return the next event."""
        return heapq.heappop(self._heap)[-1]


class InTurns:
    """A queue of distinct names that is emptied turn by turn. Within a turn the smallest name comes first.

    A name added during a turn waits for the next turn. So a name that several others of a turn add comes out once,
    after all of them. A name that still waits in this turn keeps its place, and adding it has no effect.

    Example: the queue has a and b. `pop` returns a. Now a and b are added. `pop` returns b, then a in the next turn.
    """

    def __init__(self) -> None:
        self._turn: list[str] = []
        self._next: list[str] = []
        self._there: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._there)

    def add(self, name: str) -> None:
        """Add a name unless it is in the queue."""
        if name not in self._there:
            self._there.add(name)
            self._next.append(name)

    def pop(self) -> str:
        """Remove and return the smallest name of this turn, or of the next one if this turn is over."""
        if not self._turn:
            self._turn, self._next = sorted(self._next, reverse=True), []
        name = self._turn.pop()
        self._there.remove(name)
        return name
