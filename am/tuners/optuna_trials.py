"""What Optuna's studies and trials have to do with jobs and their losses. Needs the extra `optuna`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import Trial, TrialState

from am.tuners.stopping import Curve, CurveState

NAME = "optuna"


def new_study(sampler: BaseSampler, pruner: BasePruner) -> Study:
    """A study in memory that minimises."""
    # Else a study announces itself on the app master's standard error.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Hyperband's pruner deals trials to brackets by a hash of the study's name.
    return optuna.create_study(study_name=NAME, direction="minimize", pruner=pruner, sampler=sampler)


def should_stop(trial: Trial, job_id: str, curves: Mapping[str, Curve]) -> bool:
    """Report a job's newest loss, and ask. A job whose loss is no number stops, if another's is one."""
    curve = curves[job_id]
    if not math.isfinite(curve.loss):
        return any(other.lives and math.isfinite(other.loss) for other in curves.values())
    trial.report(curve.loss, curve.iteration)
    return trial.should_prune()


def end_trial(study: Study, trial: Trial, curve: Curve) -> None:
    """Tell the study how a trial ended, once; one without a finite loss has failed, to Optuna."""
    if study.trials[trial.number].state.is_finished():
        return
    if curve.state is CurveState.ENDED and math.isfinite(curve.loss):
        study.tell(trial, curve.loss)
    else:
        pruned = curve.state is CurveState.STOPPED
        study.tell(trial, state=TrialState.PRUNED if pruned else TrialState.FAIL)
