"""What a simulated run leaves: how each app fared, what each round decided, and counts over the whole."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from themis.values import Value


class AppOutcome(Value, frozen=True, kw_only=True):
    """How one app fared. Times are on the run's clock, which begins at 0.

    Attributes:
        rho: Finish-time fairness at its end by the name of each definition.
        bound: The least rho (definition `themis`) that any policy could have given it (fairness-study.md, 2.5).
        gpu_time_s: GPU seconds that it held leases.
        running_gpu_s: GPU seconds of these in which its jobs made iterations.
        ideal_gpu_s: Its work, in GPU seconds at S = 1, as far as the search ran it.
        placement_score: Mean of 1/S over the GPU time in which its jobs ran; 1.0 for one that never ran.
        restarts: Times that a job began anew after it had run before: resizes, moves, lost machines.
        lost_gpu_s: GPU seconds of work at S = 1 that were done and lost.
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
        """Seconds from submission to end."""
        return self.ended_at_s - self.submitted_at_s

    @property
    def queueing_s(self) -> float:
        """Seconds from submission to the first GPU."""
        return (self.ended_at_s if self.first_gpu_at_s is None else self.first_gpu_at_s) - self.submitted_at_s


class BidRecord(Value, frozen=True, kw_only=True):
    """An app's bid in short: how many rows, what nothing and the best row are worth to it."""

    rows: int
    rows_dropped: int
    empty_value: float
    best_value: float


class RoundRecord(Value, frozen=True, kw_only=True):
    """One round, as `--explain` and `--record` tell it. GPUs are counts by machine.

    Attributes:
        reasons: Why there was a round.
        free: GPUs on offer, those up for renewal included.
        renewable: GPUs up for renewal, by app.
        kept: GPUs that go on whatever the round decides, by app.
        rho: What the apps told, worst first.
        demand_gpus: What they could use more.
        asked: Apps that were offered the free GPUs, worst first.
        bids: Their bids, those that were refused left out.
        refused: Why a report or a bid was refused, by app.
        proportional: What the auction gave them before payments.
        shares: c_i, the share that each keeps.
        granted: What the policy itself granted: by auction after payments, or by its own rule.
        leftovers: What came as leftovers.
        lease_end_s: When the leases granted in it end that began with it.
        later_ends_s: When the last lease granted in it ends, by app, where that is later: a staggered lease begins
            with the end of the one that it follows.
        status: How the auction was solved; empty when there was none.
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


class Counts(msgspec.Struct, kw_only=True):
    """Sums over all rounds of a run, kept also where the rounds themselves are not. Mutable, but part of a record.

    `declined` are moments at which round after round only granted what was given straight back.
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

    `leased_share` and `running_share` are of the cluster's GPU time over the makespan. `wall_s` and
    `peak_memory_mb` are of this machine and differ from run to run; nothing else does.
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
