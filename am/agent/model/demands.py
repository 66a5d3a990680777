"""Demands: what the jobs of an app could use beyond the leases that continue, and when growing a gang pays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from am.agent.model.finish_time import finish_time_s
from am.agent.model.views import AppView, ClusterView, GangAt, HeldGang, JobView
from themis.apps import JobShape
from themis.bids import GangDemand, PhaseLeft
from themis.cluster import Allocation, Level


def phases_left(app: AppView) -> tuple[PhaseLeft, ...]:
    """The work left of the search: the current phase by its jobs, later ones by the median job (equation 2).

    For example, the paper's app has four jobs of 80, 100, 100 and 120 s per iteration for 8 iterations, then two for
    16, then one for 36 iterations:

        >>> from am.agent.model.nsdi_example import nsdi_app
        >>> [(phase.jobs, phase.work_gpu_s) for phase in phases_left(nsdi_app())]
        [(4, 3200.0), (2, 3200.0), (1, 3600.0)]
    """
    left = []
    if app.jobs:
        works = [job.iterations_left * job.serial_iteration_s for job in app.jobs]
        gang = max([job.shape.tasks * job.shape.gpus_per_task for job in app.jobs])
        left.append(
            PhaseLeft(jobs=len(works), work_gpu_s=math.fsum(works), longest_gpu_s=max(works), gang_gpus=gang),
        )
    if app.later_phases:
        median = app.median_job
        for phase in app.later_phases:
            each = phase.iterations * median.serial_iteration_s
            gang = median.shape.demand_max_gpus
            left.append(
                PhaseLeft(jobs=phase.jobs, work_gpu_s=phase.jobs * each, longest_gpu_s=each, gang_gpus=gang),
            )
    return tuple(left)


def empty_bundle_s(app: AppView, cluster: ClusterView) -> tuple[float, float]:
    """T of what the app keeps if it wins nothing, and the restart that losing the rest costs, in seconds.

    Example: a job with 400 s of work at S = 1 runs on four GPUs, of which two are renewable, and a restart takes 20 s.
    With nothing it keeps two GPUs: T = 200 s, and it pays the restart. An app without GPUs never ends: T is infinite.
    """
    if app.jobs and not app.held:
        return math.inf, 0.0
    kept = [gang.at for gang in app.held if not gang.renewable_gpus.counts]
    if len(kept) == len(app.held):
        return finish_time_s(app, kept, cluster), 0.0
    return finish_time_s(app, [*kept, *parts_left(app, app.renewable)], cluster), app.restart_s


def unmet_demands(app: AppView) -> tuple[GangDemand, ...]:
    """What the jobs of the current phase could use beyond the leases that continue.

    A job without a gang demands one. A job on a gang that could grow demands more only if that pays (`extension_pays`).
    A job that may lose a part of its gang, and can run on the rest, demands the lost part.

    Example: two jobs of 1 to 4 GPUs. One holds four GPUs of m0, of which two are renewable, the other waits. The first
    demands 1 to 2 GPUs in addition to the two that it keeps, the second demands 1 to 4.
    """
    if not app.held:
        return tuple([job.demand for job in app.jobs])
    held = {gang.job_id: gang for gang in app.held}
    demands = []
    for job in app.jobs:
        gang = held.get(job.job_id)
        if gang is None:
            demands.append(job.demand)
        elif not _is_enough(gang, job.shape):
            demand = _demand_of(job, gang, app.restart_s)
            if demand is not None:
                demands.append(demand)
    return tuple(demands)


def is_satisfied(shapes: Sequence[JobShape], gangs: Sequence[HeldGang]) -> bool:
    """Whether the app is satisfied: each job holds all GPUs that it can use, and none of them is renewable.

    `unmet_demands` is empty then, whatever work is left. For example, an app of one job of 1 to 4 GPUs is satisfied if
    it holds 4 GPUs whose leases continue, and not if the lease of one of them ends in this round.

    Args:
        shapes: The shapes of all jobs.
        gangs: The held gangs, in the order of their jobs.
    """
    if len(gangs) < len(shapes):
        return False
    return all(_is_enough(gang, shape) for shape, gang in zip(shapes, gangs, strict=True))


def _is_enough(gang: HeldGang, shape: JobShape) -> bool:
    """Whether a gang continues and its job can use no more GPUs, however much work is left. Most gangs qualify."""
    return not gang.renewable_gpus.counts and (gang.at.gpus >= shape.demand_max_gpus or gang.bound)


def extension_pays(job: JobView, gang: GangAt, gpus: int, level: Level, restart_s: float) -> bool:
    """Whether moving a running job onto `gpus` GPUs of its device type ends it earlier by more than two restarts.

    Example: 1000 s of serial work on 2 GPUs at S = 1 end after 500 s, on 4 GPUs after 250 s. Growing pays if a restart
    takes less than 125 s.
    """
    usable = job.shape.usable_gpus(gpus)
    throughput = usable / job.slowdown_on(level, gang.device)
    return usable > job.shape.usable_gpus(gang.gpus) and throughput > pays_above(job, gang, restart_s)


def pays_above(job: JobView, gang: GangAt, restart_s: float) -> float:
    """The throughput above which a move recovers the cost of a restart twice; infinite if no throughput does.

    It is g * speed / S, in units of a reference GPU at S = 1. Twice, because the estimate of the work left is uncertain
    and the cost of the restart is not.
    """
    used = job.shape.usable_gpus(gang.gpus)
    if not used:
        return 0.0
    slowdown = job.slowdown_on(gang.level, gang.device)
    spare_s = job.serial_work_s * slowdown / used - 2.0 * restart_s
    # Rounding must not make a job faster than itself: with free restarts it would move for ever.
    return max(used / slowdown, job.serial_work_s / spare_s) if spare_s > 0.0 else math.inf


def parts_left(app: AppView, gangs: Iterable[HeldGang]) -> tuple[GangAt, ...]:
    """What the app keeps of partly renewable gangs, if their jobs can run on that."""
    torn = [gang for gang in gangs if gang.renewable_gpus != gang.gpus]
    shapes = {job.job_id: job.shape for job in app.jobs} if torn else {}
    parts = (part_left(gang, shapes[gang.job_id]) for gang in torn if gang.job_id in shapes)
    return tuple(part for part in parts if part.gpus)


def part_left(gang: HeldGang, shape: JobShape) -> GangAt:
    """What is left of a gang without its renewable GPUs; 0 GPUs if the job cannot run on that.

    On one machine its level is MACHINE at best: the agent does not know the slots of its GPUs.
    """
    part = gang.gpus - gang.renewable_gpus
    level = min(gang.level, Level.MACHINE) if len(part.counts) <= 1 else gang.level
    unit_gpus = shape.gpus_per_task if level > Level.MACHINE else 0
    return GangAt(usable_gpus(shape, part), level, unit_gpus, gang.device)


def usable_gpus(shape: JobShape, gpus: Allocation) -> int:
    """The number of these GPUs that a job can use: whole tasks on each machine, or 0 if they are too few."""
    return shape.usable_gpus(sum(count - count % shape.gpus_per_task for _, count in gpus))


def _demand_of(job: JobView, held: HeldGang, restart_s: float) -> GangDemand | None:
    """What a job demands in addition to its gang, or instead of it."""
    shape = job.shape
    if not held.renewable_gpus.counts:
        if not extension_pays(job, held.at, shape.demand_max_gpus, held.level, restart_s):
            return None
        return _extension_of(job, held.gpus, pays_above(job, held.at, restart_s))
    near = held.gpus - held.renewable_gpus if held.renewable_gpus != held.gpus else Allocation()
    if not near or not usable_gpus(shape, near):
        return job.demand
    return _extension_of(job, near, 0.0)


def _extension_of(job: JobView, near: Allocation, faster_than: float) -> GangDemand | None:
    """What a job demands in addition to the GPUs that it holds. Returns None if it can use no further task."""
    shape = job.shape
    extension_gpus = shape.demand_max_gpus - near.gpus
    if extension_gpus < shape.gpus_per_task:
        return None
    return GangDemand(
        job_id=job.job_id,
        min_gpus=max(shape.gpus_per_task, shape.demand_min_gpus - near.gpus),
        max_gpus=extension_gpus,
        unit_gpus=shape.gpus_per_task,
        slowdown=job.slowdown,
        work_left_gpu_s=job.serial_work_s,
        held=near,
        faster_than=faster_than,
        forecast=job.forecast,
        speeds=job.speeds,
    )
