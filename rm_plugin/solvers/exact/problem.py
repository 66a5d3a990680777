"""One of the N + 1 problems of a market: search, place the best choice, cut it off if it has no places, search again.

docs/design/auction.md, "The search" and "Places as certificates", explains the steps.
"""

from __future__ import annotations

import math
import time

import numpy as np
from msgspec.structs import replace

from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.market_arrays import Ints, Longs
from rm_plugin.solvers.exact.prepared_market import PreparedMarket
from rm_plugin.solvers.exact.problem_result import (
    ProblemResult,
    SearchStatus,
    full_choice_without,
    rows_by_bidder,
    unproven,
)
from rm_plugin.solvers.exact.repair import repair
from rm_plugin.solvers.exact.resources import Resource
from rm_plugin.solvers.exact.row_placement import Packed, Searched

_FIRST_GAP = 1e-6
"""Log value below the bound at which the target of a search starts."""

_BEAM, _BEAM_WITHOUT = 100, 30
"""States per bidder that a beam search keeps, with all bidders and without one. The full market's choice is worth more
effort: its gangs will be held, the others only determine payments."""

_BEAM_GAP_FACTOR = 4
"""A beam search starts this many times as far below the bound as the interval that is proven to hold nothing."""

_OPTIMAL, _TOO_WIDE = 0, 2
"""Statuses of the core's search."""


def solve_problem(market: PreparedMarket, skip: int, deadline_s: float, end_s: float | None = None) -> ProblemResult:
    """Find the best choice without the bidder at `skip` (-1: with all bidders).

    Args:
        market: The market.
        skip: Position of the bidder left out.
        deadline_s: When to stop, on the monotonic clock. The full problem then still makes a choice, by a beam search.
        end_s: Until when a problem without a bidder may begin a beam search, if it shares its time with others. From
            then on it takes the full market's choice without that bidder, which needs no time.
    """
    if not market.arrays.rows.rows:
        return ProblemResult(skip=skip, row_of={})
    end_s = deadline_s if end_s is None else end_s
    if skip >= 0 and market.full is not None and time.monotonic() >= end_s:
        return _inherited(market, market.full, skip)
    result = _Problem(market, skip, deadline_s, end_s).solve()
    if skip < 0:
        market.full = result
    return result


def _inherited(market: PreparedMarket, full: ProblemResult, skip: int) -> ProblemResult:
    return full_choice_without(market.arrays, full, skip, market.known_bound(skip))


class _Problem:
    """The state of one problem: its prices, the states kept so far, and the choice of its last beam search."""

    def __init__(self, market: PreparedMarket, skip: int, deadline_s: float, end_s: float) -> None:
        self._market = market
        self._skip = skip
        self._deadline_s = deadline_s
        self._end_s = end_s
        self._max_reserved_s = max(0.0, self._left_s()) / 2
        self._price = market.prices(skip)
        self._states = 0
        self._heuristic: ProblemResult | None = None
        self._heuristic_resources = 0

    def solve(self) -> ProblemResult:
        """Search until the best choice has places. Each choice without places adds a cut that forbids it."""
        market, budget = self._market, self._market.budget
        choice = np.empty(len(market.arrays.bids), dtype=np.int32)
        max_states = budget.first
        while True:
            status, value, bound, states = _core.search(
                market.problem, self._skip, self._price, _FIRST_GAP, 0, self._search_s(), max_states, choice
            )
            self._states += states
            budget.spend(states)
            if status == _TOO_WIDE:
                if self._is_tightened(bound):
                    continue
                if max_states < budget.states:
                    max_states = budget.states
                    continue
                budget.shrink()
                return self._best_found(bound, SearchStatus.UNDECIDED)
            if status != _OPTIMAL:
                return self._best_found(bound, SearchStatus.OUT_OF_TIME)
            budget.grow()
            if self._skip >= 0 and market.sufficient:
                return self._certified(choice, None)
            answer = self._places_or_cut(choice[choice >= 0])
            if isinstance(answer, Resource):
                self._price = market.add_cut(answer, self._skip, self._price)
            elif answer is not None:
                return self._certified(choice, answer)
            else:
                return self._best_found(value, SearchStatus.UNDECIDED)

    def _is_tightened(self, bound: int) -> bool:
        """Whether a heuristic choice taught cuts. They make a search narrower, which would learn them more slowly."""
        resources = self._market.resource_count
        if self._heuristic is None or self._heuristic_resources < resources:
            self._heuristic = self._timed_heuristic(bound)
            self._heuristic_resources = self._market.resource_count
        return self._market.resource_count > resources

    def _places_or_cut(self, chosen: Ints) -> Packed | Searched | Resource | None:
        """Places of the chosen rows, or a cut that forbids them; None if neither is found."""
        packed = self._market.placer.pack(chosen)
        return packed if isinstance(packed, Packed) else self._market.find_cut_or_places(chosen, self._deadline_s)

    def _certified(self, choice: Ints, placed: Packed | Searched | None) -> ProblemResult:
        row_of = rows_by_bidder(choice)
        # No app will hold the gangs of a problem without a bidder.
        by_row = placed.gangs() if placed is not None and self._skip < 0 else {}
        gangs = {bidder: by_row.get(row, ()) for bidder, row in row_of.items()}
        return ProblemResult(skip=self._skip, row_of=row_of, gangs=gangs, states=self._states)

    def _best_found(self, bound: int, status: SearchStatus) -> ProblemResult:
        """The better of a beam search's choice and of the full market's choice without the bidder, with its gap."""
        market, inherited = self._market, None
        if self._skip >= 0 and market.full is not None:
            inherited = _inherited(market, market.full, self._skip)
        if self._heuristic is None and (inherited is None or time.monotonic() < self._end_s):
            self._heuristic = self._timed_heuristic(bound)
        choices = [each for each in (self._heuristic, inherited) if each is not None]
        found = max(choices, key=lambda each: market.value(each.row_of))
        # Cuts found since may bound tighter than the search did.
        price_bound, losses = self._bound_and_losses()
        found = unproven(market.arrays, replace(found, states=self._states), min(bound, price_bound), status)
        if found.status is not SearchStatus.UNDECIDED:
            return found
        open_rows = np.flatnonzero(losses <= price_bound - market.value(found.row_of))
        return replace(found, open_rows=tuple(open_rows.tolist()))

    def _timed_heuristic(self, bound: int) -> ProblemResult:
        """Run the beam search, and note how long it took: the searches of later problems leave it that much time."""
        began_s = time.monotonic()
        found = self._by_beam_search(bound)
        if self._skip >= 0:
            self._market.beam_search_s = time.monotonic() - began_s
        return found

    def _by_beam_search(self, bound: int) -> ProblemResult:
        """A good choice: cuts that it breaks are added, rows without places are swapped (`repair`).

        Args:
            bound: Upper bound that a search has proven, in whole units. It indicates how far below the bound of the
                prices the best choices are.
        """
        market = self._market
        choice = np.empty(len(market.arrays.bids), dtype=np.int32)
        beam = _BEAM if self._skip < 0 else _BEAM_WITHOUT
        while True:
            gap = max(_FIRST_GAP, _BEAM_GAP_FACTOR * (self._bound_and_losses()[0] - bound) / market.arrays.unit)
            _core.search(market.problem, self._skip, self._price, gap, beam, math.inf, 0, choice)
            answer = self._quick_places_or_cut(choice[choice >= 0])
            if isinstance(answer, Resource) and self._left_s() > 0.0:
                self._price = market.add_cut(answer, self._skip, self._price)
            elif answer is None or isinstance(answer, Resource):
                return self._certified(*repair(market.arrays.rows, market.placer, choice))
            else:
                return self._certified(choice, answer)

    def _quick_places_or_cut(self, chosen: Ints) -> Packed | Searched | Resource | None:
        """As `_places_or_cut`, fast methods first. Slow ones are for gangs that will be held, while there is time."""
        market = self._market
        packed = market.placer.pack(chosen)
        if isinstance(packed, Packed):
            return packed
        answer = market.find_cut_or_places_quickly(chosen)
        if answer is not None or self._skip >= 0 or self._left_s() <= 0.0:
            return answer
        return market.find_cut_or_places(chosen, self._deadline_s)

    def _bound_and_losses(self) -> tuple[int, Longs]:
        """The upper bound of the present prices and cuts, and what each row loses against it [rows]; in whole units."""
        losses = np.empty(self._market.arrays.rows.rows, dtype=np.int64)
        return _core.losses(self._market.problem, self._skip, self._price, losses), losses

    def _search_s(self) -> float:
        """Seconds for a search. It leaves what the last beam search took, but at most half of the problem's time."""
        reserves = self._skip >= 0 and self._heuristic is None
        return self._left_s() - (min(self._market.beam_search_s, self._max_reserved_s) if reserves else 0.0)

    def _left_s(self) -> float:
        return self._deadline_s - time.monotonic()
