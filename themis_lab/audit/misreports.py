"""The gain of a bidder that lies while all others report the truth.

Three definitions of an app's utility after its hidden payment. Here e is the value of its empty bundle, V the value of
its win by its true rows, and c its kept share:

- `scaled`: c V, and e if it wins nothing. The whole value scales with the kept share. The product that the auction
  maximises is then c V times a factor that the bidder cannot change. So no lie pays, for any valuations, as long as
  winner determination is exact (Cole, Gkatzelis and Goel 2013, the proof of truthfulness).
- `win`: e + c (V - e). Only the win scales; the GPUs held before stay.
- `rounded`: the expected value of the gangs that remain after rounding, each outcome valued by the app's own rows.

All three agree for valuations homogeneous of degree one if the app keeps no GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rm_plugin.solvers.port import Solution, SolveStatus
from themis.bids import Bid, PlacedGang
from themis.choices import EmptyBundle
from themis.values import Value
from themis_lab.audit.case import Case
from themis_lab.audit.lies import FalseBid, lies
from themis_lab.audit.rounding_odds import expected, kept_odds
from themis_lab.audit.valuation import BidValuer
from themis_lab.audit.variants import with_bid

MAX_LIARS = 4
"""Largest number of bidders of one market whose lies are tried; of more, this many are chosen at random."""

UTILITIES = ("scaled", "win", "rounded")


class Misreport(Value, frozen=True, kw_only=True):
    """A lie and its gain: utility over that of the truth, minus 1, for each definition of utility."""

    app_id: str
    lie: FalseBid
    gains: Mapping[str, float]


def misreports(case: Case) -> tuple[Misreport, ...]:
    """All lies of up to `MAX_LIARS` bidders of a finite market, without those whose problems were not solved."""
    return case.once("misreports", lambda: tuple(_all(case)))


def _all(case: Case) -> Iterator[Misreport]:
    if not case.solved or case.market.empty_bundle is not EmptyBundle.FINITE:
        return
    rng = case.rng("liars")
    liars = list(case.bids.values())
    if len(liars) > MAX_LIARS:
        liars = rng.sample(liars, MAX_LIARS)
    valuer = BidValuer(case)
    for bid in liars:
        yield from _of_one(case, bid, valuer)


def _of_one(case: Case, bid: Bid, valuer: BidValuer) -> Iterator[Misreport]:
    without = case.solve(case.market.without(bid.app_id))
    truth = case.outcome.wins.get(bid.app_id)
    honest = _utilities(case, bid, bid, without, valuer)
    if without.status is not SolveStatus.OPTIMAL or honest is None:
        return
    for lie in lies(bid, None if truth is None else truth.row, case.rng(f"lies of {bid.app_id}")):
        lying = _utilities(case, bid, lie.bid, without, valuer)
        if lying is not None:
            gains = {name: lying[name] / honest[name] - 1.0 for name in UTILITIES}
            yield Misreport(app_id=bid.app_id, lie=lie, gains=gains)


def _utilities(case: Case, truth: Bid, stated: Bid, without: Solution, valuer: BidValuer) -> dict[str, float] | None:
    """The utilities of an app that submits a bid, computed from its true rows.

    Returns None if the market was not solved.
    """
    market = with_bid(case.market, stated)
    full = case.solve(market)
    if full.status is not SolveStatus.OPTIMAL:
        return None
    win = full.wins.get(truth.app_id)
    empty = truth.empty_value
    if win is None:
        return dict.fromkeys(UTILITIES, empty)
    share = case.mechanism.share(market, full, without, truth.app_id)
    worth = valuer.value(truth, win.gangs)

    def value(gangs: Sequence[PlacedGang]) -> float:
        return valuer.value(truth, gangs)

    return {
        "scaled": share * worth,
        "win": empty + share * (worth - empty),
        "rounded": expected(kept_odds(win.gangs, share), value),
    }
