"""Follow the logs of running jobs, and turn their records into progress, observations and events."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from am.app import App
from am.jobs.job_runner import Emit
from am.jobs.run import JobRun
from am.jobs.saved_state import checkpoint_folders
from am.log_caps import LogCaps
from am.profiler.job_reader import JobReader
from am.profiler.records import CheckpointFailed, CheckpointSaved, Imported, Record, Restored, StepLoss, Validation
from am.runtimes.port import MeasuredTask
from themis.lifecycle import JobState

PROGRESS_EVENT_S = 1.0
"""Minimum seconds between two progress events of a job."""


UNREAD_AFTER_S = 45.0
"""Seconds that a job must have run before its health says that its log has no pace or no metric."""


_PAST = 1.1
"""A job is past its target if it logs more than this multiple of it. Some programs end with an extra evaluation."""


class LogWatch:
    """Polled a few times a second by the app master's loop."""

    def __init__(self, app: App, emit: Emit, on_change: Callable[[], None]) -> None:
        self._app = app
        self._emit = emit
        self._on_change = on_change
        self._readers: dict[str, JobReader] = {}
        self._caps = LogCaps(app)
        self._reported: dict[str, set[str]] = {}

    def catch_up(self) -> None:
        """Read the logs of earlier attempts, for progress and loss. Sends no events or observations."""
        for job in self._app.search.jobs.values():
            target = self._app.search.target_of(job, self._app.search.plan())
            self._reader(job).lines.expect(target, *job.earlier_targets)
            for record in self._reader(job).catch_up(self._app.now_s()):
                job.profile.feed(record)

    def poll(self) -> None:
        """Read on in the logs of all jobs that run, and keep these within their cap."""
        for job in self._app.search.jobs.values():
            if job.running:
                peaks_mb = [task.peak_memory_mb for task in job.handles if isinstance(task, MeasuredTask)]
                job.profile.used_memory(max(peaks_mb, default=0.0))
                self.read(job)
        if any(job.running and not job.profile.pace_known for job in self._app.search.jobs.values()):
            # The work that is assumed of a silent job grows with the time that it runs.
            self._app.search.remeasure()
        self._caps.keep()

    def read(self, job: JobRun) -> None:
        """Read on in one job's log."""
        now_s = self._app.now_s()
        if not job.stepped:
            # The program got this iteration as its target.
            self._reader(job).lines.expect(self._app.search.target_of(job, self._app.search.plan()))
        self._take(job, self._reader(job).read(now_s), now_s)

    def drain(self, job: JobRun, ended_well: bool) -> None:
        """Read all that a job has written, now that its tasks have ended, by themselves or not."""
        now_s = self._app.now_s()
        self._take(job, self._reader(job).catch_up(now_s, ended_well=ended_well), now_s)

    def _take(self, job: JobRun, records: Iterable[Record], now_s: float) -> None:
        if job.state is JobState.STARTING and job.handles:
            # Not at its first step: a program that prints nothing would seem to start for as long as it runs.
            self._app.search.turn(job, JobState.RUNNING)
        for record in records:
            job.profile.feed(record)
            self._report(job, record)
        job.profile.look(now_s)
        self._app.search.keep_measurements(job)
        self._report_health(job)

    def _reader(self, job: JobRun) -> JobReader:
        if job.job_id not in self._readers:
            folders = [job.folder, *checkpoint_folders(self._app, job)]
            since_s = self._app.submitted_at_s
            self._readers[job.job_id] = JobReader(job.follower, folders, since_s=since_s, metric=job.metric)
            job.lines = self._readers[job.job_id].lines
        return self._readers[job.job_id]

    def _report_health(self, job: JobRun) -> None:
        """Send an event for a stall or a divergence once, and again if it recurs."""
        stall, diverged = job.profile.stall, job.profile.diverged
        if stall is not None:
            detail = {"iteration": job.profile.iteration, "waited_s": stall.waited_s, "allowed_s": stall.allowed_s}
            self._report_once(job, "job_stalled", detail)
        if diverged is not None:
            self._report_once(job, "job_diverged", {"iteration": diverged.since_iteration, "losses": diverged.losses})
        unread = self._unread(job)
        past = self._past_target(job)
        job.notice, job.is_past_target = unread or past, bool(past)
        if unread and job.lines is not None:
            seen = {"lines_seen": job.lines.lines_seen, "first_line": job.lines.first_line}
            self._report_once(job, "metric_unread", seen)
        present = {"job_stalled": stall is not None, "job_diverged": diverged is not None}
        present["metric_unread"] = bool(unread)
        self._reported[job.job_id] = {kind for kind, holds in present.items() if holds}

    def _unread(self, job: JobRun) -> str:
        """Name what a job should have reported after `UNREAD_AFTER_S` seconds but has not. Empty if nothing lacks."""
        if not job.running or job.profile.ran_s < UNREAD_AFTER_S:
            return ""
        search = self._app.search
        lacks_metric = (search.compares or job.metric.declared) and not job.read_metric
        lacks = (("pace unknown", not job.profile.pace_known), ("no metric", lacks_metric))
        words = " and ".join(word for word, holds in lacks if holds)
        return f"{words}: {job.lines_text(lacks_metric=lacks_metric)}" if words else ""

    def _past_target(self, job: JobRun) -> str:
        """Return a remark if a job logs more iterations than it was asked for, else an empty text."""
        target = self._app.search.target_of(job, self._app.search.plan())
        if not job.running or job.spec.has_no_length or job.profile.logged <= _PAST * target:
            return ""
        return (
            f"it logs iteration {job.profile.logged}, past its target {target}: end the program at %iterations%, count"
            " the same steps in job.iterations, or set job.max_iterations"
        )

    def _report_once(self, job: JobRun, kind: str, detail: Mapping[str, object]) -> None:
        if kind not in self._reported.get(job.job_id, set()):
            self._emit(kind, job.job_id, detail)

    def _report(self, job: JobRun, record: Record) -> None:
        match record:
            case StepLoss():
                self._stepped(job, record.step)
                self._progressed(job, record.step)
            case Imported():
                job.startup |= {"process": record.after_s, "import": record.seconds}
            case Restored():
                job.startup["restore"] = record.seconds
            case CheckpointFailed():
                self._unsaved(job, record)
            case CheckpointSaved():
                job.save_trouble = ""
                job.saved_iteration = max(job.saved_iteration, record.iteration)
                saved = {"iteration": record.iteration, "seconds": record.seconds, "bytes": record.bytes}
                self._emit("checkpoint", job.job_id, saved)
            case Validation():
                seen = {"iteration": record.step, "loss": _finite(record.loss), "accuracy": _finite(record.accuracy)}
                self._emit("validation", job.job_id, seen)
            case _:
                pass

    def _unsaved(self, job: JobRun, record: CheckpointFailed) -> None:
        """Report that checkpoints cannot be saved, once until one can be."""
        job.failed_saves += 1
        if not job.save_trouble:
            self._emit("checkpoint_failed", job.job_id, {"iteration": record.iteration, "reason": record.reason})
            job.save_trouble = f"no checkpoint since iteration {job.saved_iteration}: {record.reason}"

    def _stepped(self, job: JobRun, step: int) -> None:
        """The first step of an incarnation."""
        if job.stepped:
            return
        job.stepped = True
        if job.began_at is not None and step > job.began_at:
            # It goes on from state of its own, which we may not know to be a checkpoint.
            job.unsaved_stops = 0
        job.began_at = step
        now_s = self._app.now_s()
        since_start_s = now_s - job.started_at_s
        self._app.restarted(since_start_s)
        begun = {"incarnation": job.incarnation, "since_start_s": since_start_s, "seconds": dict(job.startup)}
        self._emit("first_step", job.job_id, begun)
        if job.stop_took_s is not None:
            seconds = job.stop_took_s + since_start_s
            gpus = {"from_gpus": job.moved_from, "to_gpus": len(job.gpus)}
            detail = {"seconds": seconds, "stop_s": job.stop_took_s, **gpus}
            self._emit("resize", job.job_id, detail)
            job.stop_took_s = None
        self._on_change()

    def _progressed(self, job: JobRun, step: int) -> None:
        """Report a step of this incarnation. Steps that an earlier one reached and lost do not count."""
        now_s = self._app.now_s()
        if now_s - job.reported_at_s < PROGRESS_EVENT_S:
            return
        job.reported_at_s = now_s
        if self._app.search.progressed(job):
            # The tuner stopped a job because of this observation.
            self._on_change()
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
    """Return the value, or None if JSON cannot hold it."""
    return value if value is not None and math.isfinite(value) else None
