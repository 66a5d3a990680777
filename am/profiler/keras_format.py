r"""Keras' progress bars and lines: `Epoch 3/10`, then bars redrawn after `\r` and `\b`, or one line per epoch.

Reads both forms of Keras 3 (`125/125 ━━━━ 3s 24ms/step - loss: 0.31`, `125/125 - 3s - 24ms/step - loss: 0.31`)
and of Keras 2 (`125/125 [====] - 3s 24ms/step - loss: 0.31`, `125/125 - 3s - loss: 0.31 - 3s/epoch - 24ms/step`).
Source: the public file `keras/src/utils/progbar.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from am.profiler.numbers import ORDINARY
from am.profiler.records import Record, StepLoss, StepsPerSecond, Validation

_EPOCH = re.compile(r"Epoch ([0-9]{1,9})/([0-9]{1,9})")
_BAR = re.compile(r" {0,12}([0-9]{1,12})/([0-9]{1,12}|Unknown)(?: [━?\ufffd]{1,90}| \[[=>.]{1,90}\])?(?: -)? +(\S.*)")
_TIMES = re.compile(
    r"(?:ETA: )?(?:([0-9]{1,9})s|[0-9]{1,3}(?::[0-9]{2}){1,2})?(?: ?([0-9]{1,9})(us|ms|s)/step)?"
    r"|[0-9]{1,9}(?:us|ms|s)/epoch"
)
_UNIT_S: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

RATES_AN_EPOCH = 10
"""Rates that are read per epoch. Every drawing of a bar has one, but one epoch must not fill the window."""

_UNKNOWN_BITS = 4
"""In an epoch of unknown length, the rate is read at 16 steps, 32, 64 and so on."""


@dataclass(slots=True)
class _Bar:
    """The content of a bar or line.

    Attributes:
        done: Steps of the epoch done so far.
        total: Steps of the epoch. None while Keras does not know it.
        metrics: Values by name.
        step_s: Seconds per step, if the bar has them.
        validated: Whether one of the metrics is of a validation.
        last: Whether this is the epoch's last step.

    The class is not frozen: there is one value per drawing, and creating it takes a third of the time.
    """

    done: int
    total: int | None
    metrics: Mapping[str, float]
    step_s: float | None
    validated: bool
    last: bool

    @property
    def loss(self) -> float | None:
        """The loss, or the first training metric whose name ends with `loss`."""
        if "loss" in self.metrics:
            return self.metrics["loss"]
        named = (value for name, value in self.metrics.items() if name.endswith("loss") and name[:4] != "val_")
        return next(named, None)

    @property
    def accuracy(self) -> float | None:
        named = (
            value for name, value in self.metrics.items() if name[:4] == "val_" and name.endswith(("acc", "uracy"))
        )
        return next(named, None)


class KerasFormat:
    """Reads steps over all epochs, the loss, the rate, and validations at the end of epochs.

    Bars count as training from the head of an epoch to the epoch's last bar. Other bars are of `evaluate` and
    `predict`. If a `fit` has ended and another begins at epoch 1, its steps are added. If it begins again before its
    end, the program has restarted it, and its steps count from the epoch that it shows. Each incarnation of a job
    starts at 0 and counts the sum over its calls of `fit`.

    Example: `Epoch 3/10`, then a bar `50/125 ..`. The step is 2 * 125 + 50 = 300.
    """

    starts = rb"[\r\b\x1b]|Epoch [0-9]| {0,12}[0-9]{1,12}/(?:[0-9]|U)"
    # The head and the line of an epoch that is not the first of a `fit`: together, because neither is enough alone.
    ordinary = (
        rb"Epoch (?!1/)[0-9]{1,9}/[0-9]{1,9}\n(?P<steps>[0-9]{1,9})/(?P=steps)"
        rb"(?: - (?:[a-z_0-9]{1,40}: " + ORDINARY + rb"|[0-9]{1,9}(?:us|ms|s)(?:/step|/epoch)?))+"
    )
    counted = rb"Epoch ([0-9]{1,9})/"
    # With `validation_freq`, not every epoch has a validation.
    keep_last: Sequence[bytes] = (b" - loss: ", b" - val_")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget earlier lines, because the next lines are from a new incarnation of the job."""
        self._base = 0
        self._epoch = 0
        self._epochs = 0
        self._steps: int | None = None
        self._done = 0
        self._reached = 0
        self._ended = True
        self._rates = 0

    def read(self, line: str) -> Sequence[Record]:
        """Return the records of a line, or of the last drawing of one."""
        line = line.rstrip()
        if head := _EPOCH.fullmatch(line):
            self._epoch_begins(int(head[1]), int(head[2]))
            return ()
        if self._epoch == 0 or (bar := _bar(line)) is None:
            return ()
        if self._ended:
            # Keras draws the bar once more at the end of the epoch's validation.
            return self._validation(bar) if bar.last and bar.done == self._done and bar.validated else ()
        return self._training(bar) if bar.done >= self._done else ()

    def _epoch_begins(self, epoch: int, epochs: int) -> None:
        if epoch == 1 and self._ended and self._epoch == self._epochs:
            self._base = self._reached
            self._steps = None
        self._epoch, self._epochs, self._ended = epoch, epochs, False
        self._done, self._rates = 0, 0

    def _training(self, bar: _Bar) -> Sequence[Record]:
        self._done, self._ended = bar.done, bar.last
        if bar.total is not None:
            self._steps = bar.total
        if self._steps is None and self._epoch > 1:
            return ()
        before = self._base + (self._epoch - 1) * (self._steps or 0)
        step = before + bar.done
        self._reached = max(self._reached, step)
        step_loss = StepLoss(step=step, loss=bar.loss, mean_since=before)
        return (*self._rate(bar), step_loss, *self._validation(bar))

    def _rate(self, bar: _Bar) -> Sequence[Record]:
        """Return the rate after each tenth of the epoch. The last rate of an epoch may include validation."""
        if not bar.step_s or (bar.done == 1 and not bar.last) or (bar.validated and self._rates):
            return ()
        rates = RATES_AN_EPOCH * bar.done // bar.total if bar.total else bar.done.bit_length() - _UNKNOWN_BITS
        if rates <= self._rates:
            return ()
        self._rates = rates
        return (StepsPerSecond(rate=1.0 / bar.step_s),)

    def _validation(self, bar: _Bar) -> Sequence[Record]:
        if not bar.validated:
            return ()
        self._done = -1
        return (Validation(step=self._reached, loss=bar.metrics.get("val_loss"), accuracy=bar.accuracy),)


def _bar(line: str) -> _Bar | None:
    """Return the bar of a line. Returns None if any part of the line has another form."""
    match = _BAR.fullmatch(line)
    if match is None:
        return None
    metrics: dict[str, float] = {}
    times: list[re.Match[str]] = []
    validated = False
    for part in match[3].split(" - "):
        name, _, text = part.partition(": ")
        value = _number(text) if text and name != "ETA" else None
        if value is not None:
            metrics[name] = value
            validated = validated or name[:4] == "val_"
        elif time := _TIMES.fullmatch(part.strip()):
            times.append(time)
        else:
            return None
    done, total = int(match[1]), None if match[2] == "Unknown" else int(match[2])
    if not times or (total is not None and not 0 < done <= total):
        return None
    last = done == total
    return _Bar(done, total, metrics, _step_s(times, done, last=last), validated, last)


def _number(text: str) -> float | None:
    # `float` is faster than a pattern, and as strict about text after the number.
    try:
        return float(text)
    except ValueError:
        return None


def _step_s(times: Sequence[re.Match[str]], done: int, *, last: bool) -> float | None:
    """Return seconds per step, from `24ms/step` or from `3s` for the epoch, whichever is rounded less."""
    said, unit_s, whole_s = 0, 0.0, 0
    for time in reversed(times):
        if time[2]:
            said, unit_s = int(time[2]), _UNIT_S[time[3]]
        if time[1] and last:
            whole_s = int(time[1])
    if unit_s and said >= whole_s:
        return said * unit_s
    return whole_s / done if whole_s else None
