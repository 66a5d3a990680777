"""Kinds of gangs that a bid may ask for: sizes by the jobs' shapes, levels that S and the offer distinguish.

Example: jobs of 1 or 2 GPUs, S = 1.0 within a slot and 1.3 beyond, and an offer of two machines of 2 + 2 GPUs. The
kinds are 2 GPUs within a slot, 2 GPUs anywhere, and 1 GPU. If S is 1.0 everywhere, 2 GPUs within a slot are no better
than anywhere, so only 2 GPUs anywhere and 1 GPU remain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from am.agent.model.views import AppView, GangAt, JobView
from themis.apps import Slowdown
from themis.bids import GangRequest
from themis.cluster import Level
from themis.placement.gang_capacity import GangCapacity
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
    def request(self) -> GangRequest:
        """The gangs as a bid asks for them, as many as fit."""
        return GangRequest(gpus=self.at.gpus, within=self.within, count=self.most, unit_gpus=self.unit_gpus)


Candidate = tuple[int, ...]
"""A bundle that a bid may ask for, as the number of gangs of each kind."""


class LocalitySensitivity(Value, frozen=True):
    """How sensitive an app is to locality: each S of a job with the GPUs of its tasks, and S of later phases."""

    running: frozenset[tuple[Slowdown, int]]
    later: Slowdown | None

    @classmethod
    def of(cls, app: AppView) -> LocalitySensitivity:
        """The sensitivity of an app."""
        # Equal values are usually the same objects, which are faster to look up.
        distinct = {
            (id(job.slowdown), job.shape.gpus_per_task): (job.slowdown, job.shape.gpus_per_task) for job in app.jobs
        }
        return cls(frozenset(distinct.values()), app.median_job.slowdown if app.later_phases else None)

    def same_speed(self, one: GangAt, other: GangAt) -> bool:
        """Whether all jobs, also of later phases, are equally fast on two gangs of one size."""
        if self.later is not None and self.later.at(one.level) != self.later.at(other.level):
            return False
        return all(_slowdown(*job, one) == _slowdown(*job, other) for job in self.running)


def _slowdown(slowdown: Slowdown, gpus_per_task: int, at: GangAt) -> float:
    return slowdown.at(at.level) if at.holds_tasks_of(gpus_per_task) else math.inf


GangOption = tuple[GangAt, Level, int]
"""What a gang counts as, the level asked for, and its unit."""


def gang_kinds(app: AppView, capacity: GangCapacity) -> tuple[GangKind, ...]:
    """The kinds of gangs that a job of the app can run on and that fit: largest first, then tightest.

    Of levels at which every job is equally fast only the loosest is asked for, since it needs least. A gang of one task
    is always on one machine, a single GPU always in one slot.
    """
    kinds = []
    for at, within, unit_gpus in gang_options(app, capacity, capacity.gpus):
        most = capacity.most(at.gpus, unit_gpus, within)
        if most:
            # One job needs one gang: capped at 1, the kinds of an app of one job are the same in many offers.
            kinds.append(GangKind(at, within, unit_gpus, most if len(app.jobs) > 1 else 1))
    return tuple(kinds)


def relevant_slowdown(job: JobView) -> Slowdown:
    """S of a job as far as it distinguishes gangs that the job can run on: a job of one GPU is always in one slot."""
    slot = job.slowdown.slot
    return Slowdown(slot, slot, slot, slot) if job.shape.demand_max_gpus == 1 else job.slowdown


def gang_options(app: AppView, capacity: GangCapacity, max_gpus: int) -> Iterator[GangOption]:
    """The gangs that a job can run on; of equally fast ones only the one that needs least."""
    sensitivity = LocalitySensitivity.of(app)
    sizes = {
        (gpus, shape.gpus_per_task)
        for shape in {job.shape for job in app.jobs}
        for gpus in range(shape.demand_min_gpus, min(shape.demand_max_gpus, max_gpus) + 1, shape.gpus_per_task)
    }
    for gpus, unit_gpus in sorted(sizes, reverse=True):
        levels = _levels(gpus, unit_gpus, capacity)
        for index, (at, within) in enumerate(levels):
            if index + 1 == len(levels) or not sensitivity.same_speed(at, levels[index + 1][0]):
                yield at, within, unit_gpus


def splits(sizes: Sequence[int], indices: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """A kind and two others, or twice one, that together have its size; all as indices into `sizes` in GPUs."""
    for whole, (left, right) in itertools.product(indices, itertools.combinations_with_replacement(indices, 2)):
        if sizes[left] + sizes[right] == sizes[whole]:
            yield whole, left, right


_LEVELS = tuple(Level)


def _levels(gpus: int, unit_gpus: int, capacity: GangCapacity) -> list[tuple[GangAt, Level]]:
    """Levels to ask for, tightest first: what the gang then counts as, and the level asked for."""
    if gpus == 1:
        return [(GangAt(1, Level.SLOT), Level.CLUSTER)]
    if gpus == unit_gpus:
        return [
            (GangAt(gpus, Level.SLOT), Level.SLOT),
            (GangAt(gpus, capacity.level_here(Level.MACHINE)), Level.CLUSTER),
        ]
    here = [(capacity.level_here(level), level) for level in _LEVELS]
    return [(GangAt(gpus, at, unit_gpus if at > Level.MACHINE else 0), level) for at, level in here]
