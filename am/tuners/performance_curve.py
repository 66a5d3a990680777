"""Performance-curve stopping: stop a job if it is unlikely to end with a lower loss than the best of the others.

Source: docs/reference/tuners.md, Performance curve; Rasley et al., "HyperDrive", Middleware 2017; Golovin et al.,
"Google Vizier", KDD 2017, section 3.2. `curve_fit` computes curves and error bars.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np

from am.tuners.curve_fit import Forecast, forecast, iterations_ahead
from am.tuners.phased import check_settings, longest
from am.tuners.stopping import LOOKS, Curve, CurveState, StoppingTuner
from themis.apps import JobSpec

NAME = "performance_curve"
DEFAULT_THRESHOLD = 0.05
WARMUP_SHARE = 10
"""The default warm-up is 1 / WARMUP_SHARE of the longest job's iterations."""


class CurveRule:
    """A StoppingRule that forecasts each job's loss at its end.

    It judges a job once per `interval` iterations, from `warmup` on. Each other live job has a level, the median of its
    newest losses, and the lowest level counts. The job stops if the probability that it ends below that level is less
    than `threshold`, or if its newest loss is NaN.

    Example: the other jobs' levels are 0.30 and 0.42, the threshold is 0.05. A job's forecast for its end is 0.40 with
    a standard deviation of 0.05. The probability of ending below 0.30 is 2.3 %, so the job stops.

    `latest` assumes that a job's own loss follows the lower end of its error bars, those of the others the upper ends,
    and that all advance by the same number of iterations. The job stops where one of the others first falls below the
    loss that this job could reach at its end.
    """

    def __init__(self, *, threshold: float, warmup: int, interval: int) -> None:
        self._threshold, self._warmup, self._interval = threshold, warmup, interval
        self._deviations = NormalDist().inv_cdf(1.0 - threshold)
        self._looks: dict[str, int] = {}
        self._ahead: dict[str, Forecast] = {}

    def stops(self, job_id: str, curves: Mapping[str, Curve]) -> bool:
        """Whether the job's probability to end as the best is below the threshold."""
        curve = curves[job_id]
        look = curve.iteration // self._interval
        if curve.iteration < self._warmup or look <= self._looks.get(job_id, -1):
            return False
        self._looks[job_id] = look
        best = min((c.level for j, c in curves.items() if j != job_id and c.lives), default=math.inf)
        if not math.isfinite(curve.loss):
            self._ahead.pop(job_id, None)
            return math.isfinite(best)
        ahead = forecast(curve.iterations, curve.losses, curve.total)
        if ahead is None:
            return False
        self._ahead[job_id] = ahead
        return ahead.end_below(best) < self._threshold

    def ended(self, job_id: str, curve: Curve) -> None:
        """Do nothing: forecasts of jobs that do not run are not used."""

    def latest(self, curves: Mapping[str, Curve]) -> Mapping[str, int]:
        """Return the latest iterations at which jobs may stop. Omits jobs that may run to their ends."""
        known = [j for j, curve in curves.items() if j in self._ahead and curve.state is CurveState.RUNNING]
        if not known:
            return {}
        levels = sorted((curve.level, j) for j, curve in curves.items() if curve.lives)
        worst = np.stack([self._ahead[j].band(self._deviations) for j in known])
        ahead = np.stack([iterations_ahead(curves[j].total) - curves[j].iteration for j in known])
        found: dict[str, int] = {}
        for place, job_id in enumerate(known):
            curve, hope = curves[job_id], float(self._ahead[job_id].band(-self._deviations)[-1])
            # The iterations until one of the others is, at the upper end of its error bars, below this job's best end.
            beaten = (worst < hope) & (ahead > 0)
            beaten[place] = False
            further = ahead[beaten].min(initial=curve.total)
            if next((level for level, rival in levels if rival != job_id), math.inf) < hope:
                further = 1
            # Forecasts exist only after the warm-up, so no stop is before it.
            stop = curve.iteration + max(1, int(further))
            if stop < curve.total:
                found[job_id] = stop
        return found


def performance_curve(
    jobs: Sequence[JobSpec],
    *,
    threshold: float = DEFAULT_THRESHOLD,
    warmup: int | None = None,
    interval: int | None = None,
) -> StoppingTuner:
    """Return the tuner for these jobs.

    Args:
        jobs: The jobs of the app.
        threshold: A job stops if its probability to end below the best of the others is less than this.
        warmup: No job is judged before this iteration. None: a tenth of the longest job's iterations.
        interval: Iterations between two judgements of a job. None: a fiftieth of the longest job's iterations.

    Raises:
        InputError: A setting out of range.
    """
    check_settings(NAME, jobs, threshold=threshold, warmup=warmup, interval=interval)
    total = longest(jobs)
    warmup = max(1, total // WARMUP_SHARE) if warmup is None else warmup
    interval = max(1, total // LOOKS) if interval is None else interval
    rule = CurveRule(threshold=threshold, warmup=warmup, interval=interval)
    return StoppingTuner(NAME, jobs, rule, rule.latest)
