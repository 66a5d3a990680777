"""Markets so small that no two bidders can win: the best row wins, and without its bidder the next one's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rm_plugin.solvers.exact.found import Found, as_solution
from rm_plugin.solvers.exact.places import Packed, Places
from rm_plugin.solvers.exact.rows import MarketArrays
from rm_plugin.solvers.port import Solution


class OneWinnerMarket:
    """The best row and the best one of any other bidder, for the N + 1 problems of a market.

    Args:
        arrays: The market.
        first: Position of the winner, and its row.
        places: Where the gangs of that row lie.
        second: Position of who wins without it, and its row; None where nobody does.
    """

    def __init__(
        self, arrays: MarketArrays, first: tuple[int, int], places: Packed, second: tuple[int, int] | None
    ) -> None:
        self._arrays = arrays
        self._first = first
        self._places = places
        self._second = second

    def solution(self, without: str | None) -> Solution:
        """Who wins without a bidder (None: with all); gangs find their places with all."""
        bidder, row = self._first
        if without is None:
            gangs = {bidder: self._places.gangs().get(row, ())}
            return as_solution(self._arrays, Found(skip=-1, row_of={bidder: row}, gangs=gangs), placed=True)
        skip = next(place for place, bid in enumerate(self._arrays.bids) if bid.app_id == without)
        row_of: Mapping[int, int] = {bidder: row}
        if skip == bidder:
            row_of = {} if self._second is None else dict([self._second])
        return as_solution(self._arrays, Found(skip=skip, row_of=row_of), placed=False)


def one_winner(arrays: MarketArrays, places: Places) -> OneWinnerMarket | None:
    """The market as one in which at most one bidder can win; None where two may, or best fit does not find places."""
    leading = arrays.leading
    if not leading.bidders or (leading.bidders > 1 and leading.least_gpus <= arrays.free_gpus):
        return None
    # Rows are best first within a bidder: ties are decided in the order that they are read in (`rows`).
    packed = places.pack(np.array([leading.first_row]))
    if not isinstance(packed, Packed):
        return None
    first = leading.first, leading.first_row
    if leading.second < 0:
        return OneWinnerMarket(arrays, first, packed, None)
    if not isinstance(places.pack(np.array([leading.second_row])), Packed):
        return None
    return OneWinnerMarket(arrays, first, packed, (leading.second, leading.second_row))
