"""How an app's waiting jobs share its idle GPUs: by the gangs and the order of jobs that end the phase first."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from am.agent.filled import sizes_by_work
from am.agent.finish_time import gang_order, job_order, job_time_s, job_times_s
from am.agent.packing import packed
from am.agent.views import GangAt, JobView
from am.jobs.floor import Floor
from themis.cluster import Level

_MOST_TRIED = 12
"""Numbers of jobs at once that are tried, from as many as can be down."""

_SURELY = 1.0 - 1e-9
"""Less than the difference that rounding makes between two ways to compute a time."""

Sizes = tuple[int, ...]
Jobs = Sequence[JobView]
Busy = Sequence[tuple[GangAt, float]]
"""Gangs on which jobs run, and when they are free, in seconds from now."""
Choice = tuple[Jobs, Sizes]
"""The waiting jobs in an order in which they are served, and the gangs of the first of them."""


def best_starts(
    waiting: Jobs,
    running: Iterable[tuple[JobView, GangAt]],
    gpus: int,
    lay: Callable[[Jobs, Sizes], Sequence[GangAt]],
    restart_s: float,
) -> list[tuple[JobView, int]]:
    """The waiting jobs that start now, each with its GPUs, by those divisions that a bid values a fast one.

    Three like jobs on five GPUs are ended first by gangs of three and two, where the third job follows the first; an
    even split would leave it on one GPU to the end. As many jobs as possible run at once, unless fewer end the phase
    earlier by more than a restart: for one restart a job can grow later. What jobs can use of the GPUs may be left over
    by these divisions; the planner shares that once more.

    Which jobs start is what a bid takes for granted too (`am.agent.packing`): of those put on one gang the longest.
    When they end this is asked anew; the jobs that are left still fit as they did.

    Args:
        waiting: Jobs without a gang, in the order in which they are served.
        running: Jobs that run, with their gangs; asked for only where there is something to weigh.
        gpus: Idle GPUs.
        lay: Where gangs of such sizes would lie, for the first of some jobs.
        restart_s: What moving a running job costs, in seconds.
    """
    choices = _choices(waiting, gpus)
    if len(choices) == 1 and len(choices[0][1]) == len(waiting):
        # Nothing to weigh: every job starts, and there is one way to share the GPUs.
        return list(zip(*choices[0], strict=True))
    best: list[tuple[JobView, int]] = []
    best_s = math.inf
    busy = [(gang, job_time_s(job, gang)) for job, gang in running] if choices else []
    in_order = sorted(waiting, key=job_order) if choices else []
    floor = Floor(in_order, busy) if len(choices) > 1 else None
    for jobs, sizes in choices:
        # The first has nothing to beat, and most others surely end later than it: for those nothing is laid or packed.
        if floor and best and _later(floor, jobs, [GangAt(size, Level.SLOT) for size in sizes], best_s):
            continue
        laid = lay(jobs, sizes)
        if floor and best and _later(floor, jobs, laid, best_s):
            continue
        ends_s, starting = _served(jobs, in_order, busy, laid, best_s)
        if not best or ends_s < best_s or (ends_s == best_s and len(sizes) > len(best)):
            # Each choice but the first has its restart to make good.
            best_s = ends_s if best else ends_s - restart_s
            best = list(zip(starting, sizes, strict=True))
    return best


def _later(floor: Floor, waiting: Jobs, new: Sequence[GangAt], best_s: float) -> bool:
    """True when all jobs surely end later, on new gangs beside those that there are, than by then."""
    return floor.shared_s(waiting, new) * _SURELY > best_s and floor.packed_s(new) * _SURELY > best_s


def _served(
    waiting: Jobs, in_order: Jobs, busy: Busy, gangs: Sequence[GangAt], best_s: float
) -> tuple[float, list[JobView]]:
    """When the last job ends, and which job starts on each of the gangs: longest first, or as jobs are best packed.

    `in_order` are the same jobs in `job_order`. What surely ends no earlier than `best_s` may be said to end then.
    """
    in_order_s = _ends_s(waiting, busy, gangs, best_s)
    if len(waiting) > len(gangs):
        ends_s, starting = _packed(waiting, in_order, busy, gangs)
        if ends_s < in_order_s * _SURELY:
            return ends_s, starting
    return in_order_s, list(waiting[: len(gangs)])


def _packed(waiting: Jobs, jobs: Jobs, busy: Busy, gangs: Sequence[GangAt]) -> tuple[float, list[JobView]]:
    """`_served` with gangs that stay as they are, and jobs put on them as in a bid."""
    units = [job.shape.gpus_per_task for job in waiting[: len(gangs)]]
    new = [_as_bid_for(gang, unit) for gang, unit in zip(gangs, units, strict=True)]
    every = sorted([*busy, *((gang, 0.0) for gang in new)], key=lambda each: gang_order(each[0]))
    kinds = {gang: number for number, gang in enumerate(dict.fromkeys([gang for gang, _ in every]))}
    alone_s = list(job_times_s(jobs, list(kinds)))
    ends_s, places = packed(alone_s, [kinds[gang] for gang, _ in every], [load_s for _, load_s in every])
    if math.isinf(ends_s):
        return ends_s, []
    first: dict[GangAt, list[JobView]] = {}
    for place in dict.fromkeys(places):
        if every[place][1] == 0.0:
            first.setdefault(every[place][0], []).append(jobs[places.index(place)])
    return ends_s, _on_each(new, first, jobs, ends_s)


def _as_bid_for(gang: GangAt, unit: int) -> GangAt:
    """The gang with the unit that its GPUs lie in, as it was laid for a job of such tasks."""
    return GangAt(gang.gpus, gang.level, unit if gang.level > Level.MACHINE else 0)


def _on_each(
    new: Sequence[GangAt], first: dict[GangAt, list[JobView]], jobs: Sequence[JobView], ends_s: float
) -> list[JobView]:
    """The job that starts on each gang. No gang is left idle for which there is a job: best one that ends in time."""
    starting = {job.job_id for some in first.values() for job in some}
    served = []
    for gang in new:
        if first.get(gang):
            served.append(first[gang].pop(0))
            continue
        others = [job for job in jobs if job.job_id not in starting]
        in_time = (job for job in others if job_time_s(job, gang) <= ends_s)
        served.append(next(in_time, others[0]))
        starting.add(served[-1].job_id)
    return served


def _choices(waiting: Jobs, gpus: int) -> list[Choice]:
    """Ways to share the GPUs, each once, in the order in which they are weighed."""
    found: dict[Sizes, None] = {}
    fitting = _fitting(waiting, gpus)
    at_once = range(fitting, max(0, fitting - _MOST_TRIED), -1)
    for share, first in itertools.product((share_evenly, share_by_work), at_once):
        sizes = share(waiting[:first], gpus)
        if sizes:
            found[sizes] = None
    return [*((waiting, sizes) for sizes in found), *_of_several_shapes(waiting, gpus)]


def _of_several_shapes(waiting: Jobs, gpus: int) -> Iterator[Choice]:
    """GPUs shared by the work of each shape, where the longest jobs alone would take gangs of one shape or another."""
    if len({job.shape for job in waiting}) == 1:
        return
    for dealt in sizes_by_work(waiting, gpus):
        served: list[JobView] = []
        sizes: list[int] = []
        for size, unit, count in dealt:
            fitting = (
                job
                for job in waiting
                if job.shape.gpus_per_task == unit and job.shape.usable_gpus(size) == size and job not in served
            )
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
    turns = [(turn(jobs[place], size), place) for place, size in enumerate(sizes)]
    heapq.heapify(turns)
    while turns and left:
        place = heapq.heappop(turns)[1]
        shape = jobs[place].shape
        if shape.gpus_per_task <= left and sizes[place] < shape.demand_max_gpus:
            left -= shape.gpus_per_task
            sizes[place] += shape.gpus_per_task
            heapq.heappush(turns, (turn(jobs[place], sizes[place]), place))
    return tuple(sizes)


def _ends_s(waiting: Jobs, busy: Busy, gangs: Sequence[GangAt], best_s: float) -> float:
    """When the last job ends: GPUs that a job leaves are shared by those that wait, and lie as near as they did.

    It is not followed to its end where that surely comes no earlier than `best_s`.
    """
    ends = [(free_s, gang.gpus, gang.level) for gang, free_s in busy]
    ends += [(job_time_s(job, gang), gang.gpus, gang.level) for job, gang in zip(waiting, gangs, strict=False)]
    heapq.heapify(ends)
    queue, last_s, idle = waiting[len(gangs) :], 0.0, 0
    known: dict[tuple[int, Level], GangAt] = {}
    while ends:
        if not queue:
            return max(ends)[0]
        last_s, gpus, level = heapq.heappop(ends)
        if last_s * _SURELY >= best_s:
            return last_s
        sizes = share_evenly(queue, idle + gpus)
        for job, size in zip(queue, sizes, strict=False):
            at = known.get((size, level))
            if at is None:
                at = known[size, level] = GangAt(size, level)
            heapq.heappush(ends, (last_s + job_time_s(job, at), size, level))
        idle += gpus - sum(sizes)
        queue = queue[len(sizes) :]
    return math.inf if queue else last_s
