"""One of the N + 1 problems of a market: search, place, learn what does not fit, and search again."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Literal

import numpy as np

from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.compiled import CompiledMarket
from rm_plugin.solvers.exact.found import Found, gap_of, less_a_row, rows_by_bidder
from rm_plugin.solvers.exact.mending import mended
from rm_plugin.solvers.exact.places import Packed, Searched
from rm_plugin.solvers.exact.remainder import solve_over
from rm_plugin.solvers.exact.resources import Resource
from rm_plugin.solvers.exact.rows import Ints
from rm_plugin.solvers.port import SMALLEST_GAP, SolveStatus

_FIRST_GAP = 1e-6
_BEAM, _BEAM_WITHOUT = 100, 30
"""States a bidder that a narrow search keeps, with all bidders and without one: what somebody will hold is worth
a closer look than what a payment rests on."""
_WIDER = 4
"""A narrow search looks so many times as far below the bound as was proven to hold nothing."""
_OPTIMAL, _TOO_WIDE = 0, 2
_MOST_LABELLED_STATES = 300_000
_MOST_CHOICES = 4_000
_FIRST_REMAINDER = 1e-3
_MOST_DECIDED = 20
"""Choices of a problem that an integer programme decides on."""


def solve_problem(market: CompiledMarket, skip: int, deadline_s: float, last_s: float | None = None) -> Found:
    """The best choice without the bidder at `skip` (-1: with all), within a time on the monotonic clock.

    Args:
        market: The market.
        skip: Position of the bidder left out.
        deadline_s: When to stop. The full problem then still makes a choice, by one narrow search.
        last_s: Until when a problem without a bidder may begin a narrow search, where it shares its time with others;
            later it takes what the full market's choice leaves it, which takes no time at all.
    """
    if not market.arrays.rows.rows:
        return Found(skip=skip, row_of={})
    last_s = deadline_s if last_s is None else last_s
    if skip >= 0 and market.full is not None and time.monotonic() >= last_s:
        return _left_by_all(market, market.full, skip)
    found = _Problem(market, skip, deadline_s, last_s).solve()
    if skip < 0:
        market.full = found
    return found


def _left_by_all(market: CompiledMarket, full: Found, skip: int) -> Found:
    return less_a_row(market.arrays, full, skip, market.known_bound(skip))


class _Problem:
    """The state of one problem: prices of its own, and states kept so far."""

    def __init__(self, market: CompiledMarket, skip: int, deadline_s: float, last_s: float) -> None:
        self._market = market
        self._skip = skip
        self._deadline_s = deadline_s
        self._last_s = last_s
        self._most_reserved_s = max(0.0, self._left_s()) / 2
        self._price = market.prices(skip)
        self._states = 0
        self._decided = 0
        self._sketch: Found | None = None
        self._sketch_limits = 0

    def solve(self) -> Found:
        """Search until a choice fits, learning a limit from each that does not."""
        market = self._market
        choice = np.empty(len(market.arrays.bids), dtype=np.int32)
        most_states = min(market.few_states, market.most_states)
        while True:
            status, value, bound, states = _core.search(
                market.problem, self._skip, self._price, _FIRST_GAP, 0, self._search_s(), most_states, choice
            )
            self._states += states
            market.spend(states)
            if status == _TOO_WIDE:
                if self._is_narrower(bound):
                    continue
                if most_states < market.most_states:
                    most_states = market.most_states
                    continue
                market.search_less()
                return self._remainder(bound)
            if status != _OPTIMAL:
                return self._best_effort(bound)
            market.search_more()
            if self._skip >= 0 and market.sufficient:
                return self._certified(choice, None)
            answer = self._fitted(choice[choice >= 0])
            if isinstance(answer, Resource):
                self._price = market.hold_to(answer, self._skip, self._price)
            elif answer:
                return self._certified(choice, answer)
            else:
                return self._remainder(value) if answer is None else self._next_best(value)

    def _is_narrower(self, bound: int) -> bool:
        """Whether a good choice taught limits, which make a search narrower and would cost it more to learn."""
        limits = self._market.limits
        if self._sketch is None or self._sketch_limits < limits:
            self._sketch = self._timed_sketch(bound)
            self._sketch_limits = self._market.limits
        return self._market.limits > limits

    def _fitted(self, chosen: Ints) -> Resource | Packed | Searched | Literal[False] | None:
        """Places of the chosen rows, or a limit that they break; False: they do not fit; None: not decided."""
        packed = self._market.places.pack(chosen)
        if isinstance(packed, Packed):
            return packed
        settled = self._market.settle(chosen, self._deadline_s)
        return settled if settled is not None else self._searched(chosen)

    def _searched(self, chosen: Ints) -> Searched | Literal[False] | None:
        """Places of the chosen rows by search, and where that does not decide by an integer programme."""
        places = self._market.places
        searched = places.fits(chosen)
        if searched is not None or self._decided >= _MOST_DECIDED:
            return searched
        self._decided += 1
        return places.decided(chosen, max(0.0, self._left_s()))

    def _next_best(self, value: int) -> Found:
        """The best choice that fits, where the knapsack's optimum does not: all choices near the bound, best first."""
        market = self._market
        choices = np.empty((_MOST_CHOICES, len(market.arrays.bids)), dtype=np.int32)
        loss = np.empty(market.arrays.rows.rows, dtype=np.int64)
        bound = _core.losses(market.problem, self._skip, self._price, loss)
        gap, looked_at = max(1, bound - value + int(market.arrays.unit * _FIRST_GAP)), 0
        while True:
            status, count, states = _core.choices(
                market.problem, self._skip, self._price, gap, self._left_s(), _MOST_LABELLED_STATES, choices
            )
            self._states += states
            if status != _OPTIMAL:
                return self._remainder(value)
            # What stood before the last gap's end stands first again, and did not fit.
            for choice in choices[looked_at : min(count, _MOST_CHOICES)]:
                if self._left_s() <= 0.0:
                    return self._remainder(value)
                packed = market.places.pack(choice[choice >= 0])
                placed = packed if isinstance(packed, Packed) else self._searched(choice[choice >= 0])
                if placed is None:
                    return self._remainder(value)
                if placed:
                    return self._certified(choice, placed)
            looked_at = count
            if count > _MOST_CHOICES or gap >= bound:
                return self._remainder(value)
            gap *= 2

    def _certified(self, choice: Ints, placed: Packed | Searched | None) -> Found:
        row_of = rows_by_bidder(choice)
        # Only the full market's gangs will ever be held by anyone.
        by_row = placed.gangs() if placed is not None and self._skip < 0 else {}
        gangs = {bidder: by_row.get(row, ()) for bidder, row in row_of.items()}
        return Found(skip=self._skip, row_of=row_of, gangs=gangs, states=self._states)

    def _remainder(self, most: int) -> Found:
        """Let HiGHS choose among the rows that can still be part of something better than what it finds.

        `most` is a proven bound on the value. Out of time, the better of what HiGHS and a narrow search found; where a
        market is so large that HiGHS would not even begin in time, or none is left, the latter at once.
        """
        market = self._market
        if market.too_large or self._left_s() <= 0.0:
            return self._best_effort(most)
        loss = np.empty(market.arrays.rows.rows, dtype=np.int64)
        bound = _core.losses(market.problem, self._skip, self._price, loss)
        gap = max(4 * (bound - most), int(market.arrays.unit * _FIRST_REMAINDER))
        while True:
            found = self._over(np.flatnonzero(loss <= gap).tolist())
            value = market.value(found.row_of)
            if found.gap > 0.0:
                other = self._best_effort(most)
                best = found if value > market.value(other.row_of) else other
                open_gap = (most - market.value(best.row_of)) / market.arrays.unit
                return replace(best, gap=max(open_gap, SMALLEST_GAP), fallback=True)
            if bound - value <= gap:
                return found
            gap = bound - value

    def _over(self, rows: list[int]) -> Found:
        """HiGHS's choice among these rows."""
        market = self._market
        solution, row_of = solve_over(
            market.arrays, rows, self._skip, market.market.empty_bundle, max(0.0, self._left_s())
        )
        proven = solution.status is SolveStatus.OPTIMAL
        return Found(
            skip=self._skip,
            row_of={market.position(app_id): row for app_id, row in row_of.items()},
            gap=0.0 if proven else max(solution.gap, SMALLEST_GAP),
            gangs={
                market.position(app_id): tuple(gang for gang in win.gangs if not gang.pinned)
                for app_id, win in solution.wins.items()
            },
            states=self._states,
            fallback=True,
        )

    def _best_effort(self, bound: int) -> Found:
        """Out of time: a good choice by a narrow search, or what the full market's choice leaves, if that is better."""
        market = self._market
        left = _left_by_all(market, market.full, self._skip) if self._skip >= 0 and market.full is not None else None
        if self._sketch is None and (left is None or time.monotonic() < self._last_s):
            self._sketch = self._timed_sketch(bound)
        choices = [each for each in (self._sketch, left) if each is not None]
        found = max(choices, key=lambda each: market.value(each.row_of))
        return self._unproven(replace(found, states=self._states), bound)

    def _timed_sketch(self, bound: int) -> Found:
        """As `_sketched`; how long it took is what the next problems' searches leave of their time."""
        began_s = time.monotonic()
        found = self._sketched(bound)
        if self._skip >= 0:
            self._market.sketch_s = time.monotonic() - began_s
        return found

    def _sketched(self, bound: int) -> Found:
        """A good choice by a narrow search; limits that it breaks are learnt, rows that find no place are swapped.

        `bound` is what a search has proven of the value: about as far below the bound of the prices choices begin.
        """
        market = self._market
        choice = np.empty(len(market.arrays.bids), dtype=np.int32)
        loss = np.empty(market.arrays.rows.rows, dtype=np.int64)
        beam = _BEAM if self._skip < 0 else _BEAM_WITHOUT
        while True:
            most = _core.losses(market.problem, self._skip, self._price, loss)
            gap = max(_FIRST_GAP, _WIDER * (most - bound) / market.arrays.unit)
            _core.search(market.problem, self._skip, self._price, gap, beam, math.inf, 0, choice)
            chosen = choice[choice >= 0]
            answer = self._placed(chosen)
            if not isinstance(answer, Resource):
                return self._certified(choice, answer) if answer else self._mended(choice)
            if self._left_s() <= 0.0:
                return self._mended(choice)
            self._price = market.hold_to(answer, self._skip, self._price)

    def _placed(self, chosen: Ints) -> Packed | Searched | Resource | None:
        """Places of a good choice's rows, or a limit that they break; None for neither.

        What is quick is tried first. More is only for the gangs that will be held, and only as long as there is time.
        """
        market = self._market
        packed = market.places.pack(chosen)
        if isinstance(packed, Packed):
            return packed
        answer = market.settle_quickly(chosen)
        if answer is not None or self._skip >= 0 or self._left_s() <= 0.0:
            return answer
        return market.settle(chosen, self._deadline_s)

    def _mended(self, choice: Ints) -> Found:
        """A choice some of whose gangs find no place, less such gangs."""
        return self._certified(*mended(self._market.arrays.rows, self._market.places, choice))

    def _unproven(self, found: Found, bound: int) -> Found:
        """A choice with its distance from the bound; one that reaches it is proven after all."""
        market = self._market
        loss = np.empty(market.arrays.rows.rows, dtype=np.int64)
        # Limits learnt since may tell more than the search did.
        bound = min(bound, _core.losses(market.problem, self._skip, self._price, loss))
        gap = gap_of(market.arrays, found.row_of, bound)
        return replace(found, gap=gap) if gap > 0.0 else found

    def _search_s(self) -> float:
        """Seconds for a search that may prove nothing: what a narrow one after it takes is left, up to half of all."""
        reserved = self._skip >= 0 and self._sketch is None
        return self._left_s() - (min(self._market.sketch_s, self._most_reserved_s) if reserved else 0.0)

    def _left_s(self) -> float:
        return self._deadline_s - time.monotonic()
