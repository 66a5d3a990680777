"""What an app's status means: whether it has ended, which job leads, what is not known yet."""

from __future__ import annotations

import math

from themis.apps import HyperParameter
from themis.lifecycle import APP_LIFECYCLE, AppState
from themis.wire import themis_pb2 as pb
from themis.wire.values import scalars_from_messages


def has_ended(app: pb.AppStatus) -> bool:
    """True when nothing follows the app's state; a state that this client does not know is taken as not final."""
    return app.state in AppState.__members__ and APP_LIFECYCLE.is_final(AppState(app.state))


def succeeded(app: pb.AppStatus) -> bool:
    """True when the app ended well."""
    return bool(app.state == AppState.FINISHED)


def rho(app: pb.AppStatus) -> float:
    """The app's finish-time fairness; NaN before it is known, which the wire writes as 0."""
    return app.rho if app.rho > 0 else math.nan


def loss(job: pb.JobStatus) -> float:
    """A job's newest loss; NaN when it logged none."""
    return job.loss if job.has_loss else math.nan


def accuracy(job: pb.JobStatus) -> float:
    """A job's newest accuracy, a share of 1; NaN when it logged none."""
    return job.accuracy if job.has_accuracy else math.nan


def best_job(app: pb.AppStatus) -> pb.JobStatus | None:
    """The job that leads, or None while nobody knows."""
    return next((job for job in app.jobs if job.job_id == app.best), None)


def hyper_parameters(app: pb.AppStatus, job_id: str) -> dict[str, HyperParameter]:
    """A job's hyper-parameters by name: as its app master reports them, else as they were submitted."""
    reported = {job.job_id: job.hyper_parameters for job in app.jobs}
    submitted = {job.job_id: job.hyper_parameters for job in app.spec.jobs}
    return scalars_from_messages(reported.get(job_id) or submitted.get(job_id) or {})


def duration_s(app: pb.AppStatus) -> float | None:
    """Seconds from submission to the end; None before it."""
    return app.finished_at_s - app.submitted_at_s if app.finished_at_s > 0 else None
