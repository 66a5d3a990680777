"""An Optuna study as an app's tuner: its pruner says which jobs stop. Needs the extra `optuna`.

The study lives in memory and is told what the app master's journal holds, in order, so that a restarted app master's
study is where the lost one was. Its trials are the app's jobs, with their hyper-parameters. Without a sampler all run
side by side; with one (am/tuners/optuna_search.py) it chooses which runs next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from optuna.distributions import CategoricalDistribution
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, SuccessiveHalvingPruner
from optuna.samplers import RandomSampler
from optuna.study import Study
from optuna.trial import Trial

from am.tuners.optuna_search import DEFAULT_PARALLEL, named_sampler, study_search
from am.tuners.optuna_trials import NAME, end_trial, new_study, should_stop
from am.tuners.phased import check_settings, longest
from am.tuners.sampling import SamplingTuner
from am.tuners.stopping import Curve, StoppingTuner
from themis.apps import JobSpec
from themis.config.tuner_settings import OPTUNA_DEFAULT_PRUNER, OPTUNA_PRUNERS

_PRUNERS: Mapping[str, Callable[..., BasePruner]] = {
    "hyperband": HyperbandPruner,
    "median": MedianPruner,
    "successive_halving": SuccessiveHalvingPruner,
}
"""Each takes the settings that `themis.config.tuner_settings` lists for it."""


class StudyRule:
    """A StoppingRule that asks a study's pruner.

    Args:
        study: A study in memory without trials, that minimises; each job becomes a running trial of it.
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
        """Report the newest loss, and ask. A job whose loss is no number stops, if another's is one."""
        return should_stop(self._trials[job_id], job_id, curves)

    def ended(self, job_id: str, curve: Curve) -> None:
        """Tell the study how the trial ended."""
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
    """The tuner for these jobs, by Optuna's own samplers and pruners; steps and resources are iterations.

    Args:
        jobs: The jobs of the app.
        sampler: `tpe` or `random`; by default all jobs run side by side.
        pruner: `hyperband`, `median` or `successive_halving`; by default hyperband, and none beside a sampler.
        trials: How many jobs the sampler runs at most, by default all.
        parallel: How many of them at once, by default 4.
        startup_trials: Of `tpe`: how many it draws at random first.
        seed: Of the sampler, by default 0.
        settings: The pruner's; those that are not given have Optuna's defaults, but for `min_resource`, which is a
            hundredth of the longest job's iterations.

    Raises:
        InputError: An unknown sampler or pruner, or a setting out of range or of another sampler or pruner.
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
    return study_search(jobs, drawing, stopping, trials=trials, parallel=parallel or DEFAULT_PARALLEL)


def _pruner(jobs: Sequence[JobSpec], pruner: str, settings: Mapping[str, int]) -> BasePruner:
    total = longest(jobs)
    arguments: dict[str, int] = dict(settings)
    if "min_resource" in OPTUNA_PRUNERS[pruner]:
        arguments.setdefault("min_resource", max(1, total // 100))
    if pruner == "hyperband":
        arguments["max_resource"] = total
    return _PRUNERS[pruner](**arguments)


def study_tuner(jobs: Sequence[JobSpec], pruner: BasePruner) -> StoppingTuner:
    """A tuner by any pruner of Optuna's kind, over a fresh study in memory; for plug-ins that bring their own."""
    study = new_study(RandomSampler(seed=0), pruner)
    return StoppingTuner(NAME, jobs, StudyRule(study, jobs))


def _choices(jobs: Sequence[JobSpec]) -> dict[str, CategoricalDistribution]:
    """Each hyper-parameter's values over all jobs: Optuna wants one distribution a name."""
    values: dict[str, list[str | int | float | bool]] = {}
    for job in jobs:
        for name, value in job.hyper_parameters.items():
            seen = values.setdefault(name, [])
            if value not in seen:
                seen.append(value)
    return {name: CategoricalDistribution(seen) for name, seen in values.items()}
