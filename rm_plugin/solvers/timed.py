"""A solver with a stopwatch: the arbiter is pure, so whoever wants to know how long an auction took asks here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rm_plugin.solvers.port import Solution, WinnerDetermination
from themis.bids import Market


class TimedSolver:
    """Any solver, and the seconds that its last `solve` (`first_s`) and `without` (`rest_s`) took."""

    def __init__(self, solver: WinnerDetermination) -> None:
        self.name = solver.name
        self.first_s = 0.0
        self.rest_s = 0.0
        self._solver = solver

    def solve(self, market: Market, time_limit_s: float) -> Solution:
        """As the solver does."""
        began_s = time.perf_counter()
        try:
            return self._solver.solve(market, time_limit_s)
        finally:
            self.first_s = time.perf_counter() - began_s

    def without(self, market: Market, app_ids: Sequence[str], time_limit_s: float) -> Mapping[str, Solution]:
        """As the solver does."""
        began_s = time.perf_counter()
        try:
            return self._solver.without(market, app_ids, time_limit_s)
        finally:
            self.rest_s = time.perf_counter() - began_s
