"""Markets whose rows all name machines: branch and bound on a linear relaxation, in the compiled core (`branch.c`).

How it proves what it finds: any prices of the machines' GPUs, and of cliques of rows that exclude each other, bound
every choice from above in whole numbers. A linear relaxation by floats supplies prices that bound well and tells where
to branch; what is left out is left out only where whole numbers show it to be worse than the best choice found.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import cached_property

import numpy as np

from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.compiled import CompiledMarket, OutOfTimeError
from rm_plugin.solvers.exact.found import Found, as_solution, gap_of, less_a_row, rows_by_bidder, value_of
from rm_plugin.solvers.exact.hasty import HastyMarket
from rm_plugin.solvers.exact.knapsack import undominated
from rm_plugin.solvers.exact.problem import solve_problem
from rm_plugin.solvers.exact.rows import MarketArrays
from rm_plugin.solvers.port import SMALLEST_GAP, Solution
from themis.bids import Market

_MOST_CONSTRAINTS = 600
"""Bidders and machines; the relaxation keeps the whole inverse of its basis, so a step takes their number squared."""
_MOST_NODES = 300_000
"""Nodes of a problem, past which the knapsack decides, and HiGHS where that does not. At 168 GPUs 10 to 150,000 do."""
_MOST_BYTES = 1 << 30
"""Of the nodes on the way to the one looked at: with 720 constraints, cliques counted, each keeps 4 MB."""
_TOO_WIDE = 2


def has_tables_only(arrays: MarketArrays) -> bool:
    """Whether a market is one of tables, and not too large for this method."""
    size = len(arrays.bids) + len(arrays.machines)
    return arrays.rows.rows > 0 and not arrays.kinds and size <= _MOST_CONSTRAINTS


class TableMarket:
    """One market of tables, and what its N + 1 problems share: the relaxation, its cliques and good choices."""

    def __init__(self, market: Market, arrays: MarketArrays) -> None:
        self._market = market
        rows = arrays.rows
        nothing_else = np.zeros((rows.rows, 0), dtype=np.int32)
        keep = undominated(rows, nothing_else, np.ones(len(rows.pin_gpus), dtype=np.bool_))
        self._arrays = replace(arrays, rows=rows.only(keep))
        rows = self._arrays.rows
        self._tables = _core.tables(
            arrays.unit,
            # Nobody wins what is found without a bidder, so its worth is all that counts. But where empty bundles are
            # worth nothing payments ask who has something then, which choices of the same worth may differ in.
            any(bid.empty_value == 0.0 for bid in arrays.bids),
            rows.row_start,
            rows.gain,
            rows.gpus,
            rows.tie,
            rows.pin_start,
            rows.pin_machine,
            rows.pin_gpus,
            np.array([machine.free for machine in arrays.machines], dtype=np.int32),
        )
        self._position = {bid.app_id: place for place, bid in enumerate(arrays.bids)}
        self._compiled: CompiledMarket | None = None
        self._full: tuple[MarketArrays, Found] | None = None

    def solution(self, without: str | None, deadline_s: float, last_s: float | None = None) -> Solution:
        """The best choice without a bidder (None: with all), within a time on the monotonic clock.

        Args:
            without: The bidder left out.
            deadline_s: When to stop.
            last_s: Until when a problem without a bidder may begin, where it shares its time with others; later it
                takes what the full market's choice leaves it.
        """
        skip = -1 if without is None else self._position[without]
        last_s = deadline_s if last_s is None else last_s
        if skip >= 0 and self._full is not None and time.monotonic() >= last_s:
            arrays, found = self._left_by_all(*self._full, skip)
        else:
            arrays, found = self._found(skip, deadline_s)
        if skip < 0:
            self._full = arrays, found
        return as_solution(arrays, found, placed=skip < 0)

    def _found(self, skip: int, deadline_s: float) -> tuple[MarketArrays, Found]:
        """What all ways together find in the time, and the rows that it names."""
        choice = np.empty(len(self._arrays.bids), dtype=np.int32)
        status, value, bound, nodes = _core.best_of_tables(
            self._tables, skip, max(0.0, deadline_s - time.monotonic()), _MOST_NODES, _MOST_BYTES, choice
        )
        row_of = rows_by_bidder(choice)
        # Past its nodes or equals the search may know all the same that nothing is worth more.
        gap = gap_of(self._arrays, row_of, bound)
        found = Found(skip=skip, row_of=row_of, gap=gap, gangs=dict.fromkeys(row_of, ()), states=nodes)
        if status == _TOO_WIDE and time.monotonic() < deadline_s:
            return self._or_better(found, value, deadline_s)
        return self._or_known(found) if gap > 0.0 else (self._arrays, found)

    def _or_known(self, mine: Found) -> tuple[MarketArrays, Found]:
        """Out of time: the choice by one price, or what the full market's choice leaves, if that is worth more.

        A relaxation that was cut short may bound less well than one price, or than what the full market knows.
        """
        known = [(self._arrays, mine), (self._arrays, self._hasty.found(mine.skip))]
        if mine.skip >= 0 and self._full is not None:
            known.append(self._left_by_all(*self._full, mine.skip))
        unit = self._arrays.unit
        bound = min(value_of(arrays, found.row_of) + math.ceil(found.gap * unit) for arrays, found in known)
        arrays, best = max(known, key=lambda each: value_of(each[0], each[1].row_of))
        return arrays, replace(best, gap=gap_of(arrays, best.row_of, bound), states=mine.states)

    def _left_by_all(self, arrays: MarketArrays, full: Found, skip: int) -> tuple[MarketArrays, Found]:
        return arrays, less_a_row(arrays, full, skip, self._hasty.bound(skip))

    @cached_property
    def _hasty(self) -> HastyMarket:
        return HastyMarket(self._arrays)

    def _or_better(self, mine: Found, value: int, deadline_s: float) -> tuple[MarketArrays, Found]:
        """What the knapsack and HiGHS find in the time that is left, unless the choice found here is worth more.

        What both have proven holds for either choice; of those worth the same the knapsack knows which to take.
        """
        if self._compiled is None:
            try:
                self._compiled = CompiledMarket(self._market, deadline_s=deadline_s)
            except OutOfTimeError:
                return self._or_known(mine) if mine.gap > 0.0 else (self._arrays, mine)
        other = solve_problem(self._compiled, mine.skip, deadline_s)
        other_value, unit = self._compiled.value(other.row_of), self._arrays.unit
        arrays, best = (self._compiled.arrays, other) if other_value >= value else (self._arrays, mine)
        gap = 0.0
        if min(mine.gap, other.gap) > 0.0:
            bound = min(value + mine.gap * unit, other_value + other.gap * unit)
            gap = max((bound - max(value, other_value)) / unit, SMALLEST_GAP)
        return arrays, replace(best, gap=gap, states=mine.states + other.states, fallback=other.fallback)
