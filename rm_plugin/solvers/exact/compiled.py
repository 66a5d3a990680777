"""A market made ready once for its N + 1 problems: rows, limits, prices; and the loop that solves one of them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.candidates import chains_of
from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.knapsack import build_problem, most_pinned, pinned_together, undominated, uses_of
from rm_plugin.solvers.exact.learning import settle
from rm_plugin.solvers.exact.places import Packed, Places
from rm_plugin.solvers.exact.remainder import solve_over
from rm_plugin.solvers.exact.resources import Resource, first_resources, pinned_resources
from rm_plugin.solvers.exact.rows import Ints, MarketArrays, read_market
from rm_plugin.solvers.kinds import Kind
from rm_plugin.solvers.port import Solution, SolveStatus, Win
from rm_plugin.solvers.realise import by_nearness, pinned_gangs
from themis.bids import Market, PlacedGang

_MOST_STATES = 500_000
"""States of all passes of one search: past them HiGHS is quicker."""
_FEW_STATES = 50_000
"""The same once a problem of the market was too wide: the others are much like it."""
_MOST_LEARNT = 30
_FIRST_GAP = 1e-6
_BEAM = 300
_OPTIMAL, _TOO_WIDE = 0, 2
_MOST_LABELLED_STATES = 300_000
_MOST_CHOICES = 4_000
_FIRST_REMAINDER = 1e-3
_SMALLEST_GAP = 1e-12
"""What an unproven optimum's gap is at least: 0 means proven."""

Prices = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The choice found in one problem.

    `row_of` is the winning row by bidder position, `gap` how much higher the log objective may be, `gangs` the places
    by bidder position where they were needed, `states` how many states the searches kept, `remainder` whether HiGHS
    had to decide.
    """

    skip: int
    row_of: Mapping[int, int]
    gap: float
    gangs: Mapping[int, tuple[PlacedGang, ...]] = field(default_factory=dict)
    states: int = 0
    remainder: bool = False


class CompiledMarket:
    """Rows, limits and prices of one market, kept between its problems."""

    def __init__(self, market: Market) -> None:
        self._market = market
        self.arrays: MarketArrays = read_market(market)
        self._places = Places(self.arrays)
        rows, kinds = self.arrays.rows, self.arrays.kinds
        self._rack_of = {machine.machine_id: machine.rack_id for machine in self.arrays.machines}
        self._position = {bid.app_id: place for place, bid in enumerate(self.arrays.bids)}
        self._priced = False
        self._most_states = _MOST_STATES
        if not rows.rows:
            return
        first = first_resources(self.arrays.machines, kinds, pinned_together(rows, self._places.free))
        asked = most_pinned(rows, len(self.arrays.machines))
        self._resources: list[Resource] = [*first.each, *pinned_resources(self._places.free, len(kinds), asked)]
        self._sufficient = first.sufficient
        self._prune()
        self._problem = self._build()
        self._price = np.zeros(len(self._resources))

    def position(self, app_id: str) -> int:
        """Position of a bidder."""
        return self._position[app_id]

    # ---- one problem ----------------------------------------------------------------------------------------------

    def solve(self, skip: int, deadline_s: float) -> Found:
        """The best choice without the bidder at `skip` (-1: with all), within a time on the monotonic clock."""
        if not self.arrays.rows.rows:
            return Found(skip=skip, row_of={}, gap=0.0)
        price, states = self._price.copy(), 0
        _core.prices(self._problem, skip, price, self._priced)
        choice = np.empty(len(self.arrays.bids), dtype=np.int32)
        while True:
            status, value, bound, more = _core.search(
                self._problem, skip, price, _FIRST_GAP, 0, deadline_s - time.monotonic(), self._most_states, choice
            )
            states += more
            if status == _TOO_WIDE:
                self._most_states = _FEW_STATES
                return self._remainder(skip, price, bound, deadline_s, states)
            if status != _OPTIMAL:
                return self._best_effort(skip, price, bound, states)
            if not self._priced:
                self._price, self._priced = price.copy(), True
            if skip >= 0 and self._sufficient:
                return Found(skip=skip, row_of=_rows_by_bidder(choice), gap=0.0, states=states)
            chosen = choice[choice >= 0]
            packed = self._places.pack(chosen)
            if isinstance(packed, Packed):
                return self._certified(skip, choice, packed.gangs() if skip < 0 else {}, states)
            settled = self._settle(chosen)
            if not isinstance(settled, Resource):
                placed = settled or self._places.fits(chosen)
                if isinstance(placed, dict):
                    return self._certified(skip, choice, placed, states)
                if placed is None:
                    return self._remainder(skip, price, value, deadline_s, states)
                return self._next_best(skip, price, value, deadline_s, states)
            self._add(settled)
            price = np.append(price, 0.0)
            self._price = np.append(self._price, 0.0)
            _core.prices(self._problem, skip, price, True)

    def _next_best(self, skip: int, price: Prices, value: int, deadline_s: float, states: int) -> Found:
        """The best choice that fits, where the knapsack's optimum does not: all choices near the bound, best first."""
        bidders = len(self.arrays.bids)
        choices = np.empty((_MOST_CHOICES, bidders), dtype=np.int32)
        bound = _core.losses(self._problem, skip, price, np.empty(self.arrays.rows.rows, dtype=np.int64))
        gap, looked_at = bound - value + int(self.arrays.unit * _FIRST_GAP), 0
        while True:
            seconds = deadline_s - time.monotonic()
            status, count, more = _core.choices(
                self._problem, skip, price, gap, seconds, _MOST_LABELLED_STATES, choices
            )
            states += more
            if status != _OPTIMAL:
                break
            # What stood before the last gap's end stands first again, and did not fit.
            for choice in choices[looked_at : min(count, _MOST_CHOICES)]:
                chosen = choice[choice >= 0]
                packed = self._places.pack(chosen)
                placed = packed.gangs() if isinstance(packed, Packed) else self._places.fits(chosen)
                if placed is None:
                    return self._remainder(skip, price, value, deadline_s, states)
                if isinstance(placed, dict):
                    return self._certified(skip, choice, placed, states)
            looked_at = count
            if count > _MOST_CHOICES or gap >= bound:
                break
            gap *= 2
        return self._remainder(skip, price, value, deadline_s, states)

    def _certified(self, skip: int, choice: Ints, placed: Mapping[int, tuple[PlacedGang, ...]], states: int) -> Found:
        row_of = _rows_by_bidder(choice)
        gangs = {bidder: placed.get(row, ()) for bidder, row in row_of.items()}
        return Found(skip=skip, row_of=row_of, gap=0.0, gangs=gangs, states=states)

    def _settle(self, chosen: Ints) -> Resource | dict[int, tuple[PlacedGang, ...]] | None:
        """A limit that the chosen rows break, or places for them that best fit did not find; None for neither."""
        learnt = sum(resource.name[0] == "learnt" for resource in self._resources)
        if learnt >= _MOST_LEARNT:
            return None
        answer = settle(self.arrays, chosen, self._places.left_beside(chosen), learnt)
        if answer is None or isinstance(answer, Resource):
            return answer
        made_up = (self._places.made_up(chosen, patterns) for patterns in answer)
        return next((placed for placed in made_up if placed is not None), None)

    def _add(self, resource: Resource) -> None:
        """Hold the rows to one more limit from now on."""
        self._resources.append(resource)
        self._problem = self._build()

    # ---- where the knapsack does not settle it --------------------------------------------------------------------

    def _remainder(self, skip: int, price: Prices, most: int, deadline_s: float, states: int) -> Found:
        """Let HiGHS choose among the rows that can still be part of something better than what it finds.

        `most` is a proven bound on the value. Out of time, the better of what HiGHS and a narrow search found.
        """
        loss = np.empty(self.arrays.rows.rows, dtype=np.int64)
        bound = _core.losses(self._problem, skip, price, loss)
        gap = max(4 * (bound - most), int(self.arrays.unit * _FIRST_REMAINDER))
        while True:
            found = self._over(np.flatnonzero(loss <= gap).tolist(), skip, deadline_s, states)
            value = self._value(found.row_of)
            if found.gap > 0.0:
                other = self._best_effort(skip, price, most, states)
                best = found if value > self._value(other.row_of) else other
                open_gap = (most - self._value(best.row_of)) / self.arrays.unit
                return replace(best, gap=max(open_gap, _SMALLEST_GAP), remainder=True)
            if bound - value <= gap:
                return found
            gap = bound - value

    def _over(self, rows: list[int], skip: int, deadline_s: float, states: int) -> Found:
        limit_s = max(0.0, deadline_s - time.monotonic())
        solution, row_of = solve_over(self.arrays, rows, skip, self._market.empty_bundle, limit_s)
        proven = solution.status is SolveStatus.OPTIMAL
        return Found(
            skip=skip,
            row_of={self._position[app_id]: row for app_id, row in row_of.items()},
            gap=0.0 if proven else max(solution.gap, _SMALLEST_GAP),
            states=states,
            remainder=True,
            gangs={
                self._position[app_id]: tuple(gang for gang in win.gangs if not gang.pinned)
                for app_id, win in solution.wins.items()
            },
        )

    def _best_effort(self, skip: int, price: Prices, bound: int, states: int) -> Found:
        """Out of time or of memory: a good choice by a narrow search, less rows whose gangs find no place."""
        choice = np.empty(len(self.arrays.bids), dtype=np.int32)
        _core.search(self._problem, skip, price, _FIRST_GAP, _BEAM, math.inf, 0, choice)
        packed = self._places.pack(choice[choice >= 0])
        while not isinstance(packed, Packed):
            choice[choice == packed] = -1
            packed = self._places.pack(choice[choice >= 0])
        found = self._certified(skip, choice, packed.gangs(), states)
        gap = (bound - self._value(found.row_of)) / self.arrays.unit
        return replace(found, gap=max(gap, _SMALLEST_GAP))

    # ---- parts ----------------------------------------------------------------------------------------------------

    def _value(self, row_of: Mapping[int, int]) -> int:
        return int(sum(int(self.arrays.rows.gain[row]) for row in row_of.values()))

    def _build(self) -> _core.Problem:
        return build_problem(self.arrays.rows, self._resources, self._places.free, self.arrays.unit)

    def _prune(self) -> None:
        """Leave out rows that another of the bidder beats.

        Where the limits are sufficient, what counts is what they see of a row; else every kind of gang and every pin.
        """
        rows = self.arrays.rows
        if self._sufficient:
            uses = uses_of(rows, self._resources, self._places.free)
            keep = undominated(rows, uses.use, uses.by_table)
        else:
            needs = rows.counts @ _chain_columns(self.arrays.kinds)
            keep = undominated(rows, needs, np.ones(len(rows.pin_gpus), dtype=np.bool_))
        self.arrays = replace(self.arrays, rows=rows.only(keep))
        self._places = Places(self.arrays)

    def solution(self, found: Found, *, placed: bool) -> Solution:
        """What was found, in the terms of the port."""
        logs = [self._log_value(bidder, found) for bidder in range(len(self.arrays.bids)) if bidder != found.skip]
        positive = [log for log in logs if log is not None]
        return Solution(
            status=SolveStatus.OPTIMAL if found.gap == 0.0 else SolveStatus.TIME_LIMIT,
            gap=found.gap,
            log_objective=math.fsum(positive),
            positive=len(positive),
            wins={
                self.arrays.bids[bidder].app_id: self._win(bidder, found, placed=placed)
                for bidder in sorted(found.row_of)
            },
        )

    def _log_value(self, bidder: int, found: Found) -> float | None:
        bid = self.arrays.bids[bidder]
        row = found.row_of.get(bidder)
        value = bid.empty_value if row is None else bid.rows[self.arrays.rows.index[row]].value
        return math.log(value) if value > 0 else None

    def _win(self, bidder: int, found: Found, *, placed: bool) -> Win:
        index = int(self.arrays.rows.index[found.row_of[bidder]])
        if not placed:
            return Win(row=index, gangs=())
        pinned = pinned_gangs(self.arrays.bids[bidder].rows[index].pinned_parts, self._rack_of)
        return Win(row=index, gangs=(*sorted(found.gangs[bidder], key=by_nearness), *pinned))


def _rows_by_bidder(choice: Ints) -> dict[int, int]:
    return {bidder: row for bidder, row in enumerate(choice.tolist()) if row >= 0}


def _chain_columns(kinds: Sequence[Kind]) -> Ints:
    """Which needs a gang of each kind counts in [kinds, needs]; who needs no more of any fits where the other does."""
    chains = chains_of(kinds)
    needs = {need: number for number, need in enumerate(dict.fromkeys(need for kind in kinds for need in chains[kind]))}
    columns = np.zeros((len(kinds), len(needs)), dtype=np.int32)
    for number, kind in enumerate(kinds):
        columns[number, [needs[need] for need in chains[kind]]] = 1
    return columns
