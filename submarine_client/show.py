"""Format one app as text: whole, as a line of progress, or before its submission."""

from __future__ import annotations

import math
from collections.abc import Sequence

from submarine_client.table import MISSING, assignments, moment, number, percent, seconds, table
from submarine_client.terminal import UNLIMITED, fields, harmless
from themis.apps import AppSpec, ProgramSpec
from themis.code_archive import files_in
from themis.config.tuner_settings import gpus_at_once
from themis.rho import FLUID_DEFINITIONS, HEADLINE, SCHEDULE_DEFINITIONS, rho_text
from themis.wire import app_status as status
from themis.wire import themis_pb2 as pb
from themis.wire.values import scalars_from_messages


def app_text(app: pb.AppStatus, width: int = UNLIMITED) -> str:
    """Format one app to fit `width` columns: state, best job, leases, jobs, faults, tracked runs, S, and its share."""
    parts = [fields([*_head(app), *_outcome(app)], width), jobs_table(app, width)]
    health = [(job.job_id, job.health) for job in app.jobs if job.health]
    if health:
        parts.append(table(("JOB", "HEALTH"), health, width))
    tracked = [(job.job_id, job.tracked_run) for job in app.jobs if job.tracked_run]
    if tracked:
        parts.append(table(("JOB", "TRACKED RUN"), tracked, width))
    measured = [job for job in app.jobs if any(each.intervals for each in job.slowdown)]
    if measured:
        parts.append(slowdown_table(measured, width))
    if app.explanation:
        parts.append(fields([(line.label, line.text) for line in app.explanation], width))
    typed = [job for job in app.jobs if job.speeds]
    if typed:
        parts.append(speed_table(typed, width))
    return "\n\n".join(parts)


def slowdown_table(jobs: Sequence[pb.JobStatus], width: int = UNLIMITED) -> str:
    """Format S by level, for jobs with a measurement at any level."""
    heads = ("JOB", *(f"S: {each.level.upper()}" for each in jobs[0].slowdown))
    rows = [(job.job_id, *(_factor(each) for each in job.slowdown)) for job in jobs]
    return table(heads, rows, width)


def speed_table(jobs: Sequence[pb.JobStatus], width: int = UNLIMITED) -> str:
    """The device type that each job runs on, and its speed by type; for clusters of several types."""
    devices = list(dict.fromkeys(each.device for job in jobs for each in job.speeds))
    rows = []
    for job in jobs:
        shown = {each.device: f"{number(each.speed)}{'' if each.measured else ' (assumed)'}" for each in job.speeds}
        rows.append((job.job_id, job.device or MISSING, *[shown.get(device, "cannot run") for device in devices]))
    return table(("JOB", "ON", *(f"SPEED: {device.upper()}" for device in devices)), rows, width)


def progress_line(app: pb.AppStatus) -> str:
    """Format an app's progress on one line."""
    parts = [f"{app.app_id} {status.shown_state(app)}"]
    if app.phases:
        parts.append(f"phase {status.phase(app)} of {app.phases}")
    parts.append(percent(app.progress))
    if app.HasField("estimate") and math.isfinite(app.estimate.end_s.median):
        # A narrow terminal cuts what comes later.
        parts.append(f"ends in about {seconds(app.estimate.end_s.median)}")
    parts.append(_gpus(app.gpus))
    if app.rho > 0:
        parts.append(f"rho {rho_text(app.rho)} ({HEADLINE})")
    best = status.best_job(app)
    if best is not None:
        parts.append(f"best {best.job_id} ({_score(app, best)})")
    return harmless(", ".join(parts))


def end_line(app: pb.AppStatus) -> str:
    """Format how an app ended, on one line."""
    took = status.duration_s(app)
    parts = [f"{app.app_id} {app.state}" + ("" if took is None else f" after {seconds(took)}")]
    if app.rho > 0:
        parts.append(f"rho {rho_text(app.rho)} ({HEADLINE})")
    best = status.best_job(app)
    if best is not None:
        hyper_parameters = status.hyper_parameters(app, best.job_id)
        values = f" with {assignments(hyper_parameters)}" if hyper_parameters else ""
        parts.append(f"best {best.job_id} ({_score(app, best)}){values}")
    if app.diagnostics:
        parts.append(app.diagnostics)
    return harmless("; ".join(parts))


def spec_text(app: AppSpec, width: int = UNLIMITED) -> str:
    """Format an app before its submission, to fit `width` columns: what would run."""
    shape = app.jobs[0].shape
    program = app.program.name or app.program.command
    kind = "replayed" if app.replay else "a command" if app.program.command else "trained"
    tasks = str(shape.tasks) if shape.tasks == shape.min_tasks else f"{shape.min_tasks} to {shape.tasks}"
    noun = "task" if tasks == "1" else "tasks"
    lines = [
        ("Name", app.name),
        ("User, queue", f"{app.user}, {app.queue}"),
        ("Program", f"{program} ({kind})"),
        ("Arguments", assignments(app.program.arguments)),
        *_code_lines(app.program),
        ("Tuner", f"{app.tuner.name} {assignments(app.tuner.settings)}".removesuffix(f" {MISSING}")),
        ("Jobs", f"{len(app.jobs)}, each of {tasks} {noun} with {_gpus(shape.gpus_per_task)} a task"),
        ("Iterations", str(max(job.iterations_total for job in app.jobs))),
        ("GPUs at most", str(gpus_at_once(app))),
    ]
    speeds = app.jobs[0].speed_by_device
    if speeds:
        stated = ", ".join(f"{device} {number(speed)}" for device, speed in speeds.items())
        lines.append(("Speed by type", f"{stated}; on other GPU types that of the type, on no other CPU type"))
    rows = [(job.job_id, assignments(job.hyper_parameters)) for job in app.jobs]
    return f"{fields(lines, width)}\n\n{table(('JOB', 'HYPER-PARAMETERS'), rows, width)}"


def _code_lines(program: ProgramSpec) -> list[tuple[str, str]]:
    """Format what travels with the app, and its interpreter."""
    lines = []
    if program.code is not None:
        files, kb = len(files_in(program.code)), len(program.code.content) / 1024
        lines.append(("Code", f"{files} files, {kb:.0f} kB packed, SHA-256 {program.code.sha256[:12]}"))
    if program.python:
        lines.append(("Interpreter", program.python))
    if program.requirements:
        lines.append(("Requirements", program.requirements))
    return lines


def jobs_table(app: pb.AppStatus, width: int = UNLIMITED) -> str:
    """Format a table with a line per job. Before the app master reports, it shows the submitted jobs."""
    title = harmless(status.metric(app).title.upper())
    header = ("JOB", "STATE", "ITERATION", title, "ACCURACY", "GPUS", "S/ITERATION", "RESTARTS", "HYPER-PARAMETERS")
    rows = [
        (
            *(job.job_id, job.state, f"{job.iteration}/{job.target_iteration}", number(status.loss(job))),
            *(number(status.accuracy(job)), str(job.gpus), number(job.iteration_s) if job.iteration_s else MISSING),
            *(str(job.restarts), assignments(status.hyper_parameters(app, job.job_id))),
        )
        for job in app.jobs
    ]
    if not rows:
        rows = [
            (*(job.job_id, MISSING, f"0/{job.iterations_total}"), *(MISSING,) * 5, _submitted(job))
            for job in app.spec.jobs
        ]
    return table(header, rows, width)


def _head(app: pb.AppStatus) -> list[tuple[str, str]]:
    phase = f", phase {status.phase(app)} of {app.phases}" if app.phases else ""
    replayed = " (replayed)" if app.replay else ""
    settings = assignments(scalars_from_messages(app.spec.tuner.settings)) if app.spec.tuner.settings else ""
    took = status.duration_s(app)
    ended = "" if took is None else f", ended {moment(app.finished_at_s)} after {seconds(took)}"
    progress = "progress unknown" if math.isnan(app.progress) else percent(app.progress)
    return [
        ("App", f"{app.app_id}, {app.name}"),
        ("State", f"{status.shown_state(app)}{phase}, {progress}"),
        ("User, queue", f"{app.user}, {app.queue}"),
        ("Program", f"{app.spec.program.command or app.program}{replayed}"),
        ("Tuner", f"{app.tuner} {settings}".rstrip()),
        *([("Metric", status.metric(app).summary)] if status.metric(app).declared else []),
        ("Submitted", f"{moment(app.submitted_at_s)}{ended}"),
    ]


def _rho_lines(app: pb.AppStatus) -> list[tuple[str, str]]:
    """Rho by the headline definition, and at the end by all. Each that ranks policies has a sentence."""
    lines = [("rho", f"{rho_text(status.rho(app))} ({HEADLINE})")]
    for title, names in (("rho at the end", FLUID_DEFINITIONS), ("By schedule", SCHEDULE_DEFINITIONS)):
        known = [f"{name} {rho_text(app.final_rho[name])}" for name in names if name in app.final_rho]
        if known:
            lines.append((title, ", ".join(known)))
    explained = [name for name in FLUID_DEFINITIONS if name in app.final_rho or name is HEADLINE]
    if status.rho(app) > 0.0:
        lines += [(name.capitalize(), f"the time to the end over {name.sentence}") for name in explained]
    return lines


def _outcome(app: pb.AppStatus) -> list[tuple[str, str]]:
    lines = _rho_lines(app)
    noun = app.device_noun or "GPU"
    label = f"{noun[0].upper()}{noun[1:]}s"
    wanted = f"{app.gpus_unmet} more wanted, " if app.gpus_unmet else ""
    lines.append((label, f"{app.gpus} now, {wanted}{seconds(app.gpu_time_s)} of {noun} time in all"))
    best = status.best_job(app)
    if best is not None:
        values = status.hyper_parameters(app, best.job_id)
        chosen = f", {assignments(values)}" if values else ""
        lines.append(("Best job", f"{best.job_id}, {_score(app, best)}{chosen}"))
    more = (
        ("Checkpoint", app.best_checkpoint),
        ("Leases", _leases(app)),
        ("Waits", waiting_text(app)),
        ("First GPU", _interval(app.estimate.first_gpu_s) if app.HasField("estimate") and not app.gpus else ""),
        ("End", _interval(app.estimate.end_s) if app.HasField("estimate") else ""),
        ("Folder", app.folder),
        ("Events", app.archive),
        ("Engine's id", app.engine_id),
        ("Page", app.app_page_url),
        ("Its own page", app.page_url),
        ("Attempts", str(app.attempts) if app.attempts > 1 else ""),
        ("Diagnostics", app.diagnostics),
    )
    return lines + [each for each in more if each[1]]


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def _score(app: pb.AppStatus, job: pb.JobStatus) -> str:
    values = (("accuracy", status.accuracy(job)), (status.metric(app).title, status.loss(job)))
    scores = [f"{name} {number(value)}" for name, value in values]
    known = [score for score in scores if not score.endswith(f" {MISSING}")]
    return ", ".join(known) or "no score yet"


def _factor(slowdown: pb.LevelSlowdown) -> str:
    source = f"{slowdown.intervals} intervals" if slowdown.intervals else "estimated"
    return f"{number(slowdown.factor)} ({source})"


def waiting_text(app: pb.AppStatus) -> str:
    """Why the app has no more GPUs. A server of an earlier version only sends the reason of its policy."""
    if not app.HasField("waiting"):
        return app.waits_for
    place = f" (place {app.waiting.rank} of {app.waiting.of})" if app.waiting.rank else ""
    return f"{app.waiting.reason}{place}"


def _interval(interval: pb.Seconds) -> str:
    if math.isnan(interval.median):
        return "unknown, because a job has an unknown pace or is past its target"
    if not math.isfinite(interval.median):
        return "not in sight"
    return f"in about {seconds(interval.median)} (80 %: {seconds(interval.low)} to {seconds(interval.high)})"


def _leases(app: pb.AppStatus) -> str:
    by_end: dict[str, list[str]] = {}
    for lease in app.leases:
        # A bound lease is renewed until its job ends.
        end = f"{lease.job_id} ends" if lease.job_id else moment(lease.expires_at_s)
        by_end.setdefault(end, []).append(f"{lease.machine_id}/{lease.gpu_index}")
    return "; ".join(f"{' '.join(gpus)} until {end}" for end, gpus in sorted(by_end.items()))


def _submitted(job: pb.JobSpec) -> str:
    return assignments(scalars_from_messages(job.hyper_parameters))
