"""Jobs on GPUs that a lease binds to them: a job runs on its own GPUs until it ends, and no other job does. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from themis.cluster import GpuId
from themis.values import Value

Gpus = tuple[GpuId, ...]


class BoundPlan(Value, frozen=True, kw_only=True):
    """What should change on the bound GPUs; fields as in `planner.Plan`."""

    stop: Mapping[str, str]
    start: Mapping[str, Gpus]
    release: Gpus


def plan_bound(
    running: Mapping[str, Gpus],
    waiting: Iterable[str],
    leaving: Iterable[str],
    others: Mapping[str, Gpus],
    bound: Mapping[GpuId, str],
) -> BoundPlan:
    """Plan the bound GPUs of an app.

    A waiting job starts on the GPUs that are bound to it. A job that runs on GPUs bound to another one stops. GPUs go
    back as soon as their job has ended or runs elsewhere, and nothing runs on them.

    Example: m0/0 is bound to job a, and job b still runs there. The plan stops b, and a waits. Once b's GPU is free,
    the plan starts a on m0/0. It releases m0/0 when a has ended.

    Args:
        running: GPUs by job of the jobs that run and should.
        waiting: Jobs of the current phase without GPUs.
        leaving: Jobs that run and lose their GPUs or stop already: they need their bound GPUs soon.
        others: GPUs by job of jobs that run and should not.
        bound: The job of each granted GPU that is bound.
    """
    busy = {gpu for gangs in (running, others) for gpus in gangs.values() for gpu in gpus}
    own: dict[str, list[GpuId]] = {}
    for gpu, job_id in sorted(bound.items()):
        own.setdefault(job_id, []).append(gpu)
    start = {job_id: tuple(own[job_id]) for job_id in waiting if job_id in own and busy.isdisjoint(own[job_id])}
    awaited = {*waiting, *leaving}
    return BoundPlan(
        stop={
            job_id: "its GPUs are for another job"
            for job_id, gpus in running.items()
            if any(bound.get(gpu, job_id) != job_id for gpu in gpus)
        },
        start=start,
        release=tuple(gpu for gpu, job_id in sorted(bound.items()) if gpu not in busy and job_id not in awaited),
    )
