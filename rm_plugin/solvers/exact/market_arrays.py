"""A market as arrays: the rows that may win, their gains, and what they ask for."""

from __future__ import annotations

import math
import zlib
from array import array
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.kinds import Kind, has_one_rack, kind_of
from rm_plugin.solvers.port import Win
from themis.bids import Bid, FreeMachine, GangRequest, Market
from themis.cluster import Allocation
from themis.values import Value, cached_property

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

_FINEST = 40
"""Gains are multiples of 2**-40 unless they are too large. Sums then do not depend on their order, and one over a
thousand bidders errs by less than 1e-9. Equal products of different values may differ by one unit."""
_BITS = 60
"""Bits that the sum of all bidders' best gains may take."""

_INT, _FLOAT = 4, 8
"""Bytes of the numbers that the core returns."""


class Rows(Value, frozen=True, dict=True, kw_only=True):
    """Rows that may win, bidder by bidder, best first.

    Attributes:
        row_start: First row of each bidder, and the end [bidders + 1].
        index: Index of the row in its bid [rows].
        gain: What it adds to the log objective over winning nothing, in multiples of 1 / unit [rows].
        gpus: GPUs that it asks for [rows].
        tie: Digest of the app, gangs and pins, which decides ties [rows].
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

    @classmethod
    def allocate(cls, bidders: int, rows: int, kinds: int, pins: int) -> Rows:
        """Allocate arrays of these lengths, for the core to write to."""
        return cls(
            row_start=np.empty(bidders + 1, dtype=np.int32),
            index=np.empty(rows, dtype=np.int32),
            gain=np.empty(rows, dtype=np.int64),
            gpus=np.empty(rows, dtype=np.int32),
            tie=np.empty(rows, dtype=np.int64),
            counts=np.empty((rows, kinds), dtype=np.int32),
            pin_start=np.empty(rows + 1, dtype=np.int32),
            pin_machine=np.empty(pins, dtype=np.int32),
            pin_gpus=np.empty(pins, dtype=np.int32),
        )

    def first(self, rows: int, pins: int) -> Rows:
        """The first `rows` rows with their `pins` pins. All bidders stay."""
        if rows == self.rows:
            return self
        return Rows(
            row_start=self.row_start,
            index=self.index[:rows],
            gain=self.gain[:rows],
            gpus=self.gpus[:rows],
            tie=self.tie[:rows],
            counts=self.counts[:rows],
            pin_start=self.pin_start[: rows + 1],
            pin_machine=self.pin_machine[:pins],
            pin_gpus=self.pin_gpus[:pins],
        )

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.gain)

    @cached_property
    def pin_row(self) -> NDArray[np.intp]:
        """The row of each pin [pins]."""
        return np.repeat(np.arange(self.rows), np.diff(self.pin_start))

    @cached_property
    def bidder(self) -> NDArray[np.intp]:
        """The bidder of each row [rows]."""
        return np.repeat(np.arange(len(self.row_start) - 1), np.diff(self.row_start))

    def only(self, keep: NDArray[np.bool_]) -> Rows:
        """Only the rows marked in `keep`. Bidders without a row stay."""
        if keep.all():
            return self
        return self._taken(np.flatnonzero(keep), np.concatenate(([0], np.cumsum(keep)))[self.row_start])

    def with_fewest_parts_first(self, bids: Sequence[Bid]) -> Rows:
        """Order rows that differ only in which pinned GPUs belong together: fewest parts first, then smaller ones.

        Digests do not distinguish such rows, but payments keep or take each part as a whole.
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
    """A market in arrays.

    Attributes:
        machines: Machines with a free GPU, by id.
        bids: Bids, by app id. A bidder's position is its place here.
        kinds: Kinds of the gangs that rows ask for.
        rows: Rows that may win.
        unit: The gain that stands for 1.0 of log value.
    """

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
    def free_gpus(self) -> int:
        """Free GPUs of all machines."""
        return sum([machine.free for machine in self.machines])

    @cached_property
    def row_index(self) -> list[int]:
        """The index of each row in its bid, as Python numbers."""
        found: list[int] = self.rows.index.tolist()
        return found

    @cached_property
    def known_logs(self) -> dict[int, float]:
        """Cached log values of rows; the N + 1 problems usually choose the same ones."""
        return {}

    @cached_property
    def unplaced(self) -> dict[int, Win]:
        """Rows as wins without places, created on first access."""
        return _Unplaced(self.row_index)

    @cached_property
    def empty_logs(self) -> list[float | None]:
        """The log of each bid's empty value. It is None if that value is 0."""
        return [math.log(value) if (value := bid.empty_value) > 0 else None for bid in self.bids]

    @cached_property
    def position(self) -> Mapping[str, int]:
        """Position of each bidder by app id."""
        return {app_id: place for place, app_id in enumerate(self.app_ids)}

    @cached_property
    def app_ids(self) -> list[str]:
        """The app of each bid."""
        return [bid.app_id for bid in self.bids]


class _Unplaced(dict[int, Win]):
    """Wins without places by row, created on first access."""

    def __init__(self, row_index: Sequence[int]) -> None:
        super().__init__()
        self._row_index = row_index

    def __missing__(self, row: int) -> Win:
        win = self[row] = Win(row=self._row_index[row], gangs=())
        return win


def read_market(market: Market) -> MarketArrays:
    """Read a market. Rows that cannot win are dropped: too large alone, or worth no more than winning nothing."""
    machines = tuple(sorted((m for m in market.machines if m.free), key=lambda machine: machine.machine_id))
    bids = tuple(sorted(market.bids, key=lambda bid: bid.app_id))
    here = {machine.machine_id: (index, machine.free) for index, machine in enumerate(machines)}
    total_gpus = sum([free for _, free in here.values()])
    numbers = _KindNumbers(total_gpus, one_rack=has_one_rack(machines))
    row_start, empty, values, index, gpus, cells, pins = _core.read_bids(bids, here, total_gpus, numbers.learn)
    kinds, place = numbers.ordered(set(array("i", cells)[1::3]))
    read = Rows.allocate(len(bids), len(values) // _FLOAT, len(kinds), len(pins) // (3 * _INT))
    apps = array("q", map(_DIGESTS.__getitem__, map(_APP_ID, bids)))
    unit, rows, pinned, alike = _core.order_rows(
        *(_FINEST, _BITS, row_start, empty, apps, values, index, gpus, cells, array("i", place), pins),
        read.row_start,
        read.index,
        read.gain,
        read.gpus,
        read.tie,
        read.counts,
        read.pin_start,
        read.pin_machine,
        read.pin_gpus,
    )
    ordered = read.first(rows, pinned)
    if alike:
        ordered = ordered.with_fewest_parts_first(bids)
    return MarketArrays(machines=machines, bids=bids, kinds=tuple(kinds), rows=ordered, unit=unit)


def digests_of(market: Market) -> Mapping[tuple[str, int], int]:
    """The digest of each row that may win, by app id and index in the bid. Digests decide ties."""
    arrays = read_market(market)
    rows = arrays.rows
    apps = (arrays.bids[bidder].app_id for bidder in rows.bidder.tolist())
    return dict(zip(zip(apps, rows.index.tolist(), strict=True), rows.tie.tolist(), strict=True))


class _KindNumbers:
    """Numbers of the kinds of gangs, in the order in which bids name them."""

    def __init__(self, total_gpus: int, *, one_rack: bool) -> None:
        self._total_gpus = total_gpus
        self._one_rack = one_rack
        self._kinds: dict[Kind, int] = {}

    def learn(self, gang: GangRequest) -> tuple[int, int, int]:
        """The number of a gang's kind, its count and its total GPUs; the free GPUs plus one if it needs more."""
        kind = self._kinds.setdefault(kind_of(gang, one_rack=self._one_rack), len(self._kinds))
        if gang.total_gpus > self._total_gpus:
            return kind, 0, self._total_gpus + 1
        return kind, gang.count, gang.total_gpus

    def ordered(self, asked_for: Collection[int]) -> tuple[list[Kind], list[int]]:
        """The kinds with these numbers in canonical order, and the place of each number among them.

        Kinds that only dropped rows name are left out: they could only make the resources insufficient.
        """
        kinds = sorted([kind for kind, number in self._kinds.items() if number in asked_for])
        place = [0] * len(self._kinds)
        for new, kind in enumerate(kinds):
            place[self._kinds[kind]] = new
        return kinds, place


class _Digests(dict[str, int]):
    """Digests of app ids, cached because an app bids in many markets."""

    _MAX = 65_536

    def __missing__(self, app_id: str) -> int:
        if len(self) >= self._MAX:
            self.clear()
        digest = self[app_id] = zlib.crc32(app_id.encode())
        return digest


_DIGESTS = _Digests()
_APP_ID = attrgetter("app_id")


def _grouping(bid: Bid, index: int) -> tuple[int, list[Allocation], int]:
    """Sort key of rows by their pinned parts; of equal ones the first in the bid comes first."""
    parts = sorted(bid.rows[index].pinned_parts)
    return len(parts), parts, index
