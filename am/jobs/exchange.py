"""Exchange GPUs among an app's running jobs, so that their gangs span fewer machines and racks. Pure.

Leases come and go one by one, and a job that ends leaves its gang to another one. In time the gangs of an app may span
machines although the same GPUs would make as many gangs within machines. No job can move alone then.
"""

from __future__ import annotations

from collections.abc import Iterable

from am.agent.model.demands import pays_above
from am.agent.model.finish_time import longest_first
from am.agent.model.views import GangAt, JobView
from am.jobs.pool import Pool, speed_of
from themis.cluster import Cluster, GpuId


def exchange_gpus(
    running: Iterable[tuple[JobView, tuple[GpuId, ...]]], cluster: Cluster, restart_s: float
) -> dict[str, tuple[GpuId, ...]]:
    """The new gangs, by job, of jobs that exchange their GPUs; empty unless that saves more than two restarts each.

    The jobs that could gain put their GPUs together, and the one with most work left chooses first. The last ones may
    gain nothing: what counts is the GPU time that all of them save.

    Example: two jobs of two GPUs run on m0:0 and m1:0, and on m0:1 and m2:0. The longer one moves to m0:0 and m0:1, the
    other one to m1:0 and m2:0. A third job on m1:2 and m1:3 stays.

    Args:
        running: Running jobs with their GPUs, on one device type.
        cluster: For levels.
        restart_s: The cost of moving a job, in seconds.
    """
    apart = [(job, gpus) for job, gpus in running if len(gpus) > 1 and _can_gain(job, gpus, cluster, restart_s)]
    if len(apart) < 2:
        return {}
    pool = Pool([gpu for _, gpus in apart for gpu in gpus], cluster)
    moves: dict[str, tuple[GpuId, ...]] = {}
    saved_gpu_s = 0.0
    for job, gpus in sorted(apart, key=lambda each: longest_first(each[0])):
        gang = pool.take(job, len(gpus))
        if len(gang) < len(gpus):
            return {}
        if set(gang) != set(gpus):
            moves[job.job_id] = gang
            slowdowns = [job.slowdown.at(cluster.level_of_gpus(each)) for each in (gpus, gang)]
            saved_gpu_s += job.serial_work_s * (slowdowns[0] - slowdowns[1]) - 2.0 * restart_s * len(gpus)
    return moves if saved_gpu_s > 0.0 else {}


def _can_gain(job: JobView, gpus: tuple[GpuId, ...], cluster: Cluster, restart_s: float) -> bool:
    """Whether a job would gain enough by moving to as many GPUs at the tightest level of the cluster for them."""
    level, nearest = cluster.level_of_gpus(gpus), cluster.nearest_level_for(len(gpus))
    if level <= nearest:
        return False
    return speed_of(job, len(gpus), nearest) > pays_above(job, GangAt(len(gpus), level), restart_s)
