"""Seconds an iteration from successive lines of steps, where several workers may write to one log."""

from __future__ import annotations

import math
from dataclasses import dataclass

from am.profiler.records import StepLoss

# A rate and the rounded seconds of the line after it mean the same interval when they agree this well.
_ROUNDING_S = 0.0006
_AGREE = 0.02

MOST_STRANDS = 16
"""More writers than this are not told apart; those that were silent for longest are forgotten."""

_FORGOTTEN_LINES = 4 * MOST_STRANDS


@dataclass(slots=True)
class _Strand:
    """Lines of one writer: the step of its last one, when that was, in lines of the whole log, and the steps before."""

    step: int
    line: int
    steps: int = 0
    fresh: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Seconds an iteration over some steps; `first` where set-up work may be in it."""

    iteration_s: float
    first: bool


class Strands:
    """Fed with the lines of steps of one incarnation, in the order of the log.

    A line's seconds were measured by its writer since its own line before, so they may be divided only by the steps
    since that very line. It is the one whose distance fits the rate that was logged with them; without a rate one whose
    writer then does as many steps as it did before, or else the nearest one below. A step that is below all of them
    begins a strand: a worker that lags, or a program that has gone back to its checkpoint by itself.
    """

    def __init__(self) -> None:
        self._strands: list[_Strand] = []
        self._line = 0
        self._alone_is_first = True

    def interval(self, record: StepLoss, rate: float | None) -> Interval | None:
        """What a line and the rate before it tell of the pace, None for nothing."""
        self._line += 1
        if rate is not None and not (math.isfinite(rate) and rate > 0.0):
            rate = None
        if record.seconds is None:
            return self._untimed(record.step, rate)
        strand, fits = self._strand_of(record.step, record.seconds, rate)
        if strand is None:
            self._open(record.step)
            return None
        strand.steps, strand.step, strand.line = record.step - strand.step, record.step, self._line
        if rate is not None and fits:
            return self._timed(strand, 1.0 / rate)
        return self._timed(strand, record.seconds / strand.steps) if _is_time(record.seconds) else None

    def _strand_of(self, step: int, seconds: float, rate: float | None) -> tuple[_Strand | None, bool]:
        """The writer of a line, if it is a known one, and whether the rate says so."""
        if len(self._strands) == 1 and self._strands[0].step < step:
            # As nearly always.
            alone = self._strands[0]
            return alone, _fits(step - alone.step, seconds, rate)
        below = [strand for strand in self._strands if strand.step < step]
        fitting = [strand for strand in below if _fits(step - strand.step, seconds, rate)]
        likely = fitting or below
        if not likely:
            return None, False
        return max(likely, key=lambda each: (step - each.step == each.steps, each.step)), bool(fitting)

    def _untimed(self, step: int, rate: float | None) -> Interval | None:
        """A line without seconds: one of a log that knows nothing but rates, or the first of its writer."""
        if rate is None:
            self._open(step)
            return None
        first, self._alone_is_first = self._alone_is_first, False
        return Interval(iteration_s=1.0 / rate, first=first)

    def _timed(self, strand: _Strand, iteration_s: float) -> Interval:
        first, strand.fresh = strand.fresh, False
        return Interval(iteration_s=iteration_s, first=first)

    def _open(self, step: int) -> None:
        """A writer begins, unless another stands at the same step: then it says the same."""
        if all(strand.step != step for strand in self._strands):
            self._strands.append(_Strand(step, self._line))
        recent = [strand for strand in self._strands if self._line - strand.line < _FORGOTTEN_LINES]
        self._strands = recent[-MOST_STRANDS:]


def _fits(steps: int, seconds: float, rate: float | None) -> bool:
    if rate is None:
        return False
    exact_s = steps / rate
    return abs(exact_s - seconds) <= _ROUNDING_S + _AGREE * exact_s


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds > 0.0
