"""Performance-curve stopping: a job ends when it is unlikely to end below the best of the others.

Source: themis.md, section 2, performance-curve stopping; Rasley et al., "HyperDrive", Middleware 2017; Golovin et al.,
"Google Vizier", KDD 2017, section 3.2. Curves and error bars are those of `curve_fit`.
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
"""The default warm-up is such a part of the longest job's iterations."""


class CurveRule:
    """A StoppingRule that looks ahead.

    A job is judged once in `interval` iterations, from `warmup` on. The best of the others is the least median of the
    newest losses of those that live. The job stops when its probability to end below that is under `threshold`, or when
    its newest loss is no number.

    The latest iteration at which a job may still stop: its own loss falls as its error bars allow at best, those of the
    others as theirs allow at worst, all of them iteration by iteration at the same pace, and it stops where one of the
    others is first below what it could come to at its end.
    """

    def __init__(self, *, threshold: float, warmup: int, interval: int) -> None:
        self._threshold, self._warmup, self._interval = threshold, warmup, interval
        self._deviations = NormalDist().inv_cdf(1.0 - threshold)
        self._looks: dict[str, int] = {}
        self._ahead: dict[str, Forecast] = {}

    def stops(self, job_id: str, curves: Mapping[str, Curve]) -> bool:
        """True when the job has too little chance."""
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
        """Nothing to forget: forecasts of jobs that do not run are not looked at."""

    def latest(self, curves: Mapping[str, Curve]) -> Mapping[str, int]:
        """See above; a job without a forecast may run to its end."""
        known = [j for j, curve in curves.items() if j in self._ahead and curve.state is CurveState.RUNNING]
        if not known:
            return {}
        levels = sorted((curve.level, j) for j, curve in curves.items() if curve.lives)
        worst = np.stack([self._ahead[j].band(self._deviations) for j in known])
        ahead = np.stack([iterations_ahead(curves[j].total) - curves[j].iteration for j in known])
        found: dict[str, int] = {}
        for place, job_id in enumerate(known):
            curve, hope = curves[job_id], float(self._ahead[job_id].band(-self._deviations)[-1])
            # By how many iterations from now each of the others is surely below what this job can hope for.
            beaten = (worst < hope) & (ahead > 0)
            beaten[place] = False
            further = ahead[beaten].min(initial=curve.total)
            if next((level for level, rival in levels if rival != job_id), math.inf) < hope:
                further = 1
            # A forecast is made from the warm-up on, so that no stop can be before it.
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
    """The tuner for these jobs.

    Args:
        jobs: The jobs of the app.
        threshold: The probability to end below the best of the others under which a job is stopped.
        warmup: No job is judged before this iteration. None: a tenth of the longest job's iterations.
        interval: Iterations between two looks at a job. None: a fiftieth of the longest job's.

    Raises:
        InputError: A setting out of range.
    """
    check_settings(NAME, jobs, threshold=threshold, warmup=warmup, interval=interval)
    total = longest(jobs)
    warmup = max(1, total // WARMUP_SHARE) if warmup is None else warmup
    interval = max(1, total // LOOKS) if interval is None else interval
    rule = CurveRule(threshold=threshold, warmup=warmup, interval=interval)
    return StoppingTuner(NAME, jobs, rule, rule.latest)
