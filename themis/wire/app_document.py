"""An app's status as a document that JSON can hold: the same for the commands' `--json` and for the REST interface.

Unknown values are None, and the keys are always the same.
"""

from __future__ import annotations

from themis.web.formatting import finite
from themis.wire import app_status as status
from themis.wire import themis_pb2 as pb
from themis.wire.values import scalars_from_messages

Document = dict[str, object]


def summary_document(app: pb.AppStatus) -> Document:
    """Return what a list shows of an app: all but its jobs and what is computed for one app only."""
    return {
        "app_id": app.app_id,
        "name": app.name,
        "user": app.user,
        "queue": app.queue,
        "state": app.state,
        "shown_state": status.shown_state(app),
        "tuner": app.tuner,
        "program": app.program,
        "replay": app.replay,
        "submitted_at_s": app.submitted_at_s,
        "started_at_s": app.started_at_s or None,
        "finished_at_s": app.finished_at_s or None,
        "progress": finite(app.progress),
        "rho": finite(status.rho(app)),
        "gpus": app.gpus,
        "gpus_unmet": app.gpus_unmet,
        "gpu_time_s": app.gpu_time_s,
        "attempts": app.attempts,
        "phase": status.phase(app) or None,
        "phases": app.phases or None,
        "jobs_total": app.jobs_total,
        "best_job": app.best or None,
        "page_url": app.page_url or None,
        "app_page_url": app.app_page_url or None,
        "engine_id": app.engine_id or None,
        "diagnostics": app.diagnostics,
    }


def app_document(app: pb.AppStatus) -> Document:
    """Return all that is known of an app. Before its app master reports, its jobs are as submitted."""
    submitted = {job.job_id: job for job in app.spec.jobs}
    jobs = app.jobs or [
        pb.JobStatus(job_id=job.job_id, target_iteration=job.iterations_total) for job in submitted.values()
    ]
    return {
        **summary_document(app),
        "best": app.best or None,  # the name that `best_job` had at first
        "demand_max_gpus": app.demand_max_gpus or None,
        "final_rho": {name: finite(value) for name, value in sorted(app.final_rho.items())},
        "best_checkpoint": app.best_checkpoint or None,
        "checkpoint_uri": app.checkpoint_uri or None,
        "folder": app.folder or None,
        "archive": app.archive or None,
        "metric": _metric_document(app),
        "jobs": [_job_document(job, submitted.get(job.job_id)) for job in jobs],
        "leases": [_lease_document(lease) for lease in app.leases],
        "waits_for": app.waits_for or None,
        "waiting": _waiting_document(app.waiting) if app.HasField("waiting") else None,
        "estimate": _estimate_document(app.estimate) if app.HasField("estimate") else None,
        "explanation": [{"label": line.label, "text": line.text} for line in app.explanation],
    }


NOT_IN_LISTS = ("demand_max_gpus", "folder", "metric", "leases", "estimate", "explanation")
"""Keys of `app_document` for which a list of apps has no values."""


def listed_document(app: pb.AppStatus) -> Document:
    """Return an app as the commands list it. Keys that a list does not ask for are None."""
    return {**app_document(app), **dict.fromkeys(NOT_IN_LISTS)}


def _waiting_document(waiting: pb.AppWaiting) -> Document:
    return {
        "reason": waiting.reason,
        "rank": waiting.rank or None,
        "of": waiting.of,
        "ahead": list(waiting.ahead),
    }


def _estimate_document(estimate: pb.AppEstimate) -> Document:
    return {"first_gpu_s": _interval_document(estimate.first_gpu_s), "end_s": _interval_document(estimate.end_s)}


def _interval_document(interval: pb.Seconds) -> Document:
    return {"median": finite(interval.median), "low": finite(interval.low), "high": finite(interval.high)}


def _metric_document(app: pb.AppStatus) -> Document | None:
    """Return the metric of the search: its name, and how many lines of all logs were seen, and had it.

    None if nothing is compared, or if the status has no specification, as in lists and for other users' apps.
    """
    metric = status.metric(app)
    if not (app.HasField("spec") and metric.wanted):
        return None
    return {
        "name": metric.title,
        "lines_seen": sum(job.lines_seen for job in app.jobs),
        "lines_read": sum(job.lines_read for job in app.jobs),
    }


def _job_document(job: pb.JobStatus, submitted: pb.JobSpec | None) -> Document:
    values = scalars_from_messages(job.hyper_parameters or (submitted.hyper_parameters if submitted else {}))
    return {
        "job_id": job.job_id,
        "state": job.state or None,
        "iteration": job.iteration,
        "target_iteration": job.target_iteration,
        "loss": finite(status.loss(job)),
        "accuracy": finite(status.accuracy(job)),
        "gpus": job.gpus,
        "iteration_s": finite(job.iteration_s) or None,
        "restarts": job.restarts,
        "hyper_parameters": {
            name: finite(value) if isinstance(value, float) else value for name, value in values.items()
        },
        "health": job.health or None,
        "tracked_run": job.tracked_run or None,
        "pace_known": job.pace_known,
        "slowdown": {
            each.level: {"factor": finite(each.factor), "intervals": each.intervals, "spread": finite(each.spread)}
            for each in job.slowdown
        },
        "device": job.device or None,
        "speeds": {each.device: {"speed": finite(each.speed), "measured": each.measured} for each in job.speeds},
    }


def _lease_document(lease: pb.Lease) -> Document:
    return {
        "lease_id": lease.lease_id,
        "gpu": f"{lease.machine_id}/{lease.gpu_index}",
        "state": lease.state,
        "granted_at_s": lease.granted_at_s,
        "expires_at_s": lease.expires_at_s,
        "job_id": lease.job_id or None,
    }
