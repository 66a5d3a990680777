"""What a line of a job's log can tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MOST_ITERATIONS = 10**15
"""No job does more; a line that says so lies. The wire's integers hold it, and floats hold it exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLoss:
    """A step that was done, and the loss at it.

    Attributes:
        step: Steps done so far, over all epochs.
        loss: None where the log does not say.
        seconds: Since the line before of its kind, None where the log does not say.
        mean_since: Steps done before the epoch, where the loss is a mean over the epoch so far; None where it is the
            step's own.
    """

    step: int
    loss: float | None
    seconds: float | None = None
    mean_since: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOnly:
    """A loss without a step; of an epoch, by its number, where the log says so."""

    loss: float
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsPerSecond:
    """Steps a second, since the line before of its kind or as a mean of what was done lately.

    It belongs to the StepLoss that follows; the seconds of that one, where it has any, are rounded and this is not.
    """

    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamplesPerSecond:
    """Examples a second up to a step, as a mean over the run."""

    step: int
    mean_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Loss and accuracy on held-out data after a step; None for what the log does not say."""

    step: int
    loss: float | None = None
    accuracy: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved:
    """A checkpoint was saved whole."""

    iteration: int
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingCheckpoint:
    """An Estimator begins to save; it says neither how long nor how much."""

    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An incarnation of the job writes from here on; the app master says so in the log."""

    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The program's libraries are there: `after_s` seconds after its process began it took `seconds` to import them."""

    seconds: float
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Training goes on from a checkpoint."""

    iteration: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The job does not train: it emulates a model, `time_scale` times faster than real time."""

    model: str
    time_scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Steps were passed over, of which all told ordinary losses: what follows goes on further on."""


Record = (
    StepLoss
    | LossOnly
    | StepsPerSecond
    | ExamplesPerSecond
    | Validation
    | CheckpointSaved
    | SavingCheckpoint
    | Begun
    | Imported
    | Restored
    | Replay
    | Skipped
)


def believable(records: Iterable[Record]) -> list[Record]:
    """The records without those that tell of more iterations than any job does."""
    return [record for record in records if _iteration(record) <= MOST_ITERATIONS]


def _iteration(record: Record) -> int:
    match record:
        case StepLoss() | ExamplesPerSecond() | Validation():
            return record.step
        case CheckpointSaved() | SavingCheckpoint() | Restored():
            return record.iteration
        case _:
            return 0
