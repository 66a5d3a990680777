"""Scale: one bidder's values times a constant change only the objective, because the unit of 1/rho is arbitrary."""

from __future__ import annotations

import math

from themis.choices import EmptyBundle
from themis_lab.audit.case import SAME, Case, same, value_won
from themis_lab.audit.variants import scaled, with_bid

_FACTORS = (0.01, 3.0, 1000.0)


def scale(case: Case) -> list[str] | None:
    """The objective shifts by the log of the factor. Rows and shares stay, unless another choice has the same value.

    Only in finite markets: under `lexicographic` the factor affects which of the bidders with value 0 is served.
    """
    if not case.solved or not case.bids or case.market.empty_bundle is not EmptyBundle.FINITE:
        return None
    rng = case.rng("scale")
    app_id, factor = rng.choice(list(case.bids)), rng.choice(_FACTORS)
    market = with_bid(case.market, scaled(case.bids[app_id], factor))
    outcome = case.auction(market)
    what = f"with the values of {app_id} times {factor:g}"
    expected = case.outcome.log_objective + math.log(factor)
    if not same(outcome.log_objective, expected):
        return [f"{what} the objective is {outcome.log_objective!r}, not {expected!r}"]
    rows = {winner: win.row for winner, win in case.outcome.wins.items()}
    if rows != {winner: win.row for winner, win in outcome.wins.items()}:
        # Another choice is correct only if it had the same value before.
        before = math.fsum(math.log(value_won(bid, outcome)) for bid in case.bids.values())
        return [] if same(before, case.outcome.log_objective) else [f"{what} other rows win"]
    return [
        f"{what} {winner} keeps {outcome.shares[winner]!r} in place of {share!r}"
        for winner, share in case.outcome.shares.items()
        if not abs(share - outcome.shares[winner]) <= SAME * 10
    ]
