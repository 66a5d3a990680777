"""What happens when: a queue of events in phases, so that runs do not depend on the order in which they were planned.

Events at one time are taken by phase, within a phase in the order in which they were scheduled. The phases:

1. `MACHINE`: machines are lost, or come back.
2. `TARGET`: jobs reach the iteration that their tuner set them.
3. `STOPPED`: jobs have written their checkpoint; their GPUs are idle.
4. `ARRIVAL`: apps arrive.

A moment is a microsecond: its events are taken in order of their times, whatever their phases. When all of them have
happened the apps that they concern act, in turns: first each of them once, least id first, then those that heard of
GPUs and were not due any more, and so on. So an app that only gets GPUs shares out at once all that others give back,
and not one by one as they come. When nobody has anything to do a round is played if there is a reason. What follows
from a round at the same moment (jobs that stop at once, for instance) is taken in the same way, before the next round.
"""

from __future__ import annotations

import heapq
import itertools
import math
from enum import IntEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class Phase(IntEnum):
    """Which events come first at one time."""

    MACHINE = 1
    TARGET = 2
    STOPPED = 3
    ARRIVAL = 4


class EventQueue(Generic[T]):
    """Events in order of (time, phase, sequence)."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Phase, int, T]] = []
        self._sequence = itertools.count()

    def add(self, time_s: float, phase: Phase, event: T) -> None:
        """Schedule an event."""
        heapq.heappush(self._heap, (time_s, phase, next(self._sequence), event))

    def next_s(self) -> float:
        """When the next event is; infinite when there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def pop(self) -> T:
        """Take the next event."""
        return heapq.heappop(self._heap)[-1]


class InTurns:
    """Names, each once, that come out in turns, least first; what is put in during a turn waits for the next.

    So a name that many others of a turn put in comes out once, after all of them. One that is due in the turn anyway
    comes out in its place there, and again in the next where it is put in once more.
    """

    def __init__(self) -> None:
        self._turn: list[str] = []
        self._next: list[str] = []
        self._there: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._there)

    def add(self, name: str) -> None:
        """Put a name in, if it is not there."""
        if name not in self._there:
            self._there.add(name)
            self._next.append(name)

    def pop(self) -> str:
        """Take the least name of the turn out, or of the next one when this turn is over."""
        if not self._turn:
            self._turn, self._next = sorted(self._next, reverse=True), []
        name = self._turn.pop()
        self._there.remove(name)
        return name
