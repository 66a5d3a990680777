"""TensorBoard event files: what their scalars tell of a job, by their tags."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache

from am.profiler.backlog import FIRST_BYTES, MUCH_BYTES
from am.profiler.event_message import ORDINARY_RECORDS, Event, EventError, read_event, tag_field
from am.profiler.records import LossOnly, Record, StepLoss, StepsPerSecond, Validation
from am.profiler.tfrecord import Framed, RecordReader, intact

LOSS_TAGS = ("loss", "batch_loss", "train_loss", "train/loss", "loss/train", "total_loss")
"""Tags of the training loss at a step, also with capitals in front; the first one that a file has is read, no other.

TensorFlow numbers names that are taken: `loss_1` is one of them too.
"""

RATE_TAGS = ("global_step/sec",)
"""Tags of steps a second."""

EPOCH_TAGS = ("epoch_loss",)
"""Tags of the loss of an epoch; its number counts epochs, so it is no step."""

MEAN_TAGS = ("batch_loss",)
"""Of the tags of the loss at a step those whose value is a mean over the epoch so far, as Keras' callback writes it."""

_EVALUATED = {
    "loss": "loss",
    "accuracy": "accuracy",
    # What Keras writes after an epoch's validation, at the steps done by then.
    "evaluation_loss_vs_iterations": "loss",
    "evaluation_accuracy_vs_iterations": "accuracy",
}

EVALUATION_FOLDERS = ("eval", "evaluation", "validation", "val", "test")
"""Folders with such a name hold the values of held-out data."""

_MARKS = (b"oss", b"ccuracy", b"/sec")
"""One of them is in every tag that is read, and in no record of most others."""

_NUMBERED = re.compile(r"_[0-9]{1,3}$")


class Role(Enum):
    """What the values of a file were measured on."""

    TRAINING = "training"
    EVALUATION = "evaluation"


class EventReader:
    """Reads one event file as it grows.

    Records with other content than scalars of these tags are passed over, and so are their checksums; those that are
    used are checked. Seconds between steps are those between the writer's own times.

    Of many scalars in a row that come at once only the first and the last are read. The last begin no later than the
    last loss; so long as the file has told none, all are read.

    Args:
        role: What the file's values were measured on.
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
        """What the records that have become whole tell, in order."""
        if len(data) <= MUCH_BYTES:
            return self._told(self._frames.read(data))
        told = self._told(self._frames.read(data[:FIRST_BYTES]))
        rest = data[FIRST_BYTES:]
        if not self._loss_field:
            return told + self._told(self._frames.read(rest))
        return told + self._told(self._frames.read_newest(rest, ORDINARY_RECORDS, self._loss_field))

    def _told(self, records: Sequence[Framed]) -> list[Record]:
        told: list[Record] = []
        for framed in intact(records):
            try:
                event = read_event(framed.data)
            except EventError:
                continue
            told += self._trained(event) if self._role is Role.TRAINING else self._evaluated(event)
        return told

    def _trained(self, event: Event) -> Sequence[Record]:
        told: list[Record] = []
        for tag, value in event.scalars:
            name, kind = _told_by(tag)
            if kind is _Kind.RATE:
                told.append(StepsPerSecond(rate=value))
            elif kind is _Kind.EPOCH_LOSS:
                self._epoch_since = self._step
                told.append(LossOnly(loss=value, epoch=event.step))
            elif kind is _Kind.LOSS and self._loss_tag in (None, name):
                self._loss_tag, self._loss_field, self._step = name, tag_field(tag), event.step
                since = self._epoch_since if name in MEAN_TAGS else None
                told.append(StepLoss(step=event.step, loss=value, seconds=self._since_s(event), mean_since=since))
        return told

    def _evaluated(self, event: Event) -> Sequence[Record]:
        """Values at steps, in one event or in several, and the steps: they may be all that tells of progress."""
        if event.step != self._evaluated_step:
            self._evaluated_step, self._values = event.step, {}
        values = {_EVALUATED[tag.lower()]: value for tag, value in event.scalars if tag.lower() in _EVALUATED}
        self._values |= values
        if not values or "loss" not in self._values:
            return ()
        told = Validation(step=event.step, loss=self._values["loss"], accuracy=self._values.get("accuracy"))
        return (
            (told, StepLoss(step=event.step, loss=None, seconds=self._since_s(event))) if "loss" in values else (told,)
        )

    def _since_s(self, event: Event) -> float | None:
        """Seconds since the event before; None for the first, and where the clock went back."""
        before_s, self._wall_time_s = self._wall_time_s, event.wall_time_s
        return None if before_s is None or not event.wall_time_s > before_s else event.wall_time_s - before_s


class _Kind(Enum):
    RATE = "rate"
    EPOCH_LOSS = "loss of an epoch"
    LOSS = "loss at a step"
    NOTHING = "nothing that is read"


@lru_cache(maxsize=1024)
def _told_by(tag: str) -> tuple[str, _Kind]:
    """The name behind a tag, and what its values are. A run writes the same few tags again and again."""
    name = tag.lower()
    if name in RATE_TAGS:
        return name, _Kind.RATE
    if name in EPOCH_TAGS:
        return name, _Kind.EPOCH_LOSS
    return name, _Kind.LOSS if _NUMBERED.sub("", name) in LOSS_TAGS else _Kind.NOTHING
