"""The ladder: the steps that answer a winner determination, cheapest first, until one of them proves an optimum.

    1. Presolve    `presolve`          Every app wins its best row, or there is one machine: most markets of a run.
    2. Search      `exact`             Prices, a dynamic programme over the bidders, cuts, places as certificates.
    3. Programme   `highs`, `gurobi`   One mixed-integer programme over machines; after a search, of its open rows only.
    4. Best found                      The best choice of the steps before, with its gap. The status is TIME_LIMIT.

If device types matter (`kinds.has_types`), only step 3 is taken: presolve and search know one type.

The solver `exact` climbs all of them, with HiGHS as its programme. `highs` and `gurobi` skip the search. `brute_force`
takes no step of the ladder: it is the reference that the others are tested against.

Example, solver `exact`, two bidders and one machine of 4 GPUs. If each wants 2 GPUs at most, step 1 answers. If each
wants 4, step 2 finds the better of the two rows and its place. Step 3 is for markets in which the search keeps too
many states, or finds neither places nor a cut (docs/design/auction.md counts how often that happens).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from rm_plugin.solvers.bidders import check_market
from rm_plugin.solvers.exact.market_arrays import MarketArrays, read_market
from rm_plugin.solvers.exact.prepared_market import OutOfTimeError, PreparedMarket
from rm_plugin.solvers.exact.problem import solve_problem
from rm_plugin.solvers.exact.problem_result import SearchStatus, as_solution, no_winners
from rm_plugin.solvers.exact.reduced_market import ReducedMarket
from rm_plugin.solvers.exact.row_placement import RowPlacer
from rm_plugin.solvers.kinds import has_types
from rm_plugin.solvers.port import SMALLEST_GAP, Solution, SolveStatus, Win, WinnerDetermination
from rm_plugin.solvers.presolve import presolve
from themis.bids import Market


class Ladder:
    """Winner determination by the steps of this module.

    Args:
        name: The name that settings and outcomes use.
        programme: Makes the solver of step 3 when it is first needed.
        search: Whether step 2 is taken.
    """

    def __init__(self, name: str, programme: Callable[[], WinnerDetermination], *, search: bool) -> None:
        self.name = name
        self._make_programme = programme
        self._programme: WinnerDetermination | None = None
        self._has_search = search
        self._climb: _Climb | None = None
        self._unused_s = 0.0

    def solve(self, market: Market, time_limit_s: float) -> Solution:
        """Solve one market within `time_limit_s` seconds.

        Raises:
            InputError: Two bids of one app, or a finite market with an empty bundle worth 0.
        """
        deadline_s = time.monotonic() + time_limit_s
        solution = self._climb_of(market).solution(None, deadline_s, deadline_s)
        self._unused_s = max(0.0, deadline_s - time.monotonic())
        return solution

    def without(self, market: Market, app_ids: Sequence[str], time_limit_s: float) -> Mapping[str, Solution]:
        """Solve the market once without each of these bidders. Time that `solve` left of its own is added.

        Each problem has an equal part of the time that is left when it begins.
        """
        unused_s = self._unused_s if self._climb is not None and self._climb.market is market else 0.0
        self._unused_s = 0.0
        end_s = time.monotonic() + time_limit_s + unused_s
        climb = self._climb_of(market)
        solutions = {}
        for number, app_id in enumerate(app_ids):
            part_s = (end_s - time.monotonic()) / (len(app_ids) - number)
            solutions[app_id] = climb.solution(app_id, time.monotonic() + part_s, end_s)
        return solutions

    def _climb_of(self, market: Market) -> _Climb:
        """The market as it was read for its last problem. A market is an immutable value, so identity is enough."""
        if self._climb is None or self._climb.market is not market:
            self._climb = _Climb(market, self._programme_solver, has_search=self._has_search)
        return self._climb

    def _programme_solver(self) -> WinnerDetermination:
        if self._programme is None:
            self._programme = self._make_programme()
        return self._programme


class _Climb:
    """One market on the ladder, shared by its N + 1 problems."""

    def __init__(self, market: Market, programme: Callable[[], WinnerDetermination], *, has_search: bool) -> None:
        check_market(market)
        self.market = market
        self._programme = programme
        self._arrays: MarketArrays = read_market(market)
        one_type = not has_types(market.machines, self._arrays.kinds)
        self._has_search = has_search and one_type
        self._placer = RowPlacer(self._arrays)
        self._presolved = presolve(self._arrays, self._placer, one_machine=has_search) if one_type else None
        self._prepared: PreparedMarket | None = None

    def solution(self, without: str | None, deadline_s: float, end_s: float) -> Solution:
        """Climb the ladder for one problem.

        Args:
            without: The bidder left out; None solves the full market.
            deadline_s: When this problem should end, on the monotonic clock.
            end_s: When all problems of the call should end; until then a problem may still begin a beam search.
        """
        # Step 1: presolve.
        if self._presolved is not None:
            return self._presolved.solution(without)
        # Step 3 alone, for solvers without a search.
        if not self._has_search:
            market = self.market if without is None else self.market.without(without)
            return self._by_programme(market, deadline_s, placed=without is None)
        # Step 2: search. If there is no time to prepare the market for it, no bidder wins.
        full = without is None
        skip = -1 if without is None else self._arrays.position[without]
        try:
            prepared = self._prepare(deadline_s)
        except OutOfTimeError:
            return as_solution(self._arrays, no_winners(self._arrays, skip), placed=full)
        result = solve_problem(prepared, skip, deadline_s, end_s)
        found = as_solution(prepared.arrays, result, placed=full)
        if result.status is not SearchStatus.UNDECIDED or prepared.too_large or time.monotonic() >= deadline_s:
            return found
        # Step 3: the programme, over the rows that can be part of a better choice than the one found.
        reduced = ReducedMarket(self.market, prepared.arrays, result.open_rows, skip)
        programmed = reduced.original(self._by_programme(reduced.market, deadline_s, placed=full))
        programmed = replace(programmed, states=found.states, fallback=True)
        # Step 4: the better of both.
        return programmed if programmed.status is SolveStatus.OPTIMAL else _better(found, programmed)

    def _prepare(self, deadline_s: float) -> PreparedMarket:
        if self._prepared is None:
            self._prepared = PreparedMarket(self._arrays, self._placer, deadline_s)
        return self._prepared

    def _by_programme(self, market: Market, deadline_s: float, *, placed: bool) -> Solution:
        """Step 3. Gangs of problems without a bidder need no places."""
        solution = self._programme().solve(market, max(0.0, deadline_s - time.monotonic()))
        if placed:
            return solution
        return replace(solution, wins={app_id: Win(row=win.row, gangs=()) for app_id, win in solution.wins.items()})


def _better(searched: Solution, programmed: Solution) -> Solution:
    """Step 4: of two unproven solutions the better, with the tighter bound of the two where they compare."""
    solutions = (searched, programmed)
    best = max(solutions, key=lambda each: (each.positive, each.log_objective))
    bounds = [each.log_objective + each.gap for each in solutions if each.positive == best.positive]
    gap = max(min(bounds) - best.log_objective, SMALLEST_GAP)
    return replace(best, gap=gap, states=searched.states, fallback=True)


def exact_ladder() -> Ladder:
    """The default solver: all steps, with HiGHS as its programme."""
    return Ladder("exact", _highs, search=True)


def _highs() -> WinnerDetermination:
    # Few markets need it, and importing it takes long.
    from rm_plugin.solvers.highs import HighsSolver

    return HighsSolver()
