"""The tuners that ship, by name, with their settings: what a group file may say and what a tuner may expect.

The client checks a group by this table before it submits it; the app master builds its tuners by the same names. A
setting that is not given is absent from the TunerSpec: its default is the tuner's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from themis.apps import Setting, TunerSpec
from themis.errors import InputError, UnknownNameError


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingEntry:
    """One setting: its type, its least value where it is a number, and one line on its meaning and default."""

    kind: type[int] | type[str]
    low: int = 0
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerEntry:
    """A tuner: one line on what it does, and its settings by name."""

    summary: str
    settings: Mapping[str, SettingEntry]


SINGLE = "single"
SUCCESSIVE_HALVING = "successive_halving"

TUNERS: Mapping[str, TunerEntry] = {
    SINGLE: TunerEntry(summary="every job runs to its end, in one phase", settings={}),
    SUCCESSIVE_HALVING: TunerEntry(
        summary="phases of ever fewer jobs, those of least loss, that run ever longer",
        settings={
            "eta": SettingEntry(kind=int, low=2, help="one job in eta goes on to the next phase; default 2"),
            "first_iterations": SettingEntry(
                kind=int, low=1, help="iterations of phase 1; default: such that the last phase ends at job.iterations"
            ),
            "phases": SettingEntry(
                kind=str, help="in place of the two: JOBSxITERATIONS of each phase, as in '4x8,2x16,1x36'"
            ),
        },
    ),
}

_PHASE = re.compile(r"\s*([1-9]\d{0,8})\s*x\s*([1-9]\d{0,11})\s*")


def check_tuner(tuner: TunerSpec, *, jobs: int, iterations: int, source: str) -> None:
    """Check a tuner's name and settings against the app that it is to tune.

    Args:
        tuner: The tuner's name and settings.
        jobs: How many jobs the app has.
        iterations: The longest job's iterations.
        source: The file, for errors.

    Raises:
        InputError: An unknown tuner or setting, a value out of range, or settings at odds with each other or the app.
    """
    if tuner.name not in TUNERS:
        raise UnknownNameError(f"tuner in {source}", tuner.name, TUNERS)
    known = TUNERS[tuner.name].settings
    for name, value in tuner.settings.items():
        if name not in known:
            raise UnknownNameError(f"setting of tuner {tuner.name} in {source}", name, known)
        _check_value(name, value, known[name], source)
    if tuner.name == SUCCESSIVE_HALVING:
        _check_halving(tuner.settings, jobs, iterations, source)


def _check_value(name: str, value: Setting, entry: SettingEntry, source: str) -> None:
    fits = isinstance(value, entry.kind) and not isinstance(value, bool)
    if not fits or (isinstance(value, int) and value < entry.low):
        wanted = f"a whole number of {entry.low} or more" if entry.kind is int else "text"
        raise InputError(f"{source}: tuner.{name} must be {wanted}", value=value, remedy=f"meaning: {entry.help}")


def _check_halving(settings: Mapping[str, Setting], jobs: int, iterations: int, source: str) -> None:
    if "phases" in settings:
        if len(settings) > 1:
            remedy = "leave eta and first_iterations out"
            raise InputError(f"{source}: tuner.phases stands in place of the other settings", remedy=remedy)
        _check_phases(str(settings["phases"]), jobs, iterations, source)
    first = settings.get("first_iterations")
    if isinstance(first, int) and first > iterations:
        remedy = f"use at most job.iterations, {iterations}"
        raise InputError(f"{source}: tuner.first_iterations is beyond the jobs' end", value=first, remedy=remedy)


def _check_phases(text: str, jobs: int, iterations: int, source: str) -> None:
    matches = [_PHASE.fullmatch(part) for part in text.split(",")]
    phases = [(int(match[1]), int(match[2])) for match in matches if match is not None]
    sizes = [size for size, _ in phases]
    if len(phases) < len(matches):
        raise InputError(f"{source}: tuner.phases is malformed", value=text, remedy="write it as in 4x8,2x16,1x36")
    if sizes[0] != jobs or sizes != sorted(sizes, reverse=True):
        remedy = f"begin with {jobs}x.. and let no phase have more jobs than the one before"
        raise InputError(f"{source}: tuner.phases does not fit the jobs", value=text, remedy=remedy)
    total = sum(further for _, further in phases)
    if total > iterations:
        remedy = f"raise job.iterations to {total}"
        raise InputError(f"{source}: tuner.phases run beyond job.iterations", value=text, remedy=remedy)
