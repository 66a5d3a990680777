"""No iteration is lost: each incarnation of a job begins where the previous one stopped."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum

from themis_lab.testbed.audit_values import AuditInput, Findings, HistoryLine, JobKey
from themis_lab.testbed.events import Event
from themis_lab.testbed.spans import TaskSpan, task_spans

AFTER_STOP = "a job resumes exactly where it was stopped"
AFTER_CRASH = "a job resumes from its newest checkpoint"
NOT_BACK = "no job falls behind a checkpoint"
IN_TURN = "a job has one incarnation at a time"
TARGET = "a finished job has reached its target"
WITNESS = "what tasks wrote agrees with the events"

LOST = "iterations_lost_to_crashes"
CLEAN_CODES = (0, 75)
"""Exit codes of tasks that left a checkpoint of all their work (tf_jobs/exit_codes.py)."""


class _End(Enum):
    """How an incarnation ended: with a checkpoint of all its work, without one, or without a report."""

    NONE = "none"
    SAVED = "saved"
    CRASHED = "crashed"
    UNREPORTED = "unreported"


@dataclass(slots=True)
class _Trail:
    """The known state of a job: its newest checkpoint, the newest iteration seen, and its incarnation."""

    safe: int = 0
    seen: int = 0
    incarnation: int = 0
    running: bool = False
    end: _End = _End.NONE


def check_progress(run: AuditInput, findings: Findings) -> None:
    """Check that each incarnation of a job starts at the iteration that the previous one saved."""
    findings.announce(AFTER_STOP, AFTER_CRASH, NOT_BACK, IN_TURN)
    trails: dict[JobKey, _Trail] = defaultdict(_Trail)
    for event in run.events:
        if event.kind == "am_lost":
            for (app_id, _), trail in trails.items():
                if app_id == event.app_id and trail.running:
                    trail.running, trail.end = False, _End.UNREPORTED
        elif event.kind in ("tasks_started", "tasks_ended", "checkpoint", "job_progress"):
            key = (event.app_id, str(event.detail["job_id"]))
            _STEPS[event.kind](trails[key], event, f"{key[0]}/{key[1]}", findings)


def _started(trail: _Trail, event: Event, name: str, findings: Findings) -> None:
    iteration, incarnation = int(event.detail["iteration"]), int(event.detail["incarnation"])
    in_turn = incarnation > trail.incarnation and not trail.running
    text = f"{name} starts incarnation {incarnation} while {trail.incarnation} is the newest"
    findings.look(IN_TURN, in_turn, text + (" and runs" if trail.running else ""))
    at = findings.at(event.time_s)
    text = f"{name} starts from iteration {iteration} at {at}, its newest checkpoint is {trail.safe}"
    findings.look(NOT_BACK, iteration >= trail.safe, text)
    if trail.end in (_End.SAVED, _End.NONE):
        findings.look(AFTER_STOP, iteration == trail.safe, text)
    elif trail.end is _End.CRASHED:
        findings.look(AFTER_CRASH, iteration == trail.safe, text)
    else:
        # Its app master was lost: there may be a checkpoint that was not reported.
        findings.look(AFTER_CRASH, iteration >= trail.safe, text)
    trail.safe = trail.seen = max(iteration, trail.safe)
    trail.incarnation, trail.running = incarnation, True


def _ended(trail: _Trail, event: Event, name: str, findings: Findings) -> None:
    iteration = int(event.detail["iteration"])
    codes = event.detail.get("exit_codes", [])
    saved = all(code in CLEAN_CODES for code in (codes.values() if isinstance(codes, dict) else codes))
    at = findings.at(event.time_s)
    text = f"{name} ended at {at} with iteration {iteration}, its newest checkpoint was {trail.safe}"
    findings.look(NOT_BACK, iteration >= trail.safe, text)
    if saved:
        text = f"{name} was stopped at {at} with iteration {iteration} safe, but had done {trail.seen}"
        findings.look(AFTER_STOP, iteration >= trail.seen, text)
    else:
        findings.measure(LOST, max(0, trail.seen - iteration))
    trail.safe = max(trail.safe, iteration)
    trail.running, trail.end = False, _End.SAVED if saved else _End.CRASHED


def _saved(trail: _Trail, event: Event, name: str, findings: Findings) -> None:
    iteration = int(event.detail["iteration"])
    text = f"{name} wrote a checkpoint of iteration {iteration} after one of {trail.safe}"
    findings.look(NOT_BACK, iteration >= trail.safe, text)
    trail.safe = max(trail.safe, iteration)


def _progressed(trail: _Trail, event: Event, _name: str, _findings: Findings) -> None:
    trail.seen = max(trail.seen, int(event.detail["iteration"]))


_STEPS = {"tasks_started": _started, "tasks_ended": _ended, "checkpoint": _saved, "job_progress": _progressed}


def check_targets(run: AuditInput, findings: Findings) -> None:
    """Check that each finished job has a checkpoint at its target iteration, by the events and by its own history.

    No event reports the end of tasks that outlived their app master. Then only the history counts.
    """
    findings.announce(TARGET)
    reached: dict[JobKey, int] = defaultdict(int)
    for span in task_spans(run.events):
        reached[span.key] = max(reached[span.key], span.to_iteration)
    lost = _apps_whose_master_was_lost(run)
    for key, job in sorted(run.jobs.items()):
        if job.state != "FINISHED":
            continue
        name = f"{key[0]}/{key[1]}"
        text = f"{name} finished at iteration {reached[key]} of {job.target_iteration}"
        unreported = key[0] in lost and key in run.histories
        findings.look(TARGET, unreported or reached[key] >= job.target_iteration, text)
        if key in run.histories:
            safe = max((line.iteration for line in run.histories[key] if line.event != "start"), default=0)
            text = f"{name} finished, but its tasks saved iteration {safe} of {job.target_iteration}"
            findings.look(TARGET, safe >= job.target_iteration, text)


def check_history(run: AuditInput, findings: Findings) -> None:
    """Compare the jobs' histories, written by the tasks, with the events, written by the app masters."""
    findings.announce(WITNESS)
    spans: dict[JobKey, dict[int, TaskSpan]] = defaultdict(dict)
    for span in task_spans(run.events):
        spans[span.key][span.incarnation] = span
    lost = _apps_whose_master_was_lost(run)
    for key, lines in sorted(run.histories.items()):
        _check_lines(key, lines, spans[key], key[0] in lost, findings)


def _apps_whose_master_was_lost(run: AuditInput) -> set[str]:
    return {event.app_id for event in run.events if event.kind == "am_lost"}


def _check_lines(
    key: JobKey, lines: tuple[HistoryLine, ...], spans: dict[int, TaskSpan], am_lost: bool, findings: Findings
) -> None:
    name = f"{key[0]}/{key[1]}"
    safe = 0
    for line in lines:
        if line.event != "start":
            text = f"{name} #{line.incarnation} saved iteration {line.iteration} after {safe}"
            findings.look(WITNESS, line.iteration >= safe, text)
            safe = max(safe, line.iteration)
            continue
        span = spans.get(line.incarnation)
        findings.look(WITNESS, span is not None or am_lost, f"{name} #{line.incarnation} ran, but it has no event")
        # A task that is killed right after a checkpoint has not recorded it, but the events have.
        known = {safe, *(each.to_iteration for number, each in spans.items() if number < line.incarnation)}
        text = f"{name} #{line.incarnation} began after iteration {line.iteration}, {safe} was safe"
        findings.look(WITNESS, line.iteration >= safe and (am_lost or line.iteration in known), text)
        if span is not None:
            text = f"{name} #{line.incarnation} began after iteration {line.iteration}, not {span.from_iteration}"
            findings.look(WITNESS, line.iteration == span.from_iteration, text)
            safe = max(safe, line.iteration)
