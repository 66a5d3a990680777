"""Greedy orders of service: step by step over apps, or gang by gang over jobs.

Both keep a heap of ranks. A rank is looked at again when its turn comes, since room has shrunk meanwhile: what it
found then is taken when nobody else comes before it, else it goes back with its new rank. So a round costs about as
many looks at the machines as gangs are given, and not one for each job that waits.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from rm_plugin.policies.server import Kind, Proposal, Prospect, Server
from themis.bids import GangDemand
from themis.values import Value

Rank = tuple[float, ...]


class Given(Value, frozen=True, kw_only=True):
    """What an app was given in this round: GPUs, and their throughput in units of one GPU at S = 1."""

    gpus: int = 0
    speed: float = 0.0


AppRank = Callable[[str, Given, float], Rank]
"""Rank of an app by what it was given and its best job's throughput ratio; it may only grow as GPUs are given."""

JobRank = Callable[[str, GangDemand, Prospect], Rank]
"""Rank of a job by what it would run on."""


def ratio_of(prospect: Prospect, unit_gpus: int, gpus: int) -> float:
    """Throughput with a step over throughput without; infinite for a job without GPUs.

    Of a step of several units the mean gain of one counts, so that steps are comparable.
    """
    if prospect.speed_before <= 0.0:
        return math.inf
    units = max(1, gpus // unit_gpus)
    return 1.0 + (prospect.speed / prospect.speed_before - 1.0) / units


# ---- apps, step by step ---------------------------------------------------------------------------------------------


class _Steps:
    """One app's jobs in the order in which it uses steps: jobs without GPUs first, then the highest ratio."""

    def __init__(self, server: Server, app_id: str) -> None:
        self.app_id = app_id
        self.given = Given()
        self._server = server
        running = [job for job in range(len(server.jobs(app_id))) if server.gpus_of(app_id, job)]
        self._waiting = deque(sorted(set(range(len(server.jobs(app_id)))) - set(running)))
        self._growing = [(-self._most(job), job) for job in running]
        heapq.heapify(self._growing)

    def best_ratio(self) -> float:
        """At least the ratio of the next step; 0 when there is none."""
        if self._waiting:
            return math.inf
        return -self._growing[0][0] if self._growing else 0.0

    def next(self) -> tuple[int, Proposal, float] | None:
        """The next step: job, gang and ratio. None when the app can use nothing more."""
        while self._waiting:
            proposal = self._server.propose(self.app_id, self._waiting[0], step=True)
            if proposal is not None:
                return self._waiting[0], proposal, math.inf
            self._waiting.popleft()
        seen: dict[int, tuple[int, Proposal, float]] = {}
        while self._growing:
            job = self._growing[0][1]
            if job in seen:
                return seen[job]
            proposal = self._server.propose(self.app_id, job, step=True)
            if proposal is None:
                heapq.heappop(self._growing)
                continue
            unit = self._server.jobs(self.app_id)[job].unit_gpus
            ratio = ratio_of(proposal.prospect, unit, proposal.gang.gpus.gpus)
            seen[job] = job, proposal, ratio
            heapq.heapreplace(self._growing, (-ratio, job))
        return None

    def take(self, job: int, proposal: Proposal) -> None:
        """Take a step that `next` told."""
        gain = proposal.prospect.speed - proposal.prospect.speed_before
        self.given = Given(gpus=self.given.gpus + proposal.gang.gpus.gpus, speed=self.given.speed + gain)
        self._server.take(self.app_id, job, proposal.gang)
        if self._waiting and self._waiting[0] == job:
            self._waiting.popleft()
            heapq.heappush(self._growing, (-self._most(job), job))
        else:
            heapq.heapreplace(self._growing, (-self._most(job), job))

    def _most(self, job: int) -> float:
        """The ratio of one unit more where S stays as it is."""
        unit_gpus = self._server.jobs(self.app_id)[job].unit_gpus
        return 1.0 + unit_gpus / self._server.gpus_of(self.app_id, job)


def serve_step_by_step(server: Server, rank: AppRank) -> None:
    """Give one step after the other to the app of the least rank, until nobody can use another GPU.

    A step is the smallest gang of a job without GPUs, or one unit beside what a job has (more where one is no faster).
    Ties go to the smaller app id.
    """
    apps = {app_id: _Steps(server, app_id) for app_id in server.claims}
    heap = [(rank(app_id, steps.given, steps.best_ratio()), app_id) for app_id, steps in apps.items()]
    heapq.heapify(heap)
    while heap and server.free_gpus:
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
    server: Server,
    app_ids: Iterable[str],
    rank: JobRank,
    propose: Callable[[Server, str, int], Proposal | None],
    alike: Callable[[GangDemand], Hashable],
) -> None:
    """Give whole gangs to the job of the least rank, one after the other, until nobody can use another GPU.

    A job that got less than its largest gang is ranked again for what it could grow by.

    Args:
        server: What is free.
        app_ids: The apps; of equals the earlier one comes first, and of an app's jobs the earlier one.
        rank: The rule. A prospect that is better in everything must not rank after another.
        propose: Which gang a job would take now.
        alike: What ranks go by beside the kind of a demand; of an app's jobs that are alike only one is looked at.
    """
    places = {app_id: place for place, app_id in enumerate(app_ids)}
    lines: dict[tuple[str, Hashable], deque[int]] = {}
    for app_id in places:
        for job, demand in enumerate(server.jobs(app_id)):
            lines.setdefault((app_id, (Kind.of(demand), demand.held, alike(demand))), deque()).append(job)
    heap = [_entry(server, rank, places, line[0], jobs[0], jobs) for line, jobs in lines.items()]
    heapq.heapify(heap)
    while heap and server.free_gpus:
        entry = heap[0]
        proposal = propose(server, entry.app_id, entry.job)
        if proposal is None:
            # The jobs behind it are alike: they find no place either.
            heapq.heappop(heap)
            continue
        now = _rank_of(server, rank, places, entry.app_id, entry.job, proposal.prospect)
        if now > entry.rank:
            heapq.heapreplace(heap, _Entry(now, entry.app_id, entry.job, entry.line))
            if heap[0].job != entry.job or heap[0].app_id != entry.app_id:
                continue
        server.take(entry.app_id, entry.job, proposal.gang)
        entry.line.popleft()
        heapq.heapreplace(heap, _entry(server, rank, places, entry.app_id, entry.job, deque([entry.job])))
        if entry.line:
            heapq.heappush(heap, _entry(server, rank, places, entry.app_id, entry.line[0], entry.line))


@dataclass(slots=True, order=True)
class _Entry:
    """A line of an app's jobs that are alike, by the rank of the one in front."""

    rank: Rank
    app_id: str
    job: int
    line: deque[int]


def _entry(server: Server, rank: JobRank, places: dict[str, int], app_id: str, job: int, line: deque[int]) -> _Entry:
    best = server.best_case(app_id, job)
    return _Entry(_rank_of(server, rank, places, app_id, job, best), app_id, job, line)


def _rank_of(server: Server, rank: JobRank, places: dict[str, int], app_id: str, job: int, prospect: Prospect) -> Rank:
    return (*rank(app_id, server.jobs(app_id)[job], prospect), places[app_id], job)
