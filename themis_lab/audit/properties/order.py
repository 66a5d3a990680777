"""Order: the order of bidders, rows, gangs within rows and machines in a market has no effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rm_plugin.arbiter.auction import AuctionOutcome
from rm_plugin.solvers.kinds import count_kinds, has_one_rack
from themis.bids import BidRow, Market
from themis_lab.audit.case import SAME, Case
from themis_lab.audit.variants import shuffled

_SHUFFLES = 3


def order(case: Case) -> list[str] | None:
    """Three shuffled copies give the same bidders the same rows on the same machines, and the same shares."""
    if not case.solved:
        return None
    rng = case.rng("order")
    findings: list[str] = []
    for _ in range(_SHUFFLES):
        turned = shuffled(case.market, rng)
        findings = differences(case.market, case.outcome, turned, case.auction(turned))
        if findings:
            break
    return findings


def differences(market: Market, outcome: AuctionOutcome, other_market: Market, other: AuctionOutcome) -> list[str]:
    """Return how two outcomes differ, apart from order."""
    rows, other_rows = rows_won(market, outcome), rows_won(other_market, other)
    if rows != other_rows:
        differing = sorted(app for app in {*rows, *other_rows} if rows.get(app) != other_rows.get(app))
        return [f"shuffled, {', '.join(differing)} win other rows"]
    findings = [
        f"shuffled, {app_id} wins the same row elsewhere"
        for app_id, win in outcome.wins.items()
        if Counter(win.gangs) != Counter(other.wins[app_id].gangs)
    ]
    return findings + [
        f"shuffled, {app_id} keeps {other.shares[app_id]!r} in place of {share!r}"
        for app_id, share in outcome.shares.items()
        if not abs(share - other.shares[app_id]) <= SAME
    ]


def rows_won(market: Market, outcome: AuctionOutcome) -> Mapping[str, tuple[object, ...]]:
    """The content of the rows won, without their positions in the bids.

    Rows with equal requests and values count as equal.
    """
    one_rack = has_one_rack(market.machines)
    return {
        bid.app_id: _content(bid.rows[outcome.wins[bid.app_id].row], one_rack=one_rack)
        for bid in market.bids
        if bid.app_id in outcome.wins
    }


def _content(row: BidRow, *, one_rack: bool) -> tuple[object, ...]:
    gangs = sorted(count_kinds(row.gangs, one_rack=one_rack).items())
    return (row.value, tuple(gangs), row.pinned, tuple(sorted(row.pinned_parts)))
