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

_COLOURS = re.compile(r"\x1b\[[0-9;]{0,10}m")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """A bar or line as it stands there. `total` is None while Keras does not know it yet."""

    done: int
    total: int | None
    metrics: Mapping[str, float]
    step_s: float | None

    @property
    def last(self) -> bool:
        return self.done == self.total

    @property
    def loss(self) -> float | None:
        """The loss, or the first metric that is called one."""
        if "loss" in self.metrics:
            return self.metrics["loss"]
        named = (value for name, value in self.metrics.items() if name.endswith("loss") and name[:4] != "val_")
        return next(named, None)

    @property
    def validated(self) -> bool:
        return any(name.startswith("val_") for name in self.metrics)

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
    end has been restarted: its steps count from where its epoch stands.
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
        line = _COLOURS.sub("", line).rstrip()
        if head := _EPOCH.fullmatch(line):
            self._begin(int(head[1]), int(head[2]))
            return ()
        if self._epoch == 0 or (bar := _bar(line)) is None:
            return ()
        if self._ended:
            # Drawn once more at the end of the epoch's validation.
            return self._validation(bar) if bar.last and bar.done == self._done and bar.validated else ()
        return self._training(bar) if bar.done >= self._done else ()

    def _begin(self, epoch: int, epochs: int) -> None:
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
    for part in match[3].split(" - "):
        name, _, text = part.partition(": ")
        value = None if name == "ETA" else _number(text)
        if value is not None:
            metrics[name] = value
        elif time := _TIMES.fullmatch(part.strip()):
            times.append(time)
        else:
            return None
    done, total = int(match[1]), None if match[2] == "Unknown" else int(match[2])
    if not times or (total is not None and not 0 < done <= total):
        return None
    return _Bar(done=done, total=total, metrics=metrics, step_s=_step_s(times, done, last=done == total))


def _number(text: str) -> float | None:
    # As quick as it gets, and at least as strict as a pattern would be about what stands behind a number.
    try:
        return float(text)
    except ValueError:
        return None


def _step_s(times: Sequence[re.Match[str]], done: int, *, last: bool) -> float | None:
    """Seconds a step, by whichever of `24ms/step` and `3s` for all is rounded less."""
    said = next(((int(time[2]), _UNIT_S[time[3]]) for time in times if time[2]), None)
    whole_s = next((int(time[1]) for time in times if time[1]), 0) if last and done else 0
    if said is not None and said[0] >= whole_s:
        return said[0] * said[1]
    return whole_s / done if whole_s else None
