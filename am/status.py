"""The app master's reports on its app: heartbeats, and the final report."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator

from am.agent.model.demands import unmet_demands
from am.agent.model.views import AppView
from am.app import App
from am.app_view import JobProgress
from am.jobs.run import JobRun
from am.searched_app import SearchedApp
from am.tuners.port import TunerPlan
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb
from themis.wire.values import declaration_to_message, phases_to_messages, scalars_to_messages

LOG = logging.getLogger("themis.am")


MAX_CURVES = 16
"""Most loss curves of one heartbeat. One takes about 700 bytes."""


class LossCurves:
    """Chooses the loss curves of each heartbeat: those that have other points than when they were sent last.

    One more is sent in turn, because the ResourceManager may have missed a heartbeat.
    """

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}
        self._turn = 0

    def next(self, jobs: Iterable[JobRun]) -> list[pb.LossCurve]:
        """Return the curves to send now, at most `MAX_CURVES`."""
        known = [job for job in jobs if job.curve]
        if not known:
            return []
        self._turn = (self._turn + 1) % len(known)
        first, *others = (*known[self._turn :], *known[: self._turn])
        changed = [job for job in others if len(job.curve) != self._sent.get(job.job_id)]
        chosen = [first, *changed[: MAX_CURVES - 1]]
        self._sent |= {job.job_id: len(job.curve) for job in chosen}
        return [loss_curve(job) for job in chosen]


def loss_curve(job: JobRun) -> pb.LossCurve:
    """The losses of one job, or the values of the metric that its app declares."""
    return pb.LossCurve(
        job_id=job.job_id, iterations=[round(at) for at, _ in job.curve], losses=[value for _, value in job.curve]
    )


def heartbeat_message(app: SearchedApp, view: AppView, curves: LossCurves, headroom_gpus: int | None) -> pb.Heartbeat:
    """The app's progress; `view` is the app with all gangs that it holds, `headroom_gpus` is as in `AmEngine`."""
    plan = app.search.plan()
    return pb.Heartbeat(
        progress=app.search.done_share(),
        jobs=[job_status(app, job, plan) for job in app.search.jobs.values()],
        phase=plan.phase,
        phases=plan.phase_count,
        best=app.search.best(),
        checkpoint_uri=app.checkpoint_uri,
        unmet_gpus=sum(demand.max_gpus for demand in unmet_demands(view)),
        declaration=_declaration(app),
        phases_left=phases_to_messages(app.phases_left(view)),
        restart_s=app.restart_s,
        loss_curves=curves.next(app.search.jobs.values()),
        headroom_gpus=headroom_gpus,
        # How long a job goes on past its target is unknown too.
        provisional=any(job.pace_guessed for job in view.jobs)
        or any(job.running and job.is_past_target for job in app.search.jobs.values()),
    )


def finish_message(app: App, state: AppState, diagnostics: str) -> pb.Finish:
    """The app's end: rho by definition if it did its work, every job, the best job and its checkpoint."""
    # One that was killed or failed has no finish time, and of a job that ended short it is not known what it did.
    whole = state is AppState.FINISHED and not any(job.short_of for job in app.search.jobs.values())
    best = app.search.best()
    checkpoint = app.store.latest(best) if best else None
    return pb.Finish(
        state=state.value,
        diagnostics=diagnostics,
        rho=app.final_rho() if whole else {},
        jobs=list(_job_reports(app)),
        best=best,
        best_checkpoint=checkpoint.location if checkpoint is not None else "",
        declaration=_declaration(app),
        loss_curves=[loss_curve(job) for job in app.search.jobs.values() if job.curve],
    )


def _declaration(app: SearchedApp) -> pb.Declaration | None:
    declaration = app.declaration()
    return None if declaration is None else declaration_to_message(declaration)


def _job_reports(app: App) -> Iterator[pb.JobStatus]:
    """Yield the status of every job. Omits jobs whose status fails, so that the app can still end."""
    plan = app.search.plan()
    for job in app.search.jobs.values():
        try:
            yield job_status(app, job, plan)
        except Exception:
            LOG.exception("the final report omits job %s", job.job_id)


def job_status(app: SearchedApp, job: JobRun, plan: TunerPlan) -> pb.JobStatus:
    """One job, under the tuner's present plan."""
    loss, accuracy = job.shown_loss, job.profile.accuracy
    return pb.JobStatus(
        job_id=job.job_id,
        state=job.state.value,
        iteration=job.profile.iteration,
        target_iteration=app.search.target_of(job, plan),
        loss=loss if math.isfinite(loss) else 0.0,
        has_loss=math.isfinite(loss),
        accuracy=accuracy or 0.0,
        has_accuracy=accuracy is not None,
        restarts=job.restarts,
        gpus=len(job.gpus),
        iteration_s=job.profile.iteration_s or 0.0,
        hyper_parameters=scalars_to_messages(job.spec.hyper_parameters),
        health=job.health,
        slowdown=[
            pb.LevelSlowdown(level=each.level, factor=each.factor, intervals=each.intervals, spread=each.spread)
            for each in job.profile.slowdown_by_level()
        ],
        device=job.profile.device if job.gpus else "",
        speeds=[
            pb.DeviceSpeed(device=each.device, speed=each.speed, measured=each.measured)
            for each in job.profile.speed_by_device()
        ],
        lines_seen=job.lines.lines_seen if job.lines is not None else 0,
        lines_read=job.lines.lines_read if job.lines is not None else 0,
        tracked_run=job.profile.tracked_run,
        pace_known=JobProgress(spec=job.spec, profile=job.profile).pace_known,
    )
