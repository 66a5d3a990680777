"""Hidden payments: the share c_i of its win that a bidder keeps (themis.md, section 3, step 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rm_plugin.solvers.port import Solution, SolveStatus
from themis.bids import Market
from themis.errors import InvariantError

NOISE = 1e-6
"""By how much c_i may pass 1 through rounding of floats; more, with optimal solves, is a defect."""


def kept_share(market: Market, full: Solution, without: Solution, app_id: str) -> float:
    """c_i = prod of the others' values in the full market / the same product in the market without bidder i.

    In logs. A bidder that won nothing keeps all (c_i = 1), as taking it away changes nothing. Where fewer of the others
    have a positive value because of i (`lexicographic` only), the products run over those with a positive value in
    both markets, the finite part (fairness-study.md, 2.7); it may pass 1 and is cut there. Where a solve hit its time
    limit or its licence, the full market's choice without i is the better answer to the second problem whenever c_i
    passes 1.

    Args:
        market: The full market.
        full: Its solution.
        without: The solution of `market.without(app_id)`.
        app_id: Bidder i.

    Returns:
        c_i in [0, 1].

    Raises:
        InvariantError: c_i passes 1 by more than float noise though both solves are optimal.
    """
    if app_id not in full.wins:
        return 1.0
    with_i = _others_logs(market, full, app_id)
    without_i = _others_logs(market, without, app_id)
    finite_part_only = len(with_i) < len(without_i)
    both = with_i.keys() & without_i.keys() if finite_part_only else with_i.keys() | without_i.keys()
    log_share = math.fsum(with_i.get(other, 0.0) - without_i.get(other, 0.0) for other in sorted(both))
    exact = full.status is without.status is SolveStatus.OPTIMAL and not finite_part_only
    if exact and log_share > NOISE:
        raise InvariantError(f"the kept share of {app_id} passes 1", value=math.exp(log_share))
    return math.exp(min(0.0, log_share))


def _others_logs(market: Market, solution: Solution, app_id: str) -> Mapping[str, float]:
    """Log value by bidder, without bidder i and without bidders whose value is 0."""
    values: dict[str, float] = {}
    for bid in market.bids:
        win = solution.wins.get(bid.app_id)
        values[bid.app_id] = bid.empty_value if win is None else bid.rows[win.row].value
    return {other: math.log(value) for other, value in values.items() if value > 0 and other != app_id}
