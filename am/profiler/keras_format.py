r"""Keras' bars and lines: `Epoch 3/10`, then bars that are drawn anew behind `\r` and `\b`, or one line an epoch.

Both forms are read as Keras 3 writes them (`125/125 ━━━━ 3s 24ms/step - loss: 0.31`,
`125/125 - 3s - 24ms/step - loss: 0.31`), and as Keras 2 did (`125/125 [====] - 3s 24ms/step - loss: 0.31`,
`125/125 - 3s - loss: 0.31 - 3s/epoch - 24ms/step`). Facts from the public sources of `keras/src/utils/progbar.py`.
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
"""A bar tells the epoch's mean pace each time it is drawn; so many of these count, lest one epoch fill the window."""

_UNKNOWN_BITS = 4
"""In an epoch of unknown length the pace counts at 16 steps, 32, 64 and so on."""


@dataclass(slots=True)
class _Bar:
    """A bar or line as it stands there. `total` is None while Keras does not know it yet.

    `validated` tells whether one of the metrics is of a validation, and `last` whether the epoch is at its end. Not
    frozen: one is made for every drawing, and this takes a third of the time.
    """

    done: int
    total: int | None
    metrics: Mapping[str, float]
    step_s: float | None
    validated: bool
    last: bool

    @property
    def loss(self) -> float | None:
        """The loss, or the first metric that is called one."""
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
    """Steps over all epochs, the loss, the pace, and what was validated at an epoch's end.

    Bars count as training from the head of an epoch to the epoch's last bar; others are of `evaluate` and `predict`.
    When a whole `fit` has ended and another begins at epoch 1, its steps are added. One that begins again before the
    end has been restarted by its program: its steps count from where its epoch stands. Each incarnation of a job counts
    for itself: what it reaches is the sum over the fits that it runs.
    """

    starts = rb"[\r\b\x1b]|Epoch [0-9]| {0,12}[0-9]{1,12}/(?:[0-9]|U)"
    # An epoch that is not the first of a `fit`, and its line: as one, since neither tells anything by itself.
    ordinary = (
        rb"Epoch (?!1/)[0-9]{1,9}/[0-9]{1,9}\n(?P<steps>[0-9]{1,9})/(?P=steps)"
        rb"(?: - (?:[a-z_0-9]{1,40}: " + ORDINARY + rb"|[0-9]{1,9}(?:us|ms|s)(?:/step|/epoch)?))+"
    )
    counted = rb"Epoch ([0-9]{1,9})/"
    # With `validation_freq` not every epoch has it.
    telling: Sequence[bytes] = (b" - loss: ", b" - val_")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new incarnation writes: no `fit` of it has ended yet."""
        self._base = 0
        self._epoch = 0
        self._epochs = 0
        self._steps: int | None = None
        self._done = 0
        self._reached = 0
        self._ended = True
        self._rates = 0

    def read(self, line: str) -> Sequence[Record]:
        """What a line, or the last drawing of one, tells."""
        line = line.rstrip()
        if head := _EPOCH.fullmatch(line):
            self._epoch_begins(int(head[1]), int(head[2]))
            return ()
        if self._epoch == 0 or (bar := _bar(line)) is None:
            return ()
        if self._ended:
            # Drawn once more at the end of the epoch's validation.
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
        told = StepLoss(step=step, loss=bar.loss, mean_since=before)
        return (*self._rate(bar), told, *self._validation(bar))

    def _rate(self, bar: _Bar) -> Sequence[Record]:
        """The pace, when a tenth of the epoch has passed. The epoch's end has validation in it, where there is any."""
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
    """The bar of a line, None when any part of it is something else."""
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
    # As quick as it gets, and at least as strict as a pattern would be about what stands behind a number.
    try:
        return float(text)
    except ValueError:
        return None


def _step_s(times: Sequence[re.Match[str]], done: int, *, last: bool) -> float | None:
    """Seconds a step, by whichever of `24ms/step` and `3s` for all is rounded less."""
    said, unit_s, whole_s = 0, 0.0, 0
    for time in reversed(times):
        if time[2]:
            said, unit_s = int(time[2]), _UNIT_S[time[3]]
        if time[1] and last:
            whole_s = int(time[1])
    if unit_s and said >= whole_s:
        return said * unit_s
    return whole_s / done if whole_s else None
