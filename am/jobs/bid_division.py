"""The division that the app's bid assumed, as one more candidate for the planner.

A bid compares hundreds of divisions (`am.agent.candidates.enumeration`), the planner only a few. Example: for 100
elastic jobs the best may be 42 gangs of four, which the planner would not try: its own divisions start as many jobs as
they can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from am.agent.candidates.enumeration import enumerate_candidates
from am.agent.candidates.gang_kinds import GangKind, gang_kinds
from am.agent.candidates.local_search import Limits
from am.agent.candidates.search_space import SearchSpace
from am.agent.model.division_times import earliest
from am.agent.model.finish_time import pace_on
from am.agent.model.views import AppView, GangAt, JobView
from am.jobs.gpu_division import Division, Jobs, Sizes
from themis.bids import FreeMachine
from themis.placement.gang_capacity import GangCapacity

_MAX_LAID = 5
"""How many of the divisions that end earliest are placed on the idle GPUs."""


def division_of_bid(
    waiting: Sequence[JobView],
    running: Sequence[tuple[JobView, GangAt]],
    idle: Sequence[FreeMachine],
    place_in_turn: Callable[[Jobs, Sizes], Sequence[GangAt]],
) -> Division | None:
    """The division of idle GPUs with which a bid on them ends earliest, in addition to the present gangs.

    Args:
        waiting: Jobs without a gang.
        running: Running jobs, with their gangs.
        idle: The idle GPUs.
        place_in_turn: Returns what gangs of some sizes would count as if the first of some jobs took them.

    Returns:
        None if all gangs are of one kind, or none fits.
    """
    jobs = (*waiting, *(job for job, _ in running))
    held = Counter(gang for _, gang in running)
    found: dict[frozenset[tuple[GangAt, int]], tuple[Counter[GangAt], Division]] = {}
    for division in _best_divisions(waiting, jobs, held, idle):
        for order in _ORDERS:
            served, sizes = _served(waiting, sorted(division, key=order))
            if sizes:
                placed = held + Counter(gang for gang in place_in_turn(served, sizes) if gang.gpus)
                found.setdefault(frozenset(placed.items()), (placed, (served, sizes)))
    if not found:
        return None
    gangs = list(dict.fromkeys(gang for placed, _ in found.values() for gang in placed))
    counts = np.array([[placed[gang] for gang in gangs] for placed, _ in found.values()], dtype=np.int64)
    return list(found.values())[earliest(jobs, gangs, counts, 1)[0]][1]


_ORDERS: tuple[Callable[[GangKind], tuple[int, int]], ...] = (
    lambda kind: (kind.within, -kind.at.gpus),
    lambda kind: (-kind.at.gpus, kind.within),
)
"""Orders in which gangs are placed: the tightest level first, or the largest gang."""


def _best_divisions(
    waiting: Sequence[JobView], jobs: tuple[JobView, ...], held: Mapping[GangAt, int], idle: Sequence[FreeMachine]
) -> Iterator[list[GangKind]]:
    """Yield the divisions that end earliest, each as a list of gangs."""
    # Only the jobs of the current phase matter here.
    app = AppView(app_id="", elapsed_s=0.0, jobs=jobs, work_total_gpu_s=0.0, demand_max_gpus=0)
    capacity = GangCapacity.of(idle)
    kinds = gang_kinds(app, capacity)
    if len(kinds) < 2:
        # Only the number of gangs is open, which the planner's own divisions cover.
        return
    most = len(waiting)
    candidates, _ = enumerate_candidates(
        SearchSpace(kinds=kinds, max_gangs=most, max_gpus=capacity.gpus, jobs=jobs, capacity=capacity)
    )
    candidates = Limits.of_offer(kinds, capacity, most).within(candidates)
    gangs = [*(kind.at for kind in kinds), *held]
    counts = np.column_stack((candidates, np.tile(np.array([*held.values()], dtype=np.int64), (len(candidates), 1))))
    for candidate in candidates[earliest(jobs, gangs, counts, _MAX_LAID)].tolist():
        yield [kind for kind, count in zip(kinds, candidate, strict=True) for _ in range(count)]


def _served(waiting: Sequence[JobView], gangs: Sequence[GangKind]) -> Division:
    """Match jobs to gangs. Returns the jobs, matched ones first, and the sizes of the matched gangs.

    A job matches a gang if it can use all of its GPUs. Gangs that fewer shapes of jobs can use choose first. Each takes
    a job with tasks of its unit if there is one left.
    """
    left = {job.job_id: job for job in waiting}
    classes = list({(job.shape, job.slowdown): job for job in waiting}.values())
    wanted = {kind: sum(_uses_all(job, kind) for job in classes) for kind in dict.fromkeys(gangs)}
    in_turn = sorted(enumerate(gangs), key=lambda each: wanted[each[1]])
    chosen: dict[int, JobView] = {}
    for any_unit in (False, True):
        for place, kind in in_turn:
            fitting = (
                job
                for job in left.values()
                if (any_unit or job.shape.gpus_per_task == kind.unit_gpus) and _uses_all(job, kind)
            )
            if place not in chosen and (job := next(fitting, None)):
                chosen[place] = left.pop(job.job_id)
    served = [(chosen[place], kind.at.gpus) for place, kind in enumerate(gangs) if place in chosen]
    return [*(job for job, _ in served), *left.values()], tuple([size for _, size in served])


def _uses_all(job: JobView, kind: GangKind) -> bool:
    return pace_on(job, kind.at)[1] == kind.at.gpus
