"""An Optuna study whose sampler chooses the jobs: asked for a point, it gets the job nearest to it. Extra `optuna`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.pruners import BasePruner, NopPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import Trial, TrialState

from am.tuners.optuna_trials import NAME, end_trial, new_study, should_stop
from am.tuners.sampling import SamplingTuner
from am.tuners.stopping import Curve
from themis.apps import HyperParameter, JobSpec

DEFAULT_PARALLEL = 4

_FAR = 1.0
"""The distance of two values that are not the same and lie on no scale: as far as the ends of one."""


class StudySearch:
    """Chooses by a study's sampler, and stops by its pruner.

    The study draws its point first, and then is asked for a trial with the hyper-parameters of the job that is nearest
    to it; the drawn trial itself has failed, which samplers pass over.

    Args:
        study: A study in memory without trials, that minimises.
        jobs: The jobs of the app.
    """

    def __init__(self, study: Study, jobs: Sequence[JobSpec]) -> None:
        self._study = study
        self._jobs = {job.job_id: dict(job.hyper_parameters) for job in jobs}
        self._space = _space(jobs)
        self._trials: dict[str, Trial] = {}

    def choose(self, candidates: Sequence[str]) -> str:
        """The candidate nearest to what the sampler draws; the first by id of several."""
        drawn = self._study.ask(dict(self._space))
        self._study.tell(drawn, state=TrialState.FAIL)
        job_id = min(candidates, key=lambda each: (self._distance(drawn.params, self._jobs[each]), each))
        values = self._jobs[job_id]
        self._study.enqueue_trial(values)
        self._trials[job_id] = self._study.ask({name: self._space[name] for name in values})
        return job_id

    def stops(self, job_id: str, curves: Mapping[str, Curve]) -> bool:
        """Report the newest loss, and ask the pruner."""
        return should_stop(self._trials[job_id], job_id, curves)

    def ended(self, job_id: str, curve: Curve) -> None:
        """Tell the study how a trial ended; one that was never chosen is no trial."""
        if job_id in self._trials:
            end_trial(self._study, self._trials[job_id], curve)

    def _distance(self, drawn: Mapping[str, HyperParameter], values: Mapping[str, HyperParameter]) -> float:
        """Squared, each hyper-parameter's range being 1 wide."""
        return sum(
            _apart(self._space[name], value, values[name]) ** 2 if name in values else _FAR
            for name, value in drawn.items()
        )


def study_search(
    jobs: Sequence[JobSpec],
    sampler: BaseSampler,
    pruner: BasePruner | None = None,
    *,
    trials: int | None = None,
    parallel: int = DEFAULT_PARALLEL,
) -> SamplingTuner:
    """A tuner by any sampler of Optuna's kind, over a fresh study in memory; for plug-ins that bring their own.

    Args:
        jobs: The jobs of the app.
        sampler: Draws the points. Seeded, and without other sources of chance: a restart draws them once more.
        pruner: Stops jobs as they run; none by default.
        trials: How many jobs are run at most; by default all, in the order that the sampler makes.
        parallel: How many of them at once.
    """
    study = new_study(sampler, pruner or NopPruner())
    return SamplingTuner(NAME, jobs, StudySearch(study, jobs), trials=trials or len(jobs), parallel=parallel)


def named_sampler(name: str, seed: int, startup_trials: int | None) -> BaseSampler:
    """One of Optuna's own: `tpe` or `random`."""
    if name == "random":
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed) if startup_trials is None else TPESampler(seed=seed, n_startup_trials=startup_trials)


def _space(jobs: Sequence[JobSpec]) -> dict[str, BaseDistribution]:
    """What the jobs' hyper-parameters span: a range where all values are numbers, else a choice."""
    values: dict[str, list[HyperParameter]] = {}
    for job in jobs:
        for name, value in job.hyper_parameters.items():
            if value not in values.setdefault(name, []):
                values[name].append(value)
    return {name: _distribution(seen) for name, seen in values.items()}


def _distribution(values: Sequence[HyperParameter]) -> BaseDistribution:
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values) or len(values) == 1 or not all(map(math.isfinite, numbers)):
        # In an order of their own: samplers go by it, and jobs may come in any.
        return CategoricalDistribution(sorted(values, key=lambda value: (type(value).__name__, value)))
    low, high = min(numbers), max(numbers)
    return FloatDistribution(low, high, log=_logarithmic(numbers, low, high))


def _logarithmic(numbers: Sequence[float], low: float, high: float) -> bool:
    """Whether the middle of the values lies nearer to that of a logarithmic scale than to that of a linear one."""
    if low <= 0.0:
        return False
    middle = median(numbers)
    return abs(middle - math.sqrt(low) * math.sqrt(high)) < abs(middle - (low + high) / 2)


def _apart(distribution: BaseDistribution, one: HyperParameter, two: HyperParameter) -> float:
    """How far two values are apart, the ends of a range being 1 apart."""
    if not isinstance(distribution, FloatDistribution):
        return 0.0 if one == two else _FAR
    low, high, first, second = distribution.low, distribution.high, float(one), float(two)
    if distribution.log:
        low, high, first, second = (math.log(value) for value in (low, high, first, second))
    return abs(first - second) / (high - low)
