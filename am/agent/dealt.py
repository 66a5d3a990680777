"""GPUs dealt to the jobs of an app, at ever larger totals: what gangs they make.

By the compiled `core/dealing.c`, or without it by what is called plain here, which is slower and tells the same.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from am.agent.finish_time import even_sizes, unlike_in_pace
from am.agent.views import JobView
from themis.apps import JobShape
from themis.cluster import Level

try:
    from am.agent import _asking
except ImportError:
    _asking = None  # type: ignore[assignment]

Sizes = tuple[tuple[int, int, int], ...]
"""Gangs as (GPUs, unit, count), largest first."""

Dealt = tuple[int, Sizes]
"""GPUs dealt, and the gangs that they make."""

_STEP = 1.04
"""Totals of GPUs go up by one, or by this factor where that is more."""


# ---- job by job -----------------------------------------------------------------------------------------------------


class Jobs:
    """Jobs that GPUs are dealt to by the work of each.

    Args:
        jobs: The jobs.
        nearest: The nearest level by GPUs and unit of a gang.
    """

    def __init__(self, jobs: Sequence[JobView], nearest: Mapping[tuple[int, int], Level]) -> None:
        self._longest = sorted(jobs, key=lambda job: (-job.serial_work_s, job.job_id))
        self._nearest = nearest
        if _asking is not None:
            rows, unlike = unlike_in_pace(self._longest)
            self._works_s = np.array([job.serial_work_s for job in self._longest], dtype=np.float64)
            self._rows = np.array(rows, dtype=np.int64)
            self._shapes = shapes_array([job.shape for job in unlike])
            self._slowdowns = self._slowdowns_of(unlike)

    def dealt_by_work(self, at_once: int, most_gpus: int) -> list[Dealt]:
        """The smallest gang for job after job, longest first, then task by task to the job that would end last.

        Args:
            at_once: So many of the longest jobs run at once.
            most_gpus: GPUs to deal.
        """
        if _asking is None:
            return list(self.plain_by_work(at_once, most_gpus))
        some = self._works_s[:at_once], self._rows[:at_once]
        return _asking.by_work(*some, self._shapes, self._slowdowns, most_gpus, _STEP)

    def plain_by_work(self, at_once: int, most_gpus: int) -> Iterator[Dealt]:
        """`dealt_by_work` in plain Python."""
        longest = self._longest[:at_once]
        shapes = [(job.shape.demand_min_gpus, job.shape.gpus_per_task, job.shape.demand_max_gpus) for job in longest]
        works_s = [job.serial_work_s for job in longest]
        counts: dict[tuple[int, int], int] = {}
        gpus, told = 0, 0.0
        turns = [(-math.inf, place, 0) for place in range(len(longest))]
        while turns:
            _, place, size = heapq.heappop(turns)
            smallest, unit, largest = shapes[place]
            step = unit if size else smallest
            if size == largest or gpus + step > most_gpus:
                continue
            if gpus and gpus + step > max(told + 1, told * _STEP):
                told = gpus
                yield gpus, _largest_first(counts)
            if size:
                counts[size, unit] -= 1
            gpus, size = gpus + step, size + step
            counts[size, unit] = counts.get((size, unit), 0) + 1
            slowdown = self._slowdown_of(longest[place], size)
            heapq.heappush(turns, (-works_s[place] * slowdown / size, place, size))
        if gpus:
            yield gpus, _largest_first(counts)

    def _slowdown_of(self, job: JobView, gpus: int) -> float:
        return job.slowdown.at(self._nearest.get((gpus, job.shape.gpus_per_task), Level.CLUSTER))

    def _slowdowns_of(self, unlike: Sequence[JobView]) -> NDArray[np.float64]:
        """S of each of the jobs by the number of its tasks; no gang is smaller than the smallest."""
        slowdowns = np.ones((len(unlike), 1 + max([job.shape.tasks for job in unlike], default=0)))
        for row, job in enumerate(unlike):
            shape = job.shape
            tasks = range(shape.min_tasks, shape.tasks + 1)
            told = [self._slowdown_of(job, count * shape.gpus_per_task) for count in tasks]
            slowdowns[row, shape.min_tasks : shape.tasks + 1] = told
        return slowdowns


def _largest_first(counts: Mapping[tuple[int, int], int]) -> Sizes:
    return tuple((size, unit, counts[size, unit]) for size, unit in sorted(counts, reverse=True) if counts[size, unit])


def shapes_array(shapes: Sequence[JobShape]) -> NDArray[np.int64]:
    """GPUs of the smallest gang, of a task and of the largest gang of each shape."""
    told = [(shape.demand_min_gpus, shape.gpus_per_task, shape.demand_max_gpus) for shape in shapes]
    return np.array(told, dtype=np.int64).reshape(len(told), 3)


# ---- shape by shape -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Part:
    """A shape of jobs: how many there are, their work in GPU seconds, the gangs and GPUs dealt to them so far."""

    shape: JobShape
    members: int
    work_s: float
    gangs: int = 0
    gpus: int = 0

    @property
    def step(self) -> int:
        """GPUs that are dealt next: those of another gang, then another task for one that has room; 0: no more."""
        if self.gangs < self.members:
            return self.shape.demand_min_gpus
        return self.shape.gpus_per_task if self.gpus < self.gangs * self.shape.demand_max_gpus else 0


def dealt_in_turn(jobs: Sequence[JobView], most_gangs: int, most_gpus: int, least: float) -> list[Dealt]:
    """GPUs dealt step by step to the shape whose work a GPU is most.

    Args:
        jobs: The jobs.
        most_gangs: Gangs at most.
        most_gpus: GPUs to deal.
        least: Gangs have at least such a part of the tasks that their job could use.
    """
    if _asking is None:
        return list(plain_in_turn(jobs, most_gangs, most_gpus, least))
    parts = _parts(jobs, least)
    works_s = np.array([part.work_s for part in parts], dtype=np.float64)
    members = np.array([part.members for part in parts], dtype=np.int64)
    return _asking.in_turn(works_s, members, shapes_array([part.shape for part in parts]), most_gangs, most_gpus, _STEP)


def plain_in_turn(jobs: Sequence[JobView], most_gangs: int, most_gpus: int, least: float) -> Iterator[Dealt]:
    """`dealt_in_turn` in plain Python."""
    parts = _parts(jobs, least)
    turns = [(-math.inf, -part.work_s, place) for place, part in enumerate(parts)]
    heapq.heapify(turns)
    gangs = gpus = 0
    told = 0.0
    while turns:
        _, _, place = heapq.heappop(turns)
        part = parts[place]
        step, opens = part.step, part.gangs < part.members
        if not step or gpus + step > most_gpus or (opens and gangs == most_gangs):
            continue
        if gpus + step > max(told + 1, told * _STEP) and gpus > told:
            told = gpus
            yield gpus, _sizes(parts)
        gangs, gpus = gangs + opens, gpus + step
        part.gangs, part.gpus = part.gangs + opens, part.gpus + step
        heapq.heappush(turns, (-part.work_s / part.gpus, -part.work_s, place))
    if gpus > told:
        yield gpus, _sizes(parts)


def least_tasks(shape: JobShape, least: float) -> int:
    """Tasks of a gang that has at least such a part of those that its job could use."""
    return max(shape.min_tasks, math.ceil(least * shape.tasks))


def _parts(jobs: Sequence[JobView], least: float) -> list[_Part]:
    members: dict[JobShape, list[float]] = {}
    for job in jobs:
        members.setdefault(job.shape, []).append(job.serial_work_s)
    return [
        _Part(replace(shape, min_tasks=least_tasks(shape, least)), len(works_s), sum(works_s))
        for shape, works_s in members.items()
    ]


def _sizes(parts: Sequence[_Part]) -> Sizes:
    """The gangs of all parts."""
    counts: dict[tuple[int, int], int] = {}
    for part in parts:
        for size, count in even_sizes(part.gpus, part.gangs, part.shape):
            key = size, part.shape.gpus_per_task
            counts[key] = counts.get(key, 0) + count
    return _largest_first(counts)
