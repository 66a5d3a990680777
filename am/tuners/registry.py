"""Tuners by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from am.tuners.phased import longest
from am.tuners.port import Tuner
from am.tuners.single import NAME as SINGLE
from am.tuners.single import single
from am.tuners.successive_halving import NAME as SUCCESSIVE_HALVING
from am.tuners.successive_halving import successive_halving
from themis.apps import JobSpec, TunerSpec
from themis.config.tuner_settings import check_tuner

TUNERS: Mapping[str, Callable[..., Tuner]] = {SINGLE: single, SUCCESSIVE_HALVING: successive_halving}
"""Each is a function of the jobs and, by keyword, of the settings that `themis.config.tuner_settings` lists."""


def make_tuner(spec: TunerSpec, jobs: Sequence[JobSpec]) -> Tuner:
    """The tuner of that name for these jobs.

    Raises:
        UnknownNameError: An unknown tuner or setting; the nearest known name is given, or all.
        InputError: A setting of the wrong type, out of range, or at odds with another or with the jobs.
    """
    check_tuner(spec, jobs=len(jobs), iterations=longest(jobs), source="the app")
    return TUNERS[spec.name](jobs, **spec.settings)
