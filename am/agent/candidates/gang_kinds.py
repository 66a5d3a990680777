"""Kinds of gangs that a bid may ask for: sizes by the jobs' shapes, levels that S and the offer distinguish.

Example: jobs of 1 or 2 GPUs, S = 1.0 within a slot and 1.3 beyond, and an offer of two machines of 2 + 2 GPUs. The
kinds are 2 GPUs within a slot, 2 GPUs anywhere, and 1 GPU. If S is 1.0 everywhere, 2 GPUs within a slot are no better
than anywhere, so only 2 GPUs anywhere and 1 GPU remain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from am.agent.model.views import AppView, ClusterView, GangAt, JobView
from themis.apps import JobShape, Slowdown
from themis.cluster import Level
from themis.values import Value


class GangKind(Value, frozen=True):
    """Interchangeable gangs of a bid.

    Attributes:
        at: What one of them counts as.
        within: The level asked for.
        unit_gpus: Its GPUs come in units of this size, each on one machine.
        most: The number that fits.
    """

    at: GangAt
    within: Level
    unit_gpus: int
    most: int

    @property
    def together_gpus(self) -> int:
        """The number of its GPUs that are provably on one machine."""
        return self.at.gpus if self.within <= Level.MACHINE else self.unit_gpus


Counted = dict[int, int]
"""The number of places (machines, slots) by their free GPUs."""

Limit = tuple[tuple[int, ...], int]
"""How much a gang of each kind takes of a capacity, and that capacity."""


class Room:
    """Free capacity: how many gangs of a size fit at each level, and which levels coincide.

    Args:
        free: Free GPUs by machine.
        slots: Free GPUs of each slot by machine.
        around: For the racks.
    """

    def __init__(self, free: Mapping[str, int], slots: Mapping[str, Sequence[int]], around: ClusterView) -> None:
        self.gpus = sum(free.values())
        # How many machines, slots and machines of each rack have each number of free GPUs.
        self._machines: Counted = {}
        self._slots: Counted = {}
        self._one_slot = True
        by_rack: dict[str | None, Counted] = {}
        for machine, count in free.items():
            self._machines[count] = self._machines.get(count, 0) + 1
            in_slots = [gpus for gpus in slots.get(machine, ()) if gpus]
            self._one_slot = self._one_slot and len(in_slots) == 1
            for gpus in in_slots:
                within = min(gpus, count)
                self._slots[within] = self._slots.get(within, 0) + 1
            rack = by_rack.setdefault(around.rack_of.get(machine), {})
            rack[count] = rack.get(count, 0) + 1
        # Machines of unknown rack count as one rack, and might be in the rack of any other.
        self._one_rack = len(by_rack) <= 1 and None not in by_rack
        self._racks = tuple(by_rack.values())

        self._most: dict[tuple[int, int, Level], int] = {}

    @property
    def traits(self) -> tuple[bool, bool]:
        """What `level_here` depends on."""
        return self._one_slot, self._one_rack

    def level_here(self, level: Level) -> Level:
        """The tightest level at which a gang within `level` provably is here."""
        if level is Level.CLUSTER and self._one_rack:
            return Level.RACK
        return Level.SLOT if level is Level.MACHINE and self._one_slot else level

    def most(self, gpus: int, unit_gpus: int, level: Level) -> int:
        """The most gangs of this size that fit if nothing else is placed."""
        key = gpus, unit_gpus, level
        most = self._most.get(key)
        if most is None:
            most = self._most[key] = self._work_out(gpus, unit_gpus, level)
        return most

    def limits(self, kinds: Sequence[GangKind]) -> tuple[Limit, ...]:
        """Necessary conditions for gangs to fit together; gangs that meet them usually fit.

        Gangs within machines, or slots, need those with enough free GPUs, and each of these holds whole parts only.
        """
        limits = [(tuple([kind.at.gpus for kind in kinds]), self.gpus)]
        for place, kind in enumerate(kinds):
            limits.append((tuple([int(other == place) for other in range(len(kinds))]), kind.most))
        in_slots = [kind.within is Level.SLOT for kind in kinds]
        for size in sorted({kind.together_gpus for kind in kinds} - {1}):
            for holders, here in ((self._machines, [True] * len(kinds)), (self._slots, in_slots)):
                mine = [there and kind.together_gpus >= size for kind, there in zip(kinds, here, strict=True)]
                taken = tuple([kind.at.gpus * takes for kind, takes in zip(kinds, mine, strict=True)])
                limits.append((taken, sum(count * many for count, many in holders.items() if count >= size)))
                parts = tuple([_parts(kind, size) * takes for kind, takes in zip(kinds, mine, strict=True)])
                limits.append((parts, _whole(holders, size)))
        return tuple(limits)

    def _work_out(self, gpus: int, unit_gpus: int, level: Level) -> int:
        if level is Level.SLOT:
            return _whole(self._slots, gpus)
        if level is Level.MACHINE:
            return _whole(self._machines, gpus)
        units = [_whole(rack, unit_gpus) for rack in self._racks]
        wanted = gpus // unit_gpus
        return sum(count // wanted for count in units) if level is Level.RACK else sum(units) // wanted


class LocalitySensitivity(Value, frozen=True):
    """How sensitive an app is to locality: each S of a job with the GPUs of its tasks, and S of later phases."""

    running: frozenset[tuple[Slowdown, int]]
    later: Slowdown | None

    @classmethod
    def of(cls, app: AppView) -> LocalitySensitivity:
        """The sensitivity of an app."""
        # Equal values are usually the same objects, which are faster to look up.
        told = {
            (id(job.slowdown), job.shape.gpus_per_task): (job.slowdown, job.shape.gpus_per_task) for job in app.jobs
        }
        return cls(frozenset(told.values()), app.median_job.slowdown if app.later_phases else None)

    def same_speed(self, one: GangAt, other: GangAt) -> bool:
        """Whether all jobs, also of later phases, are equally fast on two gangs of one size."""
        if self.later is not None and self.later.at(one.level) != self.later.at(other.level):
            return False
        return all(_slowdown(*job, one) == _slowdown(*job, other) for job in self.running)


def _slowdown(slowdown: Slowdown, gpus_per_task: int, at: GangAt) -> float:
    return slowdown.at(at.level) if at.holds_tasks_of(gpus_per_task) else math.inf


Way = tuple[GangAt, Level, int]
"""What a gang counts as, the level asked for, and its unit."""


def gang_kinds(app: AppView, room: Room) -> tuple[GangKind, ...]:
    """The kinds of gangs that a job of the app can run on and that fit: largest first, then tightest.

    Of levels at which every job is equally fast only the loosest is asked for, since it needs least. A gang of one task
    is always on one machine, a single GPU always in one slot.
    """
    kinds = []
    for at, within, unit_gpus in ways_to_ask(app, room, room.gpus):
        most = room.most(at.gpus, unit_gpus, within)
        if most:
            # One job needs one gang: capped at 1, the kinds of an app of one job are the same in many offers.
            kinds.append(GangKind(at, within, unit_gpus, most if len(app.jobs) > 1 else 1))
    return tuple(kinds)


def relevant_slowdown(job: JobView) -> Slowdown:
    """S of a job as far as it distinguishes gangs that the job can run on: a job of one GPU is always in one slot."""
    slot = job.slowdown.slot
    return Slowdown(slot, slot, slot, slot) if job.shape.demand_max_gpus == 1 else job.slowdown


def ways_to_ask(app: AppView, room: Room, most_gpus: int) -> Iterator[Way]:
    """Ways to ask for a gang that a job can run on; of equally fast ones only the one that needs least."""
    judges = LocalitySensitivity.of(app)
    for gpus, unit_gpus in sorted(_sizes({job.shape for job in app.jobs}, most_gpus), reverse=True):
        told = _levels(gpus, unit_gpus, room)
        for place, (at, within) in enumerate(told):
            if place + 1 == len(told) or not judges.same_speed(at, told[place + 1][0]):
                yield at, within, unit_gpus


def _sizes(shapes: Iterable[JobShape], most_gpus: int) -> set[tuple[int, int]]:
    """Sizes of gangs of at most `most_gpus` GPUs, with their units."""
    sizes = set()
    for shape in shapes:
        largest = min(shape.demand_max_gpus, most_gpus)
        unit = shape.gpus_per_task
        sizes |= {(gpus, unit) for gpus in range(shape.demand_min_gpus, largest + 1, unit)}
    return sizes


def splits(sizes: Sequence[int], places: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """A kind and two others, or twice one, that together have its size; all as indices into `sizes` in GPUs."""
    for whole, (left, right) in itertools.product(places, itertools.combinations_with_replacement(places, 2)):
        if sizes[left] + sizes[right] == sizes[whole]:
            yield whole, left, right


_LEVELS = tuple(Level)


def _levels(gpus: int, unit_gpus: int, room: Room) -> list[tuple[GangAt, Level]]:
    """Levels to ask for, tightest first: what the gang then counts as, and the level asked for."""
    if gpus == 1:
        return [(GangAt(1, Level.SLOT), Level.CLUSTER)]
    if gpus == unit_gpus:
        return [
            (GangAt(gpus, Level.SLOT), Level.SLOT),
            (GangAt(gpus, room.level_here(Level.MACHINE)), Level.CLUSTER),
        ]
    here = [(room.level_here(level), level) for level in _LEVELS]
    return [(GangAt(gpus, at, unit_gpus if at > Level.MACHINE else 0), level) for at, level in here]


def _whole(holders: Mapping[int, int], gpus: int) -> int:
    return sum(count // gpus * many for count, many in holders.items())


def _parts(kind: GangKind, size: int) -> int:
    """The number of parts of a size, each on one machine, that a gang of a kind provably has."""
    return kind.at.gpus // kind.together_gpus * (kind.together_gpus // size)
