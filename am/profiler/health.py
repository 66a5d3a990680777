"""Detect jobs that no longer learn: their losses are NaN or infinite, or their progress has stopped."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

from themis.values import Value

NON_FINITE_LOSSES = 2
"""Number of non-finite losses in a row that count as divergence. A single one may be due to one batch."""

LINES_OF_ONE_LOSS = 16
"""Lines in a row that count as one loss if lines have no iteration: several workers and hooks may log the same one."""

MAX_LOOK_GAP_S = 5.0
"""Maximum waiting time that is counted between two looks. A longer gap is a clock jump or a pause of the app master."""

MIN_STALL_S = 60.0
"""Minimum length of a stall."""

STALL_USUAL = 20.0
STALL_LONGEST = 3.0
"""A stall is longer than STALL_USUAL median waits and STALL_LONGEST longest waits. Evaluations make waits long."""

COUNTING_WAIT_S = MIN_STALL_S / STALL_LONGEST
"""A longest wait below this does not raise the allowed time."""

STALL_FIRST_S = 1800.0
"""A job is also stalled if it has logged no step for this time since its start."""

_WINDOW = 50
"""Number of newest waits that the median uses. The longest wait may be an epoch ago, thousands of waits."""


class Divergence(Value, frozen=True, kw_only=True):
    """The losses have been non-finite since iteration `since_iteration`. `losses` counts them."""

    since_iteration: int
    losses: int


class Stall(Value, frozen=True, kw_only=True):
    """No progress for `waited_s` seconds, which is more than the allowed `allowed_s`."""

    waited_s: float
    allowed_s: float


class NonFinite:
    """Counts non-finite losses in a row. A loss that several lines repeat counts once."""

    def __init__(self) -> None:
        self._since = 0
        self._newest = 0
        self._place = 0
        self._losses = 0
        self._lines = 0

    def add(self, iteration: int, loss: float, place: int | None = None) -> None:
        """Add the loss at an iteration.

        Args:
            iteration: Iteration at which the job logged the loss.
            loss: The loss.
            place: Non-finite losses with the same place count once. For example, an epoch's running mean stays NaN
                after one batch with a NaN loss, so all its losses have the same place. By default the iteration.
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

    def add_without_iteration(self, iteration: int, loss: float) -> None:
        """Add a loss without an iteration. `iteration` is the last one that the log had."""
        self.add(iteration, loss, place=self._lines // LINES_OF_ONE_LOSS)
        self._lines = 0 if math.isfinite(loss) else self._lines + 1

    def declare(self, iteration: int) -> None:
        """Note that the job itself says that it has diverged. `iteration` is the last one that the log had."""
        if self._losses == 0:
            self._since = self._newest = iteration
        self._losses = max(self._losses, NON_FINITE_LOSSES)

    def validated(self, iteration: int, loss: float | None) -> None:
        """Add the loss on held-out data. If it is finite, the weights are finite too, so the count restarts."""
        if loss is not None and math.isfinite(loss) and iteration >= self._newest:
            self._losses = 0

    @property
    def losses(self) -> int:
        """Number of non-finite losses in a row up to now."""
        return self._losses

    @property
    def divergence(self) -> Divergence | None:
        """The divergence, or None."""
        if self._losses < NON_FINITE_LOSSES:
            return None
        return Divergence(since_iteration=self._since, losses=self._losses)


class ProgressClock:
    """Measures how long a job's progress takes. The app master calls `look` again and again.

    The usual wait is the median of the newest waits, which depends on the GPUs. The longest wait is kept forever: it
    is an evaluation or the saving of a checkpoint, and will recur.

    Example: steps take 0.5 s, and an evaluation took 40 s. A stall is a wait of more than max(60, 20 * 0.5, 3 * 40) =
    120 s.
    """

    def __init__(self) -> None:
        self._waits_s: deque[float] = deque(maxlen=_WINDOW)
        self._longest_s = 0.0
        self.begin()

    def begin(self) -> None:
        """Start the clock for a job that starts or restarts. Earlier waits still count, but the first wait does not."""
        self._looked_at_s: float | None = None
        self._waited_s = 0.0
        self._seen: int | None = None
        self._started = False

    def look(self, now_s: float, progress: int) -> None:
        """Note the time and the progress, a number that changes with every logged step."""
        since_s = 0.0 if self._looked_at_s is None else now_s - self._looked_at_s
        self._looked_at_s = now_s
        self._waited_s += min(max(since_s, 0.0), MAX_LOOK_GAP_S)
        if self._seen is None:
            self._seen = progress
        elif progress != self._seen:
            if self._started:
                self._waits_s.append(self._waited_s)
                self._longest_s = max(self._longest_s, self._waited_s)
            self._started, self._seen, self._waited_s = True, progress, 0.0

    @property
    def longest_s(self) -> float:
        """The longest wait that ended, in seconds."""
        return self._longest_s

    def remember(self, longest_s: float) -> None:
        """Add a wait that an earlier clock of this job measured."""
        self._longest_s = max(self._longest_s, longest_s)

    @property
    def stall(self) -> Stall | None:
        """The stall at the last look, or None."""
        usual_s = STALL_FIRST_S
        if self._started and self._waits_s:
            usual_s = max(MIN_STALL_S, STALL_USUAL * median(self._waits_s))
        allowed_s = max(usual_s, STALL_LONGEST * self._longest_s)
        if self._waited_s <= allowed_s:
            return None
        return Stall(waited_s=self._waited_s, allowed_s=allowed_s)
