"""Choose jobs by the sampler of an Optuna study: run the job nearest to the sampled point. Needs the extra `optuna`."""

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
from themis.config.tuner_settings import OPTUNA_DEFAULT_PARALLEL

_FAR = 1.0
"""The distance of two different categorical values. It equals that of the ends of a numeric range."""


class StudySearch:
    """Chooses jobs with a study's sampler, and stops them with its pruner.

    For each choice, the study first samples a point. This trial is marked as failed, so that samplers ignore it. Then
    the study gets a trial with the hyper-parameters of the nearest job.

    Example: the sampler proposes lr = 0.02 on a logarithmic scale. The candidates have lr 0.001, 0.01 and 0.1. The
    nearest one, 0.01, runs.

    Args:
        study: An empty in-memory study that minimises.
        jobs: The jobs of the app.
    """

    def __init__(self, study: Study, jobs: Sequence[JobSpec]) -> None:
        self._study = study
        self._jobs = {job.job_id: dict(job.hyper_parameters) for job in jobs}
        self._space = _space(jobs)
        self._trials: dict[str, Trial] = {}

    def choose(self, candidates: Sequence[str]) -> str:
        """Choose the candidate nearest to the sampled point. Ties: the first by id."""
        drawn = self._study.ask(dict(self._space))
        self._study.tell(drawn, state=TrialState.FAIL)
        job_id = min(candidates, key=lambda each: (self._distance(drawn.params, self._jobs[each]), each))
        values = self._jobs[job_id]
        self._study.enqueue_trial(values)
        self._trials[job_id] = self._study.ask({name: self._space[name] for name in values})
        return job_id

    def stops(self, job_id: str, curves: Mapping[str, Curve]) -> bool:
        """Report the newest loss, and ask the pruner. See `should_stop`."""
        return should_stop(self._trials[job_id], job_id, curves)

    def ended(self, job_id: str, curve: Curve) -> None:
        """Report to the study how a trial ended. A job that was never chosen has no trial."""
        if job_id in self._trials:
            end_trial(self._study, self._trials[job_id], curve)

    def _distance(self, drawn: Mapping[str, HyperParameter], values: Mapping[str, HyperParameter]) -> float:
        """Return the squared distance. Each hyper-parameter's range has width 1."""
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
    parallel: int = OPTUNA_DEFAULT_PARALLEL,
) -> SamplingTuner:
    """Return a tuner with any Optuna sampler and a new in-memory study. Plug-ins may use this for their own samplers.

    Args:
        jobs: The jobs of the app.
        sampler: Samples the points. It must be seeded and deterministic, because a restart samples them again.
        pruner: Stops running jobs. None by default.
        trials: Maximum number of jobs to run. By default all, in the sampler's order.
        parallel: Number of jobs that run at once.
    """
    study = new_study(sampler, pruner or NopPruner())
    return SamplingTuner(NAME, jobs, StudySearch(study, jobs), trials=trials or len(jobs), parallel=parallel)


def named_sampler(name: str, seed: int, startup_trials: int | None) -> BaseSampler:
    """Return Optuna's sampler `tpe` or `random`."""
    if name == "random":
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed) if startup_trials is None else TPESampler(seed=seed, n_startup_trials=startup_trials)


def _space(jobs: Sequence[JobSpec]) -> dict[str, BaseDistribution]:
    """Return the search space of the jobs' hyper-parameters: a range if all values are numbers, otherwise a choice."""
    values: dict[str, list[HyperParameter]] = {}
    for job in jobs:
        for name, value in job.hyper_parameters.items():
            if value not in values.setdefault(name, []):
                values[name].append(value)
    return {name: _distribution(seen) for name, seen in values.items()}


def _distribution(values: Sequence[HyperParameter]) -> BaseDistribution:
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values) or len(values) == 1 or not all(map(math.isfinite, numbers)):
        # Sort, because samplers depend on the order of choices, and the order of jobs is arbitrary.
        return CategoricalDistribution(sorted(values, key=lambda value: (type(value).__name__, value)))
    low, high = min(numbers), max(numbers)
    return FloatDistribution(low, high, log=_logarithmic(numbers, low, high))


def _logarithmic(numbers: Sequence[float], low: float, high: float) -> bool:
    """Whether the median is nearer to the middle of the range on a logarithmic scale than on a linear one."""
    if low <= 0.0:
        return False
    middle = median(numbers)
    return abs(middle - math.sqrt(low) * math.sqrt(high)) < abs(middle - (low + high) / 2)


def _apart(distribution: BaseDistribution, one: HyperParameter, two: HyperParameter) -> float:
    """Return the distance of two values. The ends of a range have distance 1."""
    if not isinstance(distribution, FloatDistribution):
        return 0.0 if one == two else _FAR
    low, high, first, second = distribution.low, distribution.high, float(one), float(two)
    if distribution.log:
        low, high, first, second = (math.log(value) for value in (low, high, first, second))
    return abs(first - second) / (high - low)
