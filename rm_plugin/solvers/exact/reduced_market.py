"""Reduced-cost fixing: the market of the rows that can still be part of a better choice, for a mixed-integer solver.

At any prices a choice is worth the upper bound less the losses of its rows, or less. So a row that loses more than the
distance between the bound and the best choice found is in no better choice (docs/design/auction.md, "Prices").

Example: the bound is 1.00 and the best choice found has a log value of 0.97. A row that loses 0.05 at the prices is in
no choice above 0.95, so it is removed. A row that loses 0.02 remains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rm_plugin.solvers.exact.market_arrays import MarketArrays
from rm_plugin.solvers.port import Solution, Win
from themis.bids import Market


class ReducedMarket:
    """A market of some rows, and what its solutions mean in the original one.

    Args:
        market: The original market.
        arrays: Its arrays.
        rows: The rows that remain, as positions in `arrays.rows`.
        skip: Position of the bidder left out, -1 for none.
    """

    def __init__(self, market: Market, arrays: MarketArrays, rows: Sequence[int], skip: int) -> None:
        index_of: dict[str, list[int]] = {app_id: [] for app_id in arrays.app_ids}
        for row in rows:
            index_of[arrays.app_ids[arrays.rows.bidder[row]]].append(arrays.row_index[row])
        self._index_of: Mapping[str, Sequence[int]] = index_of
        bids = [
            replace(bid, rows=tuple(bid.rows[index] for index in index_of[bid.app_id]))
            for position, bid in enumerate(arrays.bids)
            if position != skip
        ]
        self.market = replace(market, bids=tuple(bids))

    def original(self, solution: Solution) -> Solution:
        """The solution with row numbers of the original bids."""
        wins = {
            app_id: Win(row=self._index_of[app_id][win.row], gangs=win.gangs) for app_id, win in solution.wins.items()
        }
        return replace(solution, wins=wins)
