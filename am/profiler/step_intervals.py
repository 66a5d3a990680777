"""Measure seconds per iteration from successive step lines of a log that several workers may share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from am.profiler.records import StepLoss
from themis.values import Value

# A rate and the rounded seconds of the next line describe the same interval if they differ by no more than this.
_ROUNDING_S = 0.0006
_RATE_TOLERANCE = 0.02

MAX_WRITERS = 16
"""Number of writers that are distinguished. Beyond it, the writers that have been silent for longest are forgotten."""

_FORGOTTEN_LINES = 4 * MAX_WRITERS


@dataclass(slots=True)
class _LogWriter:
    """One writer of the log.

    Attributes:
        step: Step of its last line.
        line: Number of that line, counted over the step lines of the whole log.
        steps: Steps between its last two lines.
        fresh: Whether it has no interval yet, so that the next one may include set-up work.
    """

    step: int
    line: int
    steps: int = 0
    fresh: bool = True


class Interval(Value, frozen=True, kw_only=True):
    """Seconds per iteration over some steps. `first` marks an interval that may include set-up work."""

    iteration_s: float
    first: bool


class StepIntervals:
    """Turns the step lines of one incarnation, in log order, into intervals.

    A line's seconds count from the previous line of the same writer. So they must be divided by the steps since that
    line, and the class finds the writer of each line:

    1. It prefers a writer whose last step fits the rate that was logged with the line: steps / rate = seconds.
    2. Among several, it prefers a writer that would do as many steps as between its last two lines.
    3. Otherwise it takes the nearest last step below.
    4. A step below all last steps starts a new writer: a lagging worker, or a program that went back to a checkpoint.

    Example: two asynchronous workers share one step count and log about once per second.

        step 0, step 3                    two writers start
        step 100, 1 s, rate 100 per s     100 steps since the writer at 0: 0.01 s per iteration
        step 104, 1.01 s, rate 100 per s  101 steps since the writer at 3: 0.01 s. The nearest last step, 100, would
                                          give 1.01 s / 4 = 0.25 s per iteration.
    """

    def __init__(self) -> None:
        self._writers: list[_LogWriter] = []
        self._line = 0
        self._alone_is_first = True

    def interval(self, record: StepLoss, rate: float | None) -> Interval | None:
        """Return the interval of a line and the rate logged before it. Returns None if they give none."""
        self._line += 1
        if rate is not None and not (math.isfinite(rate) and rate > 0.0):
            rate = None
        if record.seconds is None:
            return self._untimed(record.step, rate)
        writer, fits = self._writer_of(record.step, record.seconds, rate)
        if writer is None:
            self._open(record.step)
            return None
        writer.steps, writer.step, writer.line = record.step - writer.step, record.step, self._line
        if rate is not None and fits:
            return self._timed(writer, 1.0 / rate)
        return self._timed(writer, record.seconds / writer.steps) if 0.0 < record.seconds < math.inf else None

    def _writer_of(self, step: int, seconds: float, rate: float | None) -> tuple[_LogWriter | None, bool]:
        """Return the writer of a line, None if it is a new one, and whether the rate fits."""
        if len(self._writers) == 1 and self._writers[0].step < step:
            # The usual case.
            alone = self._writers[0]
            return alone, _fits(step - alone.step, seconds, rate)
        below = [writer for writer in self._writers if writer.step < step]
        fitting = [writer for writer in below if _fits(step - writer.step, seconds, rate)]
        likely = fitting or below
        if not likely:
            return None, False
        return max(likely, key=lambda each: (step - each.step == each.steps, each.step)), bool(fitting)

    def _untimed(self, step: int, rate: float | None) -> Interval | None:
        """Read a line without seconds: from a log that has rates only, or the first line of its writer."""
        if rate is None:
            self._open(step)
            return None
        first, self._alone_is_first = self._alone_is_first, False
        return Interval(iteration_s=1.0 / rate, first=first)

    def _timed(self, writer: _LogWriter, iteration_s: float) -> Interval:
        first, writer.fresh = writer.fresh, False
        return Interval(iteration_s=iteration_s, first=first)

    def _open(self, step: int) -> None:
        """Add a writer, unless another one is at the same step: that one logs the same steps."""
        if all(writer.step != step for writer in self._writers):
            self._writers.append(_LogWriter(step, self._line))
        recent = [writer for writer in self._writers if self._line - writer.line < _FORGOTTEN_LINES]
        self._writers = recent[-MAX_WRITERS:]


def _fits(steps: int, seconds: float, rate: float | None) -> bool:
    if rate is None:
        return False
    exact_s = steps / rate
    return abs(exact_s - seconds) <= _ROUNDING_S + _RATE_TOLERANCE * exact_s
