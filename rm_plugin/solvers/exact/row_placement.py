"""Places for chosen rows: the certificate that a choice is feasible (docs/design/auction.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from itertools import accumulate, chain

import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.bidders import MarketRow
from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.market_arrays import Ints, MarketArrays
from rm_plugin.solvers.exact.pattern_assignment import IN_RACK, assign_patterns
from rm_plugin.solvers.exact.resources import Item, item_of
from rm_plugin.solvers.exact.separation import Pattern
from rm_plugin.solvers.kinds import Kind, packing_order
from rm_plugin.solvers.realise import Layout, by_nearness, realise
from themis.bids import PlacedGang
from themis.cluster import Allocation, Level, level_across
from themis.errors import InvariantError
from themis.placement.enumeration import assign_slots

_YES = 1
_MAX_STORED_SEARCHES = 4_000
"""Placement searches whose results are kept, some megabytes. Lists of a dive have patterns in common."""
_STEPS = 20_000
"""Steps of a placement search for one list of patterns, about ten milliseconds."""
_MAX_SPARING_WORK = 1_000_000
"""Units of rack gangs times machines of a rack, past which best fit does not look for what they spoil."""


class RowPlacer:
    """Places rows of a market on its machines."""

    def __init__(self, market: MarketArrays) -> None:
        self._market = market
        machines = market.machines
        racks = {rack: number for number, rack in enumerate(sorted({machine.rack_id for machine in machines}))}
        self._racks = len(racks)
        self._searched: dict[tuple[object, ...], NDArray[np.int32] | None] = {}
        self._rack = np.array([racks[machine.rack_id] for machine in machines], dtype=np.int32)
        slots = [machine.free_slots for machine in machines]
        self._slot_start, self._slot_free = _ends(slots), np.array(list(chain.from_iterable(slots)), dtype=np.int32)
        self.free: Ints = np.array([machine.free for machine in machines], dtype=np.int32)
        kinds = market.kinds
        self._shapes = np.array([(kind.level, kind.gpus, kind.unit) for kind in kinds], dtype=np.int32).reshape(-1, 3)
        self._items = [item_of(kind) for kind in kinds]
        self._racks_first = sorted(range(len(kinds)), key=lambda kind: (kinds[kind].level is not Level.RACK, kind))
        by_rank = sorted(range(len(kinds)), key=lambda kind: packing_order(kinds[kind]))
        self._by_rank = np.array(by_rank, dtype=np.int32)
        racks_first = sorted(by_rank, key=lambda kind: kinds[kind].level is not Level.RACK)
        self._racks_then_rank = np.array(racks_first, dtype=np.int32)

    def of_rows(self, market: MarketArrays) -> RowPlacer:
        """A placer for other rows of the same machines and kinds."""
        same = copy(self)
        same._market = market
        return same

    def left_beside(self, chosen: Ints) -> Ints:
        """Free GPUs of each machine, less those that the chosen rows pin [machines]."""
        rows = self._market.rows
        left = self.free.copy()
        lengths = rows.pin_start[chosen + 1] - rows.pin_start[chosen]
        pins = np.repeat(rows.pin_start[chosen] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        np.subtract.at(left, rows.pin_machine[pins], rows.pin_gpus[pins])
        return left

    def pack(self, chosen: Ints) -> Packed | int:
        """Place rows by best fit; returns the kind of the first gang without a place if that fails.

        The largest gangs come first. If a rack gang then finds no place, rack gangs come first, and take the GPUs that
        spoil the fewest whole parts for others.
        """
        packed = self._by_best_fit(chosen, sparing=False)
        if isinstance(packed, Packed) or not self._may_spare(chosen):
            return packed
        spared = self._by_best_fit(chosen, sparing=True)
        return spared if isinstance(spared, Packed) else packed

    def _may_spare(self, chosen: Ints) -> bool:
        """Whether there are rack gangs, and few enough to look for what they spoil."""
        counts = self._market.rows.counts[chosen].sum(axis=0)
        units = sum(
            int(many) * kind.units
            for kind, many in zip(self._market.kinds, counts, strict=True)
            if kind.level is Level.RACK
        )
        return 0 < units <= _MAX_SPARING_WORK // max(1, int(np.bincount(self._rack).max(initial=0)))

    def _by_best_fit(self, chosen: Ints, *, sparing: bool) -> Packed | int:
        rows, gpus = self._market.rows, self._market.free_gpus
        parts = np.empty((gpus + 1, 4), dtype=np.int32)
        owner = np.empty(gpus + 1, dtype=np.int32)
        written = _core.pack_chosen(
            self._racks,
            self.free,
            self._rack,
            self._slot_start,
            self._slot_free,
            chosen.astype(np.int32, copy=False),
            self._shapes,
            self._racks_then_rank if sparing else self._by_rank,
            rows.counts,
            rows.pin_start,
            rows.pin_machine,
            rows.pin_gpus,
            sparing,
            parts,
            owner,
        )
        if written < 0:
            return -1 - written
        return Packed(self._market, owner, parts[:written])

    def by_machine_patterns(self, chosen: Ints, patterns: Sequence[Pattern]) -> Searched | None:
        """Place rows by patterns of single machines; the last pattern is for all other machines together."""
        left = self.left_beside(chosen)
        *whole, rest = patterns
        others = self._one_a_machine(rest, left)
        if others is None:
            return None
        counts = self._market.rows.counts[chosen].sum(axis=0)
        parts = assign_patterns(self._market, counts, left, [*whole, *others])
        return None if parts is None else Searched(self._market, chosen, parts)

    def _one_a_machine(self, pattern: Pattern, left: Ints) -> list[Pattern] | None:
        """Split a pattern of several machines into patterns of single ones, by search. Single GPUs fit anywhere."""
        items = [item for item in pattern.items if item.gpus > 1]
        if not items:
            return []
        shapes = [(Level.SLOT if item.in_slot else Level.MACHINE, item.gpus, item.gpus) for item in items]
        counts = np.array([pattern.items[item] for item in items], dtype=np.int32)
        parts = self._search(pattern.machines, left, np.array(shapes, dtype=np.int32), counts, _STEPS)
        if parts is None:
            return None
        held: dict[int, Counter[Item]] = {}
        for number, machine, _, _ in parts.tolist():
            held.setdefault(machine, Counter())[items[number]] += 1
        return [Pattern(machines=(machine,), items=here, gangs={}) for machine, here in sorted(held.items())]

    def by_group_patterns(self, chosen: Ints, patterns: Sequence[Pattern], most_steps: int) -> Searched | None:
        """Divide the rows' gangs among patterns of groups of machines, and place them inside each group by search."""
        kinds, left = self._market.kinds, self.left_beside(chosen)
        counts = self._market.rows.counts[chosen].sum(axis=0)
        # Units of cluster gangs are independent of each other; each stays on one machine.
        units = np.array([kind.units if kind.level is Level.CLUSTER and kind.unit > 1 else 1 for kind in kinds])
        shapes = np.array(
            [
                (Level.MACHINE, k.unit, k.unit) if many > 1 else (k.level, k.gpus, k.unit)
                for k, many in zip(kinds, units, strict=True)
            ],
            dtype=np.int32,
        ).reshape(-1, 3)
        to_place = (counts * units).tolist()
        parts = []
        for pattern in patterns:
            here = self._take(pattern, to_place)
            found = self._search_again(pattern.machines, left, shapes, np.array(here, dtype=np.int32), most_steps)
            if found is None:
                return None
            parts.append(found)
        if any(many for many, kind in zip(to_place, kinds, strict=True) if kind.unit > 1 or kind.level is Level.RACK):
            return None
        return Searched(self._market, chosen, np.concatenate([np.empty((0, 4), dtype=np.int32), *parts]))

    def _take(self, pattern: Pattern, to_place: list[int]) -> list[int]:
        """Count the gangs of each kind that a pattern's items form, rack gangs first; subtract them from `to_place`."""
        here = [0] * len(to_place)
        items, gangs = dict(pattern.items), dict(pattern.gangs)
        for number in self._racks_first:
            kind, item, many = self._market.kinds[number], self._items[number], to_place[number]
            if not many:
                continue
            if kind.level is Level.RACK and kind.unit == 1:
                here[number] = min(many, gangs.get(kind.gpus, 0))
                gangs[kind.gpus] = gangs.get(kind.gpus, 0) - here[number]
            elif kind.unit > 1:
                each = kind.units if kind.level is Level.RACK else 1
                here[number] = min(many, items.get(item, 0) // each)
                items[item] = items.get(item, 0) - here[number] * each
            to_place[number] -= here[number]
        return here

    def _search_again(
        self, machines: tuple[int, ...], left: Ints, shapes: Ints, counts: Ints, most_steps: int
    ) -> NDArray[np.int32] | None:
        """As `_search`, with the answers of earlier searches."""
        key = (machines, left[list(machines)].tobytes(), shapes.tobytes(), counts.tobytes(), most_steps)
        if key not in self._searched:
            if len(self._searched) >= _MAX_STORED_SEARCHES:
                self._searched.clear()
            self._searched[key] = self._search(machines, left, shapes, counts, most_steps)
        return self._searched[key]

    def _search(
        self, machines: Sequence[int], left: Ints, shapes: Ints, counts: Ints, most_steps: int
    ) -> NDArray[np.int32] | None:
        """Parts of gangs on these machines. Returns None if the search finds no places within its steps."""
        members = np.array(machines, dtype=np.int64)
        slots = [self._market.machines[machine].free_slots for machine in members.tolist()]
        parts = np.empty((2 * int(left[members].sum()) + 2, 4), dtype=np.int32)
        answer, written = _core.fit(
            self._racks,
            left[members],
            self._rack[members],
            _ends(slots),
            np.array(list(chain.from_iterable(slots)), dtype=np.int32),
            shapes,
            counts,
            most_steps,
            parts,
        )
        if answer != _YES:
            return None
        found = parts[:written]
        found[:, 1] = members[found[:, 1]]
        return found


def _market_row(market: MarketArrays, row: int) -> MarketRow:
    rows = market.rows
    pins = slice(rows.pin_start[row], rows.pin_start[row + 1])
    machines = (market.machines[machine].machine_id for machine in rows.pin_machine[pins])
    pinned = Allocation(tuple(zip(machines, rows.pin_gpus[pins].tolist(), strict=True)))
    return MarketRow(
        row=row,
        log_value=0.0,
        kinds=tuple((market.kinds[kind], int(rows.counts[row, kind])) for kind in np.flatnonzero(rows.counts[row])),
        pinned=pinned,
        pinned_parts=(),
    )


def _layout(market: MarketArrays, parts: Ints) -> Layout:
    """Parts as quotas for `realise`: gangs by slot, machine and rack, units by machine."""
    slots: Counter[tuple[Kind, str, int]] = Counter()
    on_machines: Counter[tuple[Kind, str]] = Counter()
    racks: Counter[tuple[Kind, str]] = Counter()
    units: Counter[tuple[int, str]] = Counter()
    in_slots: dict[int, list[int]] = {}
    for number, machine, where, gpus in parts.tolist():
        kind, place = market.kinds[number], market.machines[machine]
        if where == IN_RACK:
            racks[kind, place.rack_id] += 1
        elif kind.level is Level.SLOT:
            in_slots.setdefault(machine, []).append(gpus)
        elif kind.level is Level.MACHINE:
            on_machines[kind, place.machine_id] += 1
        else:
            units[gpus, place.machine_id] += 1
    for machine, sizes in in_slots.items():
        place = market.machines[machine]
        for gpus, slot in assign_slots(sizes, place.free_slots) or ():
            slots[Kind(Level.SLOT, gpus, gpus), place.machine_id, slot] += 1
    return Layout(slots=slots, machines=on_machines, racks=racks, units=units)


def _ends(parts: Iterable[Sequence[int]]) -> Ints:
    """Start of each part in the concatenation of all, and its end."""
    return np.array([0, *accumulate(map(len, parts))], dtype=np.int32)


class Searched:
    """Places of chosen rows as parts (kind, machine, where, GPUs), from patterns and searches."""

    def __init__(self, market: MarketArrays, chosen: Ints, parts: Ints) -> None:
        self._market = market
        self._chosen = chosen
        self._parts = parts

    def gangs(self) -> Mapping[int, tuple[PlacedGang, ...]]:
        """Placed gangs by row, tightest level first, without pinned ones."""
        layout = _layout(self._market, self._parts)
        rows = {str(row): _market_row(self._market, row) for row in self._chosen.tolist()}
        placed = realise(self._market.machines, rows, layout)
        if placed is None:
            raise InvariantError("the placement search placed gangs that do not fit", value=len(rows))
        return {int(row): tuple(gang for gang in gangs if not gang.pinned) for row, gangs in placed.items()}


class Packed:
    """Places by best fit: the row of each gang, and parts (gang, machine, slot or -1, GPUs)."""

    def __init__(self, market: MarketArrays, row_of_gang: Ints, parts: Ints) -> None:
        self._market = market
        self._row_of_gang = row_of_gang
        self._parts = parts

    def gangs(self) -> Mapping[int, tuple[PlacedGang, ...]]:
        """Placed gangs by row, tightest level first, without pinned ones."""
        machines = self._market.machines
        rack_of = {machine.machine_id: machine.rack_id for machine in machines}
        by_gang: dict[int, list[tuple[int, int, int]]] = {}
        for gang, machine, slot, gpus in self._parts.tolist():
            by_gang.setdefault(gang, []).append((machine, slot, gpus))
        placed: dict[int, list[PlacedGang]] = {}
        for gang, parts in by_gang.items():
            gpus = Allocation(tuple(sorted((machines[machine].machine_id, count) for machine, _, count in parts)))
            slot = parts[0][1] if len(parts) == 1 and parts[0][1] >= 0 else None
            level = level_across(gpus.by_machine(), rack_of, slot)
            placed.setdefault(int(self._row_of_gang[gang]), []).append(PlacedGang(gpus=gpus, level=level, slot=slot))
        return {row: tuple(sorted(gangs, key=by_nearness)) for row, gangs in placed.items()}
