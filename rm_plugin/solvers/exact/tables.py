"""Markets whose rows all name machines: branch and bound on a linear relaxation, in the compiled core (`branch.c`).

How it proves what it finds: any prices of the machines' GPUs, and of cliques of rows that exclude each other, bound
every choice from above in whole numbers. A linear relaxation by floats supplies prices that bound well and tells where
to branch; what is left out is left out only where whole numbers show it to be worse than the best choice found.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.compiled import CompiledMarket
from rm_plugin.solvers.exact.found import Found, as_solution, rows_by_bidder
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

    def solution(self, without: str | None, deadline_s: float) -> Solution:
        """The best choice without a bidder (None: with all), within a time on the monotonic clock."""
        skip = -1 if without is None else self._position[without]
        choice = np.empty(len(self._arrays.bids), dtype=np.int32)
        status, value, bound, nodes = _core.best_of_tables(
            self._tables, skip, max(0.0, deadline_s - time.monotonic()), _MOST_NODES, _MOST_BYTES, choice
        )
        row_of = rows_by_bidder(choice)
        # Past its nodes or equals the search may know all the same that nothing is worth more.
        gap = max((bound - value) / self._arrays.unit, SMALLEST_GAP) if bound > value else 0.0
        found = Found(skip=skip, row_of=row_of, gap=gap, gangs=dict.fromkeys(row_of, ()), states=nodes)
        if status == _TOO_WIDE and time.monotonic() < deadline_s:
            return self._or_better(found, value, deadline_s)
        return as_solution(self._arrays, found, placed=skip < 0)

    def _or_better(self, mine: Found, value: int, deadline_s: float) -> Solution:
        """What the knapsack and HiGHS find in the time that is left, unless the choice found here is worth more.

        What both have proven holds for either choice; of those worth the same the knapsack knows which to take.
        """
        if self._compiled is None:
            self._compiled = CompiledMarket(self._market)
        other = solve_problem(self._compiled, mine.skip, deadline_s)
        other_value, unit = self._compiled.value(other.row_of), self._arrays.unit
        arrays, best = (self._compiled.arrays, other) if other_value >= value else (self._arrays, mine)
        gap = 0.0
        if min(mine.gap, other.gap) > 0.0:
            bound = min(value + mine.gap * unit, other_value + other.gap * unit)
            gap = max((bound - max(value, other_value)) / unit, SMALLEST_GAP)
        both = replace(best, gap=gap, states=mine.states + other.states, fallback=other.fallback)
        return as_solution(arrays, both, placed=mine.skip < 0)
