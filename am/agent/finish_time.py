"""How long an app needs on a bundle: T(G) of the paper's equations 1 and 2, with gangs instead of single GPUs."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence

from am.agent.views import AppView, GangAt, JobView, Surroundings
from am.tuners.port import Phase
from themis.apps import JobShape
from themis.cluster import Level


def job_time_s(job: JobView, gang: GangAt) -> float:
    """Seconds that a job's iterations left take on a gang; infinite when the gang is too small for it.

    Equation 1: iterations_left * serial_iteration_s * S(G) / min(|G|, job_demand_max).
    """
    usable = job.shape.usable_gpus(gang.gpus)
    if not usable or not gang.holds_tasks_of(job.shape.gpus_per_task):
        return math.inf
    return job.serial_work_s * job.slowdown.at(gang.level) / usable


def gang_order(gang: GangAt) -> tuple[int, int, int]:
    """How equals are told apart when jobs are dealt out: the smaller gang first, then the farther, then smaller units.

    So jobs leave what they have no use for to others: a larger gang, or one that lies near.
    """
    return gang.gpus, -gang.level, gang.unit_gpus


def phase_time_s(jobs: Sequence[JobView], gangs: Sequence[GangAt]) -> float:
    """Seconds until the last of `jobs` ends on `gangs`, each gang running one job at a time.

    Longest job first, each onto the gang where it ends earliest (LPT; on like gangs, the least loaded one). Ties go to
    the earlier job and by `gang_order`, so the result does not depend on the order of the arguments.
    """
    if not jobs:
        return 0.0
    if not gangs:
        return math.inf
    # Only the least loaded of like gangs can be where a job ends earliest: they share a heap of loads.
    kinds = sorted(Counter(gangs).items(), key=lambda kind: gang_order(kind[0]))
    loads_s = [(gang, [0.0] * count) for gang, count in kinds]
    latest_s = 0.0
    for job in sorted(jobs, key=lambda job: (-job.serial_work_s, job.job_id)):
        ends_s = [heap[0] + job_time_s(job, gang) for gang, heap in loads_s]
        best = min(range(len(ends_s)), key=ends_s.__getitem__)
        heapq.heapreplace(loads_s[best][1], ends_s[best])
        latest_s = max(latest_s, ends_s[best])
    return latest_s


def split_evenly(gpus: int, jobs: int, shape: JobShape) -> tuple[int, ...]:
    """Sizes of the gangs into which an app divides `gpus` GPUs over `jobs` like jobs, largest first.

    As many jobs as possible run at once, each on at least its smallest gang; tasks are dealt out in turn. What no job
    can use is left out.
    """
    tasks = gpus // shape.gpus_per_task
    running = min(jobs, tasks // shape.min_tasks)
    if running <= 0:
        return ()
    tasks = min(tasks, running * shape.tasks)
    each, more = divmod(tasks, running)
    return tuple((each + (place < more)) * shape.gpus_per_task for place in range(running))


def even_gangs(
    gpus: int, jobs: int, shape: JobShape, around: Surroundings, at_least: Level = Level.SLOT
) -> tuple[GangAt, ...]:
    """An even split with every gang as near as it fits, but no nearer than `at_least` (single GPUs aside)."""
    return tuple(nearest_gang(size, around, at_least) for size in split_evenly(gpus, jobs, shape))


def nearest_gang(gpus: int, around: Surroundings, at_least: Level = Level.SLOT) -> GangAt:
    """A gang as near as it fits into the empty cluster, but no nearer than `at_least` (a single GPU aside)."""
    return GangAt(gpus, max(around.nearest_level(gpus), at_least) if gpus > 1 else Level.SLOT)


def later_phases_time_s(app: AppView, gpus: int, around: Surroundings, at_least: Level) -> float:
    """Seconds that the phases to come take on `gpus` GPUs, every job in them being the median job."""
    return sum(_later_phase_s(app, phase, gpus, around, at_least) for phase in app.later_phases)


def finish_time_s(app: AppView, gangs: Sequence[GangAt], around: Surroundings) -> float:
    """T(G): seconds from now until the app ends on these gangs, held to the end (equation 2).

    **Choice** later phases divide the same number of GPUs evenly over their jobs, at the nearest level at which their
    gangs fit, but not nearer than the farthest of today's gangs: an app that lies scattered now is not promised better.
    """
    now_s = phase_time_s(app.jobs, gangs)
    if math.isinf(now_s):
        return now_s
    at_least = max((gang.level for gang in gangs if gang.gpus > 1), default=Level.SLOT)
    return now_s + later_phases_time_s(app, sum(gang.gpus for gang in gangs), around, at_least)


def time_on_count_s(app: AppView, gpus: float, around: Surroundings) -> float:
    """T on a number of GPUs placed as near as they fit; less than the smallest gang stands for a share of its time.

    The GPUs are split evenly into gangs for one of the jobs' shapes, that which ends the app first. The smallest gang
    is one on which every job can run.
    """
    shapes = {job.shape: None for job in (*app.jobs, app.median_job)}
    smallest = max(shape.demand_min_gpus for shape in shapes)
    if gpus < smallest:
        return time_on_count_s(app, smallest, around) * smallest / gpus if gpus > 0 else math.inf
    whole = int(gpus)
    if not app.jobs:
        return later_phases_time_s(app, whole, around, Level.SLOT)
    splits = (even_gangs(whole, len(app.jobs), shape, around) for shape in shapes)
    return min(finish_time_s(app, split, around) for split in splits)


def later_job(app: AppView, phase: Phase) -> JobView:
    """A job of a phase to come: the median job with the phase's iterations."""
    median = app.median_job
    return JobView(
        job_id="later",
        iterations_left=phase.iterations,
        serial_iteration_s=median.serial_iteration_s,
        slowdown=median.slowdown,
        shape=median.shape,
    )


def _later_phase_s(app: AppView, phase: Phase, gpus: int, around: Surroundings, at_least: Level) -> float:
    gangs = even_gangs(gpus, phase.jobs, app.median_job.shape, around, at_least)
    if not gangs:
        return math.inf
    return phase_time_s([later_job(app, phase)] * phase.jobs, gangs)
