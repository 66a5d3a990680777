"""Bids and the market they meet in: gangs, rows, offers, reports and markets (docs/design/valuation.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum

from msgspec import field

from themis.apps import CRUDE_SLOWDOWN, Slowdown
from themis.choices import EmptyBundle
from themis.cluster import Allocation, Level
from themis.errors import InputError
from themis.speeds import SAME_SPEED, Speeds
from themis.values import Value, cached_property


class GangRequest(Value, frozen=True, order=True):
    """`count` gangs of `gpus` GPUs, each gang `within` one slot, machine, rack or anywhere in the cluster.

    GPUs come in units of `unit_gpus` (the GPUs of one task) that never span machines; `unit_gpus` divides `gpus`. All
    GPUs of a gang have one device type: `device`, or any one type if that is empty.
    """

    gpus: int
    within: Level
    count: int = 1
    unit_gpus: int = 1
    device: str = ""

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.count < 1:
            raise InputError("a gang needs at least one GPU and a count of one", value=(self.gpus, self.count))
        if self.unit_gpus < 1 or self.gpus % self.unit_gpus:
            raise InputError("unit_gpus must divide the gang's gpus", value=(self.gpus, self.unit_gpus))

    @property
    def total_gpus(self) -> int:
        """GPUs of all `count` gangs."""
        return self.gpus * self.count


class BidRow(Value, frozen=True, kw_only=True):
    """One row of a bid: a bundle on top of what the app keeps, and its value 1/rho.

    The bundle is `gangs` anywhere they fit, plus `pinned` GPUs on named machines: those that top up a gang that the
    app keeps there, or that it holds there and would renew in place. An explicit row names machines only.
    `pinned_gangs` says which pinned GPUs belong together, so that payments keep or take them together; without it
    those of one machine do.

    For example, an app renews a gang of two GPUs on m0 in place and asks for a gang of four on any one machine:

        >>> row = BidRow(value=0.8, gangs=(GangRequest(4, Level.MACHINE),), pinned=Allocation.of({"m0": 2}))
        >>> row.gpus
        6
    """

    value: float
    gangs: tuple[GangRequest, ...] = ()
    pinned: Allocation = field(default_factory=Allocation)
    pinned_gangs: tuple[Allocation, ...] = ()

    def __post_init__(self) -> None:
        # False for NaN too. A round makes a hundred of these: most have one gang and nothing pinned.
        if not 0.0 < self.value < math.inf:
            raise InputError("the value of a bid row must be a positive number", value=self.value)
        if not self.gangs and not self.pinned:
            raise InputError("a bid row needs gangs or pinned GPUs", value=self.value)
        if self.pinned_gangs:
            self._check_pinned_gangs(self.pinned_gangs)

    def _check_pinned_gangs(self, gangs: tuple[Allocation, ...]) -> None:
        if Allocation.sum_of(gangs) != self.pinned:
            stated = [gang.by_machine() for gang in gangs]
            raise InputError("the pinned gangs must add up to the pinned GPUs", value=stated)
        if not all(gangs):
            # A payment draws gangs: one without GPUs would be given up in place of one that counts.
            stated = [gang.by_machine() for gang in gangs]
            raise InputError("a pinned gang needs a GPU", value=stated, remedy="leave gangs without GPUs out")

    @property
    def pinned_parts(self) -> tuple[Allocation, ...]:
        """Pinned GPUs that belong together: the pinned gangs, or else those of each machine."""
        return self.pinned_gangs or tuple(Allocation(((machine, count),)) for machine, count in self.pinned)

    @property
    def gpus(self) -> int:
        """GPUs that the row asks for."""
        return self.pinned.gpus + sum([gang.gpus * gang.count for gang in self.gangs])


class Bid(Value, frozen=True, kw_only=True):
    """An app's answer to an offer: the value of the empty bundle, and rows. An app wins at most one row.

    `rows_dropped` counts the rows that a cap left out, so that hitting it is never silent.

    Example: an app has rho 4 if it wins nothing, 2 with one GPU and 1 with two. It answers with `empty_value` 0.25, a
    row of one GPU of value 0.5, and a row of two of value 1.
    """

    app_id: str
    round_id: int
    empty_value: float
    rows: tuple[BidRow, ...]
    rows_dropped: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.empty_value < math.inf:
            raise InputError("the empty bundle's value must be a number of 0 or more", value=self.empty_value)


class Offer(Value, frozen=True, kw_only=True):
    """What a round offers: free GPUs by machine, those whose leases end with the round included.

    m0 with three free GPUs and two whose leases end has 5. `slots` holds the free GPUs of each slot by machine. Times
    are on the clock of the ResourceManager; the bid must be there by `deadline_s`.
    """

    round_id: int
    now_s: float
    deadline_s: float
    lease_s: float
    free: Allocation
    slots: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    contention: float = 1.0
    active_apps: int = 1


class FreeMachine(Value, frozen=True, dict=True, kw_only=True):
    """A machine as the auction sees it: free GPUs of each slot, all of one device type."""

    machine_id: str
    rack_id: str
    free_slots: tuple[int, ...]
    device: str = "gpu"

    @cached_property
    def free(self) -> int:
        """Free GPUs of the machine."""
        return sum(self.free_slots)


class Market(Value, frozen=True, kw_only=True):
    """All that winner determination needs: free machines and the bids on them."""

    machines: tuple[FreeMachine, ...]
    bids: tuple[Bid, ...]
    empty_bundle: EmptyBundle = EmptyBundle.FINITE

    def without(self, app_id: str) -> Market:
        """The same market without one bidder."""
        rest = tuple(bid for bid in self.bids if bid.app_id != app_id)
        return Market(machines=self.machines, bids=rest, empty_bundle=self.empty_bundle)

    @property
    def free(self) -> Allocation:
        """Free GPUs by machine."""
        return Allocation.of({machine.machine_id: machine.free for machine in self.machines})


class PlacedGang(Value, frozen=True, order=True):
    """A gang on concrete machines, with the level that it spans, and its slot if it was asked for in one.

    `device` is the device type of its GPUs if the gang was placed by type (see `themis.placement`), else empty.
    `job_id` binds it to a job of the app, which runs on it until the job ends, or the lease of a profiling run; if
    empty, the app chooses the job. `at_most_s` shortens its lease: a round decides on it after this many seconds. 0
    leaves it as long as others.
    """

    gpus: Allocation
    level: Level
    slot: int | None = None
    pinned: bool = False
    device: str = ""
    job_id: str = ""
    at_most_s: float = 0.0


class LossForecast(Value, frozen=True, kw_only=True):
    """A job's loss by iteration, loss(k) = floor + drop * (1 + k / scale) ** -power, and its present iteration.

    The form is that of SLAQ's curves of sublinear convergence. It is steepest at the beginning. For example, floor 0.1,
    drop 1, scale 10 and power 0.5 give a loss of 1.1 at iteration 0 and 0.6 at iteration 30.

    Attributes:
        floor: The loss that it approaches.
        drop: How far it falls in total, 0 or more; 0 if the loss no longer falls.
        scale: Iterations until the fall slows down, above 0.
        power: How fast it slows down, above 0.
        iteration: The job's present iteration.
        serial_iteration_s: Seconds per iteration on one GPU at S = 1.
    """

    floor: float
    drop: float
    scale: float
    power: float
    iteration: int
    serial_iteration_s: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.floor) and math.isfinite(self.drop) and self.drop >= 0.0):
            raise InputError("a forecast needs a finite floor and a drop of 0 or more", value=(self.floor, self.drop))
        # One is made for every job that runs and every round.
        if not (
            0.0 < self.scale < math.inf and 0.0 < self.power < math.inf and 0.0 < self.serial_iteration_s < math.inf
        ):
            shape = (self.scale, self.power, self.serial_iteration_s)
            raise InputError("a forecast's scale, power and seconds must be positive numbers", value=shape)
        if self.iteration < 0:
            raise InputError("a forecast's iteration must be 0 or more", value=self.iteration)

    def decrease(self, first: float, iterations: float) -> float:
        """Return how much the loss falls in `iterations` iterations, which may be a fraction, from `first` on.

        >>> curve = LossForecast(floor=0.1, drop=1.0, scale=10.0, power=0.5, iteration=0, serial_iteration_s=1.0)
        >>> curve.decrease(0.0, 30.0)
        0.5
        """
        return self.drop * (self._fall_left(first) - self._fall_left(first + iterations))

    def _fall_left(self, iteration: float) -> float:
        return math.pow(1.0 + iteration / self.scale, -self.power)


SAMPLE_FRACTIONS = (0.01, 0.02)
"""Shares of a job's iterations that its samples on a type run, as in the simulator of AlloX' authors."""


class SampleTimes(Value, frozen=True, kw_only=True):
    """How long two samples of a job took on one device of a type. The longer one contains the shorter.

    Attributes:
        device: The type.
        work_gpu_s: The work of each sample, the shorter first, in seconds of the reference GPU.
        seconds: How long each took.
        memory_mb: The most memory that the task had in use during the longer one; 0 if it was too short to be measured.
    """

    device: str
    work_gpu_s: tuple[float, float]
    seconds: tuple[float, float]
    memory_mb: float = 0.0

    def __post_init__(self) -> None:
        for name, (first, second) in (("work", self.work_gpu_s), ("times", self.seconds)):
            # False for NaN too.
            if not 0.0 < first < second < math.inf:
                raise InputError(f"the {name} of two samples must be positive and ascend", value=(first, second))
        if not 0.0 <= self.memory_mb < math.inf:
            raise InputError("the memory of a sample must be a number of 0 or more", value=self.memory_mb)


class GangDemand(Value, frozen=True, kw_only=True):
    """The unmet demand of one job: its smallest and largest gang, the unit, and S by level.

    Leftovers, and policies without bids, use it. `held` is the gang that the job runs on and could extend, if any.
    `faster_than` is the throughput g / S that an extension must exceed to recover the cost of its restart, in units of
    one reference GPU at S = 1; 0 without a held gang. `forecast` is the job's expected loss, None while it is unknown.
    `speeds` gives the device types on which the job can run, and its speed there. One entry means a demand for a type.
    `samples` has the types on which it ran long enough for two samples. `measured` are those on which its time was
    measured; on others its speed is as stated.
    """

    job_id: str
    min_gpus: int
    max_gpus: int
    unit_gpus: int = 1
    slowdown: Slowdown = CRUDE_SLOWDOWN
    work_left_gpu_s: float = 0.0
    held: Allocation = field(default_factory=Allocation)
    faster_than: float = 0.0
    forecast: LossForecast | None = None
    speeds: Speeds = SAME_SPEED
    samples: tuple[SampleTimes, ...] = ()
    measured: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Reports come from app masters, and policies divide by the unit: one bad report must not break a round.
        if self.unit_gpus < 1 or not 1 <= self.min_gpus <= self.max_gpus:
            bounds = (self.min_gpus, self.max_gpus, self.unit_gpus)
            raise InputError("a demand needs a unit and a smallest gang of at least one GPU", value=bounds)
        if not self.work_left_gpu_s >= 0.0:
            raise InputError("the work left must be a number of 0 or more", value=self.work_left_gpu_s)
        if not self.faster_than >= 0.0:
            raise InputError("the throughput to exceed must be a number of 0 or more", value=self.faster_than)


class PhaseLeft(Value, frozen=True, kw_only=True):
    """The work left in one phase of a search, at S = 1.

    Attributes:
        jobs: The jobs that still have to run in it.
        work_gpu_s: The work of all these jobs, in GPU seconds.
        longest_gpu_s: The work of the longest job, in GPU seconds.
        gang_gpus: The maximum GPUs that one of them can use.
    """

    jobs: int
    work_gpu_s: float
    longest_gpu_s: float
    gang_gpus: int = 1

    def __post_init__(self) -> None:
        if self.jobs < 1 or self.gang_gpus < 1:
            raise InputError("a phase needs at least one job of one GPU", value=(self.jobs, self.gang_gpus))
        if not (self.work_gpu_s >= 0.0 and self.longest_gpu_s >= 0.0):
            work = (self.work_gpu_s, self.longest_gpu_s)
            raise InputError("the work of a phase must be a number of 0 or more", value=work)

    def time_s(self, gpus: int) -> float:
        """Return the seconds on `gpus` GPUs (at least one) at S = 1: the longest job's, or the work's share.

        Example: four jobs of 100 GPU seconds on up to 2 GPUs each take 100 s on 4 GPUs, and 50 s on 8 or more.
        """
        together = self.work_gpu_s / min(gpus, self.jobs * self.gang_gpus)
        return max(together, self.longest_gpu_s / min(gpus, self.gang_gpus))


class RhoOf(StrEnum):
    """The apps whose rho a round asks for: no more than needed, since rho takes longest to compute."""

    EVERY_APP = "every app"
    APPS_WITH_DEMAND = "apps that could use more GPUs"
    NO_APP = "no app"

    def asks(self, demands: tuple[GangDemand, ...]) -> bool:
        """Whether an app with these demands must report its rho."""
        return self is _EVERY_APP or (self is _APPS_WITH_DEMAND and bool(demands))


_EVERY_APP, _APPS_WITH_DEMAND = RhoOf.EVERY_APP, RhoOf.APPS_WITH_DEMAND


class AppReport(Value, frozen=True, kw_only=True):
    """What an app answers when a round begins: rho with what it keeps, and the demand of its unfinished jobs.

    Attributes:
        app_id: The app.
        round_id: The round that asked.
        rho: Finish-time fairness with the GPUs that the app keeps. It and the two times are NaN if the round does not
            ask for them.
        t_shared_s: The time from the submission to the estimated end, in seconds.
        t_ideal_s: The time of the whole search on an exclusive 1/N_avg of the cluster, in seconds.
        demands: The GPUs that unfinished jobs could use beyond those they keep.
        phases_left: The work left of the whole search, the current phase first. An app without demands may leave it
            out if the round does not ask for its rho.
        restart_s: The cost of moving a running job, in seconds.
        provisional: Whether the work left rests on a guess, as the pace of a job is unknown.
    """

    app_id: str
    round_id: int
    rho: float = math.nan
    t_shared_s: float = math.nan
    t_ideal_s: float = math.nan
    demands: tuple[GangDemand, ...] = ()
    phases_left: tuple[PhaseLeft, ...] = ()
    restart_s: float = 0.0
    provisional: bool = False

    def __post_init__(self) -> None:
        if self.rho < 0.0:
            raise InputError("rho must be 0 or more", value=self.rho)
        if not self.restart_s >= 0.0:
            raise InputError("what a restart costs must be a number of 0 or more", value=self.restart_s)

    @property
    def work_left_gpu_s(self) -> float:
        """Work of the whole search that is still to do, later phases included, in GPU seconds at S = 1."""
        return math.fsum(phase.work_gpu_s for phase in self.phases_left)

    @property
    def demand_gpus(self) -> int:
        """The most GPUs that the app could use now."""
        return sum(demand.max_gpus for demand in self.demands)
