"""Running jobs that end late where they are: pure.

No GPU is left idle that a waiting job could use, so that some job runs on what was left over, on a gang on which it
ends long after all others. When idle GPUs are shared it counts as one that waits: all ways to share them would seem to
end as late as it does, and those for which it has to move in time could not be told from the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from am.agent.model.demands import pays_above
from am.agent.model.division_times import CERTAIN
from am.agent.model.finish_time import job_time_s
from am.agent.model.views import GangAt, JobView
from am.jobs.division import Busy, Jobs, put_on_gangs
from am.jobs.floor import Floor
from am.jobs.pool import Pool, speed_of
from themis.cluster import Level


def late_jobs(running: Sequence[tuple[JobView, GangAt]], waiting: Jobs, idle: Pool, restart_s: float) -> Jobs:
    """The running jobs that end after all others, and would end earlier by more than a restart if they waited.

    The last comes first, and is taken for one that waits when the next is looked at. On the gangs of late ones nobody
    counts.

    Args:
        running: Jobs that run, with their gangs.
        waiting: Jobs without a gang, at least one.
        idle: GPUs without a job.
        restart_s: What a start costs, in seconds.
    """
    busy = [(job_time_s(job, gang), job.job_id, job, gang) for job, gang in running]
    busy.sort(key=lambda each: each[:2])
    gpus_in_all = len(idle) + sum([gang.gpus for _, gang in running])
    late: list[JobView] = []
    while busy:
        end_s, _, job, gang = busy.pop()
        if speed_of(job, gpus_in_all, Level.SLOT) <= pays_above(job, gang, restart_s):
            break
        others: Busy = [(gang, free_s) for free_s, _, _, gang in busy]
        idle_gpus = gpus_in_all - sum([gang.gpus for gang, _ in others])
        if Floor(waiting, others).packed_s([GangAt(idle_gpus, Level.SLOT)]) >= end_s:
            break
        gangs = [*others, (idle.gang_of(tuple(idle.gpus)), 0.0)]
        if put_on_gangs([*waiting, *late, job], gangs, restart_s) + restart_s >= end_s * CERTAIN:
            break
        late.append(job)
    return late
