"""A tuner whose stopping decisions come from the pruner of an Optuna study. Needs the extra `optuna`.

The study is in memory. After a restart, the app master replays its journal in order, so that the new study equals the
lost one. The study's trials are the app's jobs with their hyper-parameters. Without a sampler, all jobs run side by
side. With one, it chooses the next job (`optuna_search`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from optuna.distributions import CategoricalDistribution
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, SuccessiveHalvingPruner
from optuna.samplers import RandomSampler
from optuna.study import Study
from optuna.trial import Trial

from am.tuners.optuna_search import named_sampler, study_search
from am.tuners.optuna_trials import NAME, end_trial, new_study, should_stop
from am.tuners.phased import check_settings, longest
from am.tuners.sampling import SamplingTuner
from am.tuners.stopping import Curve, StoppingTuner
from themis.apps import JobSpec
from themis.config.tuner_settings import OPTUNA_DEFAULT_PARALLEL, OPTUNA_DEFAULT_PRUNER, OPTUNA_PRUNERS

_PRUNERS: Mapping[str, Callable[..., BasePruner]] = {
    "hyperband": HyperbandPruner,
    "median": MedianPruner,
    "successive_halving": SuccessiveHalvingPruner,
}
"""Pruners by name. `themis.config.tuner_settings` lists their settings."""


class StudyRule:
    """A StoppingRule that asks a study's pruner.

    Args:
        study: An empty in-memory study that minimises. Each job becomes a running trial.
        jobs: The jobs of the app.
    """

    def __init__(self, study: Study, jobs: Sequence[JobSpec]) -> None:
        choices = _choices(jobs)
        self._trials: dict[str, Trial] = {}
        for job in jobs:
            study.enqueue_trial(dict(job.hyper_parameters))
            self._trials[job.job_id] = study.ask({name: choices[name] for name in job.hyper_parameters})
        self._study = study

    def stops(self, job_id: str, curves: Mapping[str, Curve]) -> bool:
        """Report the newest loss, and ask the pruner. See `should_stop`."""
        return should_stop(self._trials[job_id], job_id, curves)

    def ended(self, job_id: str, curve: Curve) -> None:
        """Report to the study how the trial ended."""
        end_trial(self._study, self._trials[job_id], curve)


def optuna_tuner(
    jobs: Sequence[JobSpec],
    *,
    sampler: str | None = None,
    pruner: str | None = None,
    trials: int | None = None,
    parallel: int | None = None,
    startup_trials: int | None = None,
    seed: int | None = None,
    **settings: int,
) -> StoppingTuner | SamplingTuner:
    """Return a tuner with Optuna's own samplers and pruners. Steps and resources are iterations.

    Args:
        jobs: The jobs of the app.
        sampler: `tpe` or `random`. By default all jobs run side by side.
        pruner: `hyperband`, `median` or `successive_halving`. The default is hyperband, or no pruner with a sampler.
        trials: Maximum number of jobs that the sampler runs. By default all.
        parallel: Number of jobs that run at once. By default 4.
        startup_trials: Number of random trials before `tpe` uses results.
        seed: Seed of the sampler. By default 0.
        settings: Settings of the pruner. Others have Optuna's defaults, except `min_resource`, which is a hundredth of
            the longest job's iterations.

    Raises:
        InputError: The sampler or pruner is unknown, or a setting is out of range or belongs to another one.
    """
    sampling: Mapping[str, int | None] = {
        "trials": trials,
        "parallel": parallel,
        "startup_trials": startup_trials,
        "seed": seed,
    }
    check_settings(NAME, jobs, sampler=sampler, pruner=pruner, **sampling, **settings)
    if sampler is None:
        return study_tuner(jobs, _pruner(jobs, pruner or OPTUNA_DEFAULT_PRUNER, settings))
    stopping = None if pruner is None else _pruner(jobs, pruner, settings)
    drawing = named_sampler(sampler, seed or 0, startup_trials)
    return study_search(jobs, drawing, stopping, trials=trials, parallel=parallel or OPTUNA_DEFAULT_PARALLEL)


def _pruner(jobs: Sequence[JobSpec], pruner: str, settings: Mapping[str, int]) -> BasePruner:
    total = longest(jobs)
    arguments: dict[str, int] = dict(settings)
    if "min_resource" in OPTUNA_PRUNERS[pruner]:
        arguments.setdefault("min_resource", max(1, total // 100))
    if pruner == "hyperband":
        arguments["max_resource"] = total
    return _PRUNERS[pruner](**arguments)


def study_tuner(jobs: Sequence[JobSpec], pruner: BasePruner) -> StoppingTuner:
    """Return a tuner with any Optuna pruner and a new in-memory study. Plug-ins may use this for their own pruners."""
    study = new_study(RandomSampler(seed=0), pruner)
    return StoppingTuner(NAME, jobs, StudyRule(study, jobs))


def _choices(jobs: Sequence[JobSpec]) -> dict[str, CategoricalDistribution]:
    """Return one distribution per hyper-parameter, with its values in all jobs, as Optuna needs."""
    values: dict[str, list[str | int | float | bool]] = {}
    for job in jobs:
        for name, value in job.hyper_parameters.items():
            seen = values.setdefault(name, [])
            if value not in seen:
                seen.append(value)
    return {name: CategoricalDistribution(seen) for name, seen in values.items()}
