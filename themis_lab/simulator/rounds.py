"""Record a round, and add it to the counts of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rm_plugin.arbiter.rounds import RoundResult
from rm_plugin.solvers.port import SolveStatus
from themis.bids import Bid, PlacedGang
from themis.cluster import Allocation
from themis.leases import LeaseChange, LeaseChangeKind
from themis_lab.simulator.record import BidRecord, Counts, RoundRecord

Counted = Mapping[str, Mapping[str, int]]

_RENEWED = LeaseChangeKind.RENEWED


def count_round(counts: Counts, result: RoundResult, changes: Iterable[LeaseChange]) -> None:
    """Add a round to a run's counts."""
    decision, bids = result.decision, result.snapshot.bids or {}
    counts.rounds += 1
    counts.bids += len(bids)
    counts.empty_bids += len([bid for bid in bids.values() if not bid.rows])
    counts.bids_cut += len([bid for bid in bids.values() if bid.rows_dropped])
    counts.granted_gpus += _gpus(decision.auction.values())
    counts.leftover_gpus += _gpus(decision.leftovers.values())
    counts.renewed_gpus += len([change for change in changes if change.kind is _RENEWED])
    outcome = result.snapshot.outcome
    if outcome is not None and outcome.problems:
        counts.auctions += 1
        counts.auctions_unproven += outcome.status is not SolveStatus.OPTIMAL
        counts.wins += len(outcome.wins)
        counts.wins_to_nothing += sum(app_id not in decision.auction for app_id in outcome.wins)


def round_record(
    result: RoundResult,
    changes: Iterable[LeaseChange],
    reasons: tuple[str, ...],
    asked: tuple[str, ...],
    lease_end_s: float,
) -> RoundRecord:
    """Return a round's record, as `--explain` and `--record` show it.

    Args:
        result: The result of the round.
        changes: Its lease changes.
        reasons: The reasons for the round.
        asked: The apps that were offered the free GPUs.
        lease_end_s: The end of leases that begin with it.
    """
    snapshot, decision = result.snapshot, result.decision
    outcome = snapshot.outcome
    worst_first = sorted(snapshot.reports.values(), key=lambda report: (-report.rho, report.app_id))
    return RoundRecord(
        round_id=snapshot.round_id,
        now_s=snapshot.now_s,
        reasons=reasons,
        free=snapshot.free.by_machine(),
        renewable={app.app_id: app.renewable.by_machine() for app in snapshot.apps if app.renewable},
        kept={app.app_id: app.kept.by_machine() for app in snapshot.apps if app.kept},
        rho={report.app_id: report.rho for report in worst_first},
        demand_gpus={report.app_id: report.demand_gpus for report in worst_first},
        asked=asked,
        bids={app_id: _bid_record(bid) for app_id, bid in (snapshot.bids or {}).items()},
        proportional={} if outcome is None else {app: _machines(win.gangs) for app, win in outcome.wins.items()},
        shares={} if outcome is None else dict(outcome.shares),
        granted={app_id: _machines(gangs) for app_id, gangs in decision.auction.items()},
        leftovers={app_id: _machines(gangs) for app_id, gangs in decision.leftovers.items()},
        lease_end_s=lease_end_s,
        later_ends_s=_later_ends_s(changes, lease_end_s),
        refused=dict(result.refused),
        waits={app_id: wait.text(snapshot.now_s) for app_id, wait in decision.waits.items()},
        status="" if outcome is None or not outcome.problems else outcome.status.value,
        gap=0.0 if outcome is None or not outcome.problems else outcome.worst_gap,
    )


def _later_ends_s(changes: Iterable[LeaseChange], lease_end_s: float) -> dict[str, float]:
    ends_s: dict[str, float] = {}
    for change in changes:
        app_id, end_s = change.lease.app_id, change.lease.expires_at_s
        if change.kind in _GIVEN and end_s > ends_s.get(app_id, lease_end_s):
            ends_s[app_id] = end_s
    return ends_s


_GIVEN = (LeaseChangeKind.GRANTED, LeaseChangeKind.RESERVED, LeaseChangeKind.RENEWED)


def _bid_record(bid: Bid) -> BidRecord:
    best = max((row.value for row in bid.rows), default=bid.empty_value)
    return BidRecord(rows=len(bid.rows), rows_dropped=bid.rows_dropped, empty_value=bid.empty_value, best_value=best)


def _gpus(granted: Iterable[Sequence[PlacedGang]]) -> int:
    return sum(gang.gpus.gpus for gangs in granted for gang in gangs)


def _machines(gangs: Sequence[PlacedGang]) -> dict[str, int]:
    return Allocation.sum_of(gang.gpus for gang in gangs).by_machine()
