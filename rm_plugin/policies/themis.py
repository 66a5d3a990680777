"""The policy `themis`: the apps furthest from fair bid, an auction with hidden payments decides, leftovers follow."""

from __future__ import annotations

from msgspec.structs import replace

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.arbiter.rounding import keep_shares
from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.auction_options import (
    LEFTOVERS,
    Spans,
    bidding_apps,
    spans_of,
    uses_due_dates,
    valued_bids,
)
from rm_plugin.policies.demands import app_demands_of, capacity_after, demands_left, gangs_of
from rm_plugin.policies.due_dates import DueDateMemory
from themis.apps import Slowdown
from themis.bids import Market, PlacedGang, RhoOf


class ThemisPolicy:
    """Pseudocode 1 of the paper (NSDI'20, section 3.3), with leftovers that keep the cluster busy.

    It has a memory only under options that go by due dates (`rm_plugin.policies.auction_options`).
    """

    name = "themis"
    rho_of = RhoOf.APPS_WITH_DEMAND
    memory_type = DueDateMemory

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Ask the worst apps to bid, then solve their market, then grant."""
        spans, memory = spans_of(snapshot) if uses_due_dates(snapshot.settings) else ({}, None)
        if snapshot.bids is None:
            return AskBids(bidding_apps(snapshot, spans))
        if snapshot.outcome is None:
            return SolveAuction(market_of(snapshot, spans))
        decision = _decision(snapshot)
        return decision if memory is None else replace(decision, memory=memory)


def _decision(snapshot: RoundSnapshot) -> Decision:
    """What the winners keep, and the leftovers."""
    won = kept_gangs(snapshot)
    if snapshot.free_gpus == sum(gang.gpus.gpus for gangs in won.values() for gang in gangs):
        return Decision(auction=won)
    app_demands = app_demands_of(snapshot, won)
    capacity = capacity_after(snapshot.machines, won)
    shared = LEFTOVERS[snapshot.settings.leftovers](snapshot, capacity, app_demands)
    return Decision(auction=won, leftovers=gangs_of(shared), unserved=demands_left(app_demands, shared))


def market_of(snapshot: RoundSnapshot, spans: Spans) -> Market:
    """The market of a round: its free machines and the bids that came."""
    return Market(
        machines=tuple(machine for machine in snapshot.machines if machine.free),
        bids=valued_bids(snapshot, spans),
        empty_bundle=snapshot.settings.empty_bundle,
    )


def kept_gangs(snapshot: RoundSnapshot) -> dict[str, tuple[PlacedGang, ...]]:
    """The gangs that winners keep after their hidden payments."""
    if snapshot.outcome is None:
        return {}
    gangs = {app_id: win.gangs for app_id, win in snapshot.outcome.wins.items()}
    shares = dict.fromkeys(gangs, 1.0)
    if snapshot.settings.payments:
        # The share of the others' product that an app leaves them, in units of its own value: values have weights.
        weight = snapshot.contentions.weight
        shares = {app_id: share ** (1.0 / weight(app_id)) for app_id, share in snapshot.outcome.shares.items()}
    slowdowns = {app_id: _slowdown(snapshot, app_id) for app_id in gangs}
    seed = child_seed(snapshot.seed, "payments")
    demands = {app_id: snapshot.reports[app_id].demands for app_id in gangs}
    kept = keep_shares(gangs, shares, slowdowns, seed, snapshot.settings.rounding, demands)
    return {app_id: mine for app_id, mine in kept.items() if mine}


def _slowdown(snapshot: RoundSnapshot, app_id: str) -> Slowdown:
    # An app that bids has demands; like jobs share one S, and where they differ the first one's orders the gangs.
    return snapshot.reports[app_id].demands[0].slowdown
