"""Find stragglers: running jobs that would finish sooner if they gave up their gang and were placed again. Pure.

The planner leaves no GPU idle that a waiting job could use, so some job starts on what is left over. It may end long
after all others. Such a straggler makes all divisions of the idle GPUs look equally slow. So the planner counts it as
waiting, and can then compare divisions that move it.
"""

from __future__ import annotations

from collections.abc import Sequence

from am.agent.model.demands import pays_above
from am.agent.model.division_times import CERTAIN
from am.agent.model.finish_time import job_time_s
from am.agent.model.views import GangAt, JobView
from am.jobs.finish_time_bound import FinishTimeBound
from am.jobs.gpu_division import Busy, Jobs, put_on_gangs
from am.jobs.pool import Pool, speed_of
from themis.cluster import Level


def find_stragglers(running: Sequence[tuple[JobView, GangAt]], waiting: Jobs, idle: Pool, restart_s: float) -> Jobs:
    """The running jobs that end after all others, and would end earlier by more than a restart if they waited.

    The last job to end is examined first. If it is a straggler it counts as waiting when the next one is examined, and
    its gang counts as idle. If several jobs end last at the same time, none of them is a straggler: the app would end
    no earlier.

    Example: a job with 100 GPU seconds left runs on one GPU, three others are idle, and a job of 60 GPU seconds waits.
    Both can use up to 4 GPUs, and S is 1. On all four GPUs the two take 15 + 25 = 40 s and two restarts of 5 s, instead
    of 100 s. So the first job is a straggler.

    Args:
        running: Running jobs, with their gangs.
        waiting: Jobs without a gang, at least one.
        idle: GPUs without a job.
        restart_s: The cost of a start, in seconds.
    """
    busy = [(job_time_s(job, gang), job.job_id, job, gang) for job, gang in running]
    busy.sort(key=lambda each: each[:2])
    gpus_in_all = len(idle) + sum([gang.gpus for _, gang in running])
    stragglers: list[JobView] = []
    while busy:
        end_s, _, job, gang = busy.pop()
        if speed_of(job, gpus_in_all, Level.SLOT) <= pays_above(job, gang, restart_s):
            break
        others: Busy = [(gang, free_s) for free_s, _, _, gang in busy]
        idle_gpus = gpus_in_all - sum([gang.gpus for gang, _ in others])
        if FinishTimeBound(waiting, others).packed_s([GangAt(idle_gpus, Level.SLOT)]) >= end_s:
            break
        gangs = [*others, (idle.gang_of(tuple(idle.gpus)), 0.0)]
        if put_on_gangs([*waiting, *stragglers, job], gangs, restart_s) + restart_s >= end_s * CERTAIN:
            break
        stragglers.append(job)
    return stragglers
