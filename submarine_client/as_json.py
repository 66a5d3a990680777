"""Apps as JSON for programs: plain numbers, null for unknown values, and always the same keys."""

from __future__ import annotations

import json
import math
from typing import Any

from msgspec import to_builtins

from submarine_client import status
from submarine_client.terminal import CONTROL
from themis.apps import AppSpec
from themis.wire import themis_pb2 as pb


def dump(value: Any) -> str:
    """Format as indented JSON. The caller replaces NaN and infinities, which JSON lacks, by None first.

    Characters that could take over a terminal are escaped, also those that JSON may hold as they are.
    """
    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    return "\n".join(CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", line) for line in text.split("\n"))


def spec_object(app: AppSpec) -> dict[str, Any]:
    """Return an app's specification, with the kernel's names as keys."""
    fields: dict[str, Any] = to_builtins(app)
    return fields


def app_object(app: pb.AppStatus) -> dict[str, Any]:
    """Return an app's status."""
    return {
        "app_id": app.app_id,
        "name": app.name,
        "user": app.user,
        "queue": app.queue,
        "state": app.state,
        "shown_state": status.shown_state(app),
        "program": app.program,
        "replay": app.replay,
        "tuner": app.tuner,
        "phase": status.phase(app) or None,
        "phases": app.phases or None,
        "progress": _finite(app.progress),
        "rho": _finite(status.rho(app)),
        "final_rho": {name: _finite(value) for name, value in sorted(app.final_rho.items())},
        "gpus": app.gpus,
        "gpus_unmet": app.gpus_unmet,
        "gpu_time_s": app.gpu_time_s,
        "attempts": app.attempts,
        "submitted_at_s": app.submitted_at_s,
        "started_at_s": app.started_at_s or None,
        "finished_at_s": app.finished_at_s or None,
        "best": app.best or None,  # the name that `best_job` had at first
        "best_job": app.best or None,
        "best_checkpoint": app.best_checkpoint or None,
        "folder": app.folder or None,
        "archive": app.archive or None,
        "engine_id": app.engine_id or None,
        "checkpoint_uri": app.checkpoint_uri or None,
        "page_url": app.page_url or None,
        "app_page_url": app.app_page_url or None,
        "diagnostics": app.diagnostics,
        "waits_for": app.waits_for or None,
        "waiting": _waiting_object(app.waiting) if app.HasField("waiting") else None,
        "estimate": _estimate_object(app.estimate) if app.HasField("estimate") else None,
        "metric": _metric_object(app),
        "explanation": [{"label": line.label, "text": line.text} for line in app.explanation],
        "jobs": [_job_object(app, job) for job in app.jobs],
        "leases": [_lease_object(lease) for lease in app.leases],
    }


def _waiting_object(waiting: pb.AppWaiting) -> dict[str, Any]:
    return {
        "reason": waiting.reason,
        "rank": waiting.rank or None,
        "of": waiting.of,
    }


def _estimate_object(estimate: pb.AppEstimate) -> dict[str, Any]:
    return {"first_gpu_s": _interval_object(estimate.first_gpu_s), "end_s": _interval_object(estimate.end_s)}


def _interval_object(interval: pb.Seconds) -> dict[str, Any]:
    return {"median": _finite(interval.median), "low": _finite(interval.low), "high": _finite(interval.high)}


def _metric_object(app: pb.AppStatus) -> dict[str, Any] | None:
    """Return the metric of the search: its name, and how many lines of all logs were seen, and had it."""
    metric = status.metric(app)
    if not metric.wanted:
        return None
    return {
        "name": metric.title,
        "lines_seen": sum(job.lines_seen for job in app.jobs),
        "lines_read": sum(job.lines_read for job in app.jobs),
    }


def _job_object(app: pb.AppStatus, job: pb.JobStatus) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "state": job.state,
        "iteration": job.iteration,
        "target_iteration": job.target_iteration,
        "loss": _finite(status.loss(job)),
        "accuracy": _finite(status.accuracy(job)),
        "gpus": job.gpus,
        "iteration_s": _finite(job.iteration_s) or None,
        "restarts": job.restarts,
        "hyper_parameters": status.hyper_parameters(app, job.job_id),
        "health": job.health or None,
        "tracked_run": job.tracked_run or None,
        "pace_known": job.pace_known,
        "slowdown": {
            each.level: {"factor": each.factor, "intervals": each.intervals, "spread": each.spread}
            for each in job.slowdown
        },
        "device": job.device or None,
        "speeds": {each.device: {"speed": each.speed, "measured": each.measured} for each in job.speeds},
    }


def _lease_object(lease: pb.Lease) -> dict[str, Any]:
    return {
        "lease_id": lease.lease_id,
        "gpu": f"{lease.machine_id}/{lease.gpu_index}",
        "state": lease.state,
        "expires_at_s": lease.expires_at_s,
        "job_id": lease.job_id or None,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
