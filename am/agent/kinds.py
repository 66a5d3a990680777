"""Kinds of gangs that a bid may ask for: sizes by the jobs' shapes, levels as S and the offer tell them apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from am.agent.views import AppView, GangAt, JobView, Surroundings
from themis.apps import Slowdown
from themis.cluster import Level


@dataclass(frozen=True, slots=True)
class GangKind:
    """Gangs alike: `at` is what one counts as, `within` what is asked for, in units of `unit_gpus`; `most` fit."""

    at: GangAt
    within: Level
    unit_gpus: int
    most: int


class Room:
    """What free GPUs can hold: how many gangs of a size fit at each level, and which levels are one here.

    Args:
        free: Free GPUs by machine.
        slots: Free GPUs of each slot by machine.
        around: For the racks.
    """

    def __init__(self, free: Mapping[str, int], slots: Mapping[str, Sequence[int]], around: Surroundings) -> None:
        by_slot = {machine: [count for count in slots.get(machine, ()) if count] for machine in free}
        self.gpus = sum(free.values())
        self._machines = Counter(free.values())
        self._slots = Counter(min(count, free[machine]) for machine, counts in by_slot.items() for count in counts)
        self._one_slot = all(len(counts) == 1 for counts in by_slot.values())
        racks = {around.rack_of.get(machine) for machine in free}
        self._one_rack = len(racks) <= 1 and None not in racks
        by_rack: dict[str, Counter[int]] = {}
        for machine, count in free.items():
            # A machine of which nobody knows the rack might be next to any other.
            by_rack.setdefault(around.rack_of.get(machine, ""), Counter())[count] += 1
        self._racks = tuple(by_rack.values())

    def level_here(self, level: Level) -> Level:
        """The nearest level that a gang within `level` surely lies at here."""
        if level is Level.CLUSTER and self._one_rack:
            return Level.RACK
        return Level.SLOT if level is Level.MACHINE and self._one_slot else level

    def most(self, gpus: int, unit_gpus: int, level: Level) -> int:
        """How many gangs of this size fit at most, nothing else being placed."""
        if level is Level.SLOT:
            return _whole(self._slots, gpus)
        if level is Level.MACHINE:
            return _whole(self._machines, gpus)
        units = [_whole(rack, unit_gpus) for rack in self._racks]
        wanted = gpus // unit_gpus
        return sum(count // wanted for count in units) if level is Level.RACK else sum(units) // wanted


@dataclass(frozen=True, slots=True)
class Judges:
    """To whom levels matter: each S of a job with the GPUs of its tasks, and S of the jobs of later phases."""

    running: frozenset[tuple[Slowdown, int]]
    later: Slowdown | None

    @classmethod
    def of(cls, app: AppView) -> Judges:
        """Those of an app."""
        running = frozenset((job.slowdown, job.shape.gpus_per_task) for job in app.jobs)
        return cls(running, app.median_job.slowdown if app.later_phases else None)

    def find_alike(self, one: GangAt, other: GangAt) -> bool:
        """True when every job is as fast on either of two gangs of one size, and later ones will be."""
        if self.later is not None and self.later.at(one.level) != self.later.at(other.level):
            return False
        return all(_slowdown(*job, one) == _slowdown(*job, other) for job in self.running)


def _slowdown(slowdown: Slowdown, gpus_per_task: int, at: GangAt) -> float:
    return slowdown.at(at.level) if at.holds_tasks_of(gpus_per_task) else math.inf


def gang_kinds(app: AppView, room: Room) -> tuple[GangKind, ...]:
    """Every kind of gang that a job of the app could run on and that fits into the room, largest and nearest first.

    Of levels at which every job is as fast only the farthest is asked for, since it asks for least; a gang of one task
    lies on one machine wherever it is, one of a single GPU in one slot.
    """
    judges = Judges.of(app)
    kinds = []
    for gpus, unit_gpus in sorted(_sizes(app.jobs, room.gpus), reverse=True):
        told = [
            GangKind(at, within, unit_gpus, room.most(gpus, unit_gpus, within))
            for at, within in _levels(gpus, unit_gpus, room)
        ]
        kinds += [
            kind
            for place, kind in enumerate(told)
            if kind.most and (place + 1 == len(told) or not judges.find_alike(kind.at, told[place + 1].at))
        ]
    return tuple(kinds)


def _sizes(jobs: Sequence[JobView], most: int) -> set[tuple[int, int]]:
    """Sizes of gangs with the unit that they come in."""
    return {
        (gpus, shape.gpus_per_task)
        for shape in {job.shape for job in jobs}
        for gpus in range(shape.demand_min_gpus, min(shape.demand_max_gpus, most) + 1, shape.gpus_per_task)
    }


def _levels(gpus: int, unit_gpus: int, room: Room) -> list[tuple[GangAt, Level]]:
    """Levels to ask for, nearest first: what the gang then counts as, and what is asked."""
    if gpus == 1:
        return [(GangAt(1, Level.SLOT), Level.CLUSTER)]
    if gpus == unit_gpus:
        return [
            (GangAt(gpus, Level.SLOT), Level.SLOT),
            (GangAt(gpus, room.level_here(Level.MACHINE)), Level.CLUSTER),
        ]
    here = [(room.level_here(level), level) for level in Level]
    return [(GangAt(gpus, at, unit_gpus if at > Level.MACHINE else 0), level) for at, level in here]


def _whole(holders: Counter[int], gpus: int) -> int:
    return sum(count // gpus * many for count, many in holders.items())
