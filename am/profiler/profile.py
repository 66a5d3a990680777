"""The profile of a job, from its log: progress, losses, iteration times by placement, and slowdowns S."""

from __future__ import annotations

import math
from collections.abc import Mapping

from am.profiler.first_iterations import FirstIterations, SamplePoints
from am.profiler.health import MAX_LOOK_GAP_S, Divergence, NonFinite, ProgressClock, Stall
from am.profiler.iteration_time import Intervals, IterationTime, Placement
from am.profiler.loss_history import LossHistory
from am.profiler.records import (
    Begun,
    CheckpointSaved,
    Diverged,
    ExamplesPerSecond,
    LossOnly,
    Metric,
    Record,
    Replay,
    Restored,
    SavingCheckpoint,
    Skipped,
    StepLoss,
    StepsPerSecond,
    TrackedRun,
    Validation,
)
from am.profiler.slowdowns import (
    LevelSeen,
    LevelSlowdown,
    Paces,
    by_level,
    levels_seen,
    serial_iteration_s,
)
from am.profiler.step_intervals import StepIntervals
from themis.apps import CRUDE_SLOWDOWN, Estimate, Slowdown
from themis.bids import LossForecast, SampleTimes
from themis.cluster import Level
from themis.speeds import NOWHERE, SAME_SPEED, Speeds
from themis.values import Value

_NEAR = 1.0 / 1.1
"""Numbers whose ratio is at least this count as equal in the journal."""

_LEAST_GPU_S = 10.0
"""GPU seconds of a job of unknown pace below which the journal need not know of it."""


class DeviceSpeed(Value, frozen=True, kw_only=True):
    """The speed of a job on a device type, for display: measured, or assumed."""

    device: str
    speed: float
    measured: bool


class Measurements(Value, frozen=True, kw_only=True):
    """What a profile measured of a job's pace. The app master's next attempt goes on from it.

    Attributes:
        paces: The reliable iteration times, in the order in which the job first ran at their placements; and all those
            on its first type, if it has reliable ones on another type.
        samples: The points of AlloX' samples.
        ran_gpu_s: The GPU time of a job of unknown pace: a silent one counts as long, and stays silent.
        iteration: The job's iteration.
    """

    paces: tuple[tuple[Placement, IterationTime], ...] = ()
    samples: tuple[SamplePoints, ...] = ()
    ran_gpu_s: float = 0.0
    iteration: int = 0

    def is_news(self, known: Measurements) -> bool:
        """Whether this has a pace or a sample that `known` lacks, or a number that differs by more than a tenth.

        A pace may swing for months. So its changes are news only once the job is a tenth further, too.
        """
        if _NEAR * self.ran_gpu_s > known.ran_gpu_s + _LEAST_GPU_S:
            return True
        if {sample.device for sample in self.samples} != {sample.device for sample in known.samples}:
            return True
        former = dict(known.paces)
        if any(at not in former for at, _ in self.paces):
            return True
        return _NEAR * self.iteration > known.iteration and any(
            not _NEAR * former[at].iteration_s <= pace.iteration_s <= former[at].iteration_s / _NEAR
            for at, pace in self.paces
        )


class JobProfile:
    """Collects the records and the placements of one job. Has no clock and does no I/O.

    `iteration` never decreases. After a restart from an older checkpoint it stays until the job passes it again. Loss
    and accuracy are those of the highest step that has them. `logged` is the highest iteration that the job itself
    reported, 0 if it reported none. `tracked_run` is where its newest run in an experiment tracker is, empty without
    one.

    Example: `started(2, Level.MACHINE)`, then `feed(StepLoss(step=100, loss=0.9))` and
    `feed(StepLoss(step=200, loss=0.7, seconds=10.0))`. Now `iteration` is 200, `loss` is 0.7, and `iteration_s` is
    10 s / 100 steps = 0.1 s.

    Args:
        estimate: The user's estimate of the iteration time and S, used until the profile has measurements.
    """

    def __init__(self, estimate: Estimate | None = None) -> None:
        self._estimate = estimate or Estimate()
        self._assumed_speeds = SAME_SPEED
        self._assumed_iteration_s: float | None = None
        self._intervals: dict[Placement, Intervals] = {}
        self._placement: Placement | None = None
        self._here: Intervals | None = None
        # What follows from the intervals, until there is another one.
        self._known: Paces | None = None
        self._step_intervals = StepIntervals()
        self._first_iterations = FirstIterations()
        self._rate: float | None = None
        self._non_finite = NonFinite()
        self._clock = ProgressClock()
        self._looked_at_s: float | None = None
        self._ran_gpu_s = self._ran_s = 0.0
        self._loss_step = -1
        self._losses = LossHistory()
        self._validations = LossHistory()
        self._metrics = LossHistory()
        self._validation_step = -1
        self._step_changes = 0
        self._last_reached = 0
        self._previous_step: int | None = None
        self._stride = 1
        self.iteration = 0
        self.logged = 0
        self.loss = math.nan
        self.validation_loss: float | None = None
        self.accuracy: float | None = None
        self.metric = math.nan
        self._metric_step = self._metric_drawn_at = -1
        self.checkpoint: CheckpointSaved | None = None
        self.restored: Restored | None = None
        self.replay: Replay | None = None
        self.tracked_run = ""

    def assume_pace(self, speeds: Speeds, serial_iteration_s: float | None = None) -> None:
        """Set the speed by device type that holds for types that were not measured.

        Args:
            speeds: The speed by type.
            serial_iteration_s: Seconds per iteration on a GPU of speed 1, measured on another job of the app; until
                this one has its own, they count instead of the user's estimate.
        """
        self._assumed_speeds, self._assumed_iteration_s = speeds, serial_iteration_s

    def started(self, gpus: int, level: Level, device: str = "") -> None:
        """Note that the job was started or restarted on `gpus` GPUs of a type that span this level."""
        self._placement = Placement(gpus, level, device)
        self._here = self._intervals.setdefault(self._placement, Intervals())
        self._clock.begin()
        self._looked_at_s = None
        self._begin()

    def feed(self, record: Record) -> None:
        """Add one record of the log."""
        match record:
            case StepLoss():
                self._step_loss(record)
            case StepsPerSecond():
                self._rate = record.rate
            case Validation() | Metric():
                self._evaluated(record)
            case CheckpointSaved():
                self._saved(record)
            case Restored() | Skipped() | Begun():
                self._resumed(record)
            case ExamplesPerSecond(step=iteration) | SavingCheckpoint(iteration=iteration):
                self._log(iteration)
            case LossOnly():
                self._loss_without_step(record)
            case Diverged():
                self._non_finite.declare(self.iteration)
            case Replay() | TrackedRun():
                self._described(record)

    @property
    def paces(self) -> Mapping[Placement, IterationTime]:
        """The measured iteration times, by placement."""
        return self._paces.all

    @property
    def _paces(self) -> Paces:
        if self._known is None:
            known = {placement: intervals.pace for placement, intervals in self._intervals.items()}
            self._known = Paces(
                all={placement: pace for placement, pace in known.items() if pace is not None},
                assumed=self._estimate.slowdown or CRUDE_SLOWDOWN,
            )
        return self._known

    @property
    def iteration_s(self) -> float | None:
        """Seconds per iteration at the job's present or last placement. None before a start or without an estimate."""
        at = self._placement
        return None if at is None else self.iteration_s_at(at.gpus, at.level, at.device)

    def iteration_s_at(self, gpus: int, level: Level, device: str = "") -> float | None:
        """Return seconds per iteration on GPUs of a type.

        Measured there, else `serial * S / (gpus * speed)`, else None.
        """
        intervals = self._intervals.get(Placement(gpus, level, device))
        pace = intervals.pace if intervals else None
        if pace is not None:
            return pace.iteration_s
        serial = self.serial_iteration_s
        speed = self.speeds().on(device)
        return None if serial is None or not speed else serial * self.slowdown().at(level) / (gpus * speed)

    @property
    def serial_iteration_s(self) -> float | None:
        """Seconds per iteration on one reference GPU at S = 1: measured, else another job's, else the estimate.

        It is measured on the first type that the job ran on, whose assumed speed counts. None if nothing is known.
        """
        measured = self._paces.serial_iteration_s
        if measured is not None:
            return measured * self._assumed_speeds.on(self._paces.base_device)
        if self._assumed_iteration_s is not None:
            return self._assumed_iteration_s
        return self._estimate.serial_iteration_s

    @property
    def pace_known(self) -> bool:
        """Whether the job itself was measured, or its user stated its pace."""
        return bool(self._paces.of_base) or self._estimate.serial_iteration_s is not None

    @property
    def has_steady_pace(self) -> bool:
        """Whether it was measured on the first type that it ran on, by more than the first interval after a start."""
        return any(pace.is_steady for pace in self._paces.of_base.values())

    @property
    def estimated_iteration_s(self) -> float | None:
        """The user's estimate of the serial iteration time, None without one."""
        return self._estimate.serial_iteration_s

    def speeds(self) -> Speeds:
        """Return the speed by device type: measured if possible, else assumed.

        The first type that the job ran on keeps its assumed speed, because there is no other one to compare it with.
        Example: assumed speeds k80: 1, v100: 3. One GPU takes 0.8 s per iteration on k80, then 0.2 s on v100: the
        speed on v100 is 0.8 / 0.2 = 4.
        """
        base, assumed = self._paces.base_device, self._assumed_speeds
        if not base or not assumed.by_type:
            return assumed
        reference_s = self.serial_iteration_s
        speeds = dict(assumed.by_type)
        for device in {placement.device for placement in self.paces} - {base}:
            reliable = {at: pace for at, pace in self.paces.items() if at.device == device and pace.is_reliable}
            device_s = serial_iteration_s(reliable, self.slowdown())
            if device_s is not None and reference_s is not None:
                speeds[device] = reference_s / device_s
        return Speeds.of(speeds.items())

    def speed_by_device(self) -> tuple[DeviceSpeed, ...]:
        """Return the speed on every type, fastest first, and whether it is measured.

        Empty where all speeds are 1 and need no name, and if the job can run on no type now.
        """
        if self._assumed_speeds == NOWHERE:
            return ()
        measured = self.measured_devices
        return tuple(
            DeviceSpeed(device=device, speed=speed, measured=device in measured)
            for device, speed in self.speeds().by_type
        )

    def samples(self, iterations: int, serial_iteration_s: float) -> tuple[SampleTimes, ...]:
        """Return two samples on every device type on which the job of these iterations ran for long enough.

        Types that need no name have none.
        """
        return self._first_iterations.samples(iterations, serial_iteration_s) if self._assumed_speeds.by_type else ()

    def measurements(self, iterations: int) -> Measurements:
        """Return what was measured of the pace of the job. `iterations` are those of the whole job."""
        # Reliable ones on a second type are compared with whatever is known of the first.
        compared = self._paces.base_device if self.measured_devices else None
        return Measurements(
            paces=tuple((at, pace) for at, pace in self.paces.items() if pace.is_reliable or at.device == compared),
            samples=self._first_iterations.points(iterations) if self._assumed_speeds.by_type else (),
            ran_gpu_s=0.0 if self.pace_known and iterations > 1 else self._ran_gpu_s,
            iteration=self.iteration,
        )

    def remember(self, measurements: Measurements) -> None:
        """Add what the job's profile in an earlier attempt measured."""
        for at, pace in measurements.paces:
            self._intervals[at] = Intervals(pace)
        self._known = None
        self._first_iterations.remember(measurements.samples)
        self._ran_gpu_s = measurements.ran_gpu_s

    def used_memory(self, peak_mb: float) -> None:
        """Note the most memory that the task of the present run was seen to use; 0 if that is unknown."""
        self._first_iterations.used_memory(peak_mb)

    @property
    def measured_devices(self) -> frozenset[str]:
        """The device types whose speed is measured: by comparison with the first type that the job ran on."""
        return frozenset([at.device for at, pace in self.paces.items() if pace.is_reliable]) - {self._paces.base_device}

    @property
    def timed_devices(self) -> tuple[str, ...]:
        """The device types with enough intervals, the first one that the job ran on included, by name.

        Empty where types need no name.
        """
        reliable = {at.device for at, pace in self.paces.items() if pace.is_reliable}
        return tuple(sorted(reliable)) if self._assumed_speeds.by_type else ()

    @property
    def device(self) -> str:
        """The type of the job's present or last GPUs; empty before a start and where types need no name."""
        return self._placement.device if self._assumed_speeds.by_type and self._placement is not None else ""

    def slowdown(self) -> Slowdown:
        """Return S by level: measured if possible, else the user's estimate, else the crude one."""
        return self._paces.slowdown

    def levels_seen(self) -> Mapping[Level, LevelSeen]:
        """Return S of the levels at which the job has run, with the number and spread of the measurements."""
        return levels_seen(self._paces.of_base, self._paces.assumed)

    def slowdown_by_level(self) -> tuple[LevelSlowdown, ...]:
        """Return S at every level, tightest first, and whether it is measured."""
        return by_level(self.slowdown(), self.levels_seen())

    @property
    def diverged(self) -> Divergence | None:
        """The divergence, if the losses are non-finite, else None."""
        return self._non_finite.divergence

    @property
    def stall(self) -> Stall | None:
        """The stall, if the job has made no progress for longer than allowed, else None. See `look`."""
        return self._clock.stall

    @property
    def newest_is_finite(self) -> bool:
        """Whether no loss since the last finite one is NaN or infinite. One batch may make a single one."""
        return self._non_finite.losses == 0

    def reports_reached(self, target: int, saved: int = 0) -> bool:
        """Return whether the job reported that it reached a target, up to the distance between two of its log lines.

        Example: a job logs every 10 steps. Its last line is of step 990. So it may have reached 1000, but not 1001.

        Args:
            target: An iteration.
            saved: The iteration of its newest checkpoint, which is a report too.
        """
        return max(self.logged, saved) + self._stride >= target

    @property
    def longest_wait_s(self) -> float:
        """The longest wait for a step, in seconds during which `look` was called."""
        return self._clock.longest_s

    @property
    def ran_s(self) -> float:
        """Seconds that the job has run, as far as `look` was called meanwhile."""
        return self._ran_s

    @property
    def ran_gpu_s(self) -> float:
        """GPU seconds that the job has run, as far as `look` was called meanwhile.

        Those of earlier attempts count until its pace is known.
        """
        return self._ran_gpu_s

    @property
    def step_changes(self) -> int:
        """A number that grows with every step that the job logs, also with steps that it repeats."""
        return self._step_changes

    def remember_wait(self, longest_wait_s: float) -> None:
        """Add the longest wait that the job's profile in an earlier attempt measured."""
        self._clock.remember(longest_wait_s)

    def look(self, now_s: float) -> None:
        """Note the time, by any clock. Call this whenever the running job's log is read.

        `stall` and `ran_gpu_s` depend on it.
        """
        self._clock.look(now_s, self._step_changes)
        if self._looked_at_s is not None and self._placement is not None:
            since_s = min(max(now_s - self._looked_at_s, 0.0), MAX_LOOK_GAP_S)
            self._ran_s += since_s
            self._ran_gpu_s += since_s * self._placement.gpus
        self._looked_at_s = now_s

    def forecast(self, serial_iteration_s: float) -> LossForecast | None:
        """Return the forecast of the loss, for this iteration time. Returns None with too few losses."""
        return self._losses.forecast(self.iteration, serial_iteration_s)

    def _begin(self) -> None:
        """Start a new sequence of steps: its first interval may include set-up work, and its steps may go back."""
        self._step_intervals = StepIntervals()
        at = self._placement
        self._first_iterations.begin(at.device if at is not None and at.gpus == 1 else "")
        self._previous_step = None
        self._rate = None

    def reach(self, iteration: int) -> None:
        """Note the number of iterations that the job has done, from its log, its checkpoints or its end."""
        if iteration > self.iteration:
            self.iteration = iteration
        if iteration != self._last_reached:
            # A job that repeats lost steps makes progress too.
            self._step_changes += 1
            self._last_reached = iteration

    def _described(self, record: Replay | TrackedRun) -> None:
        """Keep what the job said of itself."""
        match record:
            case Replay():
                self.replay = record
            case TrackedRun():
                self.tracked_run = record.run

    def _log(self, iteration: int) -> None:
        """Note an iteration that the job reported."""
        self.logged = max(self.logged, iteration)
        self.reach(iteration)

    @property
    def loss_points(self) -> tuple[tuple[float, float], ...]:
        """Iterations and losses so far, thinned (`LossHistory.points`): of training, else on held-out data."""
        return self._losses.points or self._validations.points

    @property
    def metric_points(self) -> tuple[tuple[float, float], ...]:
        """Iterations and values of the declared metric so far, thinned. A value without a step counts for its time."""
        return self._metrics.points

    def _step_loss(self, record: StepLoss) -> None:
        self._log(record.step)
        if self._previous_step is not None:
            self._stride = max(self._stride, record.step - self._previous_step)
        self._previous_step = record.step
        self._first_iterations.add(record.step, record.seconds)
        if record.loss is not None:
            self._loss_at(record.step, record.loss, record.mean_since)
        rate, self._rate = self._rate, None
        interval = self._step_intervals.interval(record, rate)
        if interval is not None and self._here is not None:
            self._here.add(interval.iteration_s, first=interval.first)
            self._known = None

    def _loss_at(self, step: int, loss: float, mean_since: int | None) -> None:
        if step > self._loss_step:
            self._losses.add(step, loss)
        if step >= self._loss_step:
            self._loss_step, self.loss = step, loss
            self._non_finite.add(step, loss, place=mean_since)

    def _loss_without_step(self, record: LossOnly) -> None:
        """Add a loss without a step. If other lines have steps, this line repeats one of theirs."""
        self.loss = record.loss
        if self._loss_step >= 0:
            return
        if record.epoch is None:
            self._non_finite.add_without_iteration(self.iteration, record.loss)
        else:
            self._non_finite.add(self.iteration, record.loss, place=record.epoch)

    def _evaluated(self, record: Validation | Metric) -> None:
        if isinstance(record, Metric):
            step = self.iteration if record.step is None else record.step
            if record.step is None or record.step >= self._metric_step:
                self.metric = record.value
                self._metric_step = max(self._metric_step, record.step or 0)
            if step > self._metric_drawn_at:
                self._metric_drawn_at = step
                self._metrics.add(step, record.value)
            return
        self._log(record.step)
        self._non_finite.validated(record.step, record.loss)
        if record.step > self._validation_step and record.loss is not None:
            self._validations.add(record.step, record.loss)
        if record.step >= self._validation_step:
            self._validation_step = record.step
            # Keep values that this line does not have: programs may evaluate different metrics at different steps.
            self.validation_loss = self.validation_loss if record.loss is None else record.loss
            self.accuracy = self.accuracy if record.accuracy is None else record.accuracy

    def _resumed(self, record: Restored | Skipped | Begun) -> None:
        """Note that the next step does not follow the previous one."""
        self._begin()
        if isinstance(record, Restored):
            self._log(record.iteration)
            self.restored = record

    def _saved(self, record: CheckpointSaved) -> None:
        self._log(record.iteration)
        if self.checkpoint is None or record.iteration >= self.checkpoint.iteration:
            self.checkpoint = record
