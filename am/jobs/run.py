"""A job as its app master runs it: state, GPUs, progress, log, restarts. Mutable, owned by the app master's loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from am.jobs.fault_policy import JobFault
from am.journal import JobRecord
from am.profiler.follower import LogFollower
from am.profiler.parser import LogReader
from am.profiler.profile import JobProfile
from am.runtimes.port import TaskHandle
from themis.apps import JobSpec, MetricSpec
from themis.cluster import GpuId, Level
from themis.lifecycle import JOB_LIFECYCLE, JobState
from themis.web.formatting import counted

TOLD_UNSAVED_STOPS = 2
"""Number of stops in a row without a newer checkpoint from which on a job's health says so."""


_STEPS_REMEDY = "print a step with each, as it is done, or set estimate.serial_iteration_s"
_PACE_REMEDY = "print `step=.. loss=..`, call themis.report, or set estimate.serial_iteration_s"
_REMEDY = "declare `metric`, print `step=.. loss=..`, or call themis.report"
_DECLARED_REMEDY = "print it before the end of the phase, or correct `metric`"


@dataclass(slots=True, kw_only=True)
class JobRun:
    """One job. Times are seconds since the epoch on the ResourceManager's clock.

    `saved_iteration` is the newest checkpoint's; `stop_reason` is set when its tasks are asked to stop.
    `stop_took_s` and `moved_from` remember a stop until the job's next first step, which ends the resize; `startup` has
    the times that the program logged of its start, in seconds by step. `fault` is the fault for which its tasks are
    stopped, `restarted_for` the reason of its last restart, and `stalls` the number of restarts for a stall. `short_of`
    is the target at which its tasks exited with 0 although neither log nor checkpoints show it, 0 if there is none.
    `started_from` is the newest checkpoint's iteration at the start of this incarnation, `began_at` the first step that
    the newest incarnation with steps logged, and `unsaved_stops` the number of stops in a row without a newer
    checkpoint. `files_changed_s` is when a file in its checkpoint folders had changed last at its start, and `reached`
    how many iterations it had done by then. `pauses` counts its restarts in a row without progress; each waits longer
    than the one before. `save_trouble` is why its checkpoints cannot be saved at present, and
    `failed_saves` how often one could not. `earlier_targets` are those that it reached in earlier
    attempts. `lines` reads its log, and `notice` is a remark on what that found, for example no metric.
    `is_past_target` says whether the log had more iterations than the job was asked for when it was last read.
    `read_metric_before` and `loss_before` are what earlier attempts read in its log, which may have been lost since.
    """

    spec: JobSpec
    folder: Path
    profile: JobProfile
    follower: LogFollower
    state: JobState = JobState.WAITING
    incarnation: int = 0
    restarts: int = 0
    saved_iteration: int = 0
    gpus: tuple[GpuId, ...] = ()
    level: Level = Level.SLOT
    handles: list[TaskHandle] = field(default_factory=list)
    stop_reason: str = ""
    started_at_s: float = 0.0
    is_past_target: bool = False
    stepped: bool = False
    startup: dict[str, float] = field(default_factory=dict)
    stop_asked_at_s: float = 0.0
    stop_took_s: float | None = None
    moved_from: int = 0
    reported_at_s: float = -math.inf
    diagnostics: str = ""
    fault: JobFault | None = None
    restarted_for: str = ""
    stalls: int = 0
    short_of: int = 0
    started_from: int = 0
    began_at: int | None = None
    files_changed_s: float | None = None
    reached: int = 0
    launched_at_s: float = 0.0
    pauses: int = 0
    save_trouble: str = ""
    failed_saves: int = 0
    unsaved_stops: int = 0
    earlier_targets: list[int] = field(default_factory=list)
    read_metric_before: bool = False
    loss_before: float = math.nan
    metric: MetricSpec = field(default_factory=MetricSpec)
    lines: LogReader | None = None
    notice: str = ""

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.spec.job_id

    @property
    def running(self) -> bool:
        """True while tasks of the job live, or are being started."""
        return bool(self.gpus)

    @property
    def log_path(self) -> Path:
        """The log of the job's chief, task 0, over all its incarnations."""
        return self.task_log(0)

    def task_log(self, task_index: int) -> Path:
        """The log of one task."""
        return self.folder / f"task-{task_index}.log"

    @property
    def loss(self) -> float:
        """The loss that the tuner compares: that on held-out data if the job logs it, else the training loss, else NaN.

        Of a job that has diverged it is NaN, which is worse than any, whatever it was on held-out data before. So it is
        of a job without running tasks whose newest loss is not finite: no later batch will show that this one was an
        exception. If the log has none, because it was lost, the loss that an earlier attempt gave to the tuner counts.
        """
        return self._logged_loss if self._log_has_metric else self.loss_before

    @property
    def _logged_loss(self) -> float:
        if self.profile.diverged is not None or not (self.handles or self.profile.newest_is_finite):
            return math.nan
        if self.metric.declared:
            return self.metric.as_loss(self.profile.metric)
        held_out = self.profile.validation_loss
        return self.profile.loss if held_out is None else held_out

    @property
    def shown_loss(self) -> float:
        """The loss, or the value of the declared metric, as the job logs it."""
        return self.metric.as_loss(self.loss)

    @property
    def curve(self) -> tuple[tuple[float, float], ...]:
        """Iterations and losses so far, or values of the declared metric, thinned."""
        return self.profile.metric_points if self.metric.declared else self.profile.loss_points

    @property
    def read_metric(self) -> bool:
        """Whether it has ever reported a loss or the declared metric, also one that is no number."""
        return self.read_metric_before or self._log_has_metric

    @property
    def _log_has_metric(self) -> bool:
        if self.lines is not None and self.lines.lines_read:
            return True
        is_no_number = self.profile.diverged is not None or not self.profile.newest_is_finite
        return is_no_number or not math.isnan(self._logged_loss)

    def lines_text(self, *, lacks_metric: bool = True) -> str:
        """Return a summary of the log lines that the profiler has seen, with a remedy.

        Args:
            lacks_metric: Whether the job must report a metric; else it lacks a pace only.
        """
        remedy = _REMEDY if lacks_metric else _PACE_REMEDY
        if self.lines is None or not self.lines.lines_seen:
            return f"its log has no line yet; {remedy}"
        seen = f"{counted(self.lines.lines_seen, 'line')} seen"
        if self.lines.lines_read:
            return f"{seen}, {self.lines.lines_read} of them with {self.metric.name or 'a loss'}; {_STEPS_REMEDY}"
        what = "none understood"
        if self.metric.declared:
            what, remedy = f"no {self.metric.name or 'declared metric'} yet", _DECLARED_REMEDY
        return f"{seen}, {what}; first line: {self.lines.first_line!r}; {remedy}"

    @property
    def health(self) -> str:
        """What is wrong with the job, or was when it was last started again; empty for one that does well."""
        if self.diagnostics:
            return self.diagnostics
        if self.fault is not None:
            return self.fault.reason
        stall = self.profile.stall if self.running else None
        if stall is not None:
            return f"no iteration for {stall.waited_s:.0f} s"
        if self.save_trouble:
            return self.save_trouble
        if self.short_of:
            return self._short_end
        if self.unsaved_stops >= TOLD_UNSAVED_STOPS and self.state is not JobState.FINISHED:
            return (
                f"{self.unsaved_stops} stops in a row without a newer checkpoint: it starts from iteration"
                f" {self.started_from} each time; save on SIGTERM, or more often"
            )
        if self.restarted_for:
            return f"started again: {self.restarted_for}"
        return self.notice

    @property
    def reports_nothing(self) -> bool:
        """Whether neither its log nor a checkpoint has shown any progress."""
        return not (self.profile.logged or self.saved_iteration)

    @property
    def _short_end(self) -> str:
        if self.reports_nothing:
            return "ended with exit code 0, progress unknown"
        return f"ended with exit code 0 at iteration {self.profile.iteration} of {self.short_of}"

    def turn(self, state: JobState) -> None:
        """Change the state; one that may not follow raises InvariantError."""
        if state is not self.state:
            self.state = JOB_LIFECYCLE.check(self.state, state, self.job_id)

    def record(self) -> JobRecord:
        """The job as the journal keeps it."""
        return JobRecord(
            job_id=self.job_id,
            state=self.state,
            incarnation=self.incarnation,
            iteration=self.saved_iteration,
            restarts=self.restarts,
            stalls=self.stalls,
            longest_wait_s=self.profile.longest_wait_s,
            short_of=self.short_of,
            unsaved_stops=self.unsaved_stops,
            read_metric=self.read_metric,
            diagnostics=self.diagnostics if self.state is JobState.FAILED else "",
        )
