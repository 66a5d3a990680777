"""The record of a simulated run: the result of each app, the decision of each round, and counts over the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from themis.values import Value


class AppOutcome(Value, frozen=True, kw_only=True):
    """The result of one app. Times are in seconds on the run's clock, which begins at 0.

    Attributes:
        rho: Finish-time fairness at its end by the name of each definition.
        bound: A lower bound on the rho (definition `themis`) that any policy can give it.
        gpu_time_s: GPU seconds that its leases lasted.
        running_gpu_s: GPU seconds of these in which its jobs ran iterations.
        ideal_gpu_s: The work that its search ran, in GPU seconds at S = 1.
        placement_score: Mean of 1/S over the GPU time in which its jobs ran; 1.0 if none ran.
        restarts: Restarts of its jobs: resizes, moves, lost machines.
        lost_gpu_s: Work that was done and lost, in GPU seconds at S = 1.
        contention: N_avg at its end.
    """

    name: str
    model: str
    jobs: int
    submitted_at_s: float
    first_gpu_at_s: float | None
    ended_at_s: float
    rho: Mapping[str, float]
    bound: float
    gpu_time_s: float
    running_gpu_s: float
    ideal_gpu_s: float
    placement_score: float
    restarts: int
    checkpoints: int
    lost_gpu_s: float
    contention: float

    @property
    def completion_s(self) -> float:
        """The seconds from submission to end."""
        return self.ended_at_s - self.submitted_at_s

    @property
    def queueing_s(self) -> float:
        """The seconds from submission to the first GPU."""
        return (self.ended_at_s if self.first_gpu_at_s is None else self.first_gpu_at_s) - self.submitted_at_s


class BidRecord(Value, frozen=True, kw_only=True):
    """A summary of an app's bid: the number of rows, and the values of the empty bundle and the best row."""

    rows: int
    rows_dropped: int
    empty_value: float
    best_value: float


class RoundRecord(Value, frozen=True, kw_only=True):
    """One round, as `--explain` and `--record` show it. GPUs are counts by machine.

    Attributes:
        reasons: The reasons for the round.
        free: GPUs on offer, renewable ones included.
        renewable: Renewable GPUs, by app.
        kept: GPUs whose leases continue whatever the round decides, by app.
        rho: The reported rho, worst first.
        demand_gpus: How many more GPUs they could use.
        asked: Apps that were offered the free GPUs, worst first.
        bids: Their bids, without refused ones.
        refused: Why a report or a bid was refused, by app.
        proportional: Their win in the auction before payments.
        shares: c_i, the share that each keeps.
        granted: The policy's own grants: by auction after payments, or by its own rule.
        leftovers: Grants of leftover GPUs.
        lease_end_s: The end of the granted leases that begin with this round.
        later_ends_s: The end of the last granted lease, by app, if it is later: a staggered lease begins when the
            one before it ends.
        status: How the auction was solved; empty without an auction.
        waits: Why apps wait although devices may be idle, for policies that say so.
    """

    round_id: int
    now_s: float
    reasons: tuple[str, ...]
    free: Mapping[str, int]
    renewable: Mapping[str, Mapping[str, int]]
    kept: Mapping[str, Mapping[str, int]]
    rho: Mapping[str, float]
    demand_gpus: Mapping[str, int]
    asked: tuple[str, ...] = ()
    bids: Mapping[str, BidRecord] = msgspec.field(default_factory=dict)
    proportional: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    shares: Mapping[str, float] = msgspec.field(default_factory=dict)
    granted: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    leftovers: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    lease_end_s: float = 0.0
    refused: Mapping[str, str] = msgspec.field(default_factory=dict)
    status: str = ""
    gap: float = 0.0
    later_ends_s: Mapping[str, float] = msgspec.field(default_factory=dict)
    waits: Mapping[str, str] = msgspec.field(default_factory=dict)

    OMITTED_AT_DEFAULT: ClassVar[Mapping[str, object]] = {"waits": {}}


class Counts(msgspec.Struct, kw_only=True):
    """Sums over all rounds of a run, kept even if the rounds themselves are not.

    `declined` counts moments at which repeated rounds granted only GPUs that apps gave back at once.
    """

    rounds: int = 0
    auctions: int = 0
    events: int = 0
    bids: int = 0
    empty_bids: int = 0
    bids_cut: int = 0
    wins: int = 0
    wins_to_nothing: int = 0
    declined: int = 0
    auctions_unproven: int = 0
    granted_gpus: int = 0
    renewed_gpus: int = 0
    leftover_gpus: int = 0
    bid_s: list[float] = msgspec.field(default_factory=list)
    auction_s: list[float] = msgspec.field(default_factory=list)
    checks: int = 0
    violations: list[str] = msgspec.field(default_factory=list)


class RunRecord(Value, frozen=True, kw_only=True):
    """A whole run. `makespan_s` runs from the first arrival to the last end.

    `leased_share` and `running_share` are shares of the cluster's GPU time over the makespan. `cluster_gpus` counts all
    devices, of which `cluster_cpu_nodes` are CPU nodes. Only `wall_s` and `peak_memory_mb` depend on the machine and
    differ between runs.
    """

    policy: str
    cluster: str
    cluster_gpus: int
    workload: str
    seed: int
    apps: tuple[AppOutcome, ...]
    counts: Counts
    makespan_s: float
    leased_share: float
    running_share: float
    rounds: tuple[RoundRecord, ...] = ()
    wall_s: float = 0.0
    peak_memory_mb: float = 0.0
    cluster_cpu_nodes: int = 0
