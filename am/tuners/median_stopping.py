"""Median stopping: a job ends when its best loss is worse than the median of the others at the same iteration.

Source: Golovin, Solnik, Moitra, Kochanski, Karro, Sculley, "Google Vizier", KDD 2017, its median stopping rule.
**Choice** the others count with their loss at the iteration, as in Optuna, not with their running average up to it; and
jobs that still run count as far as they have come: the jobs of an app run side by side, and few have ended while the
rule could save work.
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
"""Of an app of fewer other jobs it is all of them: else none would ever be stopped."""

WARMUP_SHARE = 10
"""The default warm-up is such a part of the longest job's iterations."""


class MedianRule(Value, frozen=True, kw_only=True):
    """A StoppingRule: stops nobody before iteration `warmup`, nor while fewer than `min_jobs` others came so far."""

    warmup: int
    min_jobs: int

    def stops(self, job_id: str, curves: Mapping[str, Curve]) -> bool:
        """True when the best loss so far is above the median of the others that reached this iteration."""
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
        """Nothing to remember."""


def median_stopping(
    jobs: Sequence[JobSpec], *, warmup: int | None = None, min_jobs: int | None = None
) -> StoppingTuner:
    """The tuner for these jobs.

    Args:
        jobs: The jobs of the app.
        warmup: No job is stopped before this iteration. None: a tenth of the longest job's iterations.
        min_jobs: How many others must have come as far as a job before it can be stopped. None: 3, or all of fewer.

    Raises:
        InputError: A setting out of range.
    """
    check_settings(NAME, jobs, warmup=warmup, min_jobs=min_jobs)
    warmup = max(1, longest(jobs) // WARMUP_SHARE) if warmup is None else warmup
    min_jobs = max(1, min(DEFAULT_MIN_JOBS, len(jobs) - 1)) if min_jobs is None else min_jobs
    return StoppingTuner(NAME, jobs, MedianRule(warmup=warmup, min_jobs=min_jobs))
