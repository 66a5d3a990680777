"""Map jobs and their losses to Optuna's trials and studies. Needs the extra `optuna`."""

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
    """Return a new in-memory study that minimises."""
    # Otherwise Optuna logs each new study to the app master's standard error.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Optuna's Hyperband pruner assigns trials to brackets by a hash of the study's name, so the name is fixed.
    return optuna.create_study(study_name=NAME, direction="minimize", pruner=pruner, sampler=sampler)


def should_stop(trial: Trial, job_id: str, curves: Mapping[str, Curve]) -> bool:
    """Report a job's newest loss, and ask the pruner. A non-finite loss stops the job if another one's is finite."""
    curve = curves[job_id]
    if not math.isfinite(curve.loss):
        return any(other.lives and math.isfinite(other.loss) for other in curves.values())
    trial.report(curve.loss, curve.iteration)
    return trial.should_prune()


def end_trial(study: Study, trial: Trial, curve: Curve) -> None:
    """Report to the study how a trial ended, once. A trial without a finite loss counts as failed."""
    if study.trials[trial.number].state.is_finished():
        return
    if curve.state is CurveState.ENDED and math.isfinite(curve.loss):
        study.tell(trial, curve.loss)
    else:
        pruned = curve.state is CurveState.STOPPED
        study.tell(trial, state=TrialState.PRUNED if pruned else TrialState.FAIL)
