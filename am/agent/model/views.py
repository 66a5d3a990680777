"""What the agent knows of its app: unfinished jobs, phases to come, gangs held. Values only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median_high

from msgspec import field

from am.tuners.port import Phase
from themis.apps import JobShape, Slowdown
from themis.bids import GangDemand, LossForecast
from themis.choices import BundleRule
from themis.cluster import Allocation, Level
from themis.errors import InputError
from themis.values import Value, remembered


class JobView(Value, frozen=True, dict=True, kw_only=True):
    """An unfinished job of the current phase: iterations left in it, serial seconds an iteration, S, shape.

    `forecast` is its loss to come, None while too little is known of it.
    """

    job_id: str
    iterations_left: int
    serial_iteration_s: float
    slowdown: Slowdown
    shape: JobShape
    forecast: LossForecast | None = None

    @property
    def serial_work_s(self) -> float:
        """Work left in the phase, in GPU seconds at S = 1."""
        return self.iterations_left * self.serial_iteration_s

    @remembered
    def demand(self) -> GangDemand:
        """What the job wants while it has no GPUs."""
        return GangDemand(
            job_id=self.job_id,
            min_gpus=max(self.shape.gpus_per_task, self.shape.demand_min_gpus),
            max_gpus=self.shape.demand_max_gpus,
            unit_gpus=self.shape.gpus_per_task,
            slowdown=self.slowdown,
            work_left_gpu_s=self.serial_work_s,
            forecast=self.forecast,
        )


class GangAt(Value, frozen=True):
    """GPUs that one job at a time runs on, and the level that they span.

    Over machines its GPUs lie together in units of `unit_gpus`, and only jobs whose tasks fit into such a unit can use
    them; 0 stands for: any task fits.
    """

    gpus: int
    level: Level
    unit_gpus: int = 0

    def holds_tasks_of(self, gpus_per_task: int) -> bool:
        """True when every task of so many GPUs finds them on one machine."""
        return self.level <= Level.MACHINE or self.unit_gpus % gpus_per_task == 0


class HeldGang(Value, frozen=True, dict=True, kw_only=True):
    """A gang that a job runs on, or will as soon as its GPUs are given back by others.

    `up` are those of its GPUs whose leases end with this round and are up for auction.
    """

    job_id: str
    gpus: Allocation
    level: Level
    up: Allocation = field(default_factory=Allocation)

    @property
    def renewable(self) -> bool:
        """True when the app must win the gang back, or a part of it, to keep it."""
        return bool(self.up)

    @remembered
    def at(self) -> GangAt:
        """The gang without its machines."""
        return gang_at(self.gpus, self.level)


def gang_at(gpus: Allocation, level: Level) -> GangAt:
    """GPUs that span a level, without their machines."""
    return GangAt(gpus.gpus, level, math.gcd(*(count for _, count in gpus)) if level > Level.MACHINE else 0)


class AppView(Value, frozen=True, dict=True, kw_only=True):
    """The app at one moment.

    `contention` is N_avg, the mean number of apps active over the app's life, of which `elapsed_s` are gone.
    `work_total_gpu_s` is B, the app's whole work at S = 1. `reference` stands in for the jobs of later phases: the
    median job by serial iteration time (the upper one of two, as in the paper's example). `restart_s` is what moving
    a running job costs.
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

    @remembered
    def kept(self) -> tuple[HeldGang, ...]:
        """Gangs whose leases go on."""
        return tuple([gang for gang in self.held if not gang.up.counts])

    @remembered
    def renewable(self) -> tuple[HeldGang, ...]:
        """Gangs whose leases end now; nearest first, then largest: the order in which the app would give up last."""
        mine = [gang for gang in self.held if gang.up.counts]
        if not mine:
            return ()
        return tuple(sorted(mine, key=lambda gang: (gang.level, -gang.gpus.gpus, gang.gpus.counts, gang.job_id)))


def median_job(jobs: tuple[JobView, ...]) -> JobView:
    """The job of median serial iteration time; no jobs raises InputError."""
    if not jobs:
        raise InputError("an app without jobs has no median job")
    middle = median_high(job.serial_iteration_s for job in jobs)
    return next(job for job in jobs if job.serial_iteration_s == middle)


class ClusterView(Value, frozen=True, dict=True, kw_only=True):
    """What the agent is told of the cluster: R_C, apps active now, the lease. In one round it is the same to all apps.

    `fitting_level` holds, for g = 1, 2, .., the nearest level at which g GPUs fit in the empty cluster; `rack_of` the
    rack of every machine.
    """

    cluster_gpus: int
    active_apps: int
    lease_s: float
    fitting_level: tuple[Level, ...] = field(default=())
    rack_of: Mapping[str, str] = field(default_factory=dict)
    rule: BundleRule = BundleRule.CONTINUATION

    @remembered
    def share_gpus(self) -> float:
        """The app's fair share R/N of the GPUs, which may be a fraction."""
        return self.cluster_gpus / max(1, self.active_apps)

    def nearest_level(self, gpus: int) -> Level:
        """The nearest level at which a gang of this size fits; a single GPU, or no table at all: SLOT."""
        if gpus <= 1 or not self.fitting_level:
            return Level.SLOT
        return self.fitting_level[min(gpus, len(self.fitting_level)) - 1]
