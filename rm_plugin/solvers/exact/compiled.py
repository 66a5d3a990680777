"""A market made ready once for its N + 1 problems: rows, limits, prices."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.candidates import chains_of
from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.found import Found, value_of
from rm_plugin.solvers.exact.knapsack import (
    Uses,
    build_problem,
    most_pinned,
    pinned_together,
    undominated,
    used_by_gangs,
    uses_of,
)
from rm_plugin.solvers.exact.learning import settle, settle_quickly
from rm_plugin.solvers.exact.places import Places, Searched
from rm_plugin.solvers.exact.resources import Resource, first_resources, pinned_resources
from rm_plugin.solvers.exact.rows import Ints, MarketArrays, read_market
from rm_plugin.solvers.kinds import Kind
from themis.bids import Market

Prices = NDArray[np.float64]

_MOST_LEARNT = 30
_ONE_LIMIT_MORE = 0.002
"""How far off prices may be with another limit, in log value of each bidder."""
_ONE_BIDDER_LESS, _LEAST_WITHOUT_ONE = 0.16, 0.0012
"""How far off they may be without a bidder, in log value shared among all: the less the more there are, down to what
prices of all bidders may be off by, times four."""
_STATES_A_PAIR, _MOST_STATES = 5_000, 8_000_000
"""States of all passes of one search, by pairs of bidders: past them HiGHS decides, which takes about as long for a
problem of that size. Most problems keep a few hundred a bidder; a million takes 0.2 to 0.5 s, eight some 300 MB."""
_FEWER, _FEWEST = 20, 320
"""So many times less at first, until what a good choice teaches is learnt; and at the least, once problem after problem
was too wide, in markets too large for HiGHS."""
_SEARCHED_WIDE = 1
"""Searches at the most states that problems of a market too large for HiGHS have together."""
_SHRINK = 4
"""So many times less after a problem that was too wide."""
_TOO_LARGE = 4_000_000
"""Rows times machines past which HiGHS is not asked: at 10,000 GPUs it found nothing in half a minute a problem."""


class OutOfTimeError(Exception):
    """A market was not made ready in time."""


class CompiledMarket:
    """Rows, limits and prices of one market, kept between its problems.

    Attributes:
        full: What the problem with all bidders found, once it was looked at.
        sketch_s: Seconds that the last narrow search without a bidder took.

    Raises:
        OutOfTimeError: The deadline, on the monotonic clock, passed before the rows were held to their limits.
    """

    def __init__(
        self,
        market: Market,
        arrays: MarketArrays | None = None,
        deadline_s: float = math.inf,
        places: Places | None = None,
    ) -> None:
        self.market = market
        self.arrays = read_market(market) if arrays is None else arrays
        self.places = Places(self.arrays) if places is None else places
        self.most_states = min(_STATES_A_PAIR * len(market.bids) ** 2, _MOST_STATES)
        self.few_states = max(1, self.most_states // _FEWER)
        self._spare_states = _SEARCHED_WIDE * self.most_states if self.too_large else math.inf
        self._least_states = max(1, self.most_states // (_FEWEST if self.too_large else _FEWER))
        self.full: Found | None = None
        self.sketch_s = 0.0
        self._position = {bid.app_id: place for place, bid in enumerate(self.arrays.bids)}
        self._priced = False
        rows, kinds = self.arrays.rows, self.arrays.kinds
        if not rows.rows:
            return
        first = first_resources(self.arrays.machines, kinds, pinned_together(rows, self.places.free))
        asked = most_pinned(rows, len(self.arrays.machines))
        self._resources: list[Resource] = [*first.each, *pinned_resources(self.places.free, len(kinds), asked)]
        self.sufficient = first.sufficient
        _check_time(deadline_s)
        self._by_gangs = used_by_gangs(rows, self._resources)
        self._uses = self._prune()
        _check_time(deadline_s)
        self.problem = self._build()
        self._price = np.zeros(len(self._resources))
        self._bounds: list[int] | None = None

    def position(self, app_id: str) -> int:
        """Position of a bidder."""
        return self._position[app_id]

    def prices(self, skip: int) -> Prices:
        """Prices for the problem without a bidder (-1: for the full one), from the best known so far."""
        price = self._price.copy()
        if not self._priced:
            _core.prices(self.problem, skip, price, 0.0)
        if self._share(skip, price) or self._priced:
            many = len(self.market.bids)
            _core.prices(self.problem, skip, price, max(_ONE_BIDDER_LESS / many, _LEAST_WITHOUT_ONE) / many)
        if not self._priced:
            self._price, self._priced, self._bounds = price.copy(), True, None
        return price

    def _share(self, skip: int, price: Prices) -> bool:
        """Share out what pins use together as suits this problem; whether that changed anything."""
        changed = _core.share(self.problem, skip, price)
        if changed:
            self._bounds = None
        return changed

    def known_bound(self, skip: int) -> int:
        """What the best prices known so far, fitted to no problem, say of the value without a bidder."""
        if self._bounds is None:
            bounds = np.empty(len(self.arrays.bids), dtype=np.int64)
            _core.bounds(self.problem, self._price, bounds)
            self._bounds = bounds.tolist()
        return self._bounds[skip]

    def value(self, row_of: Mapping[int, int]) -> int:
        """What rows by bidder gain together, in whole units."""
        return value_of(self.arrays, row_of)

    @property
    def limits(self) -> int:
        """How many limits the rows are held to."""
        return len(self._resources)

    @property
    def too_large(self) -> bool:
        """Whether HiGHS would not even begin in time."""
        return self.arrays.rows.rows * len(self.arrays.machines) > _TOO_LARGE

    def spend(self, states: int) -> None:
        """Take what a search kept beyond `few_states` off what all problems may; then each has no more than those."""
        self._spare_states -= max(0, states - self.few_states)
        if self._spare_states <= 0:
            self.most_states = min(self.most_states, self.few_states)

    def search_less(self) -> None:
        """Search less from now on: a problem of this market was too wide, and the others are much like it."""
        self.most_states = max(self.most_states // _SHRINK, self._least_states)

    def search_more(self) -> None:
        """Search as much as at first again, step by step: a problem was solved in less."""
        self.most_states = max(self.most_states, min(self.most_states * 2, self.few_states))

    def settle(self, chosen: Ints, deadline_s: float) -> Resource | Searched | None:
        """A limit that the chosen rows break, or places for them that best fit did not find; None for neither.

        Nothing more is tried past the deadline, on the monotonic clock.
        """
        learnt = self._learnt
        return settle(self.arrays, chosen, self.places, learnt, deadline_s) if learnt < _MOST_LEARNT else None

    def settle_quickly(self, chosen: Ints) -> Resource | Searched | None:
        """As `settle`, in some ten milliseconds and less thoroughly."""
        learnt = self._learnt
        return settle_quickly(self.arrays, chosen, self.places, learnt) if learnt < _MOST_LEARNT else None

    @property
    def _learnt(self) -> int:
        """How many limits were learnt so far."""
        return sum(resource.name[0] == "learnt" for resource in self._resources)

    def hold_to(self, resource: Resource, skip: int, price: Prices) -> Prices:
        """Hold the rows to one more limit from now on; prices for this problem with it."""
        self._resources.append(resource)
        added = used_by_gangs(self.arrays.rows, [resource])
        self._by_gangs = np.concatenate([self._by_gangs, added], axis=1)
        self._uses = self._used()
        self.problem = self._build()
        self._price, self._bounds = np.append(self._price, 0.0), None
        price = np.append(price, 0.0)
        self._share(skip, price)
        _core.prices(self.problem, skip, price, _ONE_LIMIT_MORE)
        return price

    def _build(self) -> _core.Problem:
        rows, free = self.arrays.rows, self.places.free
        return build_problem(rows, self._resources, free, self.arrays.unit, self._uses)

    def _used(self) -> Uses:
        return uses_of(self.arrays.rows, self._resources, self.places.free, self._by_gangs)

    def _prune(self) -> Uses:
        """Leave out rows that another of the bidder beats; what the others use.

        Where the limits are sufficient, what counts is what they see of a row; else every kind of gang and every pin.
        """
        rows, uses = self.arrays.rows, None
        if self.sufficient:
            uses = self._used()
            keep = undominated(rows, uses.use, uses.by_table)
        else:
            needs = rows.counts @ _chain_columns(self.arrays.kinds)
            keep = undominated(rows, needs, np.ones(len(rows.pin_gpus), dtype=np.bool_))
        left = rows.only(keep)
        if left is not rows:
            self.arrays = replace(self.arrays, rows=left)
            self.places = self.places.of_rows(self.arrays)
            self._by_gangs, uses = self._by_gangs[keep], None
        return self._used() if uses is None else uses


def _check_time(deadline_s: float) -> None:
    if time.monotonic() >= deadline_s:
        raise OutOfTimeError


def _chain_columns(kinds: Sequence[Kind]) -> Ints:
    """Which needs a gang of each kind counts in [kinds, needs]; who needs no more of any fits where the other does."""
    chains = chains_of(kinds)
    needs = {need: number for number, need in enumerate(dict.fromkeys(need for kind in kinds for need in chains[kind]))}
    columns = np.zeros((len(kinds), len(needs)), dtype=np.int32)
    for number, kind in enumerate(kinds):
        columns[number, [needs[need] for need in chains[kind]]] = 1
    return columns
