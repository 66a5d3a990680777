"""Read records from the scalars of TensorBoard event files, by their tags."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum

from am.profiler.backlog_limits import BACKLOG_BYTES, KEPT_FIRST_BYTES
from am.profiler.event_message import ORDINARY_RECORDS, Event, EventError, read_event, tag_field
from am.profiler.records import LossOnly, Record, StepLoss, StepsPerSecond, Validation
from am.profiler.tfrecord import Framed, RecordReader, intact

LOSS_TAGS = (
    *("loss", "batch_loss", "train_loss", "train/loss", "loss/train", "total_loss", "loss/total_loss"),
    *("train_loss_step", "train/loss_step", "train/total_loss", "train/train_loss", "training_loss", "training/loss"),
)
"""Tags of the training loss at a step, in any case. Of several, only the first that a file has is read.

TensorFlow numbers names that are taken, so `loss_1` counts as `loss`.
"""

RATE_TAGS = ("global_step/sec",)
"""Tags of steps per second."""

EPOCH_TAGS = ("epoch_loss",)
"""Tags of the loss of an epoch. The event's step is the number of the epoch."""

MEAN_TAGS = ("batch_loss",)
"""Those of LOSS_TAGS whose value is a mean over the epoch so far, as Keras' callback writes it."""

_EVALUATED = {
    "loss": "loss",
    "accuracy": "accuracy",
    # Keras writes these after an epoch's validation, at the number of steps done.
    "loss/total_loss": "loss",
    "evaluation_loss_vs_iterations": "loss",
    "evaluation_accuracy_vs_iterations": "accuracy",
}

EVALUATION_FOLDERS = ("eval", "evaluation", "validation", "val", "test")
"""Names of folders that hold values measured on held-out data."""

HELD_OUT_TAGS: Mapping[str, str] = {
    **dict.fromkeys(("val_loss", "val/loss", "loss/val", "valid_loss", "valid/loss", "loss/valid"), "loss"),
    **dict.fromkeys(("eval_loss", "eval/loss", "loss/eval", "test_loss", "test/loss", "loss/test"), "loss"),
    **dict.fromkeys(("validation_loss", "validation/loss", "loss/validation"), "loss"),
    **dict.fromkeys(("val_accuracy", "val/accuracy", "accuracy/val", "eval/accuracy", "eval_accuracy"), "accuracy"),
    **dict.fromkeys(("val_acc", "val/acc", "acc/val", "test/accuracy", "accuracy/test"), "accuracy"),
}
"""Tags of values on held-out data, in any case, in files that hold those of training too."""

_MARKS = (b"oss", b"cc", b"/sec")
"""Every tag that is read contains one of these, and most other records contain none."""

_NUMBERED = re.compile(r"_[0-9]{1,3}$")


class Role(Enum):
    """The data that the values of a file were measured on."""

    TRAINING = "training"
    EVALUATION = "evaluation"


class EventReader:
    """Reads one event file as it grows.

    The reader skips records without scalars of the known tags, and does not verify their checksums. It verifies the
    records that it uses. Seconds between steps are differences of the writer's timestamps.

    Of many scalars in a row that arrive at once, the reader uses only the first and the last ones. The last loss is
    always among them. Until the file has had a loss, the reader uses all scalars.

    Args:
        role: The data that the file's values were measured on.
    """

    def __init__(self, role: Role) -> None:
        self._role = role
        self._frames = RecordReader(_MARKS)
        self._loss_tag: str | None = None
        self._loss_field = b""
        self._step = 0
        self._epoch_since = 0
        self._wall_time_s: float | None = None
        self._evaluated_step = -1
        self._values: dict[str, float] = {}

    def read(self, data: bytes) -> list[Record]:
        """Return the records of the events that are now complete, in order."""
        if len(data) <= BACKLOG_BYTES:
            return self._parse(self._frames.read(data))
        first = self._parse(self._frames.read(data[:KEPT_FIRST_BYTES]))
        rest = data[KEPT_FIRST_BYTES:]
        if not self._loss_field:
            return first + self._parse(self._frames.read(rest))
        return first + self._parse(self._frames.read_newest(rest, ORDINARY_RECORDS, self._loss_field))

    def _parse(self, frames: Sequence[Framed]) -> list[Record]:
        records: list[Record] = []
        for framed in intact(frames):
            try:
                event = read_event(framed.data)
            except EventError:
                continue
            records += self._trained(event) if self._role is Role.TRAINING else self._evaluated(event)
        return records

    def _trained(self, event: Event) -> Sequence[Record]:
        records: list[Record] = []
        for tag, value in event.scalars:
            name, kind = _classify(tag)
            if kind is _Kind.RATE:
                records.append(StepsPerSecond(rate=value))
            elif kind is _Kind.EPOCH_LOSS:
                self._epoch_since = self._step
                records.append(LossOnly(loss=value, epoch=event.step))
            elif kind is _Kind.HELD_OUT:
                records += self._held_out(name, event.step, value)
            elif kind is _Kind.LOSS and self._loss_tag in (None, name):
                self._loss_tag, self._loss_field, self._step = name, tag_field(tag), event.step
                since = self._epoch_since if name in MEAN_TAGS else None
                records.append(StepLoss(step=event.step, loss=value, seconds=self._since_s(event), mean_since=since))
        return records

    def _held_out(self, name: str, step: int, value: float) -> Sequence[Record]:
        """Read a value on held-out data; its step is one of the job, and may be the only sign of progress."""
        validation = Validation(step=step, **{HELD_OUT_TAGS[name]: value})
        return (validation,) if self._loss_tag is not None else (StepLoss(step=step, loss=None), validation)

    def _evaluated(self, event: Event) -> Sequence[Record]:
        """Read values at steps, in one event or in several, and the steps: they may be the only sign of progress."""
        if event.step != self._evaluated_step:
            self._evaluated_step, self._values = event.step, {}
        values = {_EVALUATED[tag.lower()]: value for tag, value in event.scalars if tag.lower() in _EVALUATED}
        self._values |= values
        if not values or "loss" not in self._values:
            return ()
        validation = Validation(step=event.step, loss=self._values["loss"], accuracy=self._values.get("accuracy"))
        if "loss" not in values:
            return (validation,)
        return (validation, StepLoss(step=event.step, loss=None, seconds=self._since_s(event)))

    def _since_s(self, event: Event) -> float | None:
        """Return the seconds since the previous event. Returns None for the first, or if the clock went back."""
        before_s, self._wall_time_s = self._wall_time_s, event.wall_time_s
        return None if before_s is None or not event.wall_time_s > before_s else event.wall_time_s - before_s


class _Kind(Enum):
    RATE = "rate"
    EPOCH_LOSS = "loss of an epoch"
    LOSS = "loss at a step"
    HELD_OUT = "value on held-out data"
    NOTHING = "nothing that is read"


def _classify(tag: str) -> tuple[str, _Kind]:
    """Return the normalized tag and the kind of its values."""
    name = tag.lower()
    if name in RATE_TAGS:
        return name, _Kind.RATE
    if name in EPOCH_TAGS:
        return name, _Kind.EPOCH_LOSS
    if name in HELD_OUT_TAGS:
        return name, _Kind.HELD_OUT
    return name, _Kind.LOSS if _NUMBERED.sub("", name) in LOSS_TAGS else _Kind.NOTHING
