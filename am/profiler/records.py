"""Records: the facts that the profiler reads from lines of a job's log and from event files."""

from __future__ import annotations

from collections.abc import Iterable

from themis.values import Value

MAX_ITERATIONS = 10**15
"""Records with more iterations are wrong and dropped. Floats and the wire's integers hold this number exactly."""


class StepLoss(Value, frozen=True, kw_only=True):
    """A completed step, and the loss at it.

    Attributes:
        step: Steps done so far, over all epochs.
        loss: None if the log does not have it.
        seconds: Seconds since the previous step line of the same writer. None if the log does not have it.
        mean_since: Steps done before the epoch, if the loss is a mean over the epoch so far. None if the loss is of
            this step alone.
    """

    step: int
    loss: float | None
    seconds: float | None = None
    mean_since: int | None = None


class LossOnly(Value, frozen=True, kw_only=True):
    """A loss without a step. `epoch` is the number of its epoch, if the log has it."""

    loss: float
    epoch: int | None = None


class Diverged(Value, frozen=True, kw_only=True):
    """The program itself says that its loss is NaN."""


class StepsPerSecond(Value, frozen=True, kw_only=True):
    """Steps per second, since the previous line of this kind or as a recent mean.

    It belongs to the next StepLoss. If that has seconds too, they are rounded and this rate is not.
    """

    rate: float


class ExamplesPerSecond(Value, frozen=True, kw_only=True):
    """Examples per second up to a step, as a mean over the run."""

    step: int
    mean_rate: float


class Validation(Value, frozen=True, kw_only=True):
    """Loss and accuracy on held-out data after a step. None for a value that the log does not have."""

    step: int
    loss: float | None = None
    accuracy: float | None = None


class Metric(Value, frozen=True, kw_only=True):
    """A value of the metric that the user declared. `step` is None if its line has none."""

    value: float
    step: int | None = None


class CheckpointSaved(Value, frozen=True, kw_only=True):
    """A checkpoint was saved completely."""

    iteration: int
    seconds: float
    bytes: int


class CheckpointFailed(Value, frozen=True, kw_only=True):
    """The state at an iteration could not be saved. The job goes on, and tries again later."""

    iteration: int
    reason: str


class SavingCheckpoint(Value, frozen=True, kw_only=True):
    """An Estimator begins to save a checkpoint. Its log has neither the duration nor the size."""

    iteration: int


class Begun(Value, frozen=True, kw_only=True):
    """The following lines are of this incarnation of the job. The app master writes this line."""

    incarnation: int


class Imported(Value, frozen=True, kw_only=True):
    """The program imported its libraries: this began `after_s` seconds after the process, and took `seconds`."""

    seconds: float
    after_s: float


class Restored(Value, frozen=True, kw_only=True):
    """Training resumed from a checkpoint."""

    iteration: int
    seconds: float


class Replay(Value, frozen=True, kw_only=True):
    """The job does not train: it emulates a model, `time_scale` times faster than real time."""

    model: str
    time_scale: float


class TrackedRun(Value, frozen=True, kw_only=True):
    """The run of the job in an experiment tracker: its address, its id, or its folder if the tracker is offline."""

    run: str


class Skipped(Value, frozen=True, kw_only=True):
    """The log reader skipped lines with ordinary losses here, so the next step does not follow the previous one."""


Record = (
    StepLoss
    | LossOnly
    | Diverged
    | StepsPerSecond
    | ExamplesPerSecond
    | Validation
    | Metric
    | CheckpointSaved
    | CheckpointFailed
    | SavingCheckpoint
    | Begun
    | Imported
    | Restored
    | Replay
    | TrackedRun
    | Skipped
)


def believable(records: Iterable[Record]) -> list[Record]:
    """Return the records without those of more than `MAX_ITERATIONS` iterations."""
    return [record for record in records if _iteration(record) <= MAX_ITERATIONS]


def _iteration(record: Record) -> int:
    match record:
        case StepLoss() | ExamplesPerSecond() | Validation():
            return record.step
        case Metric():
            return record.step or 0
        case CheckpointSaved() | CheckpointFailed() | SavingCheckpoint() | Restored():
            return record.iteration
        case _:
            return 0
