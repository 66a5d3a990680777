"""Quantiles of the distributions that the paper tells (NSDI'20, section 2.2): jobs an app, GPU time of an app."""

from __future__ import annotations

from math import exp, log, sqrt
from statistics import NormalDist

DAY_S = 86400.0
HOUR_S = 3600.0

APPS = 85
"""Apps of the paper's trace."""
WINDOW_S = 14 * DAY_S
SINGLE_SHARE = 0.1
MEDIAN_JOBS = 75
MEDIAN_APP_GPU_S = 11.5 * DAY_S
MEDIAN_TASK_GPU_S = 3.75 * HOUR_S
TAIL_FACTOR = 10.0


def tail_sigma(factor: float) -> float:
    """Sigma of the lognormal whose 5th and 95th percentiles lie `factor` times from its median."""
    return log(factor) / NormalDist().inv_cdf(0.95)


TAIL_SIGMA = tail_sigma(TAIL_FACTOR)

_FEWEST_JOBS, _MORE_JOBS = 20, 82


def lognormal(share: float, median: float, sigma: float = TAIL_SIGMA) -> float:
    """The quantile of a lognormal distribution at a share in (0, 1)."""
    return median * exp(sigma * NormalDist().inv_cdf(share))


def search_jobs(share: float) -> int:
    """Jobs of a search at a share, 0 to 1, of all searches: 20 to 102, so that the median app of all has 75.

    The paper: a few tens to about a hundred, the median of 75 over all apps, a tenth of which have one job.
    """
    return round(_FEWEST_JOBS + _MORE_JOBS * sqrt(share))


def middle_share(rank: int, count: int) -> float:
    """The share that stands for a rank, 0 to count - 1: the middle of its part."""
    return (rank + 0.5) / count
