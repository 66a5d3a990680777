"""A market as arrays: what every row that may win gains and asks for."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.kinds import Kind, has_one_rack, kind_of
from themis.bids import Bid, FreeMachine, Gang, Market
from themis.cluster import Allocation
from themis.values import Value

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

_FINEST = 40
"""Gains are whole multiples of 2**-40, if they are not too large: sums do not depend on their order, and one over a
thousand bidders errs by less than 1e-9. Equal products of other values may still differ by the last unit."""
_BITS = 60
"""Bits that the sum of everybody's best gain may take."""


class Rows(Value, frozen=True, kw_only=True):
    """Rows that may win, bidder by bidder, best first.

    Attributes:
        row_start: First row of each bidder, and the end [bidders + 1].
        index: Index of the row in its bid [rows].
        gain: What it adds to the log objective over winning nothing, in multiples of 1 / unit [rows].
        gpus: GPUs that it asks for [rows].
        tie: Tells equals apart whatever their order: a digest of the app and of what is asked for [rows].
        counts: Gangs by kind [rows, kinds].
        pin_start: First pin of each row, and the end [rows + 1].
        pin_machine: Machine of each pin, ascending within a row [pins].
        pin_gpus: GPUs of each pin [pins].
    """

    row_start: Ints
    index: Ints
    gain: Longs
    gpus: Ints
    tie: Longs
    counts: Ints
    pin_start: Ints
    pin_machine: Ints
    pin_gpus: Ints

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.gain)

    @property
    def pin_row(self) -> NDArray[np.intp]:
        """The row of each pin [pins]."""
        return np.repeat(np.arange(self.rows), np.diff(self.pin_start))

    @property
    def bidder(self) -> NDArray[np.intp]:
        """The bidder of each row [rows]."""
        return np.repeat(np.arange(len(self.row_start) - 1), np.diff(self.row_start))

    def only(self, keep: NDArray[np.bool_]) -> Rows:
        """These rows alone; bidders stay, also those left without a row."""
        if keep.all():
            return self
        return self._taken(np.flatnonzero(keep), np.concatenate(([0], np.cumsum(keep)))[self.row_start])

    def best_first(self) -> Rows:
        """The same rows, those of each bidder by gain, GPUs and digest; of equal ones the first of the bid first."""
        return self._taken(np.lexsort((self.index, self.tie, self.gpus, -self.gain, self.bidder)), self.row_start)

    def with_fewest_parts_first(self, bids: Sequence[Bid]) -> Rows:
        """Rows that are `best_first`, and such as differ only in which pinned GPUs belong together in an order too.

        The fewest parts come first, then the smaller ones: payments keep or take a part as one, so it matters which of
        these rows wins, though the digest does not know them apart.
        """
        keys = (self.bidder, self.gain, self.gpus, self.tie)
        like_the_one_before = np.logical_and.reduce([key[1:] == key[:-1] for key in keys])
        like_the_one_before &= np.diff(self.pin_start)[1:] > 0
        if not like_the_one_before.any():
            return self
        order = np.arange(self.rows)
        for run in np.split(order, np.flatnonzero(~like_the_one_before) + 1):
            if len(run) > 1:
                bid = bids[self.bidder[run[0]]]
                order[run] = sorted(run.tolist(), key=lambda row: _grouping(bid, int(self.index[row])))
        return self._taken(order, self.row_start)

    def _taken(self, order: NDArray[np.intp], row_start: NDArray[np.int64] | Ints) -> Rows:
        lengths = np.diff(self.pin_start)[order]
        pins = np.repeat(self.pin_start[:-1][order] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        return Rows(
            row_start=row_start.astype(np.int32),
            index=self.index[order],
            gain=self.gain[order],
            gpus=self.gpus[order],
            tie=self.tie[order],
            counts=self.counts[order],
            pin_start=np.concatenate(([0], np.cumsum(lengths))).astype(np.int32),
            pin_machine=self.pin_machine[pins],
            pin_gpus=self.pin_gpus[pins],
        )


class MarketArrays(Value, frozen=True, dict=True, kw_only=True):
    """A market in arrays: machines with a free GPU by id, bids by app id, kinds of gangs, rows, and the gain of 1.0."""

    machines: tuple[FreeMachine, ...]
    bids: tuple[Bid, ...]
    kinds: tuple[Kind, ...]
    rows: Rows
    unit: float

    @cached_property
    def rack_of(self) -> Mapping[str, str]:
        """Rack by machine."""
        return {machine.machine_id: machine.rack_id for machine in self.machines}

    @cached_property
    def row_index(self) -> list[int]:
        """The index of each row in its bid: what N + 1 problems ask for one by one."""
        found: list[int] = self.rows.index.tolist()
        return found

    @cached_property
    def empty_logs(self) -> list[float | None]:
        """The log of what each bid says of nothing; None where that is 0."""
        return [log_of(bid.empty_value) for bid in self.bids]


def log_of(value: float) -> float | None:
    """The log of a value; None of 0."""
    return math.log(value) if value > 0 else None


def read_market(market: Market) -> MarketArrays:
    """The arrays of a market, without rows that cannot win: too large alone, or worth no more than nothing."""
    machines = tuple(sorted((m for m in market.machines if m.free), key=lambda machine: machine.machine_id))
    bids = tuple(sorted(market.bids, key=lambda bid: bid.app_id))
    reader = _Reader(machines, one_rack=has_one_rack(machines))
    row_start = [0]
    for bid in bids:
        reader.read(bid)
        row_start.append(len(reader.values))
    return reader.arrays(machines, bids, row_start)


def digests_of(market: Market) -> Mapping[tuple[str, int], int]:
    """The digest by which ties are decided, of each row that may win, by app id and index in the bid."""
    arrays = read_market(market)
    rows = arrays.rows
    apps = (arrays.bids[bidder].app_id for bidder in rows.bidder.tolist())
    return dict(zip(zip(apps, rows.index.tolist(), strict=True), rows.tie.tolist(), strict=True))


class _Reader:
    """Rows under construction, as flat lists: one pass of plain Python over what is most of a large auction's data."""

    def __init__(self, machines: Sequence[FreeMachine], *, one_rack: bool) -> None:
        self._position = {machine.machine_id: index for index, machine in enumerate(machines)}
        self._free = {machine.machine_id: machine.free for machine in machines}
        self._total = sum(self._free.values())
        self._one_rack = one_rack
        self._kinds: dict[Kind, int] = {}
        # By identity: the bids keep their gangs alive, and agents use one object for many rows.
        self._known: dict[int, tuple[int, int, int]] = {}
        self.values: list[float] = []
        self._index: list[int] = []
        self._gpus: list[int] = []
        self._cells: list[tuple[int, int, int]] = []
        self._pins: list[tuple[int, int, int]] = []

    def read(self, bid: Bid) -> None:
        """Add the rows of a bid that may win."""
        known, empty_value, free = self._known, bid.empty_value, self._free
        for index, row in enumerate(bid.rows):
            if row.value <= empty_value:
                continue
            pinned = row.pinned.counts
            gpus = 0
            for machine, count in pinned:
                gpus = gpus + count if count <= free.get(machine, 0) else self._total + 1
            number = len(self.values)
            cells = []
            for gang in row.gangs:
                kind, count, total = known.get(id(gang)) or self._learn(gang)
                cells.append((number, kind, count))
                gpus += total
            if gpus <= self._total:
                self.values.append(row.value)
                self._index.append(index)
                self._gpus.append(gpus)
                self._cells += cells
                if pinned:
                    self._pins += [(number, self._position[machine], count) for machine, count in pinned]

    def _learn(self, gang: Gang) -> tuple[int, int, int]:
        kind = self._kinds.setdefault(kind_of(gang, one_rack=self._one_rack), len(self._kinds))
        return self._known.setdefault(id(gang), (kind, gang.count, gang.total_gpus))

    def arrays(
        self, machines: tuple[FreeMachine, ...], bids: tuple[Bid, ...], row_start: Sequence[int]
    ) -> MarketArrays:
        """What was read, in canonical order of kinds and rows."""
        # Not those of left-out rows only: one that nobody can win may make the others harder to place.
        asked_for = {kind for _, kind, _ in self._cells}
        kinds = sorted(kind for kind, number in self._kinds.items() if number in asked_for)
        counts = np.zeros((len(self.values), len(kinds)), dtype=np.int32)
        if self._cells:
            place = np.empty(len(self._kinds), dtype=np.intp)
            place[[self._kinds[kind] for kind in kinds]] = np.arange(len(kinds))
            row, kind, count = np.array(self._cells, dtype=np.int64).T
            np.add.at(counts, (row, place[kind]), count)
        pin_row, pin_machine, pin_gpus = np.array(self._pins, dtype=np.int64).reshape(-1, 3).T
        starts = np.array(row_start, dtype=np.int32)
        gain, unit = _gains(np.array(self.values), starts, bids)
        pin_count = np.bincount(pin_row, minlength=len(self.values))
        rows = Rows(
            row_start=starts,
            index=np.array(self._index, dtype=np.int32),
            gain=gain,
            gpus=np.array(self._gpus, dtype=np.int32),
            tie=_digests(starts, bids, counts, pin_row, pin_machine, pin_gpus),
            counts=counts,
            pin_start=np.concatenate(([0], np.cumsum(pin_count))).astype(np.int32),
            pin_machine=pin_machine.astype(np.int32),
            pin_gpus=pin_gpus.astype(np.int32),
        )
        ordered = rows.only(gain > 0).best_first().with_fewest_parts_first(bids)
        return MarketArrays(machines=machines, bids=bids, kinds=tuple(kinds), rows=ordered, unit=unit)


def _grouping(bid: Bid, index: int) -> tuple[int, list[Allocation], int]:
    """How a row's pinned GPUs belong together, to order rows by; of equal ones the first of the bid comes first."""
    parts = sorted(bid.rows[index].pinned_parts)
    return len(parts), parts, index


def _gains(values: NDArray[np.float64], row_start: Ints, bids: Sequence[Bid]) -> tuple[Longs, float]:
    """Gains in whole units, and the unit. To be rescued from a value of 0 gains more than all else together."""
    bidder = np.repeat(np.arange(len(bids)), np.diff(row_start))
    empty = np.array([bid.empty_value for bid in bids])
    # math.log, not numpy's: the reference solvers use it, and equal values shall have equal logs.
    logs = np.array([math.log(value) for value in values.tolist()])
    log_empty = np.array([math.log(value) if value > 0 else 0.0 for value in empty.tolist()])
    gain = logs - log_empty[bidder]
    rescued = empty[bidder] == 0
    rescue = 1.0 + 2.0 * _sum_of_largest(np.abs(gain), row_start) if rescued.any() else 0.0
    total = _sum_of_largest(gain + rescue * rescued, row_start)
    unit = 2.0 ** min(_FINEST, _BITS - math.ceil(math.log2(total + 1.0)))
    # Rounded each on its own: what a rescue is worth depends on who is in the market, and equals shall not.
    return np.rint(gain * unit).astype(np.int64) + round(rescue * unit) * rescued, unit


def _sum_of_largest(gain: NDArray[np.float64], row_start: Ints) -> float:
    """Sum over bidders of their largest gain."""
    some = np.diff(row_start) > 0
    return float(np.maximum.reduceat(gain, row_start[:-1][some]).sum()) if some.any() else 0.0


def _digests(
    row_start: Ints, bids: Sequence[Bid], counts: Ints, pin_row: Longs, pin_machine: Longs, pin_gpus: Longs
) -> Longs:
    """36 bits for each row, from its app and what it asks for: sums of them tell choices apart."""
    app = np.array([zlib.crc32(bid.app_id.encode()) for bid in bids], dtype=np.uint64)
    digest = np.repeat(app, np.diff(row_start))
    for kind in range(counts.shape[1]):
        digest = mixed(digest + counts[:, kind].astype(np.uint64))
    pins = np.zeros(len(digest), dtype=np.uint64)
    np.add.at(pins, pin_row, mixed(pin_machine.astype(np.uint64) * np.uint64(65_537) + pin_gpus.astype(np.uint64)))
    return (mixed(digest + pins) >> np.uint64(28)).astype(np.int64)


def mixed(number: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: neighbours end far apart."""
    number = (number + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    return (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
