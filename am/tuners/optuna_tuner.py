"""An Optuna study as an app's tuner: its pruner says which jobs stop. Needs the extra `optuna`.

The study lives in memory and is told what the app master's journal holds, in order, so that a restarted app master's
study is where the lost one was. Its trials are the app's jobs, with their hyper-parameters; nothing is sampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, SuccessiveHalvingPruner
from optuna.study import Study
from optuna.trial import Trial, TrialState

from am.tuners.phased import longest
from am.tuners.stopping import Curve, CurveState, StoppingTuner
from themis.apps import JobSpec
from themis.errors import InputError

NAME = "optuna"
DEFAULT_PRUNER = "hyperband"

_PRUNERS: Mapping[str, tuple[Callable[..., BasePruner], tuple[str, ...]]] = {
    "hyperband": (HyperbandPruner, ("min_resource", "reduction_factor")),
    "median": (MedianPruner, ("n_startup_trials", "n_warmup_steps", "interval_steps")),
    "successive_halving": (SuccessiveHalvingPruner, ("min_resource", "reduction_factor")),
}
"""Pruners by name, with their settings that a group file may give."""


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
        trial, curve = self._trials[job_id], curves[job_id]
        if not math.isfinite(curve.loss):
            return any(other.lives and math.isfinite(other.loss) for other in curves.values())
        trial.report(curve.loss, curve.iteration)
        return trial.should_prune()

    def ended(self, job_id: str, curve: Curve) -> None:
        """Tell the study how the trial ended; one without a finite loss has failed, to Optuna."""
        trial = self._trials[job_id]
        if self._study.trials[trial.number].state.is_finished():
            return
        if curve.state is CurveState.ENDED and math.isfinite(curve.loss):
            self._study.tell(trial, curve.loss)
        else:
            pruned = curve.state is CurveState.STOPPED
            self._study.tell(trial, state=TrialState.PRUNED if pruned else TrialState.FAIL)


def optuna_tuner(jobs: Sequence[JobSpec], *, pruner: str = DEFAULT_PRUNER, **settings: int) -> StoppingTuner:
    """The tuner for these jobs, by one of Optuna's own pruners; steps and resources are iterations.

    Args:
        jobs: The jobs of the app.
        pruner: `hyperband`, `median` or `successive_halving`.
        settings: The pruner's; those that are not given have Optuna's defaults, but for `min_resource`, which is a
            hundredth of the longest job's iterations.

    Raises:
        InputError: An unknown pruner, or a setting that it does not have.
    """
    total = longest(jobs)
    if pruner not in _PRUNERS:
        raise InputError("unknown pruner", value=pruner, remedy=f"known: {', '.join(_PRUNERS)}")
    make, known = _PRUNERS[pruner]
    foreign = sorted(settings.keys() - set(known))
    if foreign:
        raise InputError(f"pruner {pruner} has no such setting", value=foreign[0], remedy=f"it has {', '.join(known)}")
    arguments: dict[str, int] = dict(settings)
    if "min_resource" in known and arguments.setdefault("min_resource", max(1, total // 100)) > total:
        raise InputError("min_resource is beyond the jobs' end", value=arguments["min_resource"])
    if pruner == "hyperband":
        arguments["max_resource"] = total
    return study_tuner(jobs, make(**arguments))


def study_tuner(jobs: Sequence[JobSpec], pruner: BasePruner) -> StoppingTuner:
    """A tuner by any pruner of Optuna's kind, over a fresh study in memory; for plug-ins that bring their own."""
    # Else a study announces itself on the app master's standard error.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Hyperband's pruner deals trials to brackets by a hash of the study's name.
    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(study_name=NAME, direction="minimize", pruner=pruner, sampler=sampler)
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
