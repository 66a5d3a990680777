"""The bids of a market in canonical form: without rows that cannot win and without dominated rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.kinds import Kind, count_kinds, has_one_rack
from themis.bids import Bid, FreeMachine, Market
from themis.choices import EmptyBundle
from themis.cluster import Allocation, Level
from themis.errors import InputError
from themis.values import Value

Column = tuple[object, ...]

_MAX_COMPARED = 1_000
"""Rows of a bidder that each is compared with. Agents' bids have fewer; without a bound time would be quadratic."""


class MarketRow(Value, frozen=True, kw_only=True):
    """A row that may win: its index in the bid, the log of its value, its gangs by kind, its pinned GPUs."""

    row: int
    log_value: float
    kinds: tuple[tuple[Kind, int], ...]
    pinned: Allocation
    pinned_parts: tuple[Allocation, ...]

    @property
    def gpus(self) -> int:
        """GPUs that the row asks for."""
        return self.pinned.gpus + sum(kind.gpus * count for kind, count in self.kinds)


class Bidder(Value, frozen=True, kw_only=True):
    """A bid in canonical form, best rows first. `log_empty` is None if winning nothing is worth 0."""

    app_id: str
    log_empty: float | None
    rows: tuple[MarketRow, ...]

    def gain(self, row: MarketRow) -> float:
        """Log-value gain of a row over winning nothing; its log value if winning nothing is worth 0."""
        return row.log_value - (self.log_empty or 0.0)


class BidderMemo:
    """A cache of bidders in canonical form, valid while the machines are the same object.

    The N + 1 problems of an auction share machines and bids, which are immutable. Entries are found by identity.
    """

    _MAX = 1024

    __slots__ = ("_bidders", "_machines")

    def __init__(self) -> None:
        self._machines: tuple[FreeMachine, ...] | None = None
        self._bidders: dict[int, tuple[Bid, Bidder]] = {}

    def bidders_of(self, market: Market) -> tuple[Bidder, ...]:
        """As the function `bidders_of`, with cached bidders."""
        check_market(market)
        if market.machines is not self._machines or len(self._bidders) > self._MAX:
            self._machines = market.machines
            self._bidders = {}
        free = market.free.by_machine()
        one_rack = has_one_rack(market.machines)
        for bid in market.bids:
            if id(bid) not in self._bidders:
                # Keeping the bid alive prevents another object from reusing its id.
                self._bidders[id(bid)] = (bid, _bidder(bid, free, one_rack=one_rack))
        ordered = sorted(market.bids, key=lambda bid: bid.app_id)
        return tuple(self._bidders[id(bid)][1] for bid in ordered)


def bidders_of(market: Market) -> tuple[Bidder, ...]:
    """The market's bidders by app id, each with the rows that may win.

    Drops rows that (1) are worth no more than the empty bundle, (2) do not fit the free GPUs alone, or (3) are
    dominated by a row of at least their value that asks for no more (free disposal). The optimum stays the same.

    Raises:
        InputError: Two bids of one app, or an empty bundle worth 0 where it must be finite.
    """
    return BidderMemo().bidders_of(market)


def check_market(market: Market) -> None:
    """Check a market. Raises InputError for two bids of one app, and for an empty bundle of 0 in a finite market."""
    app_ids = [bid.app_id for bid in market.bids]
    if len(set(app_ids)) < len(app_ids):
        twice = next(app_id for place, app_id in enumerate(app_ids) if app_id in app_ids[:place])
        raise InputError("two bids of one app in a market", value=twice, remedy="send one bid an app")
    if market.empty_bundle is not EmptyBundle.FINITE:
        return
    for bid in market.bids:
        if bid.empty_value <= 0:
            raise InputError(
                f"the empty bundle of {bid.app_id} must be worth more than 0",
                value=bid.empty_value,
                remedy="state a positive empty_value, or solve the market as lexicographic",
            )


def _bidder(bid: Bid, free: Mapping[str, int], *, one_rack: bool) -> Bidder:
    total = sum(free.values())
    fitting = [
        MarketRow(
            row=index,
            log_value=math.log(row.value),
            kinds=tuple(sorted(count_kinds(row.gangs, one_rack=one_rack).items())),
            pinned=row.pinned,
            pinned_parts=row.pinned_parts,
        )
        for index, row in enumerate(bid.rows)
        if row.value > bid.empty_value
        and row.gpus <= total
        and all(count <= free.get(machine, 0) for machine, count in row.pinned)
    ]
    # Canonical: by value, then by what the row asks for, so that the order of the rows in the bid does not matter.
    fitting.sort(key=_rank)
    return Bidder(
        app_id=bid.app_id,
        log_empty=math.log(bid.empty_value) if bid.empty_value > 0 else None,
        rows=_undominated(fitting),
    )


def _rank(row: MarketRow) -> tuple[object, ...]:
    """Sort key, best first. Of rows that differ only in which pinned GPUs belong together, fewest parts first."""
    parts = sorted(row.pinned_parts)
    return (-row.log_value, row.gpus, row.kinds, row.pinned.counts, len(parts), parts, row.row)


def _undominated(rows: Sequence[MarketRow]) -> tuple[MarketRow, ...]:
    """Rows not dominated by an earlier row, which has at least their value, with no more in every column.

    Each row is compared with the thousand before it, at most two thousand, so time grows only as the number of rows.
    """
    if len(rows) < 2:
        return tuple(rows)
    needs = _needs(rows)
    dominated: list[bool] = []
    for start in range(0, len(rows), _MAX_COMPARED):
        first = max(0, start - _MAX_COMPARED)
        block, before = needs[start : start + _MAX_COMPARED], needs[first : start + _MAX_COMPARED]
        asks_no_more = np.ones((len(before), len(block)), dtype=bool)
        for ours, theirs in zip(block.T, before.T, strict=True):
            asks_no_more &= theirs[:, None] <= ours[None, :]
        dominated.extend(np.asarray(np.triu(asks_no_more, k=first - start + 1).any(axis=0)))
    return tuple(row for row, lost in zip(rows, dominated, strict=True) if not lost)


def _needs(rows: Sequence[MarketRow]) -> NDArray[np.int32]:
    """Needs of each row [rows, needs]. A row with no more of any need fits wherever the other one does.

    Example: a row asks for a gang of 4 within a machine, another one for a gang of 4 anywhere in a rack. The first row
    needs 1 in the columns machine, rack and cluster of size 4, the second only in rack and cluster. So the second row
    fits wherever the first one does.

    Counts of one gang size accumulate from the tightest level outwards, because a gang with a looser level fits
    wherever a tighter one does, if both name the same device type or none. Levels are chained across units only if
    a size has one unit: others cannot be compared.
    """
    chains = chains_of({kind for row in rows for kind, _ in row.kinds})
    columns: dict[Column, int] = {}
    entries: list[tuple[int, int, int]] = []
    for index, row in enumerate(rows):
        for machine, count in row.pinned:
            entries.append((index, columns.setdefault(("pinned", machine), len(columns)), count))
        for kind, count in row.kinds:
            entries.extend((index, columns.setdefault(column, len(columns)), count) for column in chains[kind])
    needs = np.zeros((len(rows), len(columns)), dtype=np.int32)
    if entries:
        at_row, at_column, counts = np.array(entries).T
        np.add.at(needs, (at_row, at_column), counts)
    return needs


def chains_of(kinds: Iterable[Kind]) -> dict[Kind, tuple[Column, ...]]:
    """The needs that a gang of each kind counts in: its own level, and the looser levels that it is chained to."""
    present = set(kinds)
    units: dict[int, set[int]] = {}
    for kind in present:
        if kind.level >= Level.RACK:
            units.setdefault(kind.gpus, set()).add(kind.unit)
    chains: dict[Kind, tuple[Column, ...]] = {}
    for kind in present:
        levels = [level for level in Level if level >= kind.level]
        if kind.level <= Level.MACHINE and len(units.get(kind.gpus, ())) > 1:
            levels = [level for level in levels if level <= Level.MACHINE]
        unit = kind.unit if kind.level >= Level.RACK else next(iter(units.get(kind.gpus, {kind.gpus})))
        chains[kind] = tuple((kind.gpus, level, unit if level >= Level.RACK else 0, kind.device) for level in levels)
    return chains
