"""Hidden payments: the share c_i of its win that a bidder keeps (NSDI'20, section 3.3.1)."""

from __future__ import annotations

import math

from rm_plugin.solvers.port import Solution, SolveStatus, Win
from themis.bids import Bid, Market
from themis.errors import InvariantError

NOISE = 1e-6
"""How far c_i may exceed 1 by float rounding. More is a defect if both solves are optimal."""


def kept_share(market: Market, full: Solution, without: Solution, app_id: str) -> float:
    """Return c_i: the product of the others' values in the full market, divided by that without bidder i.

    Example: with bidder i, the two others reach values 0.5 and 0.8. Without it they reach 0.5 and 1.0. So
    c_i = 0.4 / 0.5 = 0.8: i keeps 80 % of its win.

    Computed in logs. Special cases:

    - A bidder that won nothing keeps all (c_i = 1): without it nothing changes.
    - If fewer of the others have a positive value because of i (`lexicographic` only), the products run over bidders
      with a positive value in both markets, the finite part. It may exceed 1 and is cut to 1.
    - If a solve hit its time limit or its licence and c_i exceeds 1, the full market's choice without i is the better
      answer to the second problem, so c_i is 1.
    - If the answer without i is worth more than the full market's choice although i wins nothing, the loss of the
      others is unknown, and i keeps all.

    Args:
        market: The full market.
        full: Its solution.
        without: The solution of `market.without(app_id)`.
        app_id: Bidder i.

    Returns:
        c_i in [0, 1].

    Raises:
        InvariantError: c_i exceeds 1 by more than float noise although both solves are optimal.
    """
    if app_id not in full.wins or without.others_keep:
        return 1.0
    if full.status is not SolveStatus.OPTIMAL and _is_better(market, without, full, app_id):
        return 1.0
    changed = _changed_values(market, full, without, app_id)
    finite_part_only = sum([value > 0 for value, _ in changed]) < sum([value > 0 for _, value in changed])
    logs = [_logs(*values) for values in changed if min(values) > 0 or not finite_part_only]
    log_share = math.fsum([with_i - without_i for with_i, without_i in logs])
    exact = full.status is without.status is SolveStatus.OPTIMAL and not finite_part_only
    if exact and log_share > NOISE:
        raise InvariantError(f"the kept share of {app_id} passes 1", value=math.exp(log_share))
    return math.exp(min(0.0, log_share))


def _is_better(market: Market, without: Solution, full: Solution, app_id: str) -> bool:
    """Whether an answer without bidder i, as a choice where i wins nothing, beats the full market's choice."""
    empty = next(bid.empty_value for bid in market.bids if bid.app_id == app_id)
    positive = without.positive + (empty > 0)
    if positive != full.positive:
        return positive > full.positive
    return without.log_objective + _logs(empty)[0] > full.log_objective + NOISE


def _changed_values(market: Market, full: Solution, without: Solution, app_id: str) -> list[tuple[float, float]]:
    """The others' values in the full market and without bidder i, if they differ: equal ones cancel out."""
    before, after = full.wins, without.wins
    others = {winner for winner, win in before.items() if (other := after.get(winner)) is None or other.row != win.row}
    others.update([winner for winner in after if winner not in before])
    others.discard(app_id)
    # Usually no win changes, and no bid is looked up.
    if not others:
        return []
    values = [
        (_value(bid, before.get(bid.app_id)), _value(bid, after.get(bid.app_id)))
        for bid in market.bids
        if bid.app_id in others
    ]
    return [(one, other) for one, other in values if one != other]


def _value(bid: Bid, win: Win | None) -> float:
    return bid.empty_value if win is None else bid.rows[win.row].value


def _logs(*values: float) -> tuple[float, ...]:
    """Logs; 0 for a value of 0, which no product counts."""
    return tuple([math.log(value) if value > 0 else 0.0 for value in values])
