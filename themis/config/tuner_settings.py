"""The tuners by name, with their settings: what a group file may say and what a tuner may expect.

The client checks a group by this table before it submits it; the app master builds its tuners by the same names. A
setting that is not given is absent from the TunerSpec: its default is the tuner's. Tuners of other packages come by
entry points of the group `themis.tuners`, each of which names a TunerPlugin; they must be installed where the client
runs and where the app masters run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from themis.apps import AppSpec, Setting, TunerSpec
from themis.errors import FoundErrors, InputError, MissingHereError, UnknownHereError, UnknownNameError
from themis.values import Value

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class SettingEntry(Value, frozen=True, kw_only=True):
    """One setting: its type, its range with both ends or its `choices`, and one line on its meaning and default."""

    kind: type[int] | type[float] | type[str]
    low: float = 0
    high: float = math.inf
    choices: tuple[str, ...] = ()
    help: str


class TunerEntry(Value, frozen=True, kw_only=True):
    """A tuner: one line on what it does, and its settings by name."""

    summary: str
    settings: Mapping[str, SettingEntry]


class TunerPlugin(Value, frozen=True, kw_only=True):
    """A tuner of another package: what an entry point of the group `themis.tuners` must name.

    Attributes:
        entry: What it does, and its settings. They are checked before `make` is called.
        make: Makes an `am.tuners.port.Tuner`: a function of the sequence of `themis.apps.JobSpec` and, by keyword, of
            the settings that were given. Jobs and settings that it cannot serve raise `themis.errors.InputError`.
    """

    entry: TunerEntry
    make: Callable[..., Any]


PLUGIN_GROUP = "themis.tuners"

SINGLE = "single"
SUCCESSIVE_HALVING = "successive_halving"
HYPERBAND = "hyperband"
ASYNCHRONOUS_HALVING = "asynchronous_halving"
MEDIAN_STOPPING = "median_stopping"
PERFORMANCE_CURVE = "performance_curve"
OPTUNA = "optuna"

_SAMPLING = ("trials", "parallel", "seed")
OPTUNA_SAMPLERS: Mapping[str, tuple[str, ...]] = {"tpe": (*_SAMPLING, "startup_trials"), "random": _SAMPLING}
"""Samplers of the tuner optuna by name, with the settings that each has."""

_HALVING = ("min_resource", "reduction_factor")
OPTUNA_PRUNERS: Mapping[str, tuple[str, ...]] = {
    "hyperband": _HALVING,
    "median": ("n_startup_trials", "n_warmup_steps", "interval_steps"),
    "successive_halving": _HALVING,
}
"""Its pruners likewise."""

OPTUNA_DEFAULT_PARALLEL = 4
"""How many jobs a sampler runs at once where the group file does not say it."""

OPTUNA_DEFAULT_PRUNER = "hyperband"
"""The pruner where neither a sampler nor a pruner is named."""

_WARMUP = SettingEntry(
    kind=int, low=1, help="no job is stopped before this iteration; default: a tenth of job.iterations"
)

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
    HYPERBAND: TunerEntry(
        summary="brackets of successive halving, from many short first phases to few long ones",
        settings={
            "eta": SettingEntry(kind=int, low=2, help="one job in eta of a bracket goes on; default 3"),
            "max_resource": SettingEntry(
                kind=int,
                low=1,
                help="R, how many units job.iterations is; default: the most that the jobs fill all brackets of",
            ),
        },
    ),
    ASYNCHRONOUS_HALVING: TunerEntry(
        summary="successive halving without waiting: a job goes on once it is among the best so far",
        settings={
            "eta": SettingEntry(kind=int, low=2, help="one job in eta of those that reached a rung goes on; default 2"),
            "first_iterations": SettingEntry(
                kind=int, low=1, help="iterations of the first rung; default: such that the last ends at job.iterations"
            ),
        },
    ),
    MEDIAN_STOPPING: TunerEntry(
        summary="a job ends when its best loss is worse than the median of the others at its iteration",
        settings={
            "warmup": _WARMUP,
            "min_jobs": SettingEntry(
                kind=int,
                low=1,
                help="others that must have come as far before a job is stopped; default 3, or all of fewer",
            ),
        },
    ),
    PERFORMANCE_CURVE: TunerEntry(
        summary="a job ends when its loss curve is unlikely to end below the best of the others",
        settings={
            "threshold": SettingEntry(
                kind=float, low=0.0001, high=0.49, help="least probability with which a job goes on; default 0.05"
            ),
            "warmup": _WARMUP,
            "interval": SettingEntry(
                kind=int, low=1, help="iterations between two looks at a job; default: a fiftieth of job.iterations"
            ),
        },
    ),
    OPTUNA: TunerEntry(
        summary="a sampler of Optuna's says which job runs next, a pruner which ends; needs the extra `optuna`",
        settings={
            "sampler": SettingEntry(
                kind=str,
                choices=tuple(OPTUNA_SAMPLERS),
                help="which; by default there is none, all jobs run side by side",
            ),
            "trials": SettingEntry(kind=int, low=1, help="of a sampler: most jobs that are run; default: all"),
            "parallel": SettingEntry(kind=int, low=1, help="of a sampler: how many jobs run at once; default 4"),
            "startup_trials": SettingEntry(
                kind=int, help="of the sampler tpe: how many jobs it chooses at random first; default: Optuna's"
            ),
            "seed": SettingEntry(kind=int, high=2**32 - 1, help="of a sampler; default 0"),
            "pruner": SettingEntry(
                kind=str,
                choices=tuple(OPTUNA_PRUNERS),
                help="which; default hyperband, and none beside a sampler",
            ),
            "min_resource": SettingEntry(
                kind=int, low=1, help="of both halving pruners: first iteration; default: a hundredth of job.iterations"
            ),
            "reduction_factor": SettingEntry(
                kind=int, low=2, help="of both halving pruners: one job of this many continues; default: Optuna's"
            ),
            "n_startup_trials": SettingEntry(
                kind=int, help="of the median pruner: jobs that must have come to their end first; default: Optuna's"
            ),
            "n_warmup_steps": SettingEntry(
                kind=int, help="of the median pruner: no job is stopped before this iteration; default: Optuna's"
            ),
            "interval_steps": SettingEntry(
                kind=int, low=1, help="of the median pruner: iterations between two looks at a job; default: Optuna's"
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
    check_settings(tuner, source)
    found = FoundErrors()
    if tuner.name == SUCCESSIVE_HALVING:
        found.run(_check_halving, tuner.settings, jobs, iterations, source)
    for name in _BOUND.get(tuner.name, ()):
        found.run(_check_within, name, tuner.settings, iterations, source)
    found.raise_all()


def check_settings(tuner: TunerSpec, source: str) -> None:
    """Check a tuner's name and settings by themselves. Raises InputError."""
    known = (TUNERS[tuner.name] if tuner.name in TUNERS else find_plugin(tuner.name, source).entry).settings
    found = FoundErrors()
    for name, value in tuner.settings.items():
        if name in known:
            found.run(_check_value, name, value, known[name], source)
        else:
            found.add(UnknownNameError(f"setting of tuner {tuner.name} in {source}", name, known))
    found.raise_all()
    if tuner.name == OPTUNA:
        _check_optuna(tuner.settings, source)


_BOUND: Mapping[str, tuple[str, ...]] = {
    SUCCESSIVE_HALVING: ("first_iterations",),
    ASYNCHRONOUS_HALVING: ("first_iterations",),
    HYPERBAND: ("max_resource",),
    MEDIAN_STOPPING: ("warmup",),
    PERFORMANCE_CURVE: ("warmup", "interval"),
    OPTUNA: ("min_resource", "n_warmup_steps", "interval_steps"),
}
"""Settings that cannot be more than the iterations of a job."""


def check_acts(tuner: TunerSpec, *, jobs: int, iterations: int, source: str) -> None:
    """Check that a tuner's settings, each fit by itself, let it do something in this app: a limit can be met.

    For apps that are submitted: one that runs already goes on with what it was submitted with.

    Args:
        tuner: The tuner's name and settings, which `check_tuner` has passed.
        jobs: How many jobs the app has.
        iterations: The longest job's iterations.
        source: The file, for errors.

    Raises:
        InputError: A setting that can never have an effect.
    """
    if jobs == 1:
        # A single job is compared with no other, whatever the settings.
        return
    found = FoundErrors()

    def check(name: str, most: int, why: str, default: int = 0) -> None:
        found.run(_check_at_most, name, tuner.settings, most, why, source, default)

    for name in _BEFORE_THE_END.get(tuner.name, ()):
        if iterations > 1:
            check(name, iterations - 1, "it must be below job.iterations")
    if tuner.name == HYPERBAND:
        check("eta", max(2, iterations), "a job's first rung ends at job.iterations / eta")
    if tuner.name == ASYNCHRONOUS_HALVING:
        check("eta", jobs, "a job goes on once eta have reached its rung")
    if tuner.name == MEDIAN_STOPPING:
        check("min_jobs", jobs - 1, "a job has no more others")
    if tuner.name == OPTUNA:
        check("trials", jobs, "there are no more jobs")
        run = min(jobs, int(tuner.settings.get("trials", jobs)))
        for name, default in OPTUNA_DEFAULTS.items() if run > 1 else ():
            check(name, run - 1, "a job has no more before it", default)
    found.raise_all()


OPTUNA_DEFAULTS: Mapping[str, int] = {"startup_trials": 10, "n_startup_trials": 5}
"""Optuna's own defaults of what must have gone before, which small apps may never come to."""

_BEFORE_THE_END: Mapping[str, tuple[str, ...]] = {
    SUCCESSIVE_HALVING: ("first_iterations",),
    ASYNCHRONOUS_HALVING: ("first_iterations",),
    MEDIAN_STOPPING: ("warmup",),
    PERFORMANCE_CURVE: ("warmup",),
    OPTUNA: ("min_resource", "n_warmup_steps"),
}
"""Settings before which no job is stopped: at its end there is nothing left to stop."""


def plugins() -> Mapping[str, EntryPoint]:
    """The tuners of other packages by name, not loaded yet; a package cannot take the name of one of ours."""
    # Slow to import, and few apps are tuned by others.
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=PLUGIN_GROUP) if entry.name not in TUNERS}


def find_plugin(name: str, source: str = "the app") -> TunerPlugin:
    """Load the tuner of another package.

    Raises:
        UnknownHereError: No package that is installed here brings a tuner of that name.
        MissingHereError: Its package cannot be imported, or what it names is no TunerPlugin.
    """
    known = plugins()
    if name not in known:
        raise UnknownHereError(f"tuner in {source}", name, (*TUNERS, *known))
    try:
        found = known[name].load()
    except Exception as error:
        # Any error in another project's package: name the package, and keep the others usable.
        remedy = f"repair or remove the package that brings {known[name].value}: {type(error).__name__}: {error}"
        raise MissingHereError(f"{source}: tuner {name} cannot be loaded", remedy=remedy) from error
    if not isinstance(found, TunerPlugin):
        remedy = "the entry point must name a themis.config.tuner_settings.TunerPlugin"
        raise MissingHereError(f"{source}: tuner {name} is not a tuner", value=known[name].value, remedy=remedy)
    return found


def _check_value(name: str, value: Setting, entry: SettingEntry, source: str) -> None:
    if entry.choices and isinstance(value, str) and value not in entry.choices:
        raise UnknownNameError(f"tuner.{name} in {source}", value, entry.choices)
    if not _fits(value, entry):
        raise InputError(
            f"{source}: tuner.{name} must be {_wanted(entry)}", value=value, remedy=f"meaning: {entry.help}"
        )


def _fits(value: Setting, entry: SettingEntry) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, str):
        return entry.kind is str
    return isinstance(value, (int, float) if entry.kind is float else entry.kind) and entry.low <= value <= entry.high


def _wanted(entry: SettingEntry) -> str:
    if entry.kind is str:
        return f"one of {', '.join(entry.choices)}" if entry.choices else "text"
    what = "a whole number" if entry.kind is int else "a number"
    return (
        f"{what} of {entry.low:g} or more" if entry.high == math.inf else f"{what} from {entry.low:g} to {entry.high:g}"
    )


def _check_within(name: str, settings: Mapping[str, Setting], iterations: int, source: str) -> None:
    value = settings.get(name)
    if isinstance(value, int) and value > iterations:
        remedy = f"use at most job.iterations, {iterations}"
        raise InputError(f"{source}: tuner.{name} is beyond the jobs' end", value=value, remedy=remedy)


def _check_at_most(name: str, settings: Mapping[str, Setting], most: int, why: str, source: str, default: int) -> None:
    """To leave a setting out is a remedy unless its default is as far beyond what can act."""
    value = settings.get(name)
    if isinstance(value, int) and value > most:
        remedy = f"use at most {most}: {why}" + ("; or leave it out" if default <= most else "")
        raise InputError(f"{source}: with tuner.{name} so high it can never act", value=value, remedy=remedy)


def _check_optuna(settings: Mapping[str, Setting], source: str) -> None:
    """A sampler's settings go with a sampler that has them, a pruner's with such a pruner."""
    sampler = settings.get("sampler")
    pruner = settings.get("pruner", None if sampler is not None else OPTUNA_DEFAULT_PRUNER)
    found = FoundErrors()
    for kind, chosen, table in (("sampler", sampler, OPTUNA_SAMPLERS), ("pruner", pruner, OPTUNA_PRUNERS)):
        its_own = () if chosen is None else table[str(chosen)]
        for name in settings:
            owners = [owner for owner, names in table.items() if name in names]
            if owners and name not in its_own:
                what = f"no {kind}" if chosen is None else f"the {kind} {chosen}"
                remedy = f"it is one of tuner.{kind} {' or '.join(owners)}; name that, or leave it out"
                found.add(InputError(f"{source}: tuner.{name} beside {what}", value=settings[name], remedy=remedy))
    found.raise_all()


def _check_halving(settings: Mapping[str, Setting], jobs: int, iterations: int, source: str) -> None:
    if "phases" in settings:
        if len(settings) > 1:
            remedy = "leave tuner.eta and tuner.first_iterations out"
            raise InputError(f"{source}: tuner.phases stands in place of the other settings", remedy=remedy)
        read_phases(str(settings["phases"]), jobs=jobs, iterations=iterations, source=source)


def read_phases(text: str, *, jobs: int, iterations: int, source: str) -> tuple[tuple[int, int], ...]:
    """Read the setting `phases` of successive halving: how many jobs each phase has, and how many further iterations.

    Args:
        text: As in `4x8,2x16,1x36`.
        jobs: How many jobs the app has: phase 1 has all of them.
        iterations: The longest job's iterations, which are all that there are.
        source: The file, for errors.

    Raises:
        InputError: Something else than phases, or ones that do not fit the app.
    """
    phases = [_phase(part, source) for part in text.split(",")]
    sizes = [size for size, _ in phases]
    if sizes != sorted(sizes, reverse=True):
        remedy = "order them by falling jobs"
        raise InputError(
            f"{source}: tuner.phases has a phase of more jobs than the one before", value=text, remedy=remedy
        )
    if sizes[0] != jobs:
        remedy = f"start with {jobs}x.."
        raise InputError(f"{source}: tuner.phases does not begin with all jobs", value=text, remedy=remedy)
    total = sum(further for _, further in phases)
    if total > iterations:
        remedy = f"raise job.iterations to {total}"
        raise InputError(f"{source}: tuner.phases run beyond job.iterations", value=text, remedy=remedy)
    return tuple(phases)


def _phase(text: str, source: str) -> tuple[int, int]:
    match = _PHASE.fullmatch(text)
    if match is None:
        remedy = "write JOBSxITERATIONS, as in 4x8,2x16,1x36"
        raise InputError(f"{source}: tuner.phases is malformed", value=text, remedy=remedy)
    return int(match[1]), int(match[2])


def gpus_at_once(app: AppSpec) -> int:
    """Return the most GPUs that the jobs of an app can hold at the same time, which its tuner may limit."""
    gpus = sorted((job.shape.demand_max_gpus for job in app.jobs), reverse=True)
    if app.tuner.name != OPTUNA or "sampler" not in app.tuner.settings:
        return sum(gpus)
    limits = app.tuner.settings.get("parallel", OPTUNA_DEFAULT_PARALLEL), app.tuner.settings.get("trials")
    return sum(gpus[: min((limit for limit in limits if isinstance(limit, int)), default=len(gpus))])
