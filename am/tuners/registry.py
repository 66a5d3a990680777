"""Tuners by name, and the check of their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from am.tuners.port import Tuner
from am.tuners.single import NAME as SINGLE
from am.tuners.single import single
from am.tuners.successive_halving import NAME as SUCCESSIVE_HALVING
from am.tuners.successive_halving import successive_halving
from themis.apps import JobSpec, Setting, TunerSpec
from themis.errors import InputError, UnknownNameError


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerKind:
    """How a tuner is made: a function of the jobs and, by keyword, of these settings with their types."""

    make: Callable[..., Tuner]
    settings: Mapping[str, type[Setting]]


TUNERS: Mapping[str, TunerKind] = {
    SINGLE: TunerKind(make=single, settings={}),
    SUCCESSIVE_HALVING: TunerKind(
        make=successive_halving, settings={"eta": int, "first_iterations": int, "phases": str}
    ),
}


def make_tuner(spec: TunerSpec, jobs: Sequence[JobSpec]) -> Tuner:
    """The tuner of that name for these jobs.

    Raises:
        UnknownNameError: An unknown tuner (the known are listed) or setting (the nearest is named).
        InputError: A setting of the wrong type or out of range.
    """
    kind = TUNERS.get(spec.name)
    if kind is None:
        raise UnknownNameError("tuner", spec.name, TUNERS)
    return kind.make(jobs, **_checked(spec, kind.settings))


def _checked(spec: TunerSpec, known: Mapping[str, type[Setting]]) -> dict[str, Setting]:
    """The settings with their types; a whole number given as a float is taken as an integer."""
    checked: dict[str, Setting] = {}
    for name, value in spec.settings.items():
        if name not in known:
            raise UnknownNameError(f"setting of tuner {spec.name}", name, known)
        checked[name] = _as_type(f"{spec.name}.{name}", value, known[name])
    return checked


def _as_type(where: str, value: Setting, wanted: type[Setting]) -> Setting:
    if isinstance(value, wanted) and not (wanted is not bool and isinstance(value, bool)):
        return value
    if wanted is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    raise InputError(f"setting {where} must be of type {wanted.__name__}", value=value)
