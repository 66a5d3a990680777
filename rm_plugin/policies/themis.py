"""The policy `themis`: the apps furthest from fair bid, an auction with hidden payments decides, leftovers follow."""

from __future__ import annotations

import math

from rm_plugin.arbiter.leftovers import share_leftovers
from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.arbiter.rounding import keep_shares
from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.demands import capacity_after, claims_of, gangs_of, unmet_claims
from themis.apps import Slowdown
from themis.bids import Market, PlacedGang, RhoOf


class ThemisPolicy:
    """Pseudocode 1 of the paper (NSDI'20, section 3.3), with leftovers that keep the cluster busy."""

    name = "themis"
    rho_of = RhoOf.WANTING_APPS

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Ask the worst apps to bid, then solve their market, then grant."""
        if snapshot.bids is None:
            return AskBids(worst_apps(snapshot))
        if snapshot.outcome is None:
            return SolveAuction(market_of(snapshot))
        won = kept_gangs(snapshot)
        if snapshot.free.gpus == sum(gang.gpus.gpus for gangs in won.values() for gang in gangs):
            return Decision(auction=won)
        claims = claims_of(snapshot, won)
        capacity = capacity_after(snapshot.machines, won)
        shared = share_leftovers(capacity, claims, child_seed(snapshot.seed, "leftovers"))
        return Decision(auction=won, leftovers=gangs_of(shared), unserved=unmet_claims(claims, shared))


def worst_apps(snapshot: RoundSnapshot) -> tuple[str, ...]:
    """The worst ceil((1 - f) N) apps by rho, at least one, worst first; N counts the active apps that answered.

    Apps that could use nothing more are not asked: an offer to them is wasted, and a place in the auction too. For
    example, with f = 0.8 and 12 apps the ceil(2.4) = 3 worst bid, of those that could use more.
    """
    # 1 - 0.8 is 0.19999999999999996: without the rounding five apps would count as fewer than one fifth of them.
    places = max(1, math.ceil(round((1.0 - snapshot.settings.f) * len(snapshot.answered), 9)))
    wanting = [(-report.rho, app_id) for app_id, report in snapshot.answered.items() if report.demands]
    return tuple([app_id for _, app_id in sorted(wanting)[:places]])


def market_of(snapshot: RoundSnapshot) -> Market:
    """The market of a round: its free machines and the bids that came."""
    bids = snapshot.bids or {}
    return Market(
        machines=tuple(machine for machine in snapshot.machines if machine.free),
        bids=tuple(bids[app_id] for app_id in sorted(bids)),
        empty_bundle=snapshot.settings.empty_bundle,
    )


def kept_gangs(snapshot: RoundSnapshot) -> dict[str, tuple[PlacedGang, ...]]:
    """The gangs that winners keep after their hidden payments."""
    if snapshot.outcome is None:
        return {}
    gangs = {app_id: win.gangs for app_id, win in snapshot.outcome.wins.items()}
    shares = snapshot.outcome.shares if snapshot.settings.payments else dict.fromkeys(gangs, 1.0)
    slowdowns = {app_id: _slowdown(snapshot, app_id) for app_id in gangs}
    seed = child_seed(snapshot.seed, "payments")
    demands = {app_id: snapshot.reports[app_id].demands for app_id in gangs}
    kept = keep_shares(gangs, shares, slowdowns, seed, snapshot.settings.rounding, demands)
    return {app_id: mine for app_id, mine in kept.items() if mine}


def _slowdown(snapshot: RoundSnapshot, app_id: str) -> Slowdown:
    # An app that bids has demands; like jobs share one S, and where they differ the first one's orders the gangs.
    return snapshot.reports[app_id].demands[0].slowdown
