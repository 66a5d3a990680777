"""Costs measured in a live run, to be used in its simulation instead of assumptions: start-up, restarts, pace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from msgspec.structs import replace

from themis.apps import Slowdown
from themis.cluster import Level
from themis.durations import median_with_cuts
from themis.values import Value
from themis.wire import themis_pb2 as pb
from themis_lab.simulator.costs import Costs
from themis_lab.simulator.workload import AppTrace, Workload
from themis_lab.testbed.events import Event
from themis_lab.testbed.run_record import RunRecord


class Measured(Value, frozen=True, kw_only=True):
    """One app's medians in seconds; None for costs that did not occur.

    Attributes:
        startup_s: From the app's submission until its app master registered.
        start_s: From the start of a job's tasks to its first step. Starts that were cut short count as longer.
        stop_s: From the request to stop to the end of a job's tasks.
        finish_s: Time of a run that ended by itself, in addition to its start and its iterations.
        serial_iteration_s: An iteration on one GPU at S = 1.
    """

    startup_s: float | None
    start_s: float | None
    stop_s: float | None
    finish_s: float | None
    serial_iteration_s: float | None


def as_measured(workload: Workload, record: RunRecord) -> Workload:
    """Return the workload of a live run with the costs measured in it.

    Every app gets its own medians. A cost that an app did not have is the median over apps of its kind, trained or
    replayed. Only jobs that train take their measured pace; replayed jobs keep their given speeds.
    """
    replayed = {app.name: app.spec.replay for app in record.apps if app.HasField("spec")}
    slowdowns = {app.name: app.jobs[0].slowdown for app in workload.apps}
    measured = measure(record, slowdowns)
    kinds = {kind: _typical([measured[name] for name in replayed if replayed[name] is kind]) for kind in (True, False)}
    # A slower job would be killed. The simulator limits the checkpoint cost in the same way.
    longest_stop_s = record.settings.lease.checkpoint_lead_s + record.settings.lease.grace_s
    apps = (
        _with(app, measured[app.name], kinds[replayed[app.name]], replayed[app.name], longest_stop_s)
        for app in workload.apps
    )
    return replace(
        workload, apps=tuple(apps), source=f"{workload.source} Start-up, costs and pace as that run had them."
    )


def measure(record: RunRecord, slowdowns: Mapping[str, Slowdown]) -> dict[str, Measured]:
    """The measured costs by app name."""
    events: dict[str, list[Event]] = defaultdict(list)
    for event in record.events:
        events[event.app_id].append(event)
    return {
        app.name: _measured(app, events[app.app_id], slowdowns[app.name])
        for app in record.apps
        if app.name in slowdowns
    }


def _measured(app: pb.AppStatus, events: Sequence[Event], slowdown: Slowdown) -> Measured:
    registered = [event.time_s - app.submitted_at_s for event in events if event.kind == "am_registered"]
    serial_s = _median(_serial_s(event.detail, slowdown) for event in _of(events, "job_progress"))
    return Measured(
        startup_s=registered[0] if registered else None,
        start_s=median_with_cuts(_starts(events)),
        stop_s=_median(event.detail.get("stop_s") for event in _of(events, "resize")),
        finish_s=None if serial_s is None else _median(_finishes_s(events, slowdown, serial_s)),
        serial_iteration_s=serial_s,
    )


def _starts(events: Iterable[Event]) -> Iterator[tuple[float, bool]]:
    """Seconds of every start, and whether it reached a first step."""
    for event in events:
        if event.kind == "first_step":
            yield event.detail["since_start_s"], True
        elif event.kind == "start_cut_short":
            yield event.detail["seconds"], False


def _of(events: Iterable[Event], kind: str) -> Iterable[Event]:
    return (event for event in events if event.kind == kind)


def _serial_s(detail: Mapping[str, Any], slowdown: Slowdown) -> float | None:
    seconds, gpus = detail.get("iteration_s"), detail.get("gpus")
    if not isinstance(seconds, int | float) or not isinstance(gpus, int) or not gpus:
        return None
    return seconds * gpus / slowdown.at(Level.parse(str(detail["level"])))


def _finishes_s(events: Iterable[Event], slowdown: Slowdown, serial_s: float) -> Iterator[float]:
    """For each run that ended by itself: its length minus its start and its iterations, in seconds."""
    started: dict[tuple[str, int], Event] = {}
    first_s: dict[tuple[str, int], float] = {}
    for event in events:
        key = str(event.detail.get("job_id")), int(event.detail.get("incarnation") or 0)
        if event.kind == "tasks_started":
            started[key] = event
        elif event.kind == "first_step":
            first_s[key] = event.detail["since_start_s"]
        elif event.kind == "tasks_ended" and not event.detail["requested"] and key in started and key in first_s:
            begun = started[key]
            iterations = event.detail["iteration"] - begun.detail["iteration"]
            pace_s = serial_s * slowdown.at(Level.parse(str(begun.detail["level"]))) / len(begun.detail["gpus"])
            yield max(0.0, event.time_s - begun.time_s - first_s[key] - iterations * pace_s)


def _median(values: Iterable[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return median(known) if known else None


def _typical(some: Sequence[Measured]) -> Measured:
    def of(read: Callable[[Measured], float | None]) -> float | None:
        return _median(read(each) for each in some)

    return Measured(
        startup_s=of(lambda each: each.startup_s),
        start_s=of(lambda each: each.start_s),
        stop_s=of(lambda each: each.stop_s),
        finish_s=of(lambda each: each.finish_s),
        serial_iteration_s=None,
    )


def _with(app: AppTrace, own: Measured, kind: Measured, replayed: bool, longest_stop_s: float) -> AppTrace:
    start_s = _first(own.start_s, kind.start_s)
    stop_s = min(longest_stop_s, _first(own.stop_s, kind.stop_s))
    jobs = app.jobs
    if not replayed and own.serial_iteration_s:
        jobs = tuple(replace(job, serial_iteration_s=own.serial_iteration_s) for job in jobs)
    finish_s = _first(own.finish_s, kind.finish_s)
    costs = Costs(checkpoint_s=stop_s, restore_s=start_s, container_s=0.0, finish_s=finish_s)
    return replace(app, jobs=jobs, startup_s=_first(own.startup_s, kind.startup_s), costs=costs)


def _first(*values: float | None) -> float:
    return next((value for value in values if value is not None), 0.0)
