"""Markets in which everybody may have its best row: no choice is worth more, so the places of all are the proof."""

from __future__ import annotations

from itertools import pairwise

from rm_plugin.solvers.exact.found import Found, as_solution, logs_of, solution_of, unplaced_wins
from rm_plugin.solvers.exact.places import Packed, Places
from rm_plugin.solvers.exact.rows import MarketArrays
from rm_plugin.solvers.port import Solution


class UncontendedMarket:
    """The best row of every bidder that has one, in its places, for the N + 1 problems of a market.

    Rows are ordered as ties are decided, so of equal choices this one comes first with all bidders and without any one.
    """

    def __init__(self, arrays: MarketArrays, packed: Packed) -> None:
        self._arrays = arrays
        self._packed = packed
        self._position = {app_id: place for place, app_id in enumerate(arrays.app_ids)}
        spans = pairwise(arrays.rows.row_start.tolist())
        self._row_of = {bidder: first for bidder, (first, end) in enumerate(spans) if end > first}
        self._logs = logs_of(arrays, self._row_of)
        self._wins = unplaced_wins(arrays, self._row_of)

    def solution(self, without: str | None) -> Solution:
        """Everybody's best row, but for that of a bidder (None: with all); gangs find their places with all."""
        if without is None:
            by_row = self._packed.gangs()
            gangs = {bidder: by_row.get(row, ()) for bidder, row in self._row_of.items()}
            return as_solution(self._arrays, Found(skip=-1, row_of=self._row_of, gangs=gangs), placed=True)
        logs, wins = self._logs.copy(), self._wins.copy()
        del logs[self._position[without]]
        wins.pop(without, None)
        return solution_of(logs, wins, others_keep=True)


def uncontended(arrays: MarketArrays, places: Places) -> UncontendedMarket | None:
    """The market as one in which nobody loses anything to others; None where best fit finds no places for that."""
    start = arrays.rows.row_start
    best = start[:-1][start[1:] > start[:-1]]
    if arrays.rows.gpus[best].sum() > arrays.free_gpus:
        return None
    packed = places.pack(best)
    return UncontendedMarket(arrays, packed) if isinstance(packed, Packed) else None
