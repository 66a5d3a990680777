"""Group files: one app, its program, its jobs' hyper-parameters and the tuner that searches them.

`AppDraft` makes the app that a file describes. Whether its program is known, takes such flags and can be found on this
machine is not checked here: that is the client's part, for the kernel knows no program.
"""

from __future__ import annotations

import posixpath
import random
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictInt

from themis.apps import (
    DEFAULT_PEER_WAIT_S,
    AppSpec,
    CodeArchive,
    Estimate,
    JobShape,
    JobSpec,
    MetricSpec,
    ProgramSpec,
    Slowdown,
    TaskResources,
    TunerSpec,
)
from themis.code_archive import files_in, pack_code
from themis.config.app_limits import check_limits, check_pattern
from themis.config.loader import Section, load_yaml
from themis.config.names import check_app_name, check_label, check_parameter_name, check_queue_name, login_name
from themis.config.placeholders import GIVEN_BY_APP_MASTER, check_placeholders, placeholders
from themis.config.readable_parts import LeftOut, fit_parts
from themis.config.scalars import Scalar, ShortenedFloat, Variable, VariableName, number
from themis.config.search_space import MAX_JOBS, HyperParameters, Range, draw
from themis.config.tuner_settings import SINGLE, check_acts, check_settings, check_tuner
from themis.errors import FoundErrors, InputError

INT32_MAX = 2**31 - 1
"""What the wire can hold."""

MAX_TASKS = 10_000
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
    requirements: str = Field(
        default="", description="a requirements file in `code`; its packages are installed where the tasks run"
    )
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


class AppDraft:
    """The app that a group file describes, part by part. To read a part with an error raises the error.

    So a check runs as far as it does not depend on what is wrong. `program` and `jobs` have stand-ins for what no check
    of a program needs: an environment, or a number of iterations or of jobs, that cannot be read.

    Args:
        file: The group file, as far as it can be read.
        source: Names it in errors.
        folder: What its `code` is relative to; None to leave the code out.
        found: Collects the errors.
        left_out: Entries of the file that cannot be read, and are not in `file`. Their names count as given.
    """

    def __init__(
        self,
        file: GroupFile,
        source: str,
        *,
        folder: Path | None,
        found: FoundErrors,
        left_out: LeftOut = MappingProxyType({}),
    ) -> None:
        self.file = file
        self._left_out = left_out
        self.source = source
        self.found = found
        self._folder = folder

    @cached_property
    def sets(self) -> tuple[HyperParameters, ...]:
        """The hyper-parameters of every job."""
        file, space = self.file, self._space
        if file.hyper_parameters is not None and space is not None:
            raise self._error("give hyper_parameters or a search_space, not both", "write the sets out, or draw them")
        if space is not None:
            lacking = [error for place, error in self._left_out.items() if place[0] == "search_space"]
            if lacking and file.jobs is None:
                # A grid among them would say how many sets there are.
                raise lacking[0]
            # Only the values that are drawn depend on these two.
            name, seed = self.found.run(lambda: file.name) or "", self.found.run(lambda: file.seed) or 0
            others = bool(lacking)
            return draw(space, jobs=file.jobs, seed=seed, app_name=name, source=self.source, others=others)
        sets: tuple[HyperParameters, ...] = file.hyper_parameters or ({},)
        if file.jobs is not None and file.jobs != len(sets):
            remedy = "leave jobs out, or draw the sets from a search_space"
            raise self._error(f"jobs is {file.jobs}, but the file describes {len(sets)}", remedy)
        return sets

    @cached_property
    def _space(self) -> Mapping[str, Range] | None:
        """The ranges of the search space that can be read; None if the file has none."""
        if not self._names_left_out("search_space"):
            return self.file.search_space
        return self.found.run(lambda: self.file.search_space) or {}

    def _sample(self) -> tuple[HyperParameters, ...]:
        """Sets to check a program with, where it cannot be said how many the file describes."""
        if self._space is None:
            return self.file.hyper_parameters or ({},)
        return ({name: entry.sample(random.Random(0)) for name, entry in self._space.items()},)

    @cached_property
    def searched(self) -> tuple[str, ...]:
        """The names of the hyper-parameters, of all jobs together."""
        rows = (self._space,) if self._space is not None else self.file.hyper_parameters or ()
        left_out = (*self._names_left_out("search_space"), *self._names_left_out("hyper_parameters"))
        return tuple(dict.fromkeys((*(name for row in rows for name in row), *left_out)))

    def _names_left_out(self, part: str) -> tuple[str, ...]:
        return tuple(str(place[-1]) for place in self._left_out if place[0] == part and isinstance(place[-1], str))

    @cached_property
    def has_command(self) -> bool:
        """Whether the app runs a command, not a program of the catalogue."""
        if bool(self.file.program) == bool(self.file.command):
            remedy = "program names one of the catalogue, command is a shell command of your own"
            raise self._error("give exactly one of program and command", remedy)
        return bool(self.file.command)

    @cached_property
    def iterations(self) -> int:
        """Iterations of every job."""
        if self.file.job.iterations is not None:
            return self.file.job.iterations
        if self.has_command:
            return COMMAND_ITERATIONS
        raise self._error("job.iterations is missing", "say how many iterations each job trains")

    @cached_property
    def shape(self) -> JobShape:
        """How every job may be laid out."""
        job = self.file.job
        # A command of the user's own cannot be assumed to survive a change in the number of its tasks.
        least = job.tasks if self.file.command else 1
        min_tasks = least if job.min_tasks is None else job.min_tasks
        if min_tasks > job.tasks:
            remedy = "tasks is the most that a job may have, 1 unless it is given"
            raise self._error(f"job.min_tasks is more than job.tasks, which is {job.tasks}", remedy, value=min_tasks)
        return JobShape(tasks=job.tasks, min_tasks=min_tasks, gpus_per_task=job.gpus_per_task)

    @cached_property
    def tuner(self) -> TunerSpec:
        """The tuner, with the settings that the file has."""
        return TunerSpec(name=self.file.tuner.name, settings=self.file.tuner.model_extra or {})

    @cached_property
    def metric(self) -> MetricSpec:
        """The metric by which the tuner compares jobs."""
        section = self.file.metric
        if section is None:
            return MetricSpec(wanted=False)
        return MetricSpec(name=section.name, mode=section.mode, regex=section.regex)

    @cached_property
    def estimate(self) -> Estimate:
        """What the user knows of a job's pace."""
        section = self.file.estimate
        s = section.slowdown
        slowdown = None if s is None else Slowdown(s.slot, s.machine, s.rack, s.cluster)
        return Estimate(serial_iteration_s=section.serial_iteration_s, slowdown=slowdown)

    @cached_property
    def program(self) -> ProgramSpec:
        """What a task runs."""
        file = self.file
        if not self.has_command and (file.code or file.python):
            remedy = "they are for a command of your own"
            raise self._error("a program takes neither code nor python", remedy, file.program)
        if file.requirements and not file.code:
            remedy = "give code too: the folder that has the file"
            raise self._error("requirements is a file of the code that travels", remedy, file.requirements)
        code = None
        if file.code and self._folder is not None:
            code = pack_code({".": self._folder / file.code}, f"{self.source}: code")
        return ProgramSpec(
            name=file.program,
            command=file.command,
            arguments=file.arguments,
            environment=self.found.run(lambda: file.environment) or {},
            framework=self.found.run(lambda: file.framework) or "",
            code=code,
            python=file.python,
            requirements="" if code is None else self._requirements(code),
        )

    def _requirements(self, code: CodeArchive) -> str:
        """Return the requirements file as it is called in the code."""
        name = self.file.requirements
        if name and (posixpath.isabs(name) or posixpath.normpath(name) not in files_in(code)):
            remedy = "give its path within code"
            raise self._error("the requirements file is not in the code", remedy, name)
        return name

    @cached_property
    def jobs(self) -> tuple[JobSpec, ...]:
        """The jobs, one for each set of hyper-parameters."""
        sets = self.found.run(lambda: self.sets) or self._sample()
        width = max(2, len(str(len(sets) - 1)))
        shape = self.found.run(lambda: self.shape) or JobShape()
        iterations = self.found.run(lambda: self.iterations) or 1
        speed = self.found.run(lambda: self.file.estimate.speed) or {}
        return tuple(
            JobSpec(
                job_id=f"job-{place:0{width}d}",
                hyper_parameters=values,
                shape=shape,
                iterations_total=iterations,
                speed_by_device=speed,
            )
            for place, values in enumerate(sets)
        )

    def check(self) -> None:
        """Collect all errors of the file."""
        run = self.found.run
        for check in (self._check_names, self._check_command, self._check_tuner):
            run(check)
        run(check_limits, self, self.source)
        for part in ("estimate", "iterations", "shape", "metric", "program", "jobs"):
            run(getattr, self, part)
        run(lambda: check_pattern(self.metric, self.source))

    def app(self) -> AppSpec:
        """The app. Raises InputError with all that was found."""
        self.found.raise_all()
        file = self.file
        return AppSpec(
            name=file.name,
            user=file.user,
            queue=file.queue,
            priority=file.priority,
            tuner=self.tuner,
            program=self.program,
            jobs=self.jobs,
            resources=TaskResources(memory_mb=file.resources.memory_mb, vcores=file.resources.vcores),
            estimate=self.estimate,
            checkpoint_every=file.checkpoint_every,
            checkpoint_uri=file.checkpoint_uri,
            keep_checkpoints=file.keep_checkpoints,
            max_task_restarts=file.max_task_restarts,
            peer_wait_s=file.job.peer_wait_s,
            metric=self.metric,
            max_runtime_s=file.job.max_runtime_s,
            max_iterations=file.job.max_iterations,
            seed=file.seed,
        )

    def _error(self, what: str, remedy: str, value: object = None) -> InputError:
        return InputError(f"{self.source}: {what}", value=value, remedy=remedy)

    def _check_names(self) -> None:
        """Check that names are well formed and have one meaning each."""
        file, source, run = self.file, self.source, self.found.run
        run(lambda: check_app_name(file.name, source))
        run(lambda: check_label(file.user, "user", source))
        run(lambda: check_queue_name(file.queue, "queue", source))
        for device in run(lambda: file.estimate.speed) or ():
            run(check_label, device, "device type in estimate.speed", source)
        arguments = (*(run(lambda: file.arguments) or ()), *self._names_left_out("arguments"))
        searched = run(lambda: self.searched) or ()
        for name in (*arguments, *searched):
            run(self._check_parameter, name)
        for name in searched:
            if name in arguments:
                self.found.add(self._error("an argument is also a hyper-parameter", "keep it in one of the two", name))

    def _check_parameter(self, name: str) -> None:
        check_parameter_name(name, self.source)
        if name in GIVEN_BY_APP_MASTER:
            remedy = f"the key {GIVEN_BY_APP_MASTER[name]} of the group file sets it"
            raise self._error("no argument or hyper-parameter can be called", remedy, name)

    def _check_command(self) -> None:
        """A command uses each parameter that it is given, and every placeholder has a value in every job."""
        if not self.has_command:
            return
        command, searched = self.file.command, self.searched
        parameters = (*self.file.arguments, *self._names_left_out("arguments"), *searched)
        # A name misspelt in the command would be unused too, so that comes after.
        check_placeholders(command, (*parameters, *GIVEN_BY_APP_MASTER), self.source)
        used = placeholders(command)
        for name in parameters:
            if name not in used:
                remedy = f"write %{name}% where its value belongs"
                self.found.add(self._error("the command never uses a parameter", remedy, name))
        # A search space has a value for every job.
        sets = self.file.hyper_parameters or () if self._space is None else ()
        for name in searched:
            lacking = [i for i, row in enumerate(sets) if name not in row and not self._is_left_out(i, name)]
            if lacking:
                remedy = "a command's placeholders need a value in every set"
                self.found.add(self._error(f"hyper_parameters[{lacking[0]}] has no {name}", remedy))

    def _is_left_out(self, number: int, name: str) -> bool:
        """Whether it is unknown if a set has a hyper-parameter."""
        return any(("hyper_parameters", number, *key) in self._left_out for key in ((), (name,)))

    def _check_tuner(self) -> None:
        check_settings(self.tuner, self.source)
        jobs, iterations = len(self.sets), self.iterations
        check_tuner(self.tuner, jobs=jobs, iterations=iterations, source=self.source)
        check_acts(self.tuner, jobs=jobs, iterations=iterations, source=self.source)


def draft_group(path: Path, found: FoundErrors) -> AppDraft:
    """Read a group file as far as it can be read, and check it; `found` collects its errors."""
    file, left_out = fit_parts(GroupFile, load_yaml(path, found), str(path), found)
    draft = AppDraft(file, str(path), folder=path.parent, found=found, left_out=left_out)
    draft.check()
    return draft


def load_group(path: Path) -> AppSpec:
    """Read a group file; whatever does not fit raises InputError."""
    return draft_group(path, FoundErrors()).app()


def build_app(file: GroupFile, source: str) -> AppSpec:
    """The app that a group file describes, without its code; `source` names the file in errors.

    Raises:
        InputError: Keys that contradict each other, or an unknown tuner, setting or placeholder.
    """
    draft = AppDraft(file, source, folder=None, found=FoundErrors())
    draft.check()
    return draft.app()
