"""What the knapsack cannot settle: HiGHS on the machines, but only over the rows that the proven bound leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rm_plugin.solvers.exact.rows import MarketArrays
from rm_plugin.solvers.port import Solution
from themis.bids import Bid, Market
from themis.choices import EmptyBundle


def solve_over(
    market: MarketArrays, rows: Sequence[int], skip: int, empty_bundle: EmptyBundle, time_limit_s: float
) -> tuple[Solution, Mapping[str, int]]:
    """The market's optimum over these rows alone.

    Returns:
        HiGHS's solution, and the row that each winner gets.
    """
    numbers: dict[str, list[int]] = {bid.app_id: [] for bid in market.bids}
    start = market.rows.row_start
    bidder = 0
    for row in sorted(rows):
        while row >= start[bidder + 1]:
            bidder += 1
        numbers[market.bids[bidder].app_id].append(row)
    bids = tuple(
        _with_rows(bid, [int(market.rows.index[row]) for row in numbers[bid.app_id]])
        for place, bid in enumerate(market.bids)
        if place != skip
    )
    reduced = Market(machines=market.machines, bids=bids, empty_bundle=empty_bundle)
    # Few auctions ever need it, and it takes long to import.
    from rm_plugin.solvers.highs import HighsSolver

    solution = HighsSolver().solve(reduced, time_limit_s)
    return solution, {app_id: numbers[app_id][win.row] for app_id, win in solution.wins.items()}


def _with_rows(bid: Bid, rows: Sequence[int]) -> Bid:
    return replace(bid, rows=tuple(bid.rows[row] for row in rows))
