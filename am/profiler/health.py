"""Whether a job still learns: losses that are no numbers any more, and progress that has stopped."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median

NON_FINITE_LOSSES = 2
"""So many losses in a row that are no numbers make a divergence; a single one may be a batch's bad luck."""

LINES_OF_ONE_LOSS = 16
"""Where no line tells an iteration, so many in a row may tell the same loss: of several workers, by several hooks."""

LONGEST_LOOK_S = 5.0
"""Between two looks no more than this counts as waited: beyond it a clock has jumped, or nobody was there to look."""

STALL_LEAST_S = 60.0
"""Nothing shorter is a stall."""

STALL_USUAL = 20.0
STALL_LONGEST = 3.0
"""A stall is longer than so many usual waits, and than so many of the longest ever, as evaluations take their time."""

COUNTING_WAIT_S = STALL_LEAST_S / STALL_LONGEST
"""A longest wait below it allows for nothing more."""

STALL_FIRST_S = 1800.0
"""A job that was started and has not told of any step for so long is stalled as well."""

_WINDOW = 50
"""What is usual goes by so many waits; the longest may be an epoch away, which is thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The losses are no numbers since iteration `since_iteration`; so many of them so far."""

    since_iteration: int
    losses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """No progress for `waited_s`, where `allowed_s` is what was given it."""

    waited_s: float
    allowed_s: float


class NonFinite:
    """Counts losses in a row that are no numbers, each once however many lines tell it."""

    def __init__(self) -> None:
        self._since = 0
        self._newest = 0
        self._place = 0
        self._losses = 0
        self._lines = 0

    def add(self, iteration: int, loss: float, place: int | None = None) -> None:
        """Take in the loss at an iteration.

        Args:
            iteration: Where it was told.
            loss: It.
            place: Losses of one place count as one: an epoch's running mean stays no number once one batch's is none.
                By default the iteration.
        """
        place = iteration if place is None else place
        if math.isfinite(loss):
            self._losses = 0
            return
        self._newest = iteration
        if self._losses == 0:
            self._since = iteration
        elif place == self._place:
            return
        self._place = place
        self._losses += 1

    def add_untold(self, iteration: int, loss: float) -> None:
        """Take in a loss of which nobody tells the iteration; this one was told last."""
        self.add(iteration, loss, place=self._lines // LINES_OF_ONE_LOSS)
        self._lines = 0 if math.isfinite(loss) else self._lines + 1

    def validated(self, iteration: int, loss: float | None) -> None:
        """Take in the loss on held-out data: where that is a number, the weights still are, whatever a batch did."""
        if loss is not None and math.isfinite(loss) and iteration >= self._newest:
            self._losses = 0

    @property
    def divergence(self) -> Divergence | None:
        """The divergence, None while there is none."""
        if self._losses < NON_FINITE_LOSSES:
            return None
        return Divergence(since_iteration=self._since, losses=self._losses)


class ProgressClock:
    """Measures how long progress takes to come, by whoever looks at it again and again.

    What is usual goes by the newest waits, and changes with the GPUs. The longest is remembered for good: it is an
    evaluation, or the writing of a checkpoint, and comes again.
    """

    def __init__(self) -> None:
        self._waits_s: deque[float] = deque(maxlen=_WINDOW)
        self._longest_s = 0.0
        self.begin()

    def begin(self) -> None:
        """The job starts, or starts again. What was usual before is still the best guess, but for the first wait."""
        self._looked_at_s: float | None = None
        self._waited_s = 0.0
        self._seen: int | None = None
        self._started = False

    def look(self, now_s: float, progress: int) -> None:
        """Progress is a number that changes with every step told."""
        since_s = 0.0 if self._looked_at_s is None else now_s - self._looked_at_s
        self._looked_at_s = now_s
        self._waited_s += min(max(since_s, 0.0), LONGEST_LOOK_S)
        if self._seen is None:
            self._seen = progress
        elif progress != self._seen:
            if self._started:
                self._waits_s.append(self._waited_s)
                self._longest_s = max(self._longest_s, self._waited_s)
            self._started, self._seen, self._waited_s = True, progress, 0.0

    @property
    def longest_s(self) -> float:
        """The longest wait that came to its end."""
        return self._longest_s

    def remember(self, longest_s: float) -> None:
        """Such a wait came to its end before this clock was there."""
        self._longest_s = max(self._longest_s, longest_s)

    @property
    def stall(self) -> Stall | None:
        """The stall as of the last look, None while there is none."""
        usual_s = STALL_FIRST_S
        if self._started and self._waits_s:
            usual_s = max(STALL_LEAST_S, STALL_USUAL * median(self._waits_s))
        allowed_s = max(usual_s, STALL_LONGEST * self._longest_s)
        if self._waited_s <= allowed_s:
            return None
        return Stall(waited_s=self._waited_s, allowed_s=allowed_s)
