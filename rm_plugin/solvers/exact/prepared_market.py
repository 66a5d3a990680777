"""A market prepared once for its N + 1 problems: undominated rows, resources, prices, and the search's budget."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from rm_plugin.solvers.bidders import chains_of
from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.cut_generation import find_cut_or_places, find_cut_or_places_quickly
from rm_plugin.solvers.exact.knapsack import (
    Uses,
    build_problem,
    most_pinned,
    pinned_together,
    undominated,
    used_by_gangs,
    uses_of,
)
from rm_plugin.solvers.exact.market_arrays import Ints, MarketArrays
from rm_plugin.solvers.exact.problem_result import ProblemResult, value_of
from rm_plugin.solvers.exact.resources import Resource, first_resources, pinned_resources
from rm_plugin.solvers.exact.row_placement import RowPlacer, Searched
from rm_plugin.solvers.exact.state_budget import StateBudget
from rm_plugin.solvers.kinds import Kind

Prices = NDArray[np.float64]

_MAX_CUTS = 30
"""Limit on the cuts of one market: each is one more resource in every later search of its problems. It bounds the work
and is not tuned. In docs/design/auction.md no kind of market has more than four cuts per searched market on average."""

_CUT_PRICE_ERROR = 0.002
"""How far prices may be off after a cut was added, in log value of each bidder."""

_WITHOUT_PRICE_ERROR, _MIN_WITHOUT_PRICE_ERROR = 0.16, 0.0012
"""How far the full market's prices may be off without one bidder, in log value shared among all bidders. It falls with
their number, down to four times the error of the full market's prices."""

_MAX_PROGRAMME_SIZE = 4_000_000
"""Rows times machines past which HiGHS is not asked: at 10,000 GPUs it found nothing in 30 s per problem."""


class OutOfTimeError(Exception):
    """The deadline passed before a market was prepared."""


class PreparedMarket:
    """The rows, resources and prices of one market, kept between its problems.

    Args:
        arrays: The market as it was read.
        placer: Places rows of these arrays on the machines.
        deadline_s: When to give up, on the monotonic clock.

    Attributes:
        arrays: The market without dominated rows.
        placer: Places rows of `arrays`.
        budget: How many states a search may keep.
        sufficient: Whether every choice that keeps the resources has places.
        full: The result with all bidders, once known.
        beam_search_s: Seconds that the last beam search of a problem without a bidder took.

    Raises:
        OutOfTimeError: The deadline passed before the market was prepared.
    """

    def __init__(self, arrays: MarketArrays, placer: RowPlacer, deadline_s: float = math.inf) -> None:
        _check_time(deadline_s)
        self.arrays = arrays
        self.placer = placer
        self.budget = StateBudget(len(arrays.bids), shared=self.too_large)
        self.full: ProblemResult | None = None
        self.beam_search_s = 0.0
        self._priced = False
        rows, kinds = arrays.rows, arrays.kinds
        if not rows.rows:
            # There is nothing to prepare: `solve_problem` answers before it reads the rest.
            return
        first = first_resources(arrays.machines, kinds, pinned_together(rows, placer.free))
        asked = most_pinned(rows, len(arrays.machines))
        self._resources: list[Resource] = [*first.each, *pinned_resources(placer.free, len(kinds), asked)]
        self.sufficient = first.sufficient
        _check_time(deadline_s)
        self._by_gangs = used_by_gangs(rows, self._resources)
        self._uses = self._prune()
        _check_time(deadline_s)
        self.problem = self._build()
        self._price = np.zeros(len(self._resources))
        self._bounds: list[int] | None = None

    def prices(self, skip: int) -> Prices:
        """Prices for the problem without the bidder at `skip` (-1: with all), from the best known so far."""
        price = self._price.copy()
        if not self._priced:
            _core.prices(self.problem, skip, price, 0.0)
        if self._share_pins(skip, price) or self._priced:
            bidders = len(self.arrays.bids)
            error = max(_WITHOUT_PRICE_ERROR / bidders, _MIN_WITHOUT_PRICE_ERROR) / bidders
            _core.prices(self.problem, skip, price, error)
        if not self._priced:
            self._price, self._priced, self._bounds = price.copy(), True, None
        return price

    def _share_pins(self, skip: int, price: Prices) -> bool:
        """Recompute how shared pins are divided in this problem. Returns whether any share changed."""
        changed = _core.share(self.problem, skip, price)
        if changed:
            self._bounds = None
        return changed

    def known_bound(self, skip: int) -> int:
        """The upper bound without a bidder at the full market's prices, in whole units."""
        if self._bounds is None:
            bounds = np.empty(len(self.arrays.bids), dtype=np.int64)
            _core.bounds(self.problem, self._price, bounds)
            self._bounds = bounds.tolist()
        return self._bounds[skip]

    def value(self, row_of: Mapping[int, int]) -> int:
        """Sum of the gains of rows by bidder, in whole units."""
        return value_of(self.arrays, row_of)

    @property
    def resource_count(self) -> int:
        """Number of resources, cuts included."""
        return len(self._resources)

    @property
    def too_large(self) -> bool:
        """Whether the programme has too many entries for HiGHS to begin its search in time."""
        return self.arrays.rows.rows * len(self.arrays.machines) > _MAX_PROGRAMME_SIZE

    def find_cut_or_places(self, chosen: Ints, deadline_s: float) -> Resource | Searched | None:
        """A cut that the chosen rows break, or places that best fit did not find; None if neither is found.

        No further attempt begins after the deadline, on the monotonic clock.
        """
        cuts = self._cuts
        return find_cut_or_places(self.arrays, chosen, self.placer, cuts, deadline_s) if cuts < _MAX_CUTS else None

    def find_cut_or_places_quickly(self, chosen: Ints) -> Resource | Searched | None:
        """As `find_cut_or_places`, in about ten milliseconds and less thoroughly."""
        cuts = self._cuts
        return find_cut_or_places_quickly(self.arrays, chosen, self.placer, cuts) if cuts < _MAX_CUTS else None

    @property
    def _cuts(self) -> int:
        return sum(resource.name[0] == "cut" for resource in self._resources)

    def add_cut(self, cut: Resource, skip: int, price: Prices) -> Prices:
        """Add a resource from now on, in all problems; returns this problem's prices with it."""
        self._resources.append(cut)
        added = used_by_gangs(self.arrays.rows, [cut])
        self._by_gangs = np.concatenate([self._by_gangs, added], axis=1)
        self._uses = self._used()
        self.problem = self._build()
        self._price, self._bounds = np.append(self._price, 0.0), None
        price = np.append(price, 0.0)
        self._share_pins(skip, price)
        _core.prices(self.problem, skip, price, _CUT_PRICE_ERROR)
        return price

    def _build(self) -> _core.Problem:
        return build_problem(self.arrays.rows, self._resources, self.placer.free, self.arrays.unit, self._uses)

    def _used(self) -> Uses:
        return uses_of(self.arrays.rows, self._resources, self.placer.free, self._by_gangs)

    def _prune(self) -> Uses:
        """Drop dominated rows; returns what the others use.

        If the resources are sufficient, only what a row uses of them counts; else every gang size and every pin.
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
            self.placer = self.placer.of_rows(self.arrays)
            self._by_gangs, uses = self._by_gangs[keep], None
        return self._used() if uses is None else uses


def _check_time(deadline_s: float) -> None:
    if time.monotonic() >= deadline_s:
        raise OutOfTimeError


def _chain_columns(kinds: Sequence[Kind]) -> Ints:
    """For each kind, 1 for every need that its gang counts towards [kinds, needs].

    A row with no more of any need than another one fits wherever that one does.
    """
    chains = chains_of(kinds)
    needs = {need: number for number, need in enumerate(dict.fromkeys(need for kind in kinds for need in chains[kind]))}
    columns = np.zeros((len(kinds), len(needs)), dtype=np.int32)
    for number, kind in enumerate(kinds):
        columns[number, [needs[need] for need in chains[kind]]] = 1
    return columns
