"""Tuners by name: the built-in ones, and those that entry points of installed packages provide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from am.tuners import (
    asynchronous_halving,
    hyperband,
    median_stopping,
    performance_curve,
    single,
    successive_halving,
)
from am.tuners.phased import longest
from am.tuners.port import Tuner
from themis.apps import JobSpec, TunerSpec
from themis.config.tuner_settings import OPTUNA, check_tuner, find_plugin
from themis.errors import MissingHereError


def _optuna(jobs: Sequence[JobSpec], **settings: int | str) -> Tuner:
    """Import Optuna's tuner only on demand, because Optuna is an extra."""
    try:
        from am.tuners.optuna_tuner import optuna_tuner
    except ModuleNotFoundError as error:
        remedy = "install the extra: pip install 'themis-scheduler[optuna]'"
        raise MissingHereError(
            "tuner optuna needs a package that is not installed", value=error.name, remedy=remedy
        ) from error
    return optuna_tuner(jobs, **settings)  # type: ignore[arg-type]


TUNERS: Mapping[str, Callable[..., Tuner]] = {
    single.NAME: single.single,
    successive_halving.NAME: successive_halving.successive_halving,
    hyperband.NAME: hyperband.hyperband,
    asynchronous_halving.NAME: asynchronous_halving.asynchronous_halving,
    median_stopping.NAME: median_stopping.median_stopping,
    performance_curve.NAME: performance_curve.performance_curve,
    OPTUNA: _optuna,
}
"""Functions that take the jobs and, as keywords, the settings in `themis.config.tuner_settings`."""


def make_tuner(spec: TunerSpec, jobs: Sequence[JobSpec]) -> Tuner:
    """Return the tuner with the name and settings of `spec`, for these jobs.

    Raises:
        UnknownNameError: An unknown tuner or setting. The message has the nearest known name, or all names.
        InputError: A setting has the wrong type, is out of range, or conflicts with another setting or the jobs.
        MissingHereError: The tuner's package is missing or cannot be loaded.
    """
    check_tuner(spec, jobs=len(jobs), iterations=longest(jobs), source="the app")
    make = TUNERS.get(spec.name) or find_plugin(spec.name).make
    tuner: Tuner = make(jobs, **spec.settings)
    return tuner
