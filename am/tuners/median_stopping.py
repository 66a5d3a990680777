"""Median stopping: stop a job if its best loss is worse than the median of the other jobs at the same iteration.

Source: Golovin, Solnik, Moitra, Kochanski, Karro, Sculley, "Google Vizier", KDD 2017, median stopping rule.

Our choice: the other jobs count with their loss at the iteration, as in Optuna, not with their running average. Running
jobs count too, because an app's jobs run side by side and few have ended while the rule can still save work.

Example: job a is at iteration 100, and its best loss is 0.8. Three other jobs had the losses 0.5, 0.7 and 0.9 there.
Their median is 0.7, so a stops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from am.tuners.phased import check_settings, longest
from am.tuners.stopping import Curve, CurveState, StoppingTuner
from themis.apps import JobSpec
from themis.values import Value

NAME = "median_stopping"
DEFAULT_MIN_JOBS = 3
"""Default of `min_jobs`. If the app has fewer other jobs, it is their number. Otherwise no job would ever stop."""

WARMUP_SHARE = 10
"""The default warm-up is 1 / WARMUP_SHARE of the longest job's iterations."""


class MedianRule(Value, frozen=True, kw_only=True):
    """A StoppingRule. It stops no job before iteration `warmup`, or before `min_jobs` other jobs have come as far."""

    warmup: int
    min_jobs: int

    def stops(self, job_id: str, curves: Mapping[str, Curve]) -> bool:
        """Whether the job's best loss is above the median of the other jobs that reached this iteration."""
        mine = curves[job_id]
        if mine.iteration < self.warmup:
            return False
        others = [
            curve.at(mine.iteration)
            for other, curve in curves.items()
            if other != job_id and curve.state is not CurveState.FAILED and curve.iteration >= mine.iteration
        ]
        return len(others) >= self.min_jobs and mine.best > median(others)

    def ended(self, job_id: str, curve: Curve) -> None:
        """Do nothing: the rule has no state."""


def median_stopping(
    jobs: Sequence[JobSpec], *, warmup: int | None = None, min_jobs: int | None = None
) -> StoppingTuner:
    """Return the tuner for these jobs.

    Args:
        jobs: The jobs of the app.
        warmup: No job stops before this iteration. None: a tenth of the longest job's iterations.
        min_jobs: Number of other jobs that must have come as far before a job can stop. None: 3, or all if fewer.

    Raises:
        InputError: A setting out of range.
    """
    check_settings(NAME, jobs, warmup=warmup, min_jobs=min_jobs)
    warmup = max(1, longest(jobs) // WARMUP_SHARE) if warmup is None else warmup
    min_jobs = max(1, min(DEFAULT_MIN_JOBS, len(jobs) - 1)) if min_jobs is None else min_jobs
    return StoppingTuner(NAME, jobs, MedianRule(warmup=warmup, min_jobs=min_jobs))
