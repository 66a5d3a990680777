"""What a round is about: the snapshot that policies decide on, what they may ask for, and what they decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

from msgspec import field
from msgspec.structs import replace

from rm_plugin.arbiter.auction import AuctionOutcome
from rm_plugin.arbiter.contention import Contentions
from rm_plugin.arbiter.leftovers import AppDemand
from themis.apps import TaskResources
from themis.bids import AppReport, Bid, FreeMachine, Market, Offer, PlacedGang, RhoOf
from themis.choices import (
    Bidders,
    BidValues,
    EmptyBundle,
    GangPlacement,
    LateOrder,
    LeftoverOrder,
    Placer,
    Rounding,
    TenantOf,
)
from themis.cluster import Allocation, Cluster
from themis.errors import InputError
from themis.placement.free_capacity import SlotCounts
from themis.queues import NO_OWNER, ONE_QUEUE, AppOwner, Queues, Tenant
from themis.sums import sum_in_order
from themis.values import Value, cached_property


class RoundSettings(Value, frozen=True, kw_only=True):
    """The settings of a round; see docs/reference/configuration.md.

    `tenant_weights` has the tenants whose weight is not 1, by the name of the user, queue or app.
    """

    f: float = 0.8
    empty_bundle: EmptyBundle = EmptyBundle.FINITE
    rounding: Rounding = Rounding.PROBABILISTIC
    payments: bool = True
    tenant_of: TenantOf = TenantOf.USER
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    placer: Placer = Placer.COMPACT
    cap_demand: bool = False
    profiling_runs: bool = False
    alpha: float = 0.1
    late_order: LateOrder = LateOrder.SHORTEST
    bidders: Bidders = Bidders.WORST_RHO
    values: BidValues = BidValues.RHO
    leftovers: LeftoverOrder = LeftoverOrder.RANDOM
    gang_placement: GangPlacement = GangPlacement.BEST_FIT
    preemption_margin: float = 0.8
    queues: Queues = ONE_QUEUE

    OMITTED_AT_DEFAULT: ClassVar[Mapping[str, object]] = {
        "tenant_of": TenantOf.USER,
        "tenant_weights": {},
        "placer": Placer.COMPACT,
        "cap_demand": False,
        "profiling_runs": False,
        "alpha": 0.1,
        "late_order": LateOrder.SHORTEST,
        "bidders": Bidders.WORST_RHO,
        "values": BidValues.RHO,
        "leftovers": LeftoverOrder.RANDOM,
        "gang_placement": GangPlacement.BEST_FIT,
        "preemption_margin": 0.8,
        "queues": ONE_QUEUE,
    }
    """Fields that records leave out at their defaults."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.f <= 1.0:
            raise InputError("f must lie in 0 to 1", value=self.f)
        if not 0.0 <= self.alpha <= 1.0:
            raise InputError("alpha must lie in 0 to 1", value=self.alpha)
        if not 0.0 <= self.preemption_margin <= 1.0:
            raise InputError("the preemption margin must lie in 0 to 1", value=self.preemption_margin)
        if self.values is not BidValues.RHO and self.empty_bundle is EmptyBundle.LEXICOGRAPHIC:
            # An empty bundle of value 0 never ends: no number of seconds.
            raise InputError(
                f"bids are valued by {self.values} only if the empty bundle is finite", remedy="set empty_bundle finite"
            )
        for tenant, weight in self.tenant_weights.items():
            # False for NaN too.
            if not 0.0 < weight < math.inf:
                raise InputError(f"the weight of {tenant} must be a finite number above 0", value=weight)


NO_RESOURCES = TaskResources(memory_mb=0, vcores=0)
"""The resources of an app that does not state what its tasks need besides GPUs. Example: an app of a trace."""


class AppStanding(Value, frozen=True, kw_only=True):
    """An active app as the arbiter knows it when a round begins.

    It holds nothing that changes with time alone. So it is usually the same object from round to round.

    `renewable` are the GPUs whose leases end with this round, `kept` the others that it holds or has won.
    `renewable_slots` counts the renewable ones in each slot, by machine.
    `ended_gpu_s` is the GPU time that it had of leases that ended, `granted_at_s` when those began that it holds.
    `silent`: its app master does not answer now. `bound` are the (job, machine) pairs of its bound leases, whose
    jobs run until they end. `resources` is what each of its tasks requests besides GPUs.
    """

    app_id: str
    submitted_at_s: float
    ended_gpu_s: float = 0.0
    granted_at_s: tuple[float, ...] = ()
    kept: Allocation = field(default_factory=Allocation)
    renewable: Allocation = field(default_factory=Allocation)
    renewable_slots: SlotCounts = ()
    silent: bool = False
    owner: AppOwner = NO_OWNER
    bound: tuple[tuple[str, str], ...] = ()
    resources: TaskResources = NO_RESOURCES

    def attained_gpu_s(self, now_s: float) -> float:
        """GPU time that it had so far, leases that still run included."""
        return self.ended_gpu_s + sum_in_order([now_s - granted_s for granted_s in self.granted_at_s])


class RoundSnapshot(Value, frozen=True, dict=True, kw_only=True):
    """Everything a policy decides on. What was not asked for yet is None.

    The device types of `cluster` say how fast the reference job is on each; the demands of the reports say on which
    types each job can run, and how fast (`GangDemand.speeds`). `machines` are all of the cluster with their GPUs on
    offer, renewable ones included. `contentions` has N_avg and the weights of the apps. `ended_gpu_s` is the GPU time
    of apps that have ended, by tenant, if they were submitted after the tenant's oldest active app. `paused` are apps
    that are not active and may be again. `reports` and `bids` hold the apps that answered. `memory` is that of the last
    decision (`PolicyWithMemory`).
    """

    round_id: int
    now_s: float
    lease_s: float
    cluster: Cluster
    machines: tuple[FreeMachine, ...]
    apps: tuple[AppStanding, ...]
    settings: RoundSettings
    seed: int
    contentions: Contentions = field(default_factory=Contentions)
    ended_gpu_s: Mapping[Tenant, float] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    reports: Mapping[str, AppReport] = field(default_factory=dict)
    bids: Mapping[str, Bid] | None = None
    outcome: AuctionOutcome | None = None
    memory: Value | None = None

    @cached_property
    def free(self) -> Allocation:
        """GPUs on offer by machine, renewable ones included."""
        free = [(machine.machine_id, machine.free) for machine in self.machines if machine.free]
        return Allocation(tuple(sorted(free)))

    @cached_property
    def free_gpus(self) -> int:
        """The number of GPUs on offer. Every bid is compared with it, and `free` has a count for each machine."""
        return self.free.gpus

    def having(self, **answers: Any) -> RoundSnapshot:
        """The same round with `reports`, `bids` or an `outcome`."""
        later = replace(self, **answers)
        # Each step asks for these, and machines and apps stay the same.
        later.__dict__.update(free=self.free, _standings=self._standings)
        return later

    @cached_property
    def answered(self) -> Mapping[str, AppReport]:
        """The reports of the apps that are not silent, in the order of `apps`."""
        reports = self.reports
        return {app.app_id: reports[app.app_id] for app in self.apps if not app.silent and app.app_id in reports}

    def standing(self, app_id: str) -> AppStanding:
        """The standing of an app of this round."""
        return self._standings[app_id]

    @cached_property
    def _standings(self) -> Mapping[str, AppStanding]:
        return {app.app_id: app for app in self.apps}

    @cached_property
    def _free_slots(self) -> Mapping[str, tuple[int, ...]]:
        return {machine.machine_id: machine.free_slots for machine in self.machines if machine.free}

    def offer_to(self, app_id: str, deadline_s: float) -> Offer:
        """What the round offers an app, to be answered by `deadline_s`: all free GPUs, and its N_avg."""
        return replace(self.common_offer(deadline_s), contention=self.contentions.of(app_id))

    def common_offer(self, deadline_s: float) -> Offer:
        """Return the offer that all apps have in common, without N_avg."""
        return Offer(
            round_id=self.round_id,
            now_s=self.now_s,
            deadline_s=deadline_s,
            lease_s=self.lease_s,
            free=self.free,
            slots=self._free_slots,
            active_apps=len(self.apps),
        )


@runtime_checkable
class RemembersRuns(Protocol):
    """The memory of a policy with profiling runs."""

    @property
    def runs(self) -> Mapping[str, str]:
        """The job by app of bound leases that end with their time although the job goes on."""
        ...


# ---- what a round asks of the world outside -------------------------------------------------------------------------


class AskReports(Value, frozen=True):
    """Ask these apps for their reports; answered with a mapping of reports by app."""

    app_ids: tuple[str, ...]
    rho_of: RhoOf = RhoOf.EVERY_APP


class AskBids(Value, frozen=True):
    """Offer the free GPUs to these apps; answered with a mapping of bids by app."""

    app_ids: tuple[str, ...]


class SolveAuction(Value, frozen=True):
    """Run the auction on this market; answered with its outcome."""

    market: Market


class Wait(Value, frozen=True, kw_only=True):
    """Why a job waits although a machine may be idle.

    Attributes:
        job_id: The job.
        reason: One sentence for users, without times: it is shown again later.
        machine_id: The machine that it waits for; empty if it waits for its turn.
        until_s: When it is expected to start there; None without a machine.
    """

    job_id: str
    reason: str
    machine_id: str = ""
    until_s: float | None = None

    def text(self, now_s: float) -> str:
        """The reason, and in how many seconds from now the job is expected to start."""
        if self.until_s is None:
            return self.reason
        ahead_s = self.until_s - now_s
        return f"{self.reason}; expected to start there {f'in {ahead_s:.4g} s' if ahead_s > 0.0 else 'now'}"


class Decision(Value, frozen=True, kw_only=True):
    """What a policy decides: gangs by app, those of the auction (or of the policy's own rule) and the leftovers.

    `unserved` is what apps could still use. A policy may leave it out if no GPU is left. A work-conserving policy
    (`PolicyTraits`) leaves no free GPU that may serve any of it. Another one says in `waits` what an app waits for,
    for the job that starts first. `memory` is what the policy wants to find in the snapshot of the next round
    (`PolicyWithMemory`).
    """

    auction: Mapping[str, tuple[PlacedGang, ...]] = field(default_factory=dict)
    leftovers: Mapping[str, tuple[PlacedGang, ...]] = field(default_factory=dict)
    unserved: tuple[AppDemand, ...] = ()
    memory: Value | None = None
    waits: Mapping[str, Wait] = field(default_factory=dict)

    def grants(self) -> dict[str, tuple[PlacedGang, ...]]:
        """All gangs by app, in order of app ids."""
        apps = sorted({*self.auction, *self.leftovers})
        return {app_id: (*self.auction.get(app_id, ()), *self.leftovers.get(app_id, ())) for app_id in apps}
