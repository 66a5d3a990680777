"""What the agent knows of its app and cluster: unfinished jobs, later phases, held gangs. Values only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median_high

from msgspec import field
from msgspec.structs import replace

from am.tuners.port import Phase
from themis.apps import JobShape, Slowdown
from themis.bids import GangDemand, LossForecast, SampleTimes
from themis.choices import BundleRule
from themis.cluster import Allocation, Level
from themis.errors import InputError
from themis.speeds import SAME_SPEED, Speeds
from themis.values import Value, cached_property


class JobView(Value, frozen=True, dict=True, kw_only=True):
    """An unfinished job of the current phase.

    Attributes:
        job_id: The job's id.
        iterations_left: Iterations left in the phase.
        serial_iteration_s: Seconds per iteration on one reference GPU at S = 1.
        slowdown: S by locality level.
        shape: Tasks and GPUs per task.
        speeds: The speed by device type.
        forecast: The loss to come; None while too few losses were observed.
        samples: Two samples on each device type on which it ran for long enough.
        measured: The device types on which its iteration time was measured.
        pace_guessed: Whether its iteration time is a guess: it has no estimate and reports none.
    """

    job_id: str
    iterations_left: int
    serial_iteration_s: float
    slowdown: Slowdown
    shape: JobShape
    forecast: LossForecast | None = None
    speeds: Speeds = SAME_SPEED
    samples: tuple[SampleTimes, ...] = ()
    measured: tuple[str, ...] = ()
    pace_guessed: bool = False

    @property
    def serial_work_s(self) -> float:
        """Work left in the phase, in seconds of a reference GPU at S = 1."""
        return self.iterations_left * self.serial_iteration_s

    def slowdown_on(self, level: Level, device: str) -> float:
        """S at a level divided by the speed on a device type; infinite if the job cannot run there."""
        if not self.speeds.by_type:
            return self.slowdown.at(level)
        speed = self.speeds.on(device)
        return self.slowdown.at(level) / speed if speed > 0.0 else math.inf

    def on_type(self, device: str) -> JobView:
        """The job in units of its speed on one device type, where it must be able to run.

        Example: 100 s an iteration on a reference GPU, and speed 4 on v100: there it takes 25 s at speed 1.
        """
        serial_iteration_s = self.serial_iteration_s / self.speeds.on(device)
        return replace(self, serial_iteration_s=serial_iteration_s, speeds=self.speeds.relative_to(device))

    @cached_property
    def demand(self) -> GangDemand:
        """The job's demand while it has no GPUs."""
        return GangDemand(
            job_id=self.job_id,
            min_gpus=max(self.shape.gpus_per_task, self.shape.demand_min_gpus),
            max_gpus=self.shape.demand_max_gpus,
            unit_gpus=self.shape.gpus_per_task,
            slowdown=self.slowdown,
            work_left_gpu_s=self.serial_work_s,
            forecast=self.forecast,
            speeds=self.speeds,
            samples=self.samples,
            measured=self.measured,
        )


class GangAt(Value, frozen=True):
    """A gang without its machines: GPUs that one job at a time runs on, and the level that they span.

    A gang over several machines comes in units of `unit_gpus`, each on one machine, and only jobs whose tasks fit into
    a unit can use it; 0 means that any task fits. Example: 8 GPUs as 4 + 4 on two machines have `unit_gpus` 4, so tasks
    of 1, 2 or 4 GPUs fit. `device` is the device type of its GPUs if the cluster has several, else empty.
    """

    gpus: int
    level: Level
    unit_gpus: int = 0
    device: str = ""

    def holds_tasks_of(self, gpus_per_task: int) -> bool:
        """Whether every task of `gpus_per_task` GPUs fits on one machine."""
        return self.level <= Level.MACHINE or self.unit_gpus % gpus_per_task == 0


class HeldGang(Value, frozen=True, dict=True, kw_only=True):
    """A gang that a job runs on, or starts on as soon as other apps have returned its GPUs.

    The leases of `renewable_gpus` end in this round: the app keeps these GPUs only if it wins them back. A `bound` gang
    is its job's until the job ends: it does not grow, and none of it is renewable.
    """

    job_id: str
    gpus: Allocation
    level: Level
    renewable_gpus: Allocation = field(default_factory=Allocation)
    device: str = ""
    bound: bool = False

    @property
    def renewable(self) -> bool:
        """Whether the app must win back the gang, or a part of it, to keep it."""
        return bool(self.renewable_gpus)

    @cached_property
    def at(self) -> GangAt:
        """The gang without its machines."""
        return gang_at(self.gpus, self.level, self.device)


def gang_at(gpus: Allocation, level: Level, device: str = "") -> GangAt:
    """GPUs that span a level, without their machines."""
    return GangAt(gpus.gpus, level, math.gcd(*(count for _, count in gpus)) if level > Level.MACHINE else 0, device)


class AppView(Value, frozen=True, dict=True, kw_only=True):
    """The app at one moment.

    Attributes:
        app_id: The app's id.
        elapsed_s: Seconds since it was submitted.
        contention: N_avg, the mean number of active apps over its life.
        jobs: The unfinished jobs of the current phase.
        later_phases: The phases after it.
        work_total_gpu_s: B, the app's whole work in GPU seconds at S = 1.
        demand_max_gpus: The most GPUs that its jobs can use at once.
        reference: Represents the jobs of later phases: the median job by serial iteration time (the upper one of two,
            as in the paper's example). None if the median of `jobs` does.
        held: Its gangs.
        restart_s: Seconds that moving a running job costs.
    """

    app_id: str
    elapsed_s: float
    contention: float = 1.0
    jobs: tuple[JobView, ...]
    later_phases: tuple[Phase, ...] = ()
    work_total_gpu_s: float
    demand_max_gpus: int
    reference: JobView | None = None
    held: tuple[HeldGang, ...] = ()
    restart_s: float = 0.0

    @property
    def median_job(self) -> JobView:
        """The reference job; without one, the median of the current jobs."""
        if self.reference is not None:
            return self.reference
        return median_job(self.jobs)

    @cached_property
    def kept(self) -> tuple[HeldGang, ...]:
        """Gangs whose leases continue."""
        return tuple([gang for gang in self.held if not gang.renewable_gpus.counts])

    @cached_property
    def renewable(self) -> tuple[HeldGang, ...]:
        """Gangs with renewable GPUs: tightest level first, then largest. The app gives up the last one first."""
        mine = [gang for gang in self.held if gang.renewable_gpus.counts]
        if not mine:
            return ()
        return tuple(sorted(mine, key=lambda gang: (gang.level, -gang.gpus.gpus, gang.gpus.counts, gang.job_id)))


def median_job(jobs: tuple[JobView, ...]) -> JobView:
    """The job of median serial iteration time; no jobs raises InputError."""
    if not jobs:
        raise InputError("an app without jobs has no median job")
    middle = median_high(job.serial_iteration_s for job in jobs)
    return next(job for job in jobs if job.serial_iteration_s == middle)


class TypeView(Value, frozen=True, kw_only=True):
    """The machines of one device type: their GPUs, and for g = 1, 2, .. the tightest level at which g of them fit."""

    device: str
    gpus: int
    fitting_level: tuple[Level, ...]


class ClusterView(Value, frozen=True, dict=True, kw_only=True):
    """The cluster as agents see it; the same for all apps of a round.

    Attributes:
        cluster_gpus: R_C, the GPUs of the available machines.
        active_apps: Apps active now.
        lease_s: Seconds of a lease.
        fitting_level: For g = 1, 2, .., the tightest level at which g GPUs fit into the empty cluster.
        rack_of: The rack of every machine.
        types: The device types, if there are several, else empty.
        device_of: The device type of every machine, if there are several types.
        rule: What becomes of an app after its lease.
    """

    cluster_gpus: int
    active_apps: int
    lease_s: float
    fitting_level: tuple[Level, ...] = field(default=())
    rack_of: Mapping[str, str] = field(default_factory=dict)
    types: tuple[TypeView, ...] = ()
    device_of: Mapping[str, str] = field(default_factory=dict)
    rule: BundleRule = BundleRule.CONTINUATION

    @cached_property
    def share_gpus(self) -> float:
        """The app's fair share R/N of the GPUs, which may be a fraction."""
        return self.cluster_gpus / max(1, self.active_apps)

    def nearest_level(self, gpus: int) -> Level:
        """The tightest level at which a gang of this size fits; SLOT for a single GPU or without `fitting_level`."""
        if gpus <= 1 or not self.fitting_level:
            return Level.SLOT
        return self.fitting_level[min(gpus, len(self.fitting_level)) - 1]

    def types_for(self, speeds: Speeds) -> tuple[TypeView, ...]:
        """The device types on which a job of these speeds can run, fastest first; ties: the smaller name."""
        able = [each for each in self.types if speeds.on(each.device) > 0.0]
        return tuple(sorted(able, key=lambda each: (-speeds.on(each.device), each.device)))

    def reference_gpus(self, gpus: float, speeds: Speeds) -> float:
        """`gpus` GPUs in units of a reference GPU: the sum of the speeds of a job on the fastest of them."""
        if not self.types or not speeds.by_type:
            return gpus * speeds.fastest
        units, left = 0.0, gpus
        for each in self.types_for(speeds):
            taken = min(left, each.gpus)
            units, left = units + taken * speeds.on(each.device), left - taken
        # If machines of its types are all lost, the app counts as it would on them.
        return units or gpus * speeds.highest
