"""Follows the logs of running jobs and turns what they tell into progress, observations and events."""

from __future__ import annotations

import math
from collections.abc import Callable

from am.app import App
from am.jobs.job_runner import Emit
from am.jobs.run import JobRun
from am.profiler.parser import parse_line
from am.profiler.records import CheckpointSaved, Record, StepLoss, Validation
from themis.lifecycle import JobState

PROGRESS_EVENT_S = 1.0
"""At most one progress event a job in so many seconds."""


class LogWatch:
    """Polled a few times a second by the app master's loop."""

    def __init__(self, app: App, emit: Emit, on_change: Callable[[], None]) -> None:
        self._app = app
        self._emit = emit
        self._on_change = on_change

    def catch_up(self) -> None:
        """Read what earlier attempts' jobs logged, for progress and loss; nothing is told of it again."""
        for job in self._app.board.jobs.values():
            while lines := job.follower.poll():
                for line in lines:
                    record = parse_line(line)
                    if record is not None:
                        job.profile.feed(record)

    def poll(self) -> None:
        """Read on in the logs of all jobs that run."""
        for job in self._app.board.jobs.values():
            if job.running:
                self.read(job)

    def read(self, job: JobRun) -> None:
        """Read on in one job's log."""
        for line in job.follower.poll():
            record = parse_line(line)
            if record is not None:
                job.profile.feed(record)
                self._tell(job, record)

    def _tell(self, job: JobRun, record: Record) -> None:
        match record:
            case StepLoss():
                self._stepped(job)
                self._progressed(job, record.step)
            case CheckpointSaved():
                job.saved_iteration = max(job.saved_iteration, record.iteration)
                saved = {"iteration": record.iteration, "seconds": record.seconds, "bytes": record.bytes}
                self._emit("checkpoint", job.job_id, saved)
            case Validation():
                seen = {"iteration": record.step, "loss": _finite(record.loss), "accuracy": _finite(record.accuracy)}
                self._emit("validation", job.job_id, seen)
            case _:
                pass

    def _stepped(self, job: JobRun) -> None:
        """The first step of an incarnation."""
        if job.stepped:
            return
        job.stepped = True
        if job.state is JobState.STARTING:
            self._app.board.turn(job, JobState.RUNNING)
        now_s = self._app.now_s()
        since_start_s = now_s - job.started_at_s
        self._app.restarted(since_start_s)
        self._emit("first_step", job.job_id, {"incarnation": job.incarnation, "since_start_s": since_start_s})
        if job.stop_took_s is not None:
            seconds = job.stop_took_s + since_start_s
            detail = {"seconds": seconds, "from_gpus": job.moved_from, "to_gpus": len(job.gpus)}
            self._emit("resize", job.job_id, detail)
            job.stop_took_s = None
        self._on_change()

    def _progressed(self, job: JobRun, step: int) -> None:
        """Tell of a step of this incarnation; what an earlier one had reached and lost is not its progress."""
        now_s = self._app.now_s()
        if now_s - job.reported_at_s < PROGRESS_EVENT_S:
            return
        job.reported_at_s = now_s
        self._app.board.progressed(job)
        detail = {
            "iteration": step,
            "incarnation": job.incarnation,
            "loss": _finite(job.profile.loss),
            "iteration_s": job.profile.iteration_s,
            "level": job.level.label,
            "gpus": len(job.gpus),
        }
        self._emit("job_progress", job.job_id, detail)


def _finite(value: float | None) -> float | None:
    """The value, or None where JSON could not hold it."""
    return value if value is not None and math.isfinite(value) else None
