"""One app's entry in a run's report: its outcome, fairness, GPU time, speeds and best model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from themis.rho import RhoDefinition
from themis.wire import app_status as status
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_from_message
from themis_lab.testbed.events import Event
from themis_lab.testbed.live import kind_of
from themis_lab.testbed.measures import gpu_time_by_device, gpu_time_s, number, placement_score, slowdown_or_crude
from themis_lab.testbed.spans import LeaseSpan, TaskSpan

RHO_DEFINITIONS = tuple(definition.value for definition in RhoDefinition)


def app_report(
    app: pb.AppStatus,
    events: Sequence[Event],
    leases: Sequence[LeaseSpan],
    tasks: Sequence[TaskSpan],
    end_s: float,
    device_of: Mapping[str, str],
) -> dict[str, Any]:
    """Return the report's entry for an app.

    Args:
        app: Its status at the end.
        events: Its own events.
        leases: The app's leases.
        tasks: The app's task spans.
        end_s: End of the record, in seconds since the epoch.
        device_of: The device type of each machine.
    """
    slowdown = app_from_message(app.spec).estimate.slowdown if app.HasField("spec") else None
    first_s = min((lease.start_s for lease in leases), default=math.nan)
    return {
        "name": app.name,
        "app_id": app.app_id,
        "tuner": app.tuner,
        "program": app.program,
        "user": app.user,
        "kind": kind_of(app),
        "jobs": len(app.jobs) or len(app.spec.jobs),
        "state": app.state,
        "diagnostics": app.diagnostics,
        "rho": {name: finite(app.final_rho.get(name, math.nan)) for name in RHO_DEFINITIONS},
        "gpu_time_s": gpu_time_s(leases, end_s),
        "gpu_time_s_by_device": gpu_time_by_device(leases, end_s, device_of),
        "speeds": speeds(app),
        "placement_score": placement_score(tasks, slowdown_or_crude(slowdown), end_s),
        "restarts": _count(events, "job_restarted"),
        "resizes": _count(events, "resize"),
        "checkpoints": _count(events, "checkpoint"),
        "am_attempts": app.attempts,
        "best": best_model(app, events),
        "submitted_at_s": app.submitted_at_s,
        "completion_s": status.duration_s(app),
        "queueing_s": finite(first_s - app.submitted_at_s),
    }


def best_model(app: pb.AppStatus, events: Sequence[Event]) -> dict[str, Any] | None:
    """Return the best job of the search with its settings, accuracy and loss; None if no job is best yet.

    The accuracy is that on held-out data: from the status of the job, or else from its last `validation` event.
    """
    job = status.best_job(app)
    if job is None:
        return None
    validated = [event for event in events if event.kind == "validation" and event.detail.get("job_id") == job.job_id]
    accuracy = status.accuracy(job)
    if math.isnan(accuracy) and validated:
        accuracy = number(validated[-1].detail.get("accuracy"))
    return {
        "job_id": job.job_id,
        "hyper_parameters": status.hyper_parameters(app, job.job_id),
        "iteration": job.iteration,
        "accuracy": finite(accuracy),
        "loss": finite(status.loss(job)),
        "checkpoint": _below(app.best_checkpoint, app.folder),
    }


def speeds(app: pb.AppStatus) -> dict[str, dict[str, Any]]:
    """Return the speed of the app's jobs on each device type, and whether a job measured it.

    A measured speed takes precedence over one from the specification. For example, if job a assumes a speed of 3 on
    `v100` and job b measured 2.5, the result is `{"v100": {"speed": 2.5, "measured": True}}`. Empty if the cluster has
    one device type.
    """
    known: dict[str, dict[str, Any]] = {}
    for job in app.jobs:
        for each in job.speeds:
            if each.device not in known or (each.measured and not known[each.device]["measured"]):
                known[each.device] = {"speed": each.speed, "measured": each.measured}
    return known


def finite(value: float) -> float | None:
    """Return the number, or None if it is infinite or NaN, which JSON cannot express."""
    return value if math.isfinite(value) else None


def _below(place: str, folder: str) -> str | None:
    """Return a checkpoint's path, relative to the folder of all apps if it lies in there; None for an empty path."""
    if not place:
        return None
    path = Path(place.removeprefix("file://"))
    root = Path(folder).parent
    return str(path.relative_to(root)) if folder and path.is_relative_to(root) else place


def _count(events: Sequence[Event], kind: str) -> int:
    return sum(event.kind == kind for event in events)
