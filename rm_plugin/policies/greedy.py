"""Greedy allocation: step by step over apps, or gang by gang over jobs.

Both keep a heap of ranks and evaluate lazily. Free capacity shrinks, so ranks only get worse. When an entry reaches the
front, its rank is computed again. If it is still the least, its proposal is taken; otherwise the entry goes back with
the new rank. So a round searches the machines about once per granted gang, not once per waiting job.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from rm_plugin.policies.gang_allocator import DemandClass, GangAllocator, Proposal, Prospect
from themis.bids import GangDemand
from themis.values import Value

Rank = tuple[float, ...]


class Given(Value, frozen=True, kw_only=True):
    """What an app got in this round: GPUs, and their throughput in units of one GPU at S = 1."""

    gpus: int = 0
    speed: float = 0.0


AppRank = Callable[[str, Given, float], Rank]
"""Rank of an app by what it got and its best job's throughput ratio. It must not fall as GPUs are given."""

JobRank = Callable[[str, GangDemand, Prospect], Rank]
"""Rank of a job by its prospect."""


def ratio_of(prospect: Prospect, unit_gpus: int, gpus: int) -> float:
    """Throughput with a step divided by throughput without; infinite for a job without GPUs.

    For a step of several units the mean gain per unit counts, so that steps are comparable. For example, two GPUs more
    that raise the throughput from 1 to 2.6 count as 1 + 1.6 / 2 = 1.8.
    """
    if prospect.speed_before <= 0.0:
        return math.inf
    units = max(1, gpus // unit_gpus)
    return 1.0 + (prospect.speed / prospect.speed_before - 1.0) / units


# ---- apps, step by step ---------------------------------------------------------------------------------------------


class _Steps:
    """One app's jobs in the order in which they get steps: jobs without GPUs first, then the highest ratio."""

    def __init__(self, allocator: GangAllocator, app_id: str) -> None:
        self.app_id = app_id
        self.given = Given()
        self._allocator = allocator
        running = [job for job in range(len(allocator.jobs(app_id))) if allocator.gpus_of(app_id, job)]
        self._waiting = deque(sorted(set(range(len(allocator.jobs(app_id)))) - set(running)))
        self._growing = [(-self._most(job), job) for job in running]
        heapq.heapify(self._growing)

    def best_ratio(self) -> float:
        """An upper bound of the ratio of the next step; 0 if there is no step."""
        if self._waiting:
            return math.inf
        return -self._growing[0][0] if self._growing else 0.0

    def next(self) -> tuple[int, Proposal, float] | None:
        """The next step: job, gang and ratio. Returns None if the app can use nothing more."""
        while self._waiting:
            proposal = self._allocator.propose(self.app_id, self._waiting[0], step=True)
            if proposal is not None:
                return self._waiting[0], proposal, math.inf
            self._waiting.popleft()
        seen: dict[int, tuple[int, Proposal, float]] = {}
        while self._growing:
            job = self._growing[0][1]
            if job in seen:
                return seen[job]
            proposal = self._allocator.propose(self.app_id, job, step=True)
            if proposal is None:
                heapq.heappop(self._growing)
                continue
            unit = self._allocator.jobs(self.app_id)[job].unit_gpus
            ratio = ratio_of(proposal.prospect, unit, proposal.gang.gpus.gpus)
            seen[job] = job, proposal, ratio
            heapq.heapreplace(self._growing, (-ratio, job))
        return None

    def take(self, job: int, proposal: Proposal) -> None:
        """Take a step that `next` returned."""
        gain = proposal.prospect.speed - proposal.prospect.speed_before
        self.given = Given(gpus=self.given.gpus + proposal.gang.gpus.gpus, speed=self.given.speed + gain)
        self._allocator.take(self.app_id, job, proposal.gang)
        if self._waiting and self._waiting[0] == job:
            self._waiting.popleft()
            heapq.heappush(self._growing, (-self._most(job), job))
        else:
            heapq.heapreplace(self._growing, (-self._most(job), job))

    def _most(self, job: int) -> float:
        """The ratio of one more unit if S stays the same."""
        unit_gpus = self._allocator.jobs(self.app_id)[job].unit_gpus
        return 1.0 + unit_gpus / self._allocator.gpus_of(self.app_id, job)


def serve_step_by_step(allocator: GangAllocator, rank: AppRank) -> None:
    """Give one step after the other to the app of the least rank, until no app can use another GPU.

    A step is the smallest gang of a job without GPUs, or one unit in addition to what a job has (more units if one is
    no faster). Ties go to the smaller app id.
    """
    apps = {app_id: _Steps(allocator, app_id) for app_id in allocator.app_demands}
    heap = [(rank(app_id, steps.given, steps.best_ratio()), app_id) for app_id, steps in apps.items()]
    heapq.heapify(heap)
    while heap and allocator.free_gpus:
        least, app_id = heap[0]
        steps = apps[app_id]
        found = steps.next()
        if found is None:
            heapq.heappop(heap)
            continue
        job, proposal, ratio = found
        now = rank(app_id, steps.given, ratio)
        if now > least:
            heapq.heapreplace(heap, (now, app_id))
            if heap[0][1] != app_id:
                continue
        steps.take(job, proposal)
        heapq.heapreplace(heap, (rank(app_id, steps.given, steps.best_ratio()), app_id))


# ---- jobs, gang by gang ---------------------------------------------------------------------------------------------


def serve_best_first(
    allocator: GangAllocator,
    app_ids: Iterable[str],
    rank: JobRank,
    alike: Callable[[GangDemand], Hashable],
) -> None:
    """Give whole gangs to the job of the least rank, one after the other, until no job can use another GPU.

    A job that got less than its largest gang is ranked again for an extension.

    Args:
        allocator: The free GPUs.
        app_ids: The apps. Ties go to the earlier app, then to the earlier job of an app.
        rank: The rule. A prospect that is better in all respects must not rank after another.
        alike: Returns what ranks depend on in addition to the demand class and the held gang. Of an app's jobs that are
            equal in all of these only the first is evaluated.
    """
    places = {app_id: place for place, app_id in enumerate(app_ids)}
    lines: dict[tuple[str, Hashable], deque[int]] = {}
    for app_id in places:
        for job, demand in enumerate(allocator.jobs(app_id)):
            lines.setdefault((app_id, (DemandClass.of(demand), demand.held, alike(demand))), deque()).append(job)
    heap = [_entry(allocator, rank, places, line[0], jobs[0], jobs) for line, jobs in lines.items()]
    heapq.heapify(heap)
    while heap and allocator.free_gpus:
        entry = heap[0]
        proposal = allocator.propose(entry.app_id, entry.job)
        if proposal is None:
            # The jobs behind it are interchangeable: they find no place either.
            heapq.heappop(heap)
            continue
        now = _rank_of(allocator, rank, places, entry.app_id, entry.job, proposal.prospect)
        if now > entry.rank:
            heapq.heapreplace(heap, _Entry(now, entry.app_id, entry.job, entry.line))
            if heap[0].job != entry.job or heap[0].app_id != entry.app_id:
                continue
        allocator.take(entry.app_id, entry.job, proposal.gang)
        entry.line.popleft()
        heapq.heapreplace(heap, _entry(allocator, rank, places, entry.app_id, entry.job, deque([entry.job])))
        if entry.line:
            heapq.heappush(heap, _entry(allocator, rank, places, entry.app_id, entry.line[0], entry.line))


@dataclass(slots=True, order=True)
class _Entry:
    """A queue of interchangeable jobs of an app, by the rank of the first."""

    rank: Rank
    app_id: str
    job: int
    line: deque[int]


def _entry(
    allocator: GangAllocator, rank: JobRank, places: dict[str, int], app_id: str, job: int, line: deque[int]
) -> _Entry:
    best = allocator.best_case(app_id, job)
    return _Entry(_rank_of(allocator, rank, places, app_id, job, best), app_id, job, line)


def _rank_of(
    allocator: GangAllocator, rank: JobRank, places: dict[str, int], app_id: str, job: int, prospect: Prospect
) -> Rank:
    return (*rank(app_id, allocator.jobs(app_id)[job], prospect), places[app_id], job)
