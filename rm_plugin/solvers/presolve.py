"""Presolve, the first step of the ladder: markets that need no search (docs/design/auction.md, "Presolve").

No contention: the best rows of all bidders find places together. No choice is worth more, so their places are the
proof of optimality. Without any one bidder the others still win their best rows, so no bidder pays. Example: on 8
free GPUs app a wants up to four and app b up to two. Both win their best rows and keep all of them. In runs of the
simulator 34 to 100 % of the auctions are of this kind.

One machine: all free GPUs are on one machine, and gangs fit wherever their number of GPUs does. That is a knapsack of
one resource, solved exactly by adding bidder after bidder. It saves a tenth of the CPU time of a run of 900 jobs on 256
GPUs, where two thirds of the markets are about the GPUs that one job left.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.market_arrays import MarketArrays
from rm_plugin.solvers.exact.problem_result import (
    ProblemResult,
    as_solution,
    log_values,
    make_solution,
    unplaced_wins,
)
from rm_plugin.solvers.exact.row_placement import Packed, RowPlacer
from rm_plugin.solvers.port import Solution
from themis.cluster import Level

_MAX_STEPS = 1_000_000
"""Limit on (rows + bidders) * GPUs of a one-machine market: some milliseconds per problem."""


class UncontendedMarket:
    """The answers to the N + 1 problems of a market without contention.

    Rows are in the order that decides ties. So of several best choices this is the one that the search would take.
    """

    def __init__(self, arrays: MarketArrays, packed: Packed) -> None:
        self._arrays = arrays
        self._packed = packed
        spans = pairwise(arrays.rows.row_start.tolist())
        self._row_of = {bidder: first for bidder, (first, end) in enumerate(spans) if end > first}
        self._logs = log_values(arrays, self._row_of)
        self._wins = unplaced_wins(arrays, self._row_of)

    def solution(self, without: str | None) -> Solution:
        """The best row of every bidder except `without`. Gangs have places only in the full market (None)."""
        if without is None:
            by_row = self._packed.gangs()
            gangs = {bidder: by_row.get(row, ()) for bidder, row in self._row_of.items()}
            return as_solution(self._arrays, ProblemResult(skip=-1, row_of=self._row_of, gangs=gangs), placed=True)
        logs, wins = self._logs.copy(), self._wins.copy()
        del logs[self._arrays.position[without]]
        wins.pop(without, None)
        return make_solution(logs, wins, others_keep=True)


class OneMachineMarket:
    """The answers to the N + 1 problems of a market in which only the number of GPUs counts.

    Args:
        arrays: The market.
        row_of: The winning row by bidder position, with all bidders.
        packed: Places of these rows.
    """

    def __init__(self, arrays: MarketArrays, row_of: dict[int, int], packed: Packed) -> None:
        self._arrays = arrays
        self._row_of = row_of
        self._packed = packed

    def solution(self, without: str | None) -> Solution:
        """The best choice without a bidder. Gangs have places only in the full market (None)."""
        if without is None:
            by_row = self._packed.gangs()
            gangs = {bidder: by_row.get(row, ()) for bidder, row in self._row_of.items()}
            return as_solution(self._arrays, ProblemResult(skip=-1, row_of=self._row_of, gangs=gangs), placed=True)
        skip = self._arrays.position[without]
        result = ProblemResult(skip=skip, row_of=_best_on_one_machine(self._arrays, skip))
        return as_solution(self._arrays, result, placed=False)


def presolve(
    arrays: MarketArrays, placer: RowPlacer, *, one_machine: bool
) -> UncontendedMarket | OneMachineMarket | None:
    """Answer a market without a search.

    Args:
        arrays: The market.
        placer: Places its rows.
        one_machine: Whether to try markets of one machine. Ties in them are decided as the search decides them, so
            solvers with another rule for ties leave them to their programme.

    Returns:
        None if the market is of neither kind.
    """
    return _uncontended(arrays, placer) or (_one_machine(arrays, placer) if one_machine else None)


def _uncontended(arrays: MarketArrays, placer: RowPlacer) -> UncontendedMarket | None:
    """Returns None if the best rows ask for more GPUs than are free, or if best fit finds no places for them."""
    start = arrays.rows.row_start
    best = start[:-1][start[1:] > start[:-1]]
    if arrays.rows.gpus[best].sum() > arrays.free_gpus:
        return None
    packed = placer.pack(best)
    return UncontendedMarket(arrays, packed) if isinstance(packed, Packed) else None


def _one_machine(arrays: MarketArrays, placer: RowPlacer) -> OneMachineMarket | None:
    """Returns None for several machines, gangs that ask for one of several slots, and very large markets."""
    if len(arrays.machines) != 1 or (arrays.rows.rows + len(arrays.bids)) * arrays.free_gpus > _MAX_STEPS:
        return None
    one_slot = sum([free > 0 for free in arrays.machines[0].free_slots]) == 1
    if not one_slot and any(kind.level is Level.SLOT for kind in arrays.kinds):
        return None
    row_of = _best_on_one_machine(arrays, -1)
    packed = placer.pack(np.array(list(row_of.values()), dtype=np.int32))
    return OneMachineMarket(arrays, row_of, packed) if isinstance(packed, Packed) else None


def _best_on_one_machine(arrays: MarketArrays, skip: int) -> dict[int, int]:
    rows = arrays.rows
    return _core.best_on_one_machine(rows.row_start, rows.gain, rows.gpus, rows.tie, arrays.free_gpus, skip)
