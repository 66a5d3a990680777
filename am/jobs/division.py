"""How an app's waiting jobs share its idle GPUs: by the gangs and the order of jobs that end the phase first."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Container, Iterator, Sequence

import numpy as np

from am.agent import _packing
from am.agent.candidates.generation import sizes_by_work
from am.agent.candidates.list_scheduling import shapes_array
from am.agent.model.division_times import CERTAIN
from am.agent.model.finish_time import Line, gang_order, job_order, job_time_s, pace_on
from am.agent.model.views import GangAt, JobView
from am.agent.packing.makespan import packed
from am.jobs.floor import Floor
from themis.cluster import Level
from themis.values import Value

MOST_TRIED = 12
"""Numbers of jobs at once that are tried, from as many as can be down."""

Sizes = tuple[int, ...]
Jobs = Sequence[JobView]
Busy = Sequence[tuple[GangAt, float]]
"""Gangs on which jobs run, and when they are free, in seconds from now."""
_End = tuple[float, int, Level]
"""When a job ends, in seconds from now, with the GPUs that it then leaves and the level that they span."""
Choice = tuple[Jobs, Sizes]
"""The waiting jobs in an order in which they are served, and the gangs of the first of them."""


class Beside(Value, frozen=True, kw_only=True):
    """What there is beside idle GPUs and the waiting jobs that could run on them.

    `running` are jobs that run, with their gangs; `behind` are jobs that wait for larger gangs than the idle GPUs make,
    longest first; `late` are jobs that run but count as waiting (`am.jobs.late`): nobody counts on their gangs. All
    GPUs of the app span the level `within`. `promised` is a way to share the idle GPUs, weighed beside those that are
    tried anyway.
    """

    running: Sequence[tuple[JobView, GangAt]] = ()
    behind: Jobs = ()
    late: Jobs = ()
    within: Level = Level.CLUSTER
    promised: Choice | None = None


def best_starts(
    waiting: Jobs,
    gpus: int,
    lay: Callable[[Jobs, Sizes], Sequence[GangAt]],
    restart_s: float,
    beside: Callable[[], Beside] = Beside,
) -> list[tuple[JobView, int]]:
    """Waiting jobs that start now, and late ones that move, each with its GPUs, by the division that ends them first.

    Three like jobs on five GPUs are ended first by gangs of three and two, where the third job follows the first; an
    even split would leave it on one GPU to the end. As many jobs as possible run at once, unless fewer end the phase
    earlier by more than a restart: for one restart a job can grow later. What jobs can use of the GPUs may be left over
    by these divisions; the planner shares that once more.

    A bid assumes the same jobs (`am.agent.packing.makespan`): of those put on one gang the longest starts.
    When they end this is asked anew; the jobs that are left still fit as they did, on the same gang if need be, and
    with the jobs that wait behind them for gangs that are in use.

    Args:
        waiting: Jobs without a gang that could run on idle GPUs, longest first.
        gpus: Idle GPUs.
        lay: Where gangs of such sizes would lie, for the first of some jobs.
        restart_s: What moving a running job costs, in seconds, and each start: a few large gangs run more jobs in turn.
        beside: What else there is; asked for only where there is something to weigh.
    """
    choices = _choices(waiting, gpus)
    if not choices or (len(choices) == 1 and len(choices[0][1]) == len(waiting)):
        # Nothing to weigh: no job can start, or every job does and there is one way to share the GPUs.
        return [start for choice in choices for start in zip(*choice, strict=True)]
    weighed = _Weighed(waiting, beside(), restart_s)
    if weighed.promised:
        choices.insert(1, weighed.promised)
    best: list[tuple[JobView, int]] = []
    best_s = math.inf
    floor = Floor(weighed.in_order, weighed.busy) if len(choices) > 1 else None
    for jobs, sizes in choices:
        # The first has nothing to beat, and most others surely end later than it: for those nothing is laid or packed.
        nearest = [GangAt(size, Level.SLOT) for size in sizes]
        if floor and best and _later(floor, jobs, nearest, best_s):
            continue
        laid = lay(jobs, sizes)
        if floor and best and laid != nearest and _later(floor, jobs, laid, best_s):
            continue
        ends_s, starting = weighed.served(jobs, laid, best_s)
        if not best or ends_s < best_s or (ends_s == best_s and len(sizes) > len(best)):
            # Each choice but the first has its restart to make good.
            best_s = ends_s if best else ends_s - restart_s
            best = list(zip(starting, sizes, strict=True))
    return best


def _later(floor: Floor, waiting: Jobs, new: Sequence[GangAt], best_s: float) -> bool:
    """True when all jobs surely end later, on new gangs beside those that there are, than by then."""
    return floor.shared_s(waiting, new) * CERTAIN > best_s and floor.packed_s(new) * CERTAIN > best_s


def longest_first(job: JobView) -> tuple[float, str]:
    """The order in which waiting jobs are served."""
    return -job.serial_work_s, job.job_id


class _Weighed:
    """Waiting jobs whose ends are told for ways to share the idle GPUs.

    Attributes:
        busy: Gangs on which jobs run.
        in_order: All jobs that wait for those or for idle GPUs, in `job_order`.
    """

    def __init__(self, waiting: Jobs, beside: Beside, start_s: float) -> None:
        self.promised = beside.promised
        self.busy = [(gang, job_time_s(job, gang)) for job, gang in beside.running]
        gangs = dict.fromkeys([gang for gang, _ in self.busy])
        # Those that could run on none of the gangs in use wait for what nobody weighs here.
        able = [job for job in beside.behind if any(pace_on(job, gang)[1] for gang in gangs)]
        self._behind = [*able, *beside.late]
        self._late = {job.job_id for job in beside.late}
        self._within = beside.within
        self._start_s = start_s
        self._line = Line([*waiting, *self._behind])
        self.in_order = self._line.jobs
        # Made by the first who asks: many plans look no further than to sums.
        self._following: _Following | None = None

    def served(self, waiting: Jobs, gangs: Sequence[GangAt], best_s: float) -> tuple[float, Jobs]:
        """When the last job ends, and which job starts on each gang: longest first, or as jobs are best packed.

        What surely ends no earlier than `best_s` may be said to end then.
        """
        in_order_s = self.ends_s(waiting, gangs, best_s)
        if len(self.in_order) > len(gangs):
            ends_s, starting = self.packed(waiting, gangs)
            if ends_s < in_order_s * CERTAIN:
                return ends_s, starting
        return in_order_s, waiting[: len(gangs)]

    def packed(self, waiting: Jobs, gangs: Sequence[GangAt]) -> tuple[float, Jobs]:
        """`served` with gangs that stay as they are, and jobs put on them as in a bid."""
        every = sorted([*self.busy, *((gang, 0.0) for gang in gangs)], key=lambda each: gang_order(each[0]))
        ends_s, places = _put(self._line, every, self._start_s)
        if math.isinf(ends_s):
            return ends_s, []
        first: dict[GangAt, list[JobView]] = {}
        for place, job in self._first_on_each(places, every).items():
            first.setdefault(every[place][0], []).append(job)
        return _on_each(gangs, first, waiting, ends_s, self._start_s)

    def _first_on_each(self, places: Sequence[int], every: Busy) -> dict[int, JobView]:
        """The job that starts on each new gang, by place, of those put there: the longest of those that come first.

        One that waits comes before a late one, and one that uses all of the gang before one that does not: a job of
        tasks of two on a gang of three would leave a GPU to another job, and the gang would be no more.
        """
        first: dict[int, tuple[tuple[bool, bool], JobView]] = {}
        for place, job in zip(places, self.in_order, strict=True):
            gang, free_s = every[place]
            if free_s == 0.0:
                rank = job.job_id in self._late, pace_on(job, gang)[1] < gang.gpus
                if place not in first or rank < first[place][0]:
                    first[place] = rank, job
        return {place: job for place, (_, job) in first.items()}

    def ends_s(self, waiting: Jobs, gangs: Sequence[GangAt], best_s: float) -> float:
        """When the last job ends: GPUs that a job leaves are shared by those that wait, longest first.

        A gang formed of one that ended lies as near as that did; one formed of several as far as all GPUs do. It is not
        followed to its end where that surely comes no earlier than `best_s`.
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
    """Jobs as the compiled `core/schedule_simulation.c` reads them, which follows them."""

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
    """When the last of some jobs ends that are put on gangs as in a bid, each start counted, and all gangs are free.

    Args:
        jobs: At least one.
        gangs: At least one, and when each is free, in seconds from now.
        start_s: What a start costs, in seconds.
    """
    return _put(Line(jobs), sorted(gangs, key=lambda each: gang_order(each[0])), start_s)[0]


def _put(line: Line, every: Busy, start_s: float) -> tuple[float, list[int]]:
    """`put_on_gangs` for what is in order, with the place of each job's gang."""
    kinds = {gang: number for number, gang in enumerate(dict.fromkeys([gang for gang, _ in every]))}
    alone_s = start_s + line.times_s(list(kinds))
    return packed(alone_s, [kinds[gang] for gang, _ in every], [load_s for _, load_s in every])


def _on_each(
    new: Sequence[GangAt], first: dict[GangAt, list[JobView]], jobs: Jobs, ends_s: float, start_s: float
) -> tuple[float, list[JobView]]:
    """When the last job ends, and the job that starts on each gang. No gang is left idle for which there is a job.

    On one that should stay idle the first job starts that ends in time; where none does the one that ends first: it is
    the soonest to be out of the way.
    """
    starting = {job.job_id for some in first.values() for job in some}
    in_order: Jobs = ()
    served = []
    for gang in new:
        if first.get(gang):
            served.append(first[gang].pop(0))
            continue
        # Mostly no gang is left idle, and no order asked for.
        in_order = in_order or sorted(jobs, key=job_order)
        others = [job for job in in_order if job.job_id not in starting]
        if not others:
            # Those that wait behind take all that could start here to gangs in use.
            return math.inf, []
        times_s = [start_s + job_time_s(job, gang) for job in others]
        place = next((place for place, time_s in enumerate(times_s) if time_s <= ends_s), None)
        if place is None:
            place = times_s.index(min(times_s))
            # A gang that is too small for all of them stays free.
            ends_s = max(ends_s, times_s[place]) if math.isfinite(times_s[place]) else ends_s
        served.append(others[place])
        starting.add(others[place].job_id)
    return ends_s, served


def _choices(waiting: Jobs, gpus: int) -> list[Choice]:
    """Ways to share the GPUs, each once, in the order in which they are weighed."""
    found: dict[Sizes, None] = {}
    fitting = _fitting(waiting, gpus)
    at_once = range(fitting, max(0, fitting - MOST_TRIED), -1)
    for share, first in itertools.product((share_evenly, share_by_work), at_once):
        sizes = share(waiting[:first], gpus)
        if sizes:
            found[sizes] = None
    plain = [(waiting, sizes) for sizes in found]
    return [*plain, *_as_large_as_they_make(waiting, gpus, found), *_of_several_shapes(waiting, gpus)]


def _as_large_as_they_make(waiting: Jobs, gpus: int, known: Container[Sizes]) -> Iterator[Choice]:
    """The largest gangs that the GPUs make: above all the one on which a job ended, for jobs that need as many."""
    served: dict[str, JobView] = {}
    sizes: list[int] = []
    for unit, size in _largest(waiting, gpus):
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


def _largest(waiting: Jobs, gpus: int) -> list[tuple[int, int]]:
    """The unit and the size of the largest gang of each shape, the largest first."""
    shapes = dict.fromkeys([job.shape for job in waiting])
    found = {(shape.gpus_per_task, shape.usable_gpus(gpus)) for shape in shapes}
    return sorted(((unit, size) for unit, size in found if size), key=lambda each: (-each[1], each[0]))


def _fills(job: JobView, size: int, unit: int) -> bool:
    """True when a job of tasks of such a unit can use all GPUs of a gang."""
    return job.shape.gpus_per_task == unit and job.shape.usable_gpus(size) == size


def _of_several_shapes(waiting: Jobs, gpus: int) -> Iterator[Choice]:
    """GPUs shared by the work of each shape, where the longest jobs alone would take gangs of one shape or another."""
    if len({job.shape for job in waiting}) == 1:
        return
    for dealt in sizes_by_work(waiting, gpus):
        served: list[JobView] = []
        sizes: list[int] = []
        for size, unit, count in dealt:
            fitting = (job for job in waiting if _fills(job, size, unit) and job not in served)
            some = list(itertools.islice(fitting, count))
            served += some
            sizes += [size] * len(some)
        if served:
            yield [*served, *(job for job in waiting if job not in served)], tuple(sizes)


def _fitting(jobs: Sequence[JobView], gpus: int) -> int:
    """How many of the jobs, the first ones, can run at once, each on its smallest gang."""
    left = gpus
    for place, job in enumerate(jobs):
        left -= job.shape.demand_min_gpus
        if left < 0:
            return place
    return len(jobs)


def share_evenly(jobs: Sequence[JobView], gpus: int) -> Sizes:
    """Sizes of the gangs of as many of the jobs as can run at once, the first ones; tasks are dealt out in turn."""
    return _deal_tasks(jobs, gpus, lambda _, size: size)


def share_by_work(jobs: Sequence[JobView], gpus: int) -> Sizes:
    """As `share_evenly`, but each task goes to the job that would end last."""
    return _deal_tasks(jobs, gpus, lambda job, size: -job.serial_work_s / size)


def _deal_tasks(jobs: Sequence[JobView], gpus: int, turn: Callable[[JobView, int], float]) -> Sizes:
    """The smallest gang for each of the first jobs, then task by task to the job whose turn is the lowest number."""
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
    # Most have their largest gang already.
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
