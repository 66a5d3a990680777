"""The values that an app master's page shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from am.app import App
from am.jobs.run import JobRun
from am.profiler.profile import DeviceSpeed
from am.profiler.slowdowns import LevelSlowdown
from themis.apps import HyperParameter
from themis.cluster import GpuId
from themis.values import Value


class JobRow(Value, frozen=True, kw_only=True):
    """One job.

    Attributes:
        loss: The newest loss, or value of the declared metric. None until it is known, as is `accuracy`.
        gpus: The job's GPUs as `MACHINE/INDEX`, separated by blanks.
        health: The job's problem, or empty if it has none.
        tracked_run: Where its run in an experiment tracker is, or empty.
        slowdown: S by level, tightest first.
        speeds: The speed by device type, fastest first; empty on a cluster of one type.
    """

    job_id: str
    state: str
    iteration: int
    target_iteration: int
    loss: float | None = None
    accuracy: float | None = None
    gpus: str = ""
    restarts: int = 0
    hyper_parameters: Mapping[str, HyperParameter]
    health: str = ""
    tracked_run: str = ""
    slowdown: tuple[LevelSlowdown, ...] = ()
    speeds: tuple[DeviceSpeed, ...] = ()


class LeaseRow(Value, frozen=True, kw_only=True):
    """One lease. `expires_at_s` is in seconds since the epoch on the ResourceManager's clock."""

    lease_id: int
    gpu: str
    state: str
    expires_at_s: float


class AmPageState(Value, frozen=True, kw_only=True):
    """An app as its master knows it at one moment.

    Attributes:
        now_s: The moment, on the ResourceManager's clock.
        progress: Share of the work done, 0 to 1.
        rho: Finish-time fairness if the app kept its GPUs. None once the search is over.
        phase, phases: The search's present phase, from 1, and the number of phases.
        best: The best job so far. Empty until it is known.
        metric: The name of what the search compares, for people.
        lines_seen, lines_read: Lines of all logs, and how many of them had the metric.
        folder: The app's folder, which contains the logs.
        device_noun: What a device of the cluster is called.
    """

    app_id: str
    name: str
    tuner: str
    attempt: int
    now_s: float
    progress: float
    rho: float | None
    phase: int
    phases: int
    best: str
    jobs: tuple[JobRow, ...]
    leases: tuple[LeaseRow, ...]
    folder: Path
    device_noun: str = "GPU"
    metric: str = "loss"
    lines_seen: int = 0
    lines_read: int = 0


def page_state(app: App, attempt: int, planned: Mapping[str, tuple[GpuId, ...]] | None = None) -> AmPageState:
    """Return the present page state. `planned` has the GPUs of jobs that are about to start."""
    plan = app.search.plan()
    view = app.view(planned or {})
    guessed = any(job.pace_guessed for job in view.jobs)
    rho = None if plan.finished or guessed else app.rho_now(view)
    lines = [job.lines for job in app.search.jobs.values() if job.lines is not None]
    return AmPageState(
        app_id=app.app_id,
        name=app.spec.name,
        tuner=app.spec.tuner.name,
        attempt=attempt,
        now_s=app.now_s(),
        progress=app.search.done_share(),
        rho=rho,
        phase=min(plan.phase + 1, plan.phase_count),
        phases=plan.phase_count,
        best=app.search.best(),
        jobs=tuple(_job(job, app.search.target_of(job, plan)) for job in app.search.jobs.values()),
        leases=tuple(
            LeaseRow(lease_id=lease.lease_id, gpu=str(gpu), state=lease.state.value, expires_at_s=lease.expires_at_s)
            for gpu, lease in sorted(app.leases.items())
        ),
        folder=app.folder,
        device_noun=app.cluster.device_noun,
        metric=app.spec.metric.title,
        lines_seen=sum(each.lines_seen for each in lines),
        lines_read=sum(each.lines_read for each in lines),
    )


def _job(job: JobRun, target: int) -> JobRow:
    return JobRow(
        job_id=job.job_id,
        state=job.state.value,
        iteration=job.profile.iteration,
        target_iteration=target,
        loss=job.shown_loss if math.isfinite(job.shown_loss) else None,
        accuracy=job.profile.accuracy,
        gpus=" ".join(str(gpu) for gpu in job.gpus),
        restarts=job.restarts,
        hyper_parameters=job.spec.hyper_parameters,
        health=job.health,
        tracked_run=job.profile.tracked_run,
        slowdown=job.profile.slowdown_by_level(),
        speeds=job.profile.speed_by_device(),
    )
