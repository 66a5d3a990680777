"""Apps, jobs and tasks as their users specify them, and the slowdown of a job by locality level."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from msgspec import field

from themis.cluster import Level, check_speed
from themis.errors import InputError, UnknownNameError
from themis.values import Value, repr_without

HyperParameter = str | int | float | bool
Setting = str | int | float | bool

DEFAULT_PEER_WAIT_S = 600.0
"""See `AppSpec.peer_wait_s`. MapReduce waits as long for a task without progress."""

TENSORFLOW, PYTORCH, NO_FRAMEWORK = FRAMEWORKS = ("tensorflow", "pytorch", "none")
"""Values of `ProgramSpec.framework`."""


class Slowdown(Value, frozen=True):
    """S by locality level: the factor >= 1 by which placement slows an iteration down (NSDI'20, section 4.3.1).

    Example: with S = 1.3 across racks, an iteration on 4 GPUs in two racks takes 1.3 times as long as within a machine
    of S = 1. So the 4 GPUs do the work of 4 / 1.3 = 3.1.
    """

    slot: float
    machine: float
    rack: float
    cluster: float

    def __post_init__(self) -> None:
        factors = (self.slot, self.machine, self.rack, self.cluster)
        if any(not factor >= 1.0 for factor in factors):
            raise InputError("a slowdown must be 1 or more at every level", value=factors)
        if list(factors) != sorted(factors):
            raise InputError("a slowdown cannot shrink as GPUs lie farther apart", value=factors)

    def at(self, level: Level) -> float:
        """Return S at one level."""
        return (self.slot, self.machine, self.rack, self.cluster)[level]


CRUDE_SLOWDOWN = Slowdown(1.0, 1.0, 1.1, 1.3)
"""S before any profile: a guess that a gang within one machine loses nothing."""


class JobShape(Value, frozen=True, kw_only=True):
    """How a job may be laid out: a gang of `min_tasks` to `tasks` tasks of `gpus_per_task` GPUs on one machine each."""

    tasks: int = 1
    min_tasks: int = 1
    gpus_per_task: int = 1

    def __post_init__(self) -> None:
        if self.gpus_per_task < 1 or self.min_tasks < 1:
            raise InputError("a job needs at least one task and one GPU a task", value=(self.tasks, self.gpus_per_task))
        if self.tasks < self.min_tasks:
            raise InputError("tasks must be at least min_tasks", value=(self.tasks, self.min_tasks))

    @property
    def demand_max_gpus(self) -> int:
        """The most GPUs the job can use (job_demand_max in the paper)."""
        return self.tasks * self.gpus_per_task

    @property
    def demand_min_gpus(self) -> int:
        """The fewest GPUs the job can start with: its smallest gang."""
        return self.min_tasks * self.gpus_per_task

    def usable_gpus(self, gpus: int) -> int:
        """How many of `gpus` GPUs the job can use: a multiple of gpus_per_task in its range, or 0 when too few."""
        tasks = gpus // self.gpus_per_task
        if tasks < self.min_tasks:
            return 0
        return (tasks if tasks < self.tasks else self.tasks) * self.gpus_per_task


class JobSpec(Value, frozen=True, kw_only=True):
    """One training run with fixed hyper-parameters. `speed_by_device` overrides the device type's own speed."""

    job_id: str
    hyper_parameters: Mapping[str, HyperParameter] = field(default_factory=dict)
    shape: JobShape = field(default_factory=JobShape)
    iterations_total: int
    speed_by_device: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_no_length(self) -> bool:
        """Whether the job runs until it exits 0. Then its one iteration says nothing about the steps in its log."""
        return self.iterations_total == 1

    def __post_init__(self) -> None:
        if self.iterations_total < 1:
            raise InputError("a job needs at least one iteration", value=self.iterations_total)
        for device, speed in self.speed_by_device.items():
            check_speed(f"the speed of job {self.job_id} on {device}", speed)


class TunerSpec(Value, frozen=True, kw_only=True):
    """The name of a tuner and its settings."""

    name: str
    settings: Mapping[str, Setting] = field(default_factory=dict)


class CodeArchive(Value, frozen=True, kw_only=True):
    """The packed code of an app.

    Attributes:
        sha256: Hash of the archive, in hexadecimal digits.
        content: The archive. Empty where only the hash is known: it is sent once, with the submission.
    """

    sha256: str
    content: bytes = b""

    __repr__ = repr_without("content")

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise InputError("the hash of the code is not a SHA-256", value=self.sha256)

    @classmethod
    def of(cls, content: bytes) -> CodeArchive:
        """Return the archive with these bytes."""
        return cls(sha256=hashlib.sha256(content).hexdigest(), content=content)


class ProgramSpec(Value, frozen=True, kw_only=True):
    """What a task runs: a program of the catalogue by `name`, or a shell `command` of the user's own.

    `arguments` go to every job unchanged; `environment` is added to each task's. `framework` says which variables
    describe a task's peers: one of FRAMEWORKS, or empty for those of TensorFlow and PyTorch. A command starts in a copy
    of `code`, if there is any. The folder of the interpreter `python`, an absolute path, comes first in its PATH.
    `requirements` is a file in `code`: its packages are installed where the task runs, before the command starts.
    """

    name: str = ""
    command: str = ""
    arguments: Mapping[str, HyperParameter] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    framework: str = ""
    code: CodeArchive | None = None
    python: str = ""
    requirements: str = ""

    def __post_init__(self) -> None:
        if bool(self.name) == bool(self.command):
            raise InputError(
                "a program needs either a name or a command", value=self.name or self.command, remedy="give exactly one"
            )
        if self.framework and self.framework not in FRAMEWORKS:
            raise UnknownNameError("framework", self.framework, FRAMEWORKS)
        if self.name and (self.code or self.python):
            remedy = "leave code and python out, or run a command of your own"
            raise InputError("a program of the catalogue takes no code or interpreter", value=self.name, remedy=remedy)
        if self.python and not self.python.startswith("/"):
            remedy = "give its absolute path, on the machines of the tasks"
            raise InputError("the interpreter is no absolute path", value=self.python, remedy=remedy)
        if self.requirements and self.code is None:
            remedy = "give code too: the folder that has the file"
            raise InputError("requirements is a file of the code that travels", value=self.requirements, remedy=remedy)


class TaskResources(Value, frozen=True, kw_only=True):
    """What one task needs beside its GPUs."""

    memory_mb: int = 1024
    vcores: int = 1


class Estimate(Value, frozen=True, kw_only=True):
    """What the user knows of a job's pace before it ran: serial iteration time in seconds, S by level."""

    serial_iteration_s: float | None = None
    slowdown: Slowdown | None = None


class MetricSpec(Value, frozen=True, kw_only=True):
    """The metric by which a search compares jobs.

    Attributes:
        name: The name that the program logs it under. Empty: the profiler recognises losses by their names.
        mode: `min` if lower is better, else `max`.
        regex: A regular expression that finds the value in a line, in the group `value` or the first group.
        wanted: False for `metric: none`: the jobs report no metric, and the app runs without one.
    """

    name: str = ""
    mode: str = "min"
    regex: str = ""
    wanted: bool = True

    @property
    def declared(self) -> bool:
        """Whether the group file gives a name or a regular expression."""
        return bool(self.name or self.regex)

    @property
    def title(self) -> str:
        """Its name for people: the declared one, `metric` if only a regular expression is declared, or `loss`."""
        return self.name or ("metric" if self.regex else "loss")

    @property
    def summary(self) -> str:
        """Its title and mode: `val_acc, higher is better`."""
        return f"{self.title}, {'higher' if self.mode == 'max' else 'lower'} is better"

    def as_loss(self, value: float) -> float:
        """Convert a value to a loss, where lower is better, or such a loss back to the value."""
        return -value if self.mode == "max" else value


class AppSpec(Value, frozen=True, kw_only=True):
    """One user's search for one model: one or more jobs, one tuner.

    `replay` marks an app whose jobs are replayed, not trained. `max_task_restarts` bounds the restarts of each job.
    `peer_wait_s`: once a task of a gang has succeeded, the others are stopped after this many seconds without progress.
    A job is stopped for good after `max_runtime_s` seconds on GPUs, and once it logs more than `max_iterations`
    iterations. For both, 0 is no limit. An empty `user` is the one who submits. `priority` orders the apps of a user.
    """

    name: str
    user: str = ""
    queue: str = "default"
    tuner: TunerSpec
    program: ProgramSpec
    jobs: tuple[JobSpec, ...]
    resources: TaskResources = field(default_factory=TaskResources)
    estimate: Estimate = field(default_factory=Estimate)
    checkpoint_every: int = 50
    checkpoint_uri: str = ""
    keep_checkpoints: int = 3
    max_task_restarts: int = 3
    seed: int = 0
    replay: bool = False
    peer_wait_s: float = DEFAULT_PEER_WAIT_S
    metric: MetricSpec = field(default_factory=MetricSpec)
    max_runtime_s: float = 0.0
    max_iterations: int = 0
    priority: int = 0

    def __post_init__(self) -> None:
        if not self.jobs:
            raise InputError("an app needs at least one job", value=self.name)
        ids = [job.job_id for job in self.jobs]
        if len(set(ids)) != len(ids):
            raise InputError("two jobs of an app share one id", value=self.name)

    @property
    def demand_max_gpus(self) -> int:
        """The most GPUs that all jobs of the app together can use (app_demand_max in the paper)."""
        return sum(job.shape.demand_max_gpus for job in self.jobs)
