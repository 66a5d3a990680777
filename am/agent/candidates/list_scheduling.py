"""List scheduling of GPUs: hand out GPUs one step at a time, and note the gangs at ever larger totals.

Each step goes to the job, or the shape of jobs, that needs it most. Example: two jobs of 90 and 30 s, each on 1 to 4
GPUs. The first two GPUs make a gang of 1 for each. The third and fourth go to the longer job, which would end last. So
the candidates are 1; 1 + 1; 2 + 1; 3 + 1; .. `core/list_scheduling.c` does the work.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from am.agent import _candidates
from am.agent.candidates.gang_kinds import Candidate
from am.agent.candidates.gang_layout import GangLayout, Sizes
from am.agent.candidates.search_space import PARTS_AT_ONCE, SearchSpace
from am.agent.model.finish_time import longest_first, unlike_in_pace
from am.agent.model.views import JobView
from themis.apps import JobShape
from themis.cluster import Level
from themis.sums import sum_in_order

GangCounts = tuple[int, Sizes]
"""A total of GPUs, and the gangs that they make, largest first."""

_STEP = 1.04
"""Totals of GPUs grow by one, or by this factor if that is more."""

_MIN_GANGS = (0.0, 0.5, 1.0)
"""Gangs of elastic jobs have at least these parts of the tasks that their job could use."""

_NEAR = (math.inf, 1.0, 0.6, 0.0)
"""Parts of the places at each level but the loosest, in units of the part of all GPUs that is asked for: all places, as
many as an average bundle has, fewer, none."""

_WHOLE_NEAR = (1.0, 0.0)
"""The same if all GPUs are asked for."""


# ---- job by job -----------------------------------------------------------------------------------------------------


class Jobs:
    """Jobs that get GPUs by the work of each.

    Args:
        jobs: The jobs.
        nearest: The tightest level by GPUs and unit of a gang.
    """

    def __init__(self, jobs: Sequence[JobView], nearest: Mapping[tuple[int, int], Level]) -> None:
        self._longest = sorted(jobs, key=longest_first)
        self._nearest = nearest
        rows, unlike = unlike_in_pace(self._longest)
        self._works_s = np.array([job.serial_work_s for job in self._longest], dtype=np.float64)
        self._rows = np.array(rows, dtype=np.int64)
        self._shapes = shapes_array([job.shape for job in unlike])
        self._slowdowns = self._slowdowns_of(unlike)

    def scheduled_by_job(self, at_once: int, max_gpus: int) -> list[GangCounts]:
        """The smallest gang for job after job, longest first, then one task at a time for the job that would end last.

        Args:
            at_once: The number of longest jobs that run at once.
            max_gpus: GPUs to hand out.
        """
        some = self._works_s[:at_once], self._rows[:at_once]
        return _candidates.by_work(*some, self._shapes, self._slowdowns, max_gpus, _STEP)

    def _slowdowns_of(self, unlike: Sequence[JobView]) -> NDArray[np.float64]:
        """S of each of the jobs by the number of its tasks; 1.0 below its smallest gang."""
        slowdowns = np.ones((len(unlike), 1 + max([job.shape.tasks for job in unlike], default=0)))
        for row, job in enumerate(unlike):
            shape, unit = job.shape, job.shape.gpus_per_task
            sizes = [count * unit for count in range(shape.min_tasks, shape.tasks + 1)]
            levels = [self._nearest.get((gpus, unit), Level.CLUSTER) for gpus in sizes]
            slowdowns[row, shape.min_tasks : shape.tasks + 1] = [job.slowdown.at(level) for level in levels]
        return slowdowns


def shapes_array(shapes: Sequence[JobShape]) -> NDArray[np.int64]:
    """GPUs of the smallest gang, of a task and of the largest gang of each shape."""
    sizes = [(shape.demand_min_gpus, shape.gpus_per_task, shape.demand_max_gpus) for shape in shapes]
    return np.array(sizes, dtype=np.int64).reshape(len(sizes), 3)


# ---- shape by shape -------------------------------------------------------------------------------------------------


def scheduled_by_shape(jobs: Sequence[JobView], max_gangs: int, max_gpus: int, least: float) -> list[GangCounts]:
    """Each step goes to the shape of jobs with most work per GPU that it has.

    Args:
        jobs: The jobs.
        max_gangs: Gangs at most.
        max_gpus: GPUs to hand out.
        least: Gangs have at least this part of the tasks that their job could use.
    """
    members: dict[JobShape, list[float]] = {}
    for job in jobs:
        members.setdefault(job.shape, []).append(job.serial_work_s)
    works_s = np.array([sum_in_order(each) for each in members.values()], dtype=np.float64)
    counts = np.array([len(each) for each in members.values()], dtype=np.int64)
    shapes = [replace(shape, min_tasks=least_tasks(shape, least)) for shape in members]
    return _candidates.in_turn(works_s, counts, shapes_array(shapes), max_gangs, max_gpus, _STEP)


def least_tasks(shape: JobShape, least: float) -> int:
    """The tasks of a gang that has at least this part of those that its job could use."""
    return max(shape.min_tasks, math.ceil(least * shape.tasks))


# ---- candidates -----------------------------------------------------------------------------------------------------


def sizes_by_work(jobs: Sequence[JobView], gpus: int) -> list[Sizes]:
    """All GPUs shared among shapes of jobs by their work, for each of `_MIN_GANGS`; empty if no gang fits."""
    scheduled = [scheduled_by_shape(jobs, len(jobs), gpus, least) for least in _leasts_of(jobs)]
    # The last of each has all of the GPUs.
    return list(dict.fromkeys(some[-1][1] for some in scheduled if some))


def whole_offer_candidates(space: SearchSpace) -> list[Candidate]:
    """All GPUs shared among shapes of jobs by their work, gangs at their tightest levels."""
    layout = GangLayout(space.kinds)
    by_work = sizes_by_work(space.jobs, space.max_gpus)
    return [candidate for sizes in by_work for candidate in layout.at_tightest(sizes, _WHOLE_NEAR)]


def list_scheduling_candidates(space: SearchSpace, _found: Sequence[Candidate] = ()) -> Iterator[Candidate]:
    """List-scheduling candidates, gangs at their tightest levels; coarse totals first."""
    kinds, max_gangs, max_gpus, jobs = space.kinds, space.max_gangs, space.max_gpus, space.jobs
    layout = GangLayout(kinds)
    nearest = {(kind.at.gpus, kind.unit_gpus): kind.at.level for kind in reversed(kinds)}
    longest = Jobs(jobs, nearest)
    at_once = dict.fromkeys(min(max_gangs, math.ceil(part * len(jobs))) for part in PARTS_AT_ONCE)
    by_total: dict[int, dict[Sizes, None]] = {}
    for gpus, sizes in itertools.chain(
        *(longest.scheduled_by_job(some, max_gpus) for some in at_once),
        *(scheduled_by_shape(jobs, max_gangs, max_gpus, least) for least in _leasts_of(jobs)),
    ):
        by_total.setdefault(gpus, {})[sizes] = None
    # Totals that are multiples of large powers of two come first; ties: the smaller total.
    for gpus in sorted(by_total, key=lambda gpus: (-(gpus & -gpus), gpus)):
        share = gpus / max_gpus
        parts = tuple([min(1.0, share * near) if near else 0.0 for near in _NEAR])
        for sizes in by_total[gpus]:
            yield from dict.fromkeys(layout.at_tightest(sizes, parts))


def _leasts_of(jobs: Sequence[JobView]) -> list[float]:
    """The parts of `_MIN_GANGS` that differ for these jobs: gangs of few tasks have few smallest sizes."""
    shapes = dict.fromkeys([job.shape for job in jobs])
    leasts: dict[tuple[int, ...], float] = {}
    for least in _MIN_GANGS:
        leasts.setdefault(tuple([least_tasks(shape, least) for shape in shapes]), least)
    return list(leasts.values())
