"""How an app's waiting jobs share its idle GPUs: by the number of jobs at once that ends the phase first."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

from am.agent.finish_time import job_time_s
from am.agent.views import GangAt, JobView

_MOST_TRIED = 12
"""Numbers of jobs at once that are tried, from all of them down."""

Sizes = tuple[int, ...]


def best_sizes(
    waiting: Sequence[JobView],
    running: Iterable[tuple[JobView, GangAt]],
    gpus: int,
    lay: Callable[[Sizes], Sequence[GangAt]],
    restart_s: float,
) -> Sizes:
    """GPUs for each of the first waiting jobs, of those divisions that a bid values (`am.agent.bidding`) a fast one.

    Three like jobs on five GPUs are ended first by gangs of three and two, where the third job follows the first; an
    even split would leave it on one GPU to the end. As many jobs as possible run at once, unless fewer end the phase
    earlier by more than a restart: for one restart a job can grow later.

    Args:
        waiting: Jobs without a gang, in the order in which they are served.
        running: Jobs that run, with their gangs; asked for only where there is something to weigh.
        gpus: Idle GPUs.
        lay: Where gangs of such sizes would lie.
        restart_s: What moving a running job costs, in seconds.
    """
    choices = _choices(waiting, gpus)
    if len(choices) <= 1:
        # Nothing to weigh: jobs that come in one size, or fewer GPUs than two jobs could share.
        return choices[0] if choices else ()
    best: Sizes = ()
    best_s = math.inf
    gangs = list(running)
    for sizes in choices:
        ends_s = _ends_s(waiting, gangs, lay(sizes))
        if not best or ends_s < best_s:
            # Each choice but the first has its restart to make good.
            best, best_s = sizes, ends_s if best else ends_s - restart_s
    return best


def _choices(waiting: Sequence[JobView], gpus: int) -> list[Sizes]:
    """Ways to share the GPUs, each once, in the order in which they are weighed."""
    found: dict[Sizes, None] = {}
    fitting = _fitting(waiting, gpus)
    # Numbers of jobs past those that fit all come to the same.
    at_once = dict.fromkeys(
        min(first, fitting) for first in range(len(waiting), max(0, len(waiting) - _MOST_TRIED), -1)
    )
    for share, first in itertools.product((share_evenly, share_by_work), at_once):
        sizes = share(waiting[:first], gpus)
        if sizes:
            found[sizes] = None
    return list(found)


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
        smallest = job.shape.demand_min_gpus
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
        job = jobs[place]
        if job.shape.gpus_per_task <= left and sizes[place] < job.shape.demand_max_gpus:
            left -= job.shape.gpus_per_task
            sizes[place] += job.shape.gpus_per_task
            heapq.heappush(turns, (turn(job, sizes[place]), place))
    return tuple(sizes)


def _ends_s(waiting: Sequence[JobView], running: Sequence[tuple[JobView, GangAt]], gangs: Sequence[GangAt]) -> float:
    """When the last job ends: GPUs that a job leaves are shared by those that wait, and lie as near as they did."""
    started = [*running, *zip(waiting, gangs, strict=False)]
    ends = [(job_time_s(job, gang), gang.gpus, gang.level) for job, gang in started]
    heapq.heapify(ends)
    queue, last_s, idle = waiting[len(gangs) :], 0.0, 0
    while ends:
        if not queue:
            return max(ends)[0]
        last_s, gpus, level = heapq.heappop(ends)
        sizes = share_evenly(queue, idle + gpus)
        for job, size in zip(queue, sizes, strict=False):
            heapq.heappush(ends, (last_s + job_time_s(job, GangAt(size, level)), size, level))
        idle += gpus - sum(sizes)
        queue = queue[len(sizes) :]
    return math.inf if queue else last_s
