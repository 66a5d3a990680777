"""T(G) of many divisions at once: `finish_time` with arrays, the same numbers to the last bit.

A division is a row of counts over a list of gangs. Jobs are dealt out one after the other to all divisions together,
which is what makes a bid of hundreds of rows for a hundred jobs take milliseconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import inf

import numpy as np
from numpy.typing import NDArray

from am.agent.finish_time import gang_order, job_time_s, later_job, nearest_gang, split_evenly
from am.agent.views import AppView, GangAt, JobView, Surroundings
from am.tuners.port import Phase
from themis.apps import JobShape, Slowdown
from themis.cluster import Level

Counts = NDArray[np.int64]
Seconds = NDArray[np.float64]
Places = NDArray[np.intp]

_CHUNK = 512
"""Divisions that are timed together: enough to spread the cost of a call, few enough to stay in the cache."""

_FEW_DIVISIONS = 8
"""So few are timed one after the other: arrays would cost more than they save."""

_FEW_KINDS = 6
"""Of so many kinds all pairs are compared to see whether jobs can be dealt out at once."""

_SURELY = 1.0 + 1e-9
"""More than the difference that rounding makes between two ways to compute a time."""


def finish_times_s(app: AppView, gangs: Sequence[GangAt], counts: Counts, around: Surroundings) -> Seconds:
    """`finish_time_s` of every division, in seconds.

    Args:
        app: The app.
        gangs: G gangs, each one once.
        counts: D x G, how many of each gang a division has.
        around: The cluster.

    Returns:
        D times, infinite where a division never ends.
    """
    now_s = phase_times_s(app.jobs, gangs, counts)
    if not app.later_phases or not len(now_s):
        return now_s
    gpus = counts @ np.array([gang.gpus for gang in gangs], dtype=np.int64)
    spread = np.array([gang.level if gang.gpus > 1 else Level.SLOT for gang in gangs], dtype=np.int64)
    at_least = np.where(counts > 0, spread, int(Level.SLOT)).max(axis=1, initial=int(Level.SLOT))
    keys, place = np.unique(gpus * len(Level) + at_least, return_inverse=True)
    later_s = _later_times_s(app, keys // len(Level), keys % len(Level), around)
    return now_s + later_s[place]


def phase_times_s(jobs: Sequence[JobView], gangs: Sequence[GangAt], counts: Counts) -> Seconds:
    """`phase_time_s` of every division, in seconds; arguments as for `finish_times_s`."""
    if not jobs:
        return np.zeros(len(counts))
    if not counts.any():
        return np.full(len(counts), inf)
    used = np.flatnonzero(counts.any(axis=0)).tolist()
    order = sorted(used, key=lambda place: gang_order(gangs[place]))
    alone_s, alike = _merged(_job_times_s(jobs, [gangs[place] for place in order]))
    # Tables of one bid often hold the same gangs: each division is timed once.
    divisions, place = _each_once(np.add.reduceat(counts[:, order], alike, axis=1))
    return _dealt(alone_s, divisions)[place]


# ---- one phase ------------------------------------------------------------------------------------------------------


def _job_times_s(jobs: Sequence[JobView], gangs: Sequence[GangAt]) -> Seconds:
    """Seconds of each job on each gang, in `job_order`: `job_time_s` of all of them."""
    works_s = [job.iterations_left * job.serial_iteration_s for job in jobs]
    least_gpus = [job.shape.demand_min_gpus for job in jobs]
    order = sorted(range(len(jobs)), key=lambda place: (-least_gpus[place], -works_s[place], jobs[place].job_id))
    works = np.array(works_s)[order, None]
    traits = _Traits(gangs)
    rows = [traits.row_of(jobs[place]) for place in order]
    if len(traits.slowdowns) == 1:
        slowdown, usable = np.array(traits.slowdowns[0]), np.array(traits.usable[0])
    else:
        slowdown, usable = np.array(traits.slowdowns)[rows], np.array(traits.usable)[rows]
    return np.asarray(works * slowdown / usable)


class _Traits:
    """S and usable GPUs on each gang for jobs alike; many jobs share their S and shape.

    A gang that a job cannot run on has an infinite S.
    """

    def __init__(self, gangs: Sequence[GangAt]) -> None:
        self._gangs = gangs
        self._known: dict[tuple[Slowdown, JobShape], int] = {}
        self._seen: dict[tuple[int, int], int] = {}
        self.slowdowns: list[list[float]] = []
        self.usable: list[list[int]] = []

    def row_of(self, job: JobView) -> int:
        """The row of a job's likes."""
        # Equal values are mostly the same objects, which are quicker to look up.
        same = id(job.slowdown), id(job.shape)
        if same not in self._seen:
            alike = job.slowdown, job.shape
            if alike not in self._known:
                self._known[alike] = len(self.slowdowns)
                self._add(job)
            self._seen[same] = self._known[alike]
        return self._seen[same]

    def _add(self, job: JobView) -> None:
        usable = [
            job.shape.usable_gpus(gang.gpus) if gang.holds_tasks_of(job.shape.gpus_per_task) else 0
            for gang in self._gangs
        ]
        slowdown = [job.slowdown.at(gang.level) for gang in self._gangs]
        self.slowdowns.append([each if gpus else inf for each, gpus in zip(slowdown, usable, strict=True)])
        self.usable.append([max(1, gpus) for gpus in usable])


def _merged(alone_s: Seconds) -> tuple[Seconds, Places]:
    """Gangs side by side on which every job takes as long become one; where each of those begins."""
    new = np.ones(alone_s.shape[1], dtype=bool)
    new[1:] = (alone_s[:, 1:] != alone_s[:, :-1]).any(axis=0)
    first = np.flatnonzero(new)
    return alone_s[:, first], first


def _each_once(counts: Counts) -> tuple[Counts, Places]:
    """The different rows, and the place of each row among them."""
    bases = counts.max(axis=0).astype(object) + 1
    if np.prod(bases) >= 2**62:
        divisions, place = np.unique(counts, axis=0, return_inverse=True)
        return divisions, place.ravel()
    weights = np.cumprod([1, *bases[:-1]], dtype=np.int64)
    _, first, place = np.unique(counts @ weights, return_index=True, return_inverse=True)
    return counts[first], place


def _dealt(alone_s: Seconds, counts: Counts) -> Seconds:
    """LPT for each row of counts: when the last job ends. Of equals the first kind is taken."""
    if counts.shape[1] == 1:
        times_s = alone_s[:, 0].tolist()
        return np.array([_last_end_s(times_s, count) for count in counts[:, 0].tolist()])
    if len(counts) <= _FEW_DIVISIONS:
        return np.array([_last_end_of_kinds_s(alone_s, division) for division in counts])
    latest_s = np.full(len(counts), inf)
    start = _first_round(alone_s, counts)
    for rows in _chunks(counts.sum(axis=1), start.jobs):
        latest_s[rows] = _deal(alone_s, counts[rows], start.of(rows))
    return latest_s


def _last_end_s(times_s: Sequence[float], gangs: int) -> float:
    """LPT on like gangs of jobs in order, longest first."""
    if not gangs:
        return inf
    # Each gang gets one job before any gets two.
    loads_s = list(times_s[:gangs])
    if gangs < len(times_s):
        heapify(loads_s)
    for time_s in itertools.islice(times_s, gangs, None):
        heapreplace(loads_s, loads_s[0] + time_s)
    return max(loads_s)


def _last_end_of_kinds_s(alone_s: Seconds, counts: Counts) -> float:
    """LPT on gangs of several kinds; of equals the first kind is taken."""
    used = np.flatnonzero(counts)
    if not len(used):
        return inf
    heaps = [[0.0] * count for count in counts[used].tolist()]
    latest_s = 0.0
    for times_s in alone_s[:, used].tolist():
        ends_s = [heap[0] + time_s for heap, time_s in zip(heaps, times_s, strict=True)]
        end_s = min(ends_s)
        heapreplace(heaps[ends_s.index(end_s)], end_s)
        latest_s = max(latest_s, end_s)
    return latest_s


def _chunks(total: Counts, dealt: Counts) -> Iterator[Places]:
    """Divisions of about as many gangs each, so that little room is left empty; those without a gang are left out.

    In a chunk those come first of which the fewest jobs are dealt.
    """
    ordered = np.argsort(total, kind="stable")
    ordered = ordered[total[ordered] > 0]
    for first in range(0, len(ordered), _CHUNK):
        chunk = ordered[first : first + _CHUNK]
        yield chunk[np.argsort(dealt[chunk], kind="stable")]


@dataclass(frozen=True, slots=True)
class _Start:
    """How many jobs of each division are dealt at once, and the one that the first gang of each kind then has."""

    jobs: Counts
    first: Counts

    def of(self, rows: Places) -> _Start:
        """That of some divisions."""
        return _Start(self.jobs[rows], self.first[rows])


def _first_round(alone_s: Seconds, counts: Counts) -> _Start:
    """Jobs that go to empty gangs, fastest first, because that is quicker than to wait for one that has a job.

    Seen only where all jobs find the same kinds faster, and a longer job is longer on all of them; kinds are few.
    """
    jobs, kinds = alone_s.shape
    by_speed = np.argsort(alone_s[0], kind="stable")
    ends = np.empty_like(counts)
    ends[:, by_speed] = counts[:, by_speed].cumsum(axis=1)
    first = ends - counts
    sorted_s = alone_s[:, by_speed]
    if kinds > _FEW_KINDS or not _in_order(sorted_s):
        return _Start(np.zeros(len(counts), dtype=np.int64), first)
    dealt = np.minimum(counts.sum(axis=1), jobs)
    for fast, slow in itertools.combinations(by_speed.tolist(), 2):
        # Of the fast gangs that which got its job last is free first; waiting for it must never pay.
        both = np.flatnonzero((counts[:, fast] > 0) & (counts[:, slow] > 0) & (first[:, slow] < jobs))
        slower_s = (alone_s[:, slow] - alone_s[:, fast])[::-1]
        most_s = np.maximum.accumulate(slower_s)[::-1]
        waits = most_s[first[both, slow]] * _SURELY >= alone_s[ends[both, fast] - 1, fast]
        late = both[waits]
        dealt[late] = np.minimum(dealt[late], first[late, slow])
    return _Start(dealt, first)


def _in_order(alone_s: Seconds) -> bool:
    """True when all jobs are listed longest first, and kinds fastest first, by finite times."""
    return bool(
        np.isfinite(alone_s[0, -1]) and (alone_s[1:] <= alone_s[:-1]).all() and (alone_s[:, 1:] > alone_s[:, :-1]).all()
    )


def _deal(alone_s: Seconds, counts: Counts, start: _Start) -> Seconds:
    """LPT for each row of counts over kinds of gangs, each row with one gang at least: when the last job ends."""
    (jobs, _), (rows, kinds) = alone_s.shape, counts.shape
    first_s = alone_s[np.minimum(start.first, jobs - 1), np.arange(kinds)]
    had = (counts > 0) & (start.first < start.jobs[:, None])
    latest_s: Seconds = np.where(had, first_s, 0.0).max(axis=1)
    loads = _Loads(alone_s, counts, start)
    first_of_row = np.arange(rows) * kinds
    for step in range(jobs - int(start.jobs[0])):
        active = int(start.jobs.searchsorted(jobs - step))
        ends_s = loads.least_s[:active] + alone_s.take(start.jobs[:active] + step, axis=0)
        best = first_of_row[:active] + ends_s.argmin(axis=1)
        end_s = ends_s.ravel().take(best)
        loads.replace_least(best, end_s)
        np.maximum(latest_s[:active], end_s, out=latest_s[:active])
    return latest_s


class _Loads:
    """The loads of like gangs, for each division and kind: what the least is, and how to put another in its place.

    Each lie in order of their loads, but for those that got a job since they were last put in order; they are put in
    order once more when one of these is the least.
    """

    def __init__(self, alone_s: Seconds, counts: Counts, start: _Start) -> None:
        rows, kinds = counts.shape
        self._width = int(counts.max()) + 1
        self._loads_s = np.full((rows * kinds, self._width), inf)
        each = counts.ravel()
        place = np.arange(rows * kinds).repeat(each)
        slot = np.arange(len(place)) - (each.cumsum() - each).repeat(each)
        # Empty gangs first, then those with a job, of which the last one is the shortest.
        last = (start.first + counts).ravel() - 1
        empty = each - np.clip(start.jobs[:, None] - start.first, 0, counts).ravel()
        job = np.minimum(last[place] - slot, len(alone_s) - 1)
        self._loads_s[place, slot] = np.where(slot < empty[place], 0.0, alone_s[job, place % kinds])
        self._flat_s = self._loads_s.ravel()
        self._place = np.arange(rows * kinds) * self._width
        self._least_dealt_s = np.full(rows * kinds, inf)
        self._least_s = self._loads_s[:, 0].copy()
        self.least_s = self._least_s.reshape(rows, kinds)

    def replace_least(self, where: Places, loads_s: Seconds) -> None:
        """Put loads in place of the least ones; `where` numbers divisions and kinds, each at most once."""
        place = self._place.take(where)
        self._flat_s[place] = loads_s
        place += 1
        self._place[where] = place
        next_s = self._flat_s.take(place)
        dealt_s = np.minimum(self._least_dealt_s.take(where), loads_s)
        self._least_s[where] = next_s
        self._least_dealt_s[where] = dealt_s
        late = where[dealt_s <= next_s]
        if len(late):
            self._put_in_order(late)

    def _put_in_order(self, where: Places) -> None:
        loads_s = self._loads_s[where]
        loads_s.sort(axis=1)
        self._loads_s[where] = loads_s
        self._place[where] = where * self._width
        self._least_s[where] = loads_s[:, 0]
        self._least_dealt_s[where] = inf


# ---- later phases ---------------------------------------------------------------------------------------------------


def _later_times_s(app: AppView, gpus: Counts, at_least: Counts, around: Surroundings) -> Seconds:
    """`later_phases_time_s` for each pair of GPUs and level."""
    total_s = np.zeros(len(gpus))
    pairs = [(count, Level(level)) for count, level in zip(gpus.tolist(), at_least.tolist(), strict=True)]
    for phase in app.later_phases:
        job = later_job(app, phase)
        total_s = total_s + np.array([_even_time_s(job, phase, count, around, level) for count, level in pairs])
    return total_s


def _even_time_s(job: JobView, phase: Phase, gpus: int, around: Surroundings, at_least: Level) -> float:
    """Seconds of a phase of like jobs on GPUs that are divided evenly."""
    sizes = split_evenly(gpus, phase.jobs, job.shape)
    if not sizes:
        return inf
    # Largest first, and of two sizes at most.
    larger = sizes.index(sizes[-1])
    kinds = [(sizes[0], larger), (sizes[-1], len(sizes) - larger)] if larger else [(sizes[0], len(sizes))]
    times_s = [job_time_s(job, nearest_gang(size, around, at_least)) for size, _ in kinds]
    ends_s, left = list(times_s), phase.jobs
    while True:
        # Like jobs end in the order in which they are dealt out, on like gangs as many at once as there are.
        first = ends_s.index(min(ends_s))
        left -= kinds[first][1]
        if left <= 0:
            return ends_s[first]
        ends_s[first] += times_s[first]
