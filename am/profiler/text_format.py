"""Lines of any other program: `step=40 loss=0.69`, JSON, dictionaries, bars with a postfix, `Epoch 2/6 ..`, tables.

`named_values` reads single lines; this module remembers what a line leaves out: the epoch of its head, the length of an
epoch, the last step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from am.profiler.boosting_format import BoostingLines
from am.profiler.cost_format import read_cost
from am.profiler.divergence_format import says_diverged
from am.profiler.held_out_heads import HeldOutHeads, depth_of
from am.profiler.learning_blocks import LearningBlocks
from am.profiler.line_blocks import LineBlocks
from am.profiler.line_parts import text_start
from am.profiler.line_places import LinePlace, block_place, head_place, line_place
from am.profiler.loss_kinds import LossKinds
from am.profiler.named_values import PART, TOTAL, NamedValues, may_hold_loss, named_values
from am.profiler.progress_format import progress_place
from am.profiler.records import LossOnly, Record, StepLoss, Validation
from am.profiler.table_format import LogTable
from am.profiler.unnamed_format import read_unnamed

_DONE = re.compile(r"\bprogress ?[:=]? {0,4}(?P<percent>[0-9]{1,3}(?:\.[0-9]{1,6})?) ?%", re.IGNORECASE)
_BARE_BAR = re.compile(r"[^0-9%|]{0,80}[0-9]{1,3}%\|")
_TIMESTEPS = re.compile(r"\btotal_timesteps=(?P<step>[0-9]{1,15})(?![\w.])")
_KERAS = re.compile(r"(?!\W*step |.{0,150}\] [0-9]{1,3}% - ).*?[0-9]+/[0-9]+ .*[0-9][um]?s/step")
"""A line of Keras that the Keras format does not read: a bar of `evaluate` or `predict`. PaddlePaddle's say `step`, and
mlpack's have a percentage."""
_OTHERS = re.compile(r"(?:INFO|WARNING|ERROR):(?:tensorflow|themis):(?!\{|\s|Step |global step [0-9])")
"""Lines in the notation of TensorFlow or Themis, whose own formats have skipped them. Others begin with a dictionary, a
list or `Step 100 ..`, as those of TensorFlow's object detection."""
_BAR = re.compile(
    r"(?P<run>^\W*(?:(?:train|training|epochs?|steps?|iterations?|iters?)\W{1,3})?[0-9]{1,3})?"
    r"%\|[^|]{0,200}\| *(?P<done>[0-9]{1,12})/(?P<total>[0-9]{1,12}) \[",
    re.IGNORECASE,
)
"""A progress bar. Group `run`: it has no name, or one of training, so it is of no download and no evaluation."""


class TextFormat:
    """Reads steps, losses and held-out values from lines that no other format knows.

    *Steps.* A step count over the whole run is used as it is. A count within an epoch becomes one over all epochs, with
    the total that the line names, or with the highest count of an earlier epoch. Lines with epochs only count epochs.
    The iterations are epochs if the number of epochs is the number of iterations that the job was asked for, or if one
    epoch, or one bar, has more steps than that. Epochs in parts, such as 0.5, are counted only without a bar of all
    iterations; once a line had such, whole numbers of epochs are taken alike (the Trainer of Hugging Face logs 0.5, 1,
    1.5).

    Example: the job runs to iteration 6. `Epoch 2/6 [40/100] loss: 0.7` is iteration 1, since one epoch is done. If it
    runs to iteration 600, the same line is iteration 140.
    """

    def __init__(self) -> None:
        self._expected: frozenset[int] = frozenset()
        self.begin()

    def begin(self) -> None:
        """Forget earlier lines, because the next lines are from a new incarnation of the job."""
        self._blocks = LineBlocks()
        self._table = LogTable()
        self.row = ""
        """The last line with the names of its columns, if it was a row of a table."""
        self._boosting = BoostingLines()
        self._learning = LearningBlocks()
        self._kinds, self._held_out_kinds = LossKinds(), LossKinds()
        self._names_losses = self._has_rounds = False
        self._head = self._block = LinePlace()
        self._block_depth = 0
        self._held_out = HeldOutHeads()
        self._next_is_block = False
        self._trained = LinePlace()
        self._stride = 0
        self._epoch_ends = False
        self._iterations_are_epochs = False
        self._first_epoch: int | None = None
        self._epoch: int | None = None
        self._in_epoch: int | None = None
        self._restarts_count = False
        self._length = 0
        self._bars_done = self._bars_steps = 0
        self._bar_loss: float | None = None
        self._bar_step: int | None = None
        self._bars_repeat = False
        self._epochs_in_parts = False
        self._step = 0

    def expect(self, *iterations: int) -> None:
        """Set the last iteration of the job and, if it reads lines of earlier phases, the last ones of these."""
        self._expected = frozenset(filter(None, iterations))

    def read(self, line: str) -> Sequence[Record]:
        """Return the records of a line, in order. Never raises."""
        self.row = ""
        if not line:
            return ()
        drawn: Sequence[Record] = ()
        if "%|" in line:
            drawn = self._drawn(line)
            if _BARE_BAR.match(line) and not may_hold_loss(line):
                # It is no line of a block that it is drawn amid.
                return drawn
        found: list[Record] = []
        for text in self._blocks.read(line):
            found += self._read(text) or _timesteps(text)
        return found or drawn

    def _drawn(self, line: str) -> Sequence[Record]:
        """Return the progress that a bar of as many steps as the job has iterations shows.

        An epoch may happen to have as many steps. So a bar alone does not say that the job is done, and bars say
        nothing once one of them has begun again.
        """
        bar = _BAR.search(line)
        if bar is None or int(bar["total"]) not in self._expected:
            return ()
        done, before = int(bar["done"]), self._bar_step or 0
        self._bars_repeat = self._bars_repeat or done < before
        self._bar_step = done
        is_of_run = bar["run"] and not self._bars_repeat and 0 < done < int(bar["total"])
        return (StepLoss(step=done, loss=None),) if is_of_run else ()

    def _read(self, line: str) -> Sequence[Record]:
        if (learning := self._learning.read(line)) is not None:
            return learning
        depth = depth_of(line)
        held_out = self._held_out.read(line, depth)
        self._epoch_ends = self._epoch_ends or self._held_out.ends_epoch
        known = self._boosting.read(line) or read_unnamed(line)
        if known is not None:
            self._has_rounds = self._has_rounds or known.loss is not None
        elif not self._names_losses:
            known = read_cost(line[text_start(line.lower()) :])
        if known is not None:
            return self._records(known)
        in_block = self._next_is_block or depth > self._block_depth
        self._next_is_block = False
        if not in_block:
            self._block, self._block_depth = LinePlace(), 0
        row = self.row = self._table.row(line)
        if not row and not may_hold_loss(line):
            return self._without_loss(line, depth, held_out=held_out)
        if diverged := says_diverged(line):
            return (diverged,)
        values = named_values(
            row or line, held_out=held_out, placed=depth > self._block_depth and self._block != LinePlace()
        )
        of_others = _KERAS.match(line) is not None or _OTHERS.search(line) is not None
        if of_others or (values.loss is None and values.held_out_loss is None and not values.of_adversaries):
            return self._without_loss(line, depth, held_out=held_out)
        self._held_out.passed(line, held_out=values.loss is None)
        counting = self._counting(values, line)
        has_any = counting.loss is not None or counting.held_out_loss is not None or counting.of_adversaries
        return self._records(counting) if has_any else ()

    def _without_loss(self, line: str, depth: int, *, held_out: bool) -> Sequence[Record]:
        """Return the progress that a line without a loss shows, and remember it if it is a head."""
        place = progress_place(line)
        self._take_head(line, depth, held_out=held_out)
        if place is None:
            return ()
        return self._records(NamedValues(place, of_adversaries=True))

    def _counting(self, values: NamedValues, line: str) -> NamedValues:
        """Return the values of a line without losses of another kind than those that are compared."""
        if values.place == LinePlace() and len(self._expected) == 1 and (done := _DONE.search(line)):
            (iterations,) = self._expected
            values.place = LinePlace(step=int(min(1.0, float(done["percent"]) / 100.0) * iterations))
        place = self._block if values.place == LinePlace() else values.place
        if values.loss is not None:
            self._names_losses = self._names_losses or values.kind in (TOTAL, PART)
            if not self._kinds.counts(values.kind, place) or (self._has_rounds and place == self._head == LinePlace()):
                values.loss = None
        if values.held_out_loss is not None:
            self._names_losses = self._names_losses or values.held_out_kind in (TOTAL, PART)
            if not self._held_out_kinds.counts(values.held_out_kind, place):
                values.held_out_loss = None
        return values

    def epoch_of(self, line: str) -> int | None:
        """Return the iteration of a line that names a finished epoch and no step. Returns None for any other line."""
        text = line.lower()
        place = line_place(text, len(text))
        return (
            None
            if place.epoch is None or place.fraction or place.step is not None
            else self._iteration(place, None, held_out_only=True)
        )

    def _take_head(self, line: str, depth: int, *, held_out: bool) -> None:
        """Remember the epoch and the step that a line gives to those below it."""
        self._held_out.passed(line, held_out=None)
        head = head_place(line)
        if held_out and head is not None and head.epoch is None:
            # It counts the steps of the evaluation.
            return
        if not held_out and (block := head or block_place(line)) is not None:
            self._block, self._block_depth, self._next_is_block = block, depth, block.step is not None
        if head is None:
            return
        self._head = head
        self._iterations_are_epochs = self._iterations_are_epochs or head.epochs in self._expected

    def _records(self, values: NamedValues) -> Sequence[Record]:
        held_out_only = values.loss is None and not values.of_adversaries
        place = self._completed(values.place, held_out_only=held_out_only)
        step = self._iteration(place, values.loss, held_out_only=held_out_only)
        if step is None:
            step = self._step
            trained: Sequence[Record] = () if values.loss is None else (LossOnly(loss=values.loss),)
        else:
            self._step = max(self._step, step)
            trained = (StepLoss(step=step, loss=values.loss),)
        if values.held_out_loss is None:
            return trained
        return (*trained, Validation(step=step, loss=values.held_out_loss, accuracy=values.accuracy))

    def _completed(self, place: LinePlace, *, held_out_only: bool) -> LinePlace:
        """Return the place of a line, with what it leaves out from the line that was its head.

        Held-out values without a place, behind lines of training that name their epoch, are of the end of that epoch if
        it has come. Otherwise they are of the last step.
        """
        head, trained = self._head, self._trained
        if place.epoch is None and place.step is None:
            place = self._block
        if not held_out_only:
            self._follow(place)
        elif trained.epoch is not None and place.epoch is None and (place.step is None or place.in_epoch):
            return LinePlace(epoch=trained.epoch, epochs=trained.epochs) if self._epoch_ends else LinePlace()
        if place.epoch is None and place.step is None:
            place = head
        elif place.epoch is None:
            in_epoch = place.in_epoch or (head.epoch is not None and place.steps is not None)
            place = replace(place, epoch=head.epoch, epochs=head.epochs, in_epoch=in_epoch)
        # In a line with held-out values only, unnamed counts are those of the evaluation.
        return replace(place, step=None, steps=None) if held_out_only and place.in_epoch else place

    def _follow(self, place: LinePlace) -> None:
        """Remember the place of a line of training, and whether the next such line would be beyond its epoch's end."""
        before, self._trained, self._epoch_ends = self._trained.step, place, False
        if place.step is None:
            return
        if before is not None and place.step > before:
            self._stride = place.step - before
        self._epoch_ends = place.steps is not None and 0 < self._stride >= place.steps - place.step

    def _iteration(self, place: LinePlace, loss: float | None, *, held_out_only: bool) -> int | None:
        """Return the iteration of a line. Returns None if nothing says it."""
        self._epochs_in_parts = self._epochs_in_parts or place.fraction
        if self._epochs_in_parts and place.step is None:
            return self._bar_step if self._bar_step is not None else place.epoch
        if place.epoch is None or place.fraction:
            return self._counted(place, loss)
        if self._first_epoch is None or place.epoch < self._first_epoch:
            self._first_epoch = place.epoch
        before = place.epoch - min(1, self._first_epoch)
        if place.epochs in self._expected or self._is_of_epoch(place):
            self._iterations_are_epochs = True
        if self._iterations_are_epochs:
            is_within = not held_out_only and place.step is not None and place.step != place.steps
            return before if is_within else before + 1
        if place.step is None:
            done = before + 1 if not self._length else (before + 1) * self._length
            return max(done, self._bar_step or 0)
        return self._step_over_epochs(place, before)

    def _is_of_epoch(self, place: LinePlace) -> bool:
        """Whether a line counts more steps of an epoch than the job has iterations, so that these are epochs."""
        done = place.step if place.epoch is not None else None
        return bool(self._expected) and max(place.steps or 0, done or 0) > max(self._expected)

    def _counted(self, place: LinePlace, loss: float | None) -> int | None:
        """Return the step of a line without an epoch. A bar that begins again after its end is of the next epoch."""
        if place.step is None or place.steps is None:
            return self._bar_step if place.step is None else place.step
        # The end of a bar may be drawn twice, but then with the same loss.
        began = self._in_epoch is not None and (place.step, loss) != (self._in_epoch, self._bar_loss)
        if self._in_epoch is not None and began and place.step <= self._in_epoch and self._in_epoch >= place.steps:
            self._bars_done += 1
            self._bars_steps += place.steps
        self._in_epoch, self._bar_loss = place.step, loss
        if self._is_of_epoch(place):
            return self._bars_done + (place.step >= place.steps)
        return self._bars_steps + place.step

    def _step_over_epochs(self, place: LinePlace, before: int) -> int:
        assert place.step is not None
        fell = self._epoch is not None and place.epoch != self._epoch and place.step <= (self._in_epoch or 0)
        self._restarts_count = self._restarts_count or fell or place.in_epoch
        self._epoch, self._in_epoch = place.epoch, place.step
        if not self._restarts_count:
            self._length_seen(place, before)
            return place.step
        self._length = place.steps or max(self._length, place.step if before == 0 or not self._length else 0)
        return before * self._length + place.step

    def _length_seen(self, place: LinePlace, before: int) -> None:
        if before == 0 and place.step is not None:
            self._length = max(self._length, place.step)


def _timesteps(text: str) -> Sequence[Record]:
    """Return the progress of a table of reinforcement learning that has no loss yet."""
    found = _TIMESTEPS.search(text) if "total_timesteps=" in text else None
    return () if found is None else (StepLoss(step=int(found["step"]), loss=None),)
