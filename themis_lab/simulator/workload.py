"""Workloads: apps with the true properties of their jobs, which the scheduler can only estimate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import ClassVar, Protocol

from msgspec import field

from rm_plugin.arbiter.round_values import NO_RESOURCES
from themis.apps import JobShape, JobSpec, Slowdown, TaskResources, TunerSpec
from themis.errors import InputError, UnknownNameError
from themis.queues import NO_OWNER, AppOwner
from themis.values import Value
from themis_lab.simulator.costs import A_CENTURY_S, Costs

MIN_ITERATION_S = 1e-15


class Curve(Protocol):
    """A job's loss by iteration."""

    def at(self, iteration: float) -> float:
        """Return the loss after `iteration` iterations."""
        ...


class LossCurve(Value, frozen=True, kw_only=True):
    """loss(k) = floor + drop * (1 + k / scale) ** -power, k iterations from the start.

    >>> LossCurve(floor=0.5, drop=2.0, scale=100.0).at(300)
    1.0
    """

    floor: float = 0.0
    drop: float = 1.0
    scale: float = 100.0
    power: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.floor) and 0.0 <= self.drop < math.inf and self.scale > 0.0 and self.power > 0.0):
            value = (self.floor, self.drop, self.scale, self.power)
            raise InputError("a loss needs a finite floor, a drop of 0 or more, a scale and a power", value=value)

    def at(self, iteration: float) -> float:
        """Return the loss after `iteration` iterations."""
        return self.floor + self.drop * math.pow(1.0 + iteration / self.scale, -self.power)


class JobTrace(Value, frozen=True, kw_only=True):
    """One training run: `iterations_total` iterations of `serial_iteration_s` seconds on one reference GPU at S = 1.

    `speed_by_device` is its own speed on device types, as in `JobSpec`.
    """

    job_id: str
    iterations_total: int
    serial_iteration_s: float
    slowdown: Slowdown
    shape: JobShape = field(default_factory=JobShape)
    curve: Curve = field(default_factory=LossCurve)
    speed_by_device: Mapping[str, float] = field(default_factory=dict)

    OMITTED_AT_DEFAULT: ClassVar[Mapping[str, object]] = {"speed_by_device": {}}

    @property
    def spec(self) -> JobSpec:
        """The job as its user would specify it."""
        return JobSpec(
            job_id=self.job_id,
            shape=self.shape,
            iterations_total=self.iterations_total,
            speed_by_device=self.speed_by_device,
        )

    def __post_init__(self) -> None:
        if self.iterations_total < 1 or not self.serial_iteration_s >= MIN_ITERATION_S:
            value = (self.job_id, self.iterations_total, self.serial_iteration_s)
            raise InputError("a job needs iterations, and each of them time: a femtosecond or more", value=value)
        if self.work_gpu_s > A_CENTURY_S:
            work = f"{self.work_gpu_s:.3g} GPU seconds in {self.job_id}"
            raise InputError("a job cannot have more work than a century of one GPU", value=work)

    @property
    def work_gpu_s(self) -> float:
        """The work of the whole run, in GPU seconds at S = 1."""
        return self.iterations_total * self.serial_iteration_s


class AppTrace(Value, frozen=True, kw_only=True):
    """An app: its arrival, its jobs and the tuner that searches them. `model` is for readers only.

    `startup_s` is the time from the app's arrival until its app master can answer the arbiter. `costs` are those of its
    jobs if they differ from the run's. `owner` is whose app it is, for policies that share among users. `resources` is
    what each task requests besides GPUs, for policies that count memory and cores.
    """

    name: str
    arrival_s: float
    jobs: tuple[JobTrace, ...]
    startup_s: float = 0.0
    costs: Costs | None = None
    tuner: TunerSpec = field(default_factory=lambda: TunerSpec(name="single"))
    model: str = ""
    owner: AppOwner = NO_OWNER
    resources: TaskResources = NO_RESOURCES

    OMITTED_AT_DEFAULT: ClassVar[Mapping[str, object]] = {"owner": NO_OWNER, "resources": NO_RESOURCES}

    def __post_init__(self) -> None:
        if not self.jobs:
            raise InputError("an app needs at least one job", value=self.name)
        if not self.arrival_s >= 0.0:
            raise InputError("an app cannot arrive before the start", value=(self.name, self.arrival_s))
        if self.arrival_s > A_CENTURY_S:
            raise InputError("an app cannot arrive more than a century later", value=(self.name, self.arrival_s))
        if not 0.0 <= self.startup_s <= A_CENTURY_S:
            what = "an app master must be up after it is started, within a century"
            raise InputError(what, value=(self.name, self.startup_s))
        if len({job.job_id for job in self.jobs}) < len(self.jobs):
            raise InputError("two jobs of an app share one id", value=self.name)

    @property
    def demand_max_gpus(self) -> int:
        """The maximum number of GPUs that all jobs together can use."""
        return sum(job.shape.demand_max_gpus for job in self.jobs)


class Workload(Value, frozen=True, kw_only=True):
    """Apps in order of arrival.

    Attributes:
        source: A sentence on their origin, and on what is assumed.
        gaps: Parts of a trace that are left out or replaced: how many, and why. Empty if there are none.
    """

    name: str
    apps: tuple[AppTrace, ...]
    source: str = ""
    gaps: str = ""

    def __post_init__(self) -> None:
        names = [app.name for app in self.apps]
        if len(set(names)) != len(names):
            raise InputError("two apps of a workload share one name", value=self.name)
        if list(self.apps) != sorted(self.apps, key=lambda app: app.arrival_s):
            raise InputError("the apps of a workload must be in order of arrival", value=self.name)


_MAX_NAMED = 12


def unknown_app(name: str, known: Iterable[str]) -> UnknownNameError:
    """Return the error for an unknown app, which names the first known ones.

    App names are usually numbers, so the most similar name is not a better guess.
    """
    names = list(known)
    more = len(names) - _MAX_NAMED
    error = UnknownNameError("app", name, names)
    error.remedy = f"known: {', '.join(names[:_MAX_NAMED])}" + (f" and {more} more" if more > 0 else "")
    return error
