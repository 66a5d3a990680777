"""The division of an app's idle GPUs that its bid on them rests on: what it promised, as a way to share them.

A bid compares hundreds of divisions (`am.agent.candidates.enumeration`), the planner only a few. Example: for 100
elastic jobs the best may be 42 gangs of four, which the planner would not try.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from am.agent.candidates.enumeration import enumerate_candidates
from am.agent.candidates.gang_kinds import GangKind, Room, gang_kinds
from am.agent.candidates.local_search import Limits
from am.agent.candidates.sub_bundles import sub_bundle_candidates
from am.agent.model.division_times import earliest
from am.agent.model.finish_time import pace_on
from am.agent.model.views import AppView, ClusterView, GangAt, JobView
from am.jobs.division import Choice, Jobs, Sizes
from themis.values import Value

_MOST_LAID = 5
"""So many of the divisions that end earliest are laid."""


class FreeGpus(Value, frozen=True, kw_only=True):
    """Idle GPUs: by machine, those of each slot by machine, and the rack of each machine."""

    by_machine: Mapping[str, int]
    slots: Mapping[str, Sequence[int]]
    rack_of: Mapping[str, str]


def promised_choice(
    waiting: Sequence[JobView],
    running: Sequence[tuple[JobView, GangAt]],
    free: FreeGpus,
    lay: Callable[[Jobs, Sizes], Sequence[GangAt]],
) -> Choice | None:
    """The division of idle GPUs by which a bid on them ends earliest, beside the gangs that there are.

    Args:
        waiting: Jobs without a gang.
        running: Jobs that run, with their gangs.
        free: The idle GPUs.
        lay: Where gangs of such sizes would lie, for the first of some jobs.

    Returns:
        None where gangs are all of one kind, or none fits.
    """
    jobs = (*waiting, *(job for job, _ in running))
    held = Counter(gang for _, gang in running)
    found: dict[frozenset[tuple[GangAt, int]], tuple[Counter[GangAt], Choice]] = {}
    for division in _best_divisions(waiting, jobs, held, free):
        for order in _ORDERS:
            served, sizes = _served(waiting, sorted(division, key=order))
            if sizes:
                laid = held + Counter(gang for gang in lay(served, sizes) if gang.gpus)
                found.setdefault(frozenset(laid.items()), (laid, (served, sizes)))
    if not found:
        return None
    gangs = list(dict.fromkeys(gang for laid, _ in found.values() for gang in laid))
    counts = np.array([[laid[gang] for gang in gangs] for laid, _ in found.values()], dtype=np.int64)
    return list(found.values())[earliest(jobs, gangs, counts, 1)[0]][1]


_ORDERS: tuple[Callable[[GangKind], tuple[int, int]], ...] = (
    lambda kind: (kind.within, -kind.at.gpus),
    lambda kind: (-kind.at.gpus, kind.within),
)
"""Orders in which gangs are laid: the nearest first, or the largest."""


def _best_divisions(
    waiting: Sequence[JobView], jobs: tuple[JobView, ...], held: Mapping[GangAt, int], free: FreeGpus
) -> Iterator[list[GangKind]]:
    """The divisions that end earliest, each as its gangs."""
    around = ClusterView(cluster_gpus=sum(free.by_machine.values()), active_apps=1, lease_s=1.0, rack_of=free.rack_of)
    # Of the app only the jobs of this phase matter here.
    app = AppView(app_id="", elapsed_s=0.0, jobs=jobs, work_total_gpu_s=0.0, demand_max_gpus=0)
    room = Room(free.by_machine, free.slots, around)
    kinds = gang_kinds(app, room)
    if len(kinds) < 2:
        # Nothing to choose but how many gangs, which the plain ways do.
        return
    parts = sub_bundle_candidates(kinds, len(waiting), free.by_machine, free.slots, around)
    asks, _ = enumerate_candidates(kinds, len(waiting), room.gpus, jobs, 1, lambda: parts, room)
    asks = Limits(kinds, room, len(waiting)).within(asks)
    gangs = [*(kind.at for kind in kinds), *held]
    counts = np.column_stack((asks, np.tile(np.array([*held.values()], dtype=np.int64), (len(asks), 1))))
    for ask in asks[earliest(jobs, gangs, counts, _MOST_LAID)].tolist():
        yield [kind for kind, count in zip(kinds, ask, strict=True) for _ in range(count)]


def _served(waiting: Sequence[JobView], gangs: Sequence[GangKind]) -> Choice:
    """The jobs, first one for each gang that can use all of it, and the sizes of those for which there is one.

    Gangs that fewer shapes of jobs can use choose first; each takes a job with tasks of its unit, as long as there are.
    """
    left = {job.job_id: job for job in waiting}
    likes = list({(job.shape, job.slowdown): job for job in waiting}.values())
    wanted = {kind: sum(_uses_all(job, kind) for job in likes) for kind in dict.fromkeys(gangs)}
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
