"""Read an app's status: whether it has ended, its best job, and values that may be unknown."""

from __future__ import annotations

import math

from themis import lifecycle
from themis.apps import HyperParameter, MetricSpec
from themis.lifecycle import APP_LIFECYCLE, AppState
from themis.wire import themis_pb2 as pb
from themis.wire.values import metric_from_message, scalars_from_messages

WAITING_STATES = (AppState.ACCEPTED.value, AppState.RUNNING.value)
"""States of the apps that are shown as waiting."""


def has_ended(app: pb.AppStatus) -> bool:
    """Whether the app's state is final. A state unknown to this client counts as not final."""
    return app.state in AppState.__members__ and APP_LIFECYCLE.is_final(AppState(app.state))


def succeeded(app: pb.AppStatus) -> bool:
    """Whether the app finished."""
    return bool(app.state == AppState.FINISHED)


def is_paused(app: pb.AppStatus) -> bool:
    """Whether nothing of the app runs until it is resumed."""
    return bool(app.state == AppState.PAUSED)


def is_at_rest(app: pb.AppStatus) -> bool:
    """Whether nothing of the app runs: it is paused, or has ended."""
    return is_paused(app) or has_ended(app)


def shown_state(app: pb.AppStatus) -> str:
    """Return the state as shown to people."""
    return lifecycle.shown_state(app.state, gpus=app.gpus, hosted=app.hosted)


def rho(app: pb.AppStatus) -> float:
    """Return the app's finish-time fairness, or NaN if it is unknown, which the wire writes as 0."""
    return app.rho if app.rho > 0 else math.nan


def loss(job: pb.JobStatus) -> float:
    """Return a job's newest loss, or NaN if it logged none."""
    return job.loss if job.has_loss else math.nan


def accuracy(job: pb.JobStatus) -> float:
    """Return a job's newest accuracy as a share of 1, or NaN if it logged none."""
    return job.accuracy if job.has_accuracy else math.nan


def metric(app: pb.AppStatus) -> MetricSpec:
    """Return the metric by which the app's search compares jobs."""
    return metric_from_message(app.spec.metric)


def best_job(app: pb.AppStatus) -> pb.JobStatus | None:
    """Return the best job, or None if it is unknown."""
    return next((job for job in app.jobs if job.job_id == app.best), None)


def phase(app: pb.AppStatus) -> int:
    """Return the search's phase, counted from 1, or 0 if it has no phases. After its last phase, that phase."""
    return min(app.phase + 1, app.phases)


def hyper_parameters(app: pb.AppStatus, job_id: str) -> dict[str, HyperParameter]:
    """Return a job's hyper-parameters by name: as its app master reports them, else as submitted."""
    reported = {job.job_id: job.hyper_parameters for job in app.jobs}
    submitted = {job.job_id: job.hyper_parameters for job in app.spec.jobs}
    return scalars_from_messages(reported.get(job_id) or submitted.get(job_id) or {})


def duration_s(app: pb.AppStatus) -> float | None:
    """Return the seconds from submission to the end, or None before the end."""
    return app.finished_at_s - app.submitted_at_s if app.finished_at_s > 0 else None
