"""Exchange GPUs among an app's running jobs, so that their gangs span fewer machines and racks. Pure.

Leases come and go one by one, and a job that ends leaves its gang to another one. In time the gangs of an app may span
machines although the same GPUs would make as many gangs within machines. No job can move alone then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from am.agent.model.demands import pays_above
from am.agent.model.finish_time import longest_first
from am.agent.model.views import GangAt, JobView
from am.jobs.pool import Pool, speed_of
from themis.cluster import Cluster, GpuId
from themis.sums import sum_in_order

Running = tuple[JobView, tuple[GpuId, ...]]


def exchange_gpus(running: Iterable[Running], cluster: Cluster, restart_s: float) -> dict[str, tuple[GpuId, ...]]:
    """The new gangs, by job, of jobs that exchange their GPUs; empty unless that saves more than two restarts each.

    The jobs that could gain put their GPUs together, and the one with most work left chooses first. A job that finds no
    closer gang stays, or gets other GPUs if another job took one of its own. What counts is the GPU time that all of
    them save.

    Example: two jobs of two GPUs run on m0:0 and m1:0, and on m0:1 and m2:0. The longer one moves to m0:0 and m0:1, the
    other one to m1:0 and m2:0. A third job on m1:2 and m1:3 stays.

    Args:
        running: Running jobs with their GPUs, on one device type.
        cluster: For levels.
        restart_s: The cost of moving a job, in seconds.
    """
    apart = [(job, gpus) for job, gpus in running if len(gpus) > 1 and _can_gain(job, gpus, cluster, restart_s)]
    apart.sort(key=lambda each: longest_first(each[0]))
    closer, left = _closer_gangs(apart, cluster)
    waiting = [(job, gpus) for job, gpus in apart if job.job_id not in closer and not left.issuperset(gpus)]
    staying = {gpu for job, gpus in apart if job.job_id not in closer and left.issuperset(gpus) for gpu in gpus}
    rest = Pool(left - staying, cluster)
    moves = closer | {job.job_id: rest.take(job, len(gpus)) for job, gpus in waiting}
    moved = [(job, gpus, moves[job.job_id]) for job, gpus in apart if job.job_id in moves]
    if any(len(new) < len(old) for _, old, new in moved):
        return {}
    saved_gpu_s = sum_in_order(
        _gpu_time_s(job, old, cluster) - _gpu_time_s(job, new, cluster) - 2.0 * restart_s * len(old)
        for job, old, new in moved
    )
    return moves if saved_gpu_s > 0.0 else {}


def _closer_gangs(apart: Sequence[Running], cluster: Cluster) -> tuple[dict[str, tuple[GpuId, ...]], frozenset[GpuId]]:
    """Gangs at a tighter level among the GPUs of all these jobs, by job, and the GPUs that are left."""
    pool = Pool([gpu for _, gpus in apart for gpu in gpus], cluster)
    closer: dict[str, tuple[GpuId, ...]] = {}
    # The pool shrinks: once a job finds nothing closer, jobs like it will not either.
    hopeless = set()
    for job, gpus in apart:
        level = cluster.level_of_gpus(gpus)
        kind = (job.shape, job.slowdown, len(gpus), level)
        if kind in hopeless:
            continue
        (gang,) = pool.place_in_turn([job], [len(gpus)])
        if gang.gpus == len(gpus) and gang.level < level:
            closer[job.job_id] = pool.take(job, len(gpus))
        else:
            hopeless.add(kind)
    return closer, pool.gpus


def _can_gain(job: JobView, gpus: tuple[GpuId, ...], cluster: Cluster, restart_s: float) -> bool:
    """Whether a job would gain enough by moving to as many GPUs at the tightest level of the cluster for them."""
    if job.pace_guessed:
        # Its work is a guess, which may be a thousand times too much.
        return False
    level, nearest = cluster.level_of_gpus(gpus), cluster.nearest_level_for(len(gpus))
    if level <= nearest:
        return False
    return speed_of(job, len(gpus), nearest) > pays_above(job, GangAt(len(gpus), level), restart_s)


def _gpu_time_s(job: JobView, gpus: tuple[GpuId, ...], cluster: Cluster) -> float:
    return job.serial_work_s * job.slowdown.at(cluster.level_of_gpus(gpus))
