"""Quantiles of the paper's distributions (NSDI'20, section 2.2): jobs per app, and GPU time per app."""

from __future__ import annotations

from math import exp, log, sqrt
from statistics import NormalDist

DAY_S = 86400.0
HOUR_S = 3600.0

APPS = 85
"""The number of apps in the paper's trace."""
WINDOW_S = 14 * DAY_S
SINGLE_SHARE = 0.1
MEDIAN_JOBS = 75
MEDIAN_APP_GPU_S = 11.5 * DAY_S
MEDIAN_TASK_GPU_S = 3.75 * HOUR_S
TAIL_FACTOR = 10.0


def tail_sigma(factor: float) -> float:
    """Return the sigma of the lognormal whose 5th and 95th percentiles differ from its median by `factor`."""
    return log(factor) / NormalDist().inv_cdf(0.95)


TAIL_SIGMA = tail_sigma(TAIL_FACTOR)

_FEWEST_JOBS, _MORE_JOBS = 20, 82


def lognormal(share: float, median: float, sigma: float = TAIL_SIGMA) -> float:
    """Return the quantile of a lognormal distribution at a share in (0, 1)."""
    return median * exp(sigma * NormalDist().inv_cdf(share))


def search_jobs(share: float) -> int:
    """Return the jobs of the search at a quantile, 0 to 1: 20 to 102, so that the median of all apps is 75.

    The paper: a few tens to about a hundred, a median of 75 over all apps, and a tenth of the apps with one job.
    """
    return round(_FEWEST_JOBS + _MORE_JOBS * sqrt(share))


def middle_share(rank: int, count: int) -> float:
    """Return the quantile of a rank, 0 to count - 1: the middle of its interval. Rank 0 of 4 gives 0.125."""
    return (rank + 0.5) / count
