"""What is known of one job from its log: progress, loss, pace by placement, and S."""

from __future__ import annotations

import math
from collections.abc import Mapping

from am.profiler.health import Divergence, NonFinite, ProgressClock, Stall
from am.profiler.loss_history import LossHistory
from am.profiler.pace import Intervals, Pace, Placement
from am.profiler.records import (
    Begun,
    CheckpointSaved,
    ExamplesPerSecond,
    LossOnly,
    Record,
    Replay,
    Restored,
    SavingCheckpoint,
    Skipped,
    StepLoss,
    StepsPerSecond,
    Validation,
)
from am.profiler.slowdowns import (
    LevelSeen,
    LevelSlowdown,
    by_level,
    levels_seen,
    measured_slowdown,
    serial_iteration_s,
)
from am.profiler.strands import Strands
from themis.apps import CRUDE_SLOWDOWN, Estimate, Slowdown
from themis.bids import LossForecast
from themis.cluster import Level


class JobProfile:
    """Fed with the records of a job's log and with its placements; holds no clock and does no I/O.

    Progress never runs backwards: after a restart from an older checkpoint `iteration` stands still until it is passed.
    Loss and accuracy belong to the highest step that they were seen at.

    Args:
        estimate: What the user knows of the job's pace; stands in until it is measured.
    """

    def __init__(self, estimate: Estimate | None = None) -> None:
        self._estimate = estimate or Estimate()
        self._intervals: dict[Placement, Intervals] = {}
        self._placement: Placement | None = None
        self._here: Intervals | None = None
        self._strands = Strands()
        self._rate: float | None = None
        self._non_finite = NonFinite()
        self._clock = ProgressClock()
        self._loss_step = -1
        self._losses = LossHistory()
        self._validation_step = -1
        self._told_steps = 0
        self._last_reached = 0
        self.iteration = 0
        self.loss = math.nan
        self.validation_loss: float | None = None
        self.accuracy: float | None = None
        self.checkpoint: CheckpointSaved | None = None
        self.restored: Restored | None = None
        self.replay: Replay | None = None

    def started(self, gpus: int, level: Level) -> None:
        """The job was started, or started again, on so many GPUs that lie so far apart."""
        self._placement = Placement(gpus, level)
        self._here = self._intervals.setdefault(self._placement, Intervals())
        self._clock.begin()
        self._begin()

    def feed(self, record: Record) -> None:
        """Take in one record of the log."""
        match record:
            case StepLoss():
                self._step_loss(record)
            case StepsPerSecond():
                self._rate = record.rate
            case Validation():
                self._validated(record)
            case CheckpointSaved():
                self._saved(record)
            case Restored() | Skipped() | Begun():
                self._resumed(record)
            case ExamplesPerSecond():
                self.reach(record.step)
            case SavingCheckpoint():
                self.reach(record.iteration)
            case LossOnly():
                self._lost_somewhere(record)
            case Replay():
                self.replay = record

    @property
    def paces(self) -> Mapping[Placement, Pace]:
        """What was measured, by placement."""
        known = {placement: intervals.pace for placement, intervals in self._intervals.items()}
        return {placement: pace for placement, pace in known.items() if pace is not None}

    @property
    def iteration_s(self) -> float | None:
        """Seconds an iteration where the job runs now, or ran last; None before any start or knowledge."""
        return None if self._placement is None else self.iteration_s_at(self._placement.gpus, self._placement.level)

    def iteration_s_at(self, gpus: int, level: Level) -> float | None:
        """Seconds an iteration on so many GPUs: measured there, else `serial * S / gpus`, else None."""
        intervals = self._intervals.get(Placement(gpus, level))
        pace = intervals.pace if intervals else None
        if pace is not None:
            return pace.iteration_s
        serial = self.serial_iteration_s
        return None if serial is None else serial * self.slowdown().at(level) / gpus

    @property
    def serial_iteration_s(self) -> float | None:
        """Seconds an iteration on one GPU at S = 1, measured at any placement; else the user's estimate, or None."""
        measured = serial_iteration_s(self.paces, self.slowdown())
        return self._estimate.serial_iteration_s if measured is None else measured

    def slowdown(self) -> Slowdown:
        """S by level: measured where that is possible, else the user's estimate, else the crude one."""
        return measured_slowdown(self.paces, self._estimate.slowdown or CRUDE_SLOWDOWN)

    def levels_seen(self) -> Mapping[Level, LevelSeen]:
        """S of the levels that the job has run at, with how much and how well each was measured."""
        return levels_seen(self.paces, self._estimate.slowdown or CRUDE_SLOWDOWN)

    def slowdown_by_level(self) -> tuple[LevelSlowdown, ...]:
        """S at every level, nearest first, and whether it is measured."""
        return by_level(self.slowdown(), self.levels_seen())

    @property
    def diverged(self) -> Divergence | None:
        """Since when the losses are no numbers, None while they are."""
        return self._non_finite.divergence

    @property
    def stall(self) -> Stall | None:
        """For how long the job has made no progress though it should have, None while it does. See `look`."""
        return self._clock.stall

    @property
    def longest_wait_s(self) -> float:
        """The longest that a step has taken to come, in seconds in which somebody looked."""
        return self._clock.longest_s

    def remember_wait(self, longest_wait_s: float) -> None:
        """A step took so long to come, by the job's profile of an earlier attempt."""
        self._clock.remember(longest_wait_s)

    def look(self, now_s: float) -> None:
        """The time, by any clock, as often as the log of the running job is read: what `stall` goes by."""
        self._clock.look(now_s, self._told_steps)

    def forecast(self, serial_iteration_s: float) -> LossForecast | None:
        """The loss to come by the losses so far, at so many seconds an iteration; None while too few are known."""
        return self._losses.forecast(self.iteration, serial_iteration_s)

    def _begin(self) -> None:
        """A new incarnation writes from here on: its first interval holds set-up work, its steps may go back."""
        self._strands = Strands()
        self._rate = None

    def reach(self, iteration: int) -> None:
        """The job did so many iterations, as its log tells or its end does."""
        if iteration > self.iteration:
            self.iteration = iteration
        if iteration != self._last_reached:
            # A job that repeats lost steps moves as well.
            self._told_steps += 1
            self._last_reached = iteration

    def _step_loss(self, record: StepLoss) -> None:
        self.reach(record.step)
        if record.loss is not None:
            self._lost(record.step, record.loss, record.mean_since)
        rate, self._rate = self._rate, None
        interval = self._strands.interval(record, rate)
        if interval is not None and self._here is not None:
            self._here.add(interval.iteration_s, first=interval.first)

    def _lost(self, step: int, loss: float, mean_since: int | None) -> None:
        if step > self._loss_step:
            self._losses.add(step, loss)
        if step >= self._loss_step:
            self._loss_step, self.loss = step, loss
            self._non_finite.add(step, loss, place=mean_since)

    def _lost_somewhere(self, record: LossOnly) -> None:
        """A loss without a step. Where other lines tell steps, it repeats what one of them has told."""
        self.loss = record.loss
        if self._loss_step >= 0:
            return
        if record.epoch is None:
            self._non_finite.add_untold(self.iteration, record.loss)
        else:
            self._non_finite.add(self.iteration, record.loss, place=record.epoch)

    def _validated(self, record: Validation) -> None:
        self.reach(record.step)
        self._non_finite.validated(record.step, record.loss)
        if record.step >= self._validation_step:
            self._validation_step = record.step
            # What a line does not say it does not take back: programs may evaluate different things at different steps.
            self.validation_loss = self.validation_loss if record.loss is None else record.loss
            self.accuracy = self.accuracy if record.accuracy is None else record.accuracy

    def _resumed(self, record: Restored | Skipped | Begun) -> None:
        """What follows goes on from somewhere else than from the line before."""
        self._begin()
        if isinstance(record, Restored):
            self.reach(record.iteration)
            self.restored = record

    def _saved(self, record: CheckpointSaved) -> None:
        self.reach(record.iteration)
        if self.checkpoint is None or record.iteration >= self.checkpoint.iteration:
            self.checkpoint = record
