"""A solver that measures its own time, for callers of the arbiter, which is pure and reads no clock."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rm_plugin.solvers.port import Solution, WinnerDetermination
from themis.bids import Market


class TimedSolver:
    """Wraps a solver. `first_s` and `rest_s` are the seconds of its last `solve` and `without`."""

    def __init__(self, solver: WinnerDetermination) -> None:
        self.name = solver.name
        self.first_s = 0.0
        self.rest_s = 0.0
        self._solver = solver

    def solve(self, market: Market, time_limit_s: float) -> Solution:
        """See `WinnerDetermination`."""
        began_s = time.perf_counter()
        try:
            return self._solver.solve(market, time_limit_s)
        finally:
            self.first_s = time.perf_counter() - began_s

    def without(self, market: Market, app_ids: Sequence[str], time_limit_s: float) -> Mapping[str, Solution]:
        """See `WinnerDetermination`."""
        began_s = time.perf_counter()
        try:
            return self._solver.without(market, app_ids, time_limit_s)
        finally:
            self.rest_s = time.perf_counter() - began_s
