"""Group files: one app, its program, its jobs' hyper-parameters and the tuner that searches them.

`build_app` makes the app that a file describes. Whether its program is known, takes such flags and can be found on this
machine is not checked here: that is the client's part, for the kernel knows no program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec.structs import replace
from pydantic import BeforeValidator, Field, StrictInt

from themis.apps import (
    DEFAULT_PEER_WAIT_S,
    AppSpec,
    Estimate,
    JobShape,
    JobSpec,
    MetricSpec,
    ProgramSpec,
    Slowdown,
    TaskResources,
    TunerSpec,
)
from themis.code_archive import pack_code
from themis.config.app_limits import check_limits, check_pattern
from themis.config.loader import Section, fit, load_yaml
from themis.config.names import check_app_name, check_label, check_parameter_name, check_queue_name, login_name
from themis.config.placeholders import GIVEN_BY_APP_MASTER, check_placeholders, placeholders
from themis.config.scalars import Scalar, ShortenedFloat, Variable, VariableName, number
from themis.config.search_space import HyperParameters, Range, draw
from themis.config.tuner_settings import SINGLE, check_acts, check_tuner
from themis.config.validation_errors import FoundErrors
from themis.errors import InputError

INT32_MAX = 2**31 - 1
"""What the wire can hold."""

MAX_TASKS = 10_000
MAX_JOBS = 10_000
"""Far more than a search can use, but far too few to exhaust the reader's memory."""

NO_METRIC = "none"
"""The value of `metric` for jobs that report none."""

COMMAND_ITERATIONS = 1
"""Iterations of a command that says none: it runs until it exits 0, and that is its one iteration."""


class JobSection(Section):
    """How each job is laid out, and how long it trains."""

    tasks: StrictInt = Field(default=1, ge=1, le=MAX_TASKS, description="most tasks that the job can use at once")
    min_tasks: StrictInt | None = Field(
        default=None, ge=1, description="fewest tasks it can run with; default 1 for a program, `tasks` for a command"
    )
    gpus_per_task: StrictInt = Field(default=1, ge=1, le=MAX_TASKS, description="GPUs of each task, all on one machine")
    iterations: StrictInt | None = Field(
        default=None,
        ge=1,
        le=10**12,
        description="iterations to the job's end; default 1 for a command, required for a program",
    )
    max_runtime_s: float = Field(
        default=0.0,
        ge=0,
        le=1e9,
        description="seconds on GPUs after which the job is stopped for good, with a checkpoint; 0: no limit",
    )
    max_iterations: StrictInt = Field(
        default=0,
        ge=0,
        le=10**12,
        description="the job is stopped for good once it logs more iterations, with a checkpoint; 0: no limit",
    )
    peer_wait_s: float = Field(
        default=DEFAULT_PEER_WAIT_S,
        gt=0,
        le=1e9,
        description="seconds without progress after which the other tasks are stopped, once one has ended with 0",
    )


_MEMORY = re.compile(r"([0-9]{1,12})([KMGT])i?B?", re.IGNORECASE)
_KB = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}


def _memory_mb(value: Any) -> Any:
    """A size with a unit in MB: `4G` and `4Gi` are 4096. As elsewhere in Hadoop, the units are powers of 1024."""
    if not isinstance(value, str):
        return value
    match = _MEMORY.fullmatch(value.strip())
    if match is None:
        raise ValueError("should be a whole number of MB, or one with a unit, as in 4G or 512Mi")
    size_mb, rest_kb = divmod(int(match[1]) * _KB[match[2].upper()], 1024)
    if rest_kb:
        raise ValueError("should be a whole number of MB")
    return size_mb


class ResourcesSection(Section):
    """What one task needs beside its GPUs."""

    memory_mb: Annotated[StrictInt, BeforeValidator(_memory_mb)] = Field(
        default=1024, ge=1, le=INT32_MAX, description="memory in MiB, or with a unit: 4G, 512Mi"
    )
    vcores: StrictInt = Field(default=1, ge=1, le=INT32_MAX, description="CPU cores")


class SlowdownSection(Section):
    """S by locality level: the factor on the iteration time, 1 or more, never less farther apart."""

    slot: float = Field(default=1.0, ge=1)
    machine: float = Field(default=1.0, ge=1)
    rack: float = Field(default=1.1, ge=1)
    cluster: float = Field(default=1.3, ge=1)


class EstimateSection(Section):
    """What the user knows of a job's pace; the profiler replaces it by what it measures."""

    serial_iteration_s: float | None = Field(
        default=None, ge=1e-9, le=1e9, description="seconds an iteration on one reference GPU"
    )
    slowdown: SlowdownSection | None = None
    speed: dict[str, Annotated[float, Field(gt=0, le=1e9, strict=True), BeforeValidator(number)]] = Field(
        default={}, description="speed by device type, relative to the reference GPU"
    )


class MetricSection(Section):
    """The metric by which the search compares jobs; `metric: none` for jobs that report none."""

    name: str = Field(default="", max_length=200, description="the name under which the program logs it")
    mode: Literal["min", "max"] = Field(default="min", description="`min` if lower is better, `max` if higher is")
    regex: str = Field(
        default="",
        max_length=1000,
        description="a regular expression that finds the value in a line, in group `value` or the first one",
    )


def _metric(value: Any) -> Any:
    if value == NO_METRIC:
        return None
    return {"name": value} if isinstance(value, str) else value


def _tuner(value: Any) -> Any:
    if isinstance(value, dict):
        # A setting is a number, to which zeros at the end mean nothing.
        return {key: number(each) if isinstance(each, ShortenedFloat) else each for key, each in value.items()}
    return {"name": value} if isinstance(value, str) else value


class TunerSection(Section, extra="allow"):
    """The tuner's name; every other key is a setting of it, checked against `tuner_settings.TUNERS`."""

    name: str = SINGLE

    __pydantic_extra__: dict[str, Scalar] = Field(init=False)


class GroupFile(Section):
    """A group file: one app."""

    name: str = Field(description="a-z, 0-9 and '-'")
    user: str = Field(default_factory=login_name, description="whose app it is; default: the login name")
    queue: str = "default"
    priority: int = Field(
        default=0, ge=-1000, le=1000, description="order among the apps of one user: the highest is served first"
    )
    program: str = Field(default="", description="a program of the catalogue; exactly one of program and command")
    command: str = Field(default="", description="a shell command; %name% stands for a hyper-parameter or argument")
    arguments: dict[str, Scalar] = Field(default={}, description="the same for every job")
    environment: dict[VariableName, Variable] = Field(default={}, description="added to the environment of every task")
    code: str = Field(
        default="", description="a folder or file that travels with the app; relative to the group file's folder"
    )
    python: str = Field(default="", description="absolute path of an interpreter; its folder comes first in PATH")
    framework: Literal["", "tensorflow", "pytorch", "none"] = Field(
        default="", description="whose variables describe a task's peers; default: those of TensorFlow and PyTorch"
    )
    tuner: Annotated[TunerSection, BeforeValidator(_tuner)] = TunerSection()
    metric: Annotated[MetricSection | None, BeforeValidator(_metric)] = MetricSection()
    job: JobSection = JobSection()
    hyper_parameters: tuple[dict[str, Scalar], ...] | None = Field(
        default=None, min_length=1, description="the hyper-parameters of each job, written out"
    )
    search_space: dict[str, Range] | None = Field(
        default=None, min_length=1, description="the range of each hyper-parameter; `jobs` sets are drawn by `seed`"
    )
    jobs: StrictInt | None = Field(
        default=None, ge=1, le=MAX_JOBS, description="how many jobs; default: as the sets or grids say"
    )
    seed: StrictInt = Field(default=0, ge=0, lt=2**31, description="of the draw, and of every job's own randomness")
    resources: ResourcesSection = ResourcesSection()
    checkpoint_every: StrictInt = Field(default=50, ge=1, le=INT32_MAX, description="iterations between checkpoints")
    checkpoint_uri: str = Field(default="", description="where checkpoints lie; default: as the ResourceManager says")
    keep_checkpoints: StrictInt = Field(
        default=3, ge=1, le=INT32_MAX, description="newest checkpoints of each job to keep"
    )
    max_task_restarts: StrictInt = Field(
        default=3, ge=0, le=INT32_MAX, description="restarts of each job after failures"
    )
    estimate: EstimateSection = EstimateSection()


def load_group(path: Path) -> AppSpec:
    """Read a group file; whatever does not fit raises InputError."""
    file = fit(GroupFile, load_yaml(path), str(path))
    app = build_app(file, str(path))
    if not file.code:
        return app
    code = pack_code({".": path.parent / file.code}, f"{path}: code")
    return replace(app, program=replace(app.program, code=code))


def build_app(file: GroupFile, source: str) -> AppSpec:
    """The app that a group file describes; `source` names the file in errors.

    Raises:
        InputError: Keys that contradict each other, or an unknown tuner, setting or placeholder.
    """
    found = FoundErrors()
    found.run(_check_exclusive, file, source)
    sets = found.run(_sets, file, source) or ()
    for check in _name_checks(file, sets, source):
        found.run(check)
    iterations = found.run(_iterations, file, source) or 1
    shape = found.run(_shape, file, source) or JobShape()
    tuner = TunerSpec(name=file.tuner.name, settings=file.tuner.model_extra or {})
    # A tuner is checked against the jobs, so not if these are wrong.
    found.raise_all()
    check_tuner(tuner, jobs=len(sets), iterations=iterations, source=source)
    check_acts(tuner, jobs=len(sets), iterations=iterations, source=source)
    app = _app(file, sets, shape, iterations, tuner)
    check_limits(app, source)
    check_pattern(app.metric, source)
    return app


def _app(
    file: GroupFile, sets: tuple[HyperParameters, ...], shape: JobShape, iterations: int, tuner: TunerSpec
) -> AppSpec:
    width = max(2, len(str(len(sets) - 1)))
    jobs = tuple(
        JobSpec(
            job_id=f"job-{place:0{width}d}",
            hyper_parameters=values,
            shape=shape,
            iterations_total=iterations,
            speed_by_device=file.estimate.speed,
        )
        for place, values in enumerate(sets)
    )
    return AppSpec(
        name=file.name,
        user=file.user,
        queue=file.queue,
        priority=file.priority,
        tuner=tuner,
        program=ProgramSpec(
            name=file.program,
            command=file.command,
            arguments=file.arguments,
            environment=file.environment,
            framework=file.framework,
            python=file.python,
        ),
        jobs=jobs,
        resources=TaskResources(memory_mb=file.resources.memory_mb, vcores=file.resources.vcores),
        estimate=_estimate(file.estimate),
        checkpoint_every=file.checkpoint_every,
        checkpoint_uri=file.checkpoint_uri,
        keep_checkpoints=file.keep_checkpoints,
        max_task_restarts=file.max_task_restarts,
        peer_wait_s=file.job.peer_wait_s,
        metric=_metric_spec(file.metric),
        max_runtime_s=file.job.max_runtime_s,
        max_iterations=file.job.max_iterations,
        seed=file.seed,
    )


def _check_exclusive(file: GroupFile, source: str) -> None:
    if file.hyper_parameters is not None and file.search_space is not None:
        remedy = "write the sets out, or have them drawn"
        raise InputError(f"{source}: give hyper_parameters or a search_space, not both", remedy=remedy)
    if bool(file.program) == bool(file.command):
        remedy = "program names one of the catalogue, command is a shell command of your own"
        raise InputError(f"{source}: give exactly one of program and command", remedy=remedy)
    if file.program and (file.code or file.python):
        remedy = "they are for a command of your own"
        raise InputError(f"{source}: a program takes neither code nor python", value=file.program, remedy=remedy)


def _sets(file: GroupFile, source: str) -> tuple[HyperParameters, ...]:
    """The hyper-parameters of every job."""
    if file.search_space is not None:
        return draw(file.search_space, jobs=file.jobs, seed=file.seed, app_name=file.name, source=source)
    sets: tuple[HyperParameters, ...] = file.hyper_parameters or ({},)
    if file.jobs is not None and file.jobs != len(sets):
        remedy = "leave jobs out, or draw the sets from a search_space"
        raise InputError(f"{source}: jobs is {file.jobs}, but the file describes {len(sets)}", remedy=remedy)
    return sets


def _name_checks(file: GroupFile, sets: tuple[HyperParameters, ...], source: str) -> Iterator[Callable[[], object]]:
    """Yield the checks that names are well formed and have one meaning each."""
    yield partial(check_app_name, file.name, source)
    yield partial(check_label, file.user, "user", source)
    yield partial(check_queue_name, file.queue, "queue", source)
    for device in file.estimate.speed:
        yield partial(check_label, device, "device type in estimate.speed", source)
    searched = _names(sets)
    for name in (*file.arguments, *searched):
        yield partial(_check_parameter, name, source)
    for name in searched:
        if name in file.arguments:
            yield partial(_refuse_twice, name, source)
    if file.command and sets:
        yield partial(_check_command, file, sets, source)


def _check_parameter(name: str, source: str) -> None:
    check_parameter_name(name, source)
    if name in GIVEN_BY_APP_MASTER:
        remedy = f"the key {GIVEN_BY_APP_MASTER[name]} of the group file sets it"
        raise InputError(f"{source}: no argument or hyper-parameter can be called", value=name, remedy=remedy)


def _refuse_twice(name: str, source: str) -> None:
    remedy = "keep it in one of the two"
    raise InputError(f"{source}: an argument is also a hyper-parameter", value=name, remedy=remedy)


def _check_command(file: GroupFile, sets: tuple[HyperParameters, ...], source: str) -> None:
    """A command uses each parameter that it is given, and every placeholder has a value in every job."""
    searched = _names(sets)
    check_placeholders(file.command, (*file.arguments, *searched, *GIVEN_BY_APP_MASTER), source)
    unused = [name for name in (*file.arguments, *searched) if name not in placeholders(file.command)]
    if unused:
        remedy = f"write %{unused[0]}% where its value belongs"
        raise InputError(f"{source}: the command never uses a parameter", value=unused[0], remedy=remedy)
    lacking = [(number, name) for number, row in enumerate(sets) for name in searched if name not in row]
    if lacking:
        number, name = lacking[0]
        remedy = "a command's placeholders need a value in every set"
        raise InputError(f"{source}: hyper_parameters[{number}] has no {name}", remedy=remedy)


def _names(sets: tuple[Mapping[str, Any], ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for row in sets for name in row))


def _iterations(file: GroupFile, source: str) -> int:
    if file.job.iterations is not None:
        return file.job.iterations
    if file.command:
        return COMMAND_ITERATIONS
    raise InputError(f"{source}: job.iterations is missing", remedy="say how many iterations each job trains")


def _shape(file: GroupFile, source: str) -> JobShape:
    # A command of the user's own cannot be assumed to survive a change in the number of its tasks.
    least = file.job.tasks if file.command else 1
    min_tasks = least if file.job.min_tasks is None else file.job.min_tasks
    if min_tasks > file.job.tasks:
        message = f"{source}: job.min_tasks is more than job.tasks, which is {file.job.tasks}"
        raise InputError(message, value=min_tasks, remedy="tasks is the most that a job may have, 1 unless it is given")
    return JobShape(tasks=file.job.tasks, min_tasks=min_tasks, gpus_per_task=file.job.gpus_per_task)


def _metric_spec(section: MetricSection | None) -> MetricSpec:
    if section is None:
        return MetricSpec(wanted=False)
    return MetricSpec(name=section.name, mode=section.mode, regex=section.regex)


def _estimate(section: EstimateSection) -> Estimate:
    s = section.slowdown
    slowdown = None if s is None else Slowdown(s.slot, s.machine, s.rack, s.cluster)
    return Estimate(serial_iteration_s=section.serial_iteration_s, slowdown=slowdown)
