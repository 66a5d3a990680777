"""Tuners by name: those that ship, and those of others that an installed package's entry point brings."""

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
    """Imported when it is asked for: Optuna is an extra."""
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
"""Each is a function of the jobs and, by keyword, of the settings that `themis.config.tuner_settings` lists."""


def make_tuner(spec: TunerSpec, jobs: Sequence[JobSpec]) -> Tuner:
    """The tuner of that name for these jobs.

    Raises:
        UnknownNameError: An unknown tuner or setting; the nearest known name is given, or all.
        InputError: A setting of the wrong type, out of range, or at odds with another or with the jobs.
        MissingHereError: A tuner whose package is missing here or cannot be loaded.
    """
    check_tuner(spec, jobs=len(jobs), iterations=longest(jobs), source="the app")
    make = TUNERS.get(spec.name) or find_plugin(spec.name).make
    tuner: Tuner = make(jobs, **spec.settings)
    return tuner
