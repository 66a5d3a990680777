"""Lines of any other program: `step=40 loss=0.69`, JSON, dictionaries, bars with a postfix, `Epoch 2/6 ..`, tables.

`named_values` reads single lines; this module remembers what a line leaves out: the epoch of its head, the length of an
epoch, the last step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from am.profiler.divergence_format import says_diverged
from am.profiler.named_values import NamedValues, named_values
from am.profiler.records import LossOnly, Record, StepLoss, Validation
from am.profiler.table_format import LogTable

_HEAD = re.compile(
    r"\W*(?:(?:start(?:ing)?|begin|train(?:ing)?) )?epoch[ :#\[]*([0-9]{1,9})(?: *(?:/|of) *([0-9]{1,9}))?\W*", re.I
)
_HELD_OUT_HEAD = re.compile(r"\W*(?:test|validation|eval|evaluation)[a-z ]{0,20}:\W*", re.I)
_KERAS = re.compile(r"[0-9]+/[0-9]+ .*[0-9][um]?s/step")
"""A line of Keras that the Keras format does not read: a bar of `evaluate` or `predict`."""
_OTHERS = re.compile(r"(?:INFO|WARNING|ERROR):(?:tensorflow|themis):")
"""Lines in the notation of TensorFlow or Themis, whose own formats have skipped them."""
_BAR = re.compile(r"%\|[^|]{0,200}\| *([0-9]{1,12})/([0-9]{1,12}) \[")


class TextFormat:
    """Reads steps, losses and held-out values from lines that no other format knows.

    *Steps.* A step count over the whole run is used as it is. A count within an epoch becomes one over all epochs, with
    the total that the line names, or with the highest count of an earlier epoch. Lines with epochs only count epochs.
    The iterations are epochs if the number of epochs is the number of iterations that the job was asked for, or if one
    epoch has more steps than that. Epochs in parts, such as 0.5, are counted only without a bar of all iterations; once
    a line had such, whole numbers of epochs are taken alike (the Trainer of Hugging Face logs 0.5, 1, 1.5).

    Example: the job runs to iteration 6. `Epoch 2/6 [40/100] loss: 0.7` is iteration 1, since one epoch is done. If it
    runs to iteration 600, the same line is iteration 140.
    """

    def __init__(self) -> None:
        self._expected: frozenset[int] = frozenset()
        self.begin()

    def begin(self) -> None:
        """Forget earlier lines, because the next lines are from a new incarnation of the job."""
        self._table = LogTable()
        self._head: tuple[int, int | None] | None = None
        self._next_is_held_out = False
        self._first_epoch: int | None = None
        self._epoch: int | None = None
        self._in_epoch: int | None = None
        self._restarts_count = False
        self._length = 0
        self._bars_done = 0
        self._bar_loss: float | None = None
        self._bar_step: int | None = None
        self._epochs_in_parts = False
        self._step = 0

    def expect(self, *iterations: int) -> None:
        """Set the last iteration of the job and, if it reads lines of earlier phases, the last ones of these."""
        self._expected = frozenset(filter(None, iterations))

    def read(self, line: str) -> Sequence[Record]:
        """Return the records of a line, in order. Never raises."""
        if "%|" in line and (bar := _BAR.search(line)):
            self._bar_step = int(bar[1]) if int(bar[2]) in self._expected else self._bar_step
        held_out = self._next_is_held_out
        self._next_is_held_out = line.endswith(":") and _HELD_OUT_HEAD.fullmatch(line) is not None
        row = self._table.row(line)
        if "oss" not in line and "OSS" not in line and not row:
            self._read_head(line)
            return ()
        if diverged := says_diverged(line):
            return (diverged,)
        values = named_values(row or line, held_out=held_out)
        of_others = _KERAS.search(line) is not None or _OTHERS.search(line) is not None
        if of_others or (values.loss is None and values.held_out_loss is None):
            self._read_head(line)
            return ()
        return self._records(values)

    def _read_head(self, line: str) -> None:
        if ("poch" in line or "POCH" in line) and (head := _HEAD.fullmatch(line)):
            self._head = (int(head[1]), None if head[2] is None else int(head[2]))

    def _records(self, values: NamedValues) -> Sequence[Record]:
        if values.epoch is None and self._head is not None:
            values.epoch, values.epochs = self._head
            values.in_epoch = values.in_epoch or values.steps is not None
        held_out_only = values.loss is None
        # In a line with held-out values only, unnamed counts are those of the evaluation.
        if held_out_only and values.in_epoch:
            values.step = values.steps = None
        step = self._place(values)
        if step is None:
            step = self._step
            trained: Sequence[Record] = () if held_out_only else (LossOnly(loss=values.loss or 0.0),)
        else:
            self._step = max(self._step, step)
            trained = (StepLoss(step=step, loss=values.loss),)
        if values.loss is not None and not trained:
            return ()
        if values.held_out_loss is None:
            return trained
        return (*trained, Validation(step=step, loss=values.held_out_loss, accuracy=values.accuracy))

    def _place(self, values: NamedValues) -> int | None:
        """Return the iteration of a line. Returns None if nothing says it."""
        self._epochs_in_parts = self._epochs_in_parts or values.fraction
        if self._epochs_in_parts and values.step is None:
            return self._bar_step if self._bar_step is not None else values.epoch
        if values.epoch is None or values.fraction:
            return self._counted(values)
        if self._first_epoch is None or values.epoch < self._first_epoch:
            self._first_epoch = values.epoch
        before = values.epoch - min(1, self._first_epoch)
        if self._expected and (values.epochs in self._expected or (values.steps or 0) > max(self._expected)):
            return before if self._is_within(values) else before + 1
        if values.step is None:
            return before + 1 if not self._length else (before + 1) * self._length
        return self._step_over_epochs(values, before)

    @staticmethod
    def _is_within(values: NamedValues) -> bool:
        """Whether a line is of the middle of an epoch."""
        return values.loss is not None and values.step is not None and values.step != values.steps

    def _counted(self, values: NamedValues) -> int | None:
        """Return the step of a line without an epoch. A bar that begins again after its end is of the next epoch."""
        if values.step is None or values.steps is None:
            return self._bar_step if values.step is None else values.step
        # The end of a bar may be drawn twice, but then with the same loss.
        began = self._in_epoch is not None and (values.step, values.loss) != (self._in_epoch, self._bar_loss)
        if self._in_epoch is not None and began and values.step <= self._in_epoch and self._in_epoch >= values.steps:
            self._bars_done += values.steps
        self._in_epoch, self._bar_loss = values.step, values.loss
        return self._bars_done + values.step

    def _step_over_epochs(self, values: NamedValues, before: int) -> int:
        assert values.step is not None
        fell = self._epoch is not None and values.epoch != self._epoch and values.step <= (self._in_epoch or 0)
        self._restarts_count = self._restarts_count or fell or values.in_epoch
        self._epoch, self._in_epoch = values.epoch, values.step
        if not self._restarts_count:
            self._length_seen(values, before)
            return values.step
        self._length = values.steps or max(self._length, values.step if before == 0 or not self._length else 0)
        return before * self._length + values.step

    def _length_seen(self, values: NamedValues, before: int) -> None:
        if before == 0 and values.step is not None:
            self._length = max(self._length, values.step)
