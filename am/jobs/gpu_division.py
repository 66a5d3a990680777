"""Divide an app's idle GPUs among its waiting jobs: choose the gangs and the order of jobs that end the phase first."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Container, Iterator, Sequence

import numpy as np

from am.agent import _packing
from am.agent.candidates.list_scheduling import shapes_array, sizes_by_work
from am.agent.model.division_times import CERTAIN
from am.agent.model.finish_time import JobTimes, gang_order, job_order, job_time_s, longest_first, pace_on
from am.agent.model.views import GangAt, JobView
from am.agent.packing.makespan import packed
from am.jobs.finish_time_bound import FinishTimeBound
from themis.cluster import Level
from themis.values import Value

MAX_TRIED = 12
"""How many numbers of concurrent jobs are tried, from the most that fit downwards."""

Sizes = tuple[int, ...]
Jobs = Sequence[JobView]
Busy = Sequence[tuple[GangAt, float]]
"""Gangs of running jobs, and when each is free, in seconds from now."""
_End = tuple[float, int, Level]
"""When a job ends, in seconds from now, the GPUs that it then leaves, and their level."""
Division = tuple[Jobs, Sizes]
"""The waiting jobs in the order in which they are served, and the gang sizes of the first of them."""


class DivisionContext(Value, frozen=True, kw_only=True):
    """What else a division depends on, in addition to the idle GPUs and the jobs that could run on them.

    Attributes:
        running: Running jobs, with their gangs.
        behind: Jobs that wait for larger gangs than the idle GPUs make, longest first.
        stragglers: Running jobs that count as waiting (`am.jobs.stragglers`). Their gangs count as gone.
        within: The level that all GPUs of the app span.
        of_bid: The division of the bid (`am.jobs.bid_division`), one more candidate.
    """

    running: Sequence[tuple[JobView, GangAt]] = ()
    behind: Jobs = ()
    stragglers: Jobs = ()
    within: Level = Level.CLUSTER
    of_bid: Division | None = None


def best_starts(
    waiting: Jobs,
    gpus: int,
    place_in_turn: Callable[[Jobs, Sizes], Sequence[GangAt]],
    restart_s: float,
    context: Callable[[], DivisionContext] = DivisionContext,
) -> list[tuple[JobView, int]]:
    """Choose the division of idle GPUs that ends all jobs first. Returns the jobs that start or move, with their GPUs.

    Example: three equal jobs and five GPUs. Gangs of three and two end first: the third job follows the first. An even
    split would leave it on one GPU to the end.

    As many jobs as possible run at once, unless fewer end the phase earlier by more than a restart: for one restart a
    job can grow later. A division may leave GPUs that jobs could use; the planner divides those again.

    Which jobs start agrees with what a bid assumes (`am.agent.packing.makespan`): of the jobs on one gang the longest.
    When they end, the planner divides again. The remaining jobs still fit as before, if need be on the same gang.

    Args:
        waiting: Jobs without a gang that could run on idle GPUs, longest first.
        gpus: Idle GPUs.
        place_in_turn: Returns what gangs of some sizes would count as if the first of some jobs took them.
        restart_s: The cost of each start and of moving a running job, in seconds.
        context: Returns what else the division depends on. Called only if there is something to compare.
    """
    divisions = _divisions(waiting, gpus)
    if not divisions or (len(divisions) == 1 and len(divisions[0][1]) == len(waiting)):
        # Nothing to compare: no job can start, or all jobs can and there is one division.
        return [start for division in divisions for start in zip(*division, strict=True)]
    evaluator = _DivisionEvaluator(waiting, context(), restart_s)
    if evaluator.of_bid:
        divisions.insert(1, evaluator.of_bid)
    best: list[tuple[JobView, int]] = []
    best_s = math.inf
    bound = FinishTimeBound(evaluator.in_order, evaluator.busy) if len(divisions) > 1 else None
    for jobs, sizes in divisions:
        # Most divisions provably end later than the first: they are neither placed nor packed.
        nearest = [GangAt(size, Level.SLOT) for size in sizes]
        if bound and best and _ends_later(bound, jobs, nearest, best_s):
            continue
        placed = place_in_turn(jobs, sizes)
        if bound and best and placed != nearest and _ends_later(bound, jobs, placed, best_s):
            continue
        ends_s, starting = evaluator.served(jobs, placed, best_s)
        if not best or ends_s < best_s or (ends_s == best_s and len(sizes) > len(best)):
            # All divisions but the first must recover the cost of a restart.
            best_s = ends_s if best else ends_s - restart_s
            best = list(zip(starting, sizes, strict=True))
    return best


def _ends_later(bound: FinishTimeBound, waiting: Jobs, new: Sequence[GangAt], best_s: float) -> bool:
    """Whether the last job provably ends after `best_s` with these new gangs."""
    return bound.shared_s(waiting, new) * CERTAIN > best_s and bound.packed_s(new) * CERTAIN > best_s


class _DivisionEvaluator:
    """Computes when the last job ends under a division of the idle GPUs.

    Attributes:
        busy: Gangs of running jobs.
        in_order: All jobs that wait for those or for idle GPUs, in `job_order`.
        of_bid: The division of the bid, if any.
    """

    def __init__(self, waiting: Jobs, context: DivisionContext, start_s: float) -> None:
        self.of_bid = context.of_bid
        self.busy = [(gang, job_time_s(job, gang)) for job, gang in context.running]
        gangs = dict.fromkeys([gang for gang, _ in self.busy])
        # Jobs that fit no gang in use wait for GPUs that no division here includes.
        able = [job for job in context.behind if any(pace_on(job, gang)[1] for gang in gangs)]
        self._behind = [*able, *context.stragglers]
        self._stragglers = {job.job_id for job in context.stragglers}
        self._within = context.within
        self._start_s = start_s
        self._job_times = JobTimes([*waiting, *self._behind])
        self.in_order = self._job_times.jobs
        # Made on first use: many plans need only the bounds.
        self._following: _Following | None = None

    def served(self, waiting: Jobs, gangs: Sequence[GangAt], best_s: float) -> tuple[float, Jobs]:
        """When the last job ends, and which job starts on each gang: the better of longest first and packing.

        The result may be any time from `best_s` on if the end is provably no earlier.
        """
        in_order_s = self.ends_s(waiting, gangs, best_s)
        if len(self.in_order) > len(gangs):
            ends_s, starting = self.packed(waiting, gangs)
            if ends_s < in_order_s * CERTAIN:
                return ends_s, starting
        return in_order_s, waiting[: len(gangs)]

    def packed(self, waiting: Jobs, gangs: Sequence[GangAt]) -> tuple[float, Jobs]:
        """`served` if gangs stay as they are and jobs are packed on them as in a bid."""
        every = sorted([*self.busy, *((gang, 0.0) for gang in gangs)], key=lambda each: gang_order(each[0]))
        ends_s, places = _put(self._job_times, every, self._start_s)
        if math.isinf(ends_s):
            return ends_s, []
        first: dict[GangAt, list[JobView]] = {}
        for place, job in self._first_on_each(places, every).items():
            first.setdefault(every[place][0], []).append(job)
        return _on_each(gangs, first, waiting, ends_s, self._start_s)

    def _first_on_each(self, places: Sequence[int], every: Busy) -> dict[int, JobView]:
        """The job that starts on each new gang, by index: of the jobs packed there the longest in the best class.

        A waiting job comes before a straggler, and a job that uses the whole gang before one that does not: a job with
        tasks of two GPUs on a gang of three would leave a GPU to another job, and the gang would be broken.
        """
        first: dict[int, tuple[tuple[bool, bool], JobView]] = {}
        for place, job in zip(places, self.in_order, strict=True):
            gang, free_s = every[place]
            if free_s == 0.0:
                rank = job.job_id in self._stragglers, pace_on(job, gang)[1] < gang.gpus
                if place not in first or rank < first[place][0]:
                    first[place] = rank, job
        return {place: job for place, (_, job) in first.items()}

    def ends_s(self, waiting: Jobs, gangs: Sequence[GangAt], best_s: float) -> float:
        """When the last job ends if the GPUs that a job leaves are divided among waiting jobs, longest first.

        A gang formed of one ended gang has its level. A gang formed of several has the level of all GPUs. The
        simulation stops early once the end is provably no earlier than `best_s`.
        """
        ends = [(free_s, gang.gpus, gang.level) for gang, free_s in self.busy]
        ends += [
            (self._start_s + job_time_s(job, gang), gang.gpus, gang.level)
            for job, gang in zip(waiting, gangs, strict=False)
        ]
        queue: Jobs = waiting[len(gangs) :]
        if self._behind:
            queue = sorted([*queue, *self._behind], key=longest_first)
        if not queue:
            return max([end_s for end_s, _, _ in ends], default=0.0)
        if self._following is None:
            self._following = _Following(self.in_order)
        return self._following.ends_s(ends, queue, self._within, self._start_s, best_s)


class _Following:
    """Jobs as arrays for the compiled `core/schedule_simulation.c`."""

    def __init__(self, jobs: Jobs) -> None:
        self._rows = {job.job_id: row for row, job in enumerate(jobs)}
        self._shapes = shapes_array([job.shape for job in jobs])
        slowdowns = [(some.slot, some.machine, some.rack, some.cluster) for some in [job.slowdown for job in jobs]]
        works_s = np.array([job.serial_work_s for job in jobs], dtype=np.float64)
        self._gpu_s = works_s[:, None] * np.array(slowdowns, dtype=np.float64)

    def ends_s(self, ends: Sequence[_End], queue: Jobs, within: Level, start_s: float, best_s: float) -> float:
        """When the last job ends."""
        rows = np.array([self._rows[job.job_id] for job in queue], dtype=np.int64)
        ends_s = np.array([end_s for end_s, _, _ in ends], dtype=np.float64)
        gangs = np.array([(gpus, level) for _, gpus, level in ends], dtype=np.int64).reshape(len(ends), 2)
        return _packing.follow_s(self._shapes, self._gpu_s, rows, ends_s, gangs, within, start_s, CERTAIN, best_s)


def put_on_gangs(jobs: Jobs, gangs: Busy, start_s: float) -> float:
    """When the last job ends if jobs are packed on gangs as in a bid, with the cost of every start.

    Args:
        jobs: At least one.
        gangs: At least one gang, and when each is free, in seconds from now.
        start_s: The cost of a start, in seconds.
    """
    return _put(JobTimes(jobs), sorted(gangs, key=lambda each: gang_order(each[0])), start_s)[0]


def _put(line: JobTimes, every: Busy, start_s: float) -> tuple[float, list[int]]:
    """`put_on_gangs` for sorted jobs and gangs. Also returns the index of each job's gang."""
    kinds = {gang: number for number, gang in enumerate(dict.fromkeys([gang for gang, _ in every]))}
    alone_s = start_s + line.times_s(list(kinds))
    return packed(alone_s, [kinds[gang] for gang, _ in every], [load_s for _, load_s in every])


def _on_each(
    new: Sequence[GangAt], first: dict[GangAt, list[JobView]], jobs: Jobs, ends_s: float, start_s: float
) -> tuple[float, list[JobView]]:
    """When the last job ends, and the job that starts on each gang. No gang is left idle if a job can run on it.

    If packing left a gang idle, the first job starts there that ends in time. If none does, the job that ends first
    starts: it frees the gang soonest.
    """
    starting = {job.job_id for some in first.values() for job in some}
    in_order: Jobs = ()
    served = []
    for gang in new:
        if first.get(gang):
            served.append(first[gang].pop(0))
            continue
        # Usually no gang is idle, and no order is needed.
        in_order = in_order or sorted(jobs, key=job_order)
        others = [job for job in in_order if job.job_id not in starting]
        if not others:
            # Packing put all jobs that could start here on gangs in use.
            return math.inf, []
        times_s = [start_s + job_time_s(job, gang) for job in others]
        place = next((place for place, time_s in enumerate(times_s) if time_s <= ends_s), None)
        if place is None:
            place = times_s.index(min(times_s))
            # A gang that is too small for all of these jobs stays free.
            ends_s = max(ends_s, times_s[place]) if math.isfinite(times_s[place]) else ends_s
        served.append(others[place])
        starting.add(others[place].job_id)
    return ends_s, served


def _divisions(waiting: Jobs, gpus: int) -> list[Division]:
    """Distinct divisions of the GPUs, in the order in which they are compared."""
    found: dict[Sizes, None] = {}
    fitting = _fitting(waiting, gpus)
    at_once = range(fitting, max(0, fitting - MAX_TRIED), -1)
    for share, first in itertools.product((share_evenly, share_by_work), at_once):
        sizes = share(waiting[:first], gpus)
        if sizes:
            found[sizes] = None
    plain = [(waiting, sizes) for sizes in found]
    return [*plain, *_as_large_as_they_make(waiting, gpus, found), *_of_several_shapes(waiting, gpus)]


def _as_large_as_they_make(waiting: Jobs, gpus: int, known: Container[Sizes]) -> Iterator[Division]:
    """The largest gangs that the GPUs make: above all the gang that a job left, for jobs that need as many GPUs.

    Of equally large gangs the one of smaller tasks comes first.
    """
    largest = {(shape.usable_gpus(gpus), shape.gpus_per_task) for shape in {job.shape for job in waiting}}
    served: dict[str, JobView] = {}
    sizes: list[int] = []
    for size, unit in sorted(largest, key=lambda each: (-each[0], each[1])):
        if not size:
            break
        for job in waiting:
            if size > gpus:
                break
            if job.job_id not in served and _fills(job, size, unit):
                served[job.job_id] = job
                sizes.append(size)
                gpus -= size
    jobs = [*served.values(), *(job for job in waiting if job.job_id not in served)]
    if sizes and (tuple(sizes) not in known or jobs != waiting):
        yield jobs, tuple(sizes)


def _fills(job: JobView, size: int, unit: int) -> bool:
    """Whether a job has tasks of this unit and can use all GPUs of the gang."""
    return job.shape.gpus_per_task == unit and job.shape.usable_gpus(size) == size


def _of_several_shapes(waiting: Jobs, gpus: int) -> Iterator[Division]:
    """Divide GPUs by the work of each shape. Otherwise the longest jobs might take all gangs for one shape."""
    if len({job.shape for job in waiting}) == 1:
        return
    for scheduled in sizes_by_work(waiting, gpus):
        served: list[JobView] = []
        sizes: list[int] = []
        for size, unit, count in scheduled:
            fitting = (job for job in waiting if _fills(job, size, unit) and job not in served)
            some = list(itertools.islice(fitting, count))
            served += some
            sizes += [size] * len(some)
        if served:
            yield [*served, *(job for job in waiting if job not in served)], tuple(sizes)


def _fitting(jobs: Sequence[JobView], gpus: int) -> int:
    """How many of the first jobs can run at once, each on its smallest gang."""
    left = gpus
    for place, job in enumerate(jobs):
        left -= job.shape.demand_min_gpus
        if left < 0:
            return place
    return len(jobs)


def share_evenly(jobs: Sequence[JobView], gpus: int) -> Sizes:
    """Gang sizes for as many of the first jobs as can run at once. Tasks are given to jobs in turn."""
    return _share_tasks(jobs, gpus, lambda _, size: size)


def share_by_work(jobs: Sequence[JobView], gpus: int) -> Sizes:
    """As `share_evenly`, but each further task goes to the job that would end last."""
    return _share_tasks(jobs, gpus, lambda job, size: -job.serial_work_s / size)


def _share_tasks(jobs: Sequence[JobView], gpus: int, turn: Callable[[JobView, int], float]) -> Sizes:
    """The smallest gang for each of the first jobs, then task by task for the first job with the least `turn`."""
    sizes: list[int] = []
    left = gpus
    for job in jobs:
        smallest = job.shape.min_tasks * job.shape.gpus_per_task
        if smallest > left:
            break
        sizes.append(smallest)
        left -= smallest
    if not left:
        return tuple(sizes)
    # Most jobs already have their largest gang.
    turns = [
        (turn(job, size), place)
        for place, (job, size) in enumerate(zip(jobs, sizes, strict=False))
        if size < job.shape.demand_max_gpus
    ]
    heapq.heapify(turns)
    while turns and left:
        place = heapq.heappop(turns)[1]
        shape = jobs[place].shape
        if shape.gpus_per_task <= left and sizes[place] < shape.demand_max_gpus:
            left -= shape.gpus_per_task
            sizes[place] += shape.gpus_per_task
            heapq.heappush(turns, (turn(jobs[place], sizes[place]), place))
    return tuple(sizes)
