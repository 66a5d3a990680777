"""From chosen rows to machines: every gang gets its GPUs, nearest first, the same way on every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import field

from rm_plugin.solvers.candidates import Candidate
from rm_plugin.solvers.kinds import Kind
from rm_plugin.solvers.packing import Room, span, spread
from themis.bids import FreeMachine, PlacedGang
from themis.cluster import Allocation, Level
from themis.values import Value


class Layout(Value, frozen=True, kw_only=True):
    """Where a solver put gangs, as counts: a certificate that the chosen rows fit, whoever gets which gang.

    `slots` counts gangs by (gpus, machine, slot), `machines` by (gpus, machine), `racks` by (kind, rack); `units`
    counts units of rack and cluster gangs by (unit, machine), for units of two GPUs and more (single GPUs fit wherever
    room is).
    """

    slots: Mapping[tuple[int, str, int], int] = field(default_factory=dict)
    machines: Mapping[tuple[int, str], int] = field(default_factory=dict)
    racks: Mapping[tuple[Kind, str], int] = field(default_factory=dict)
    units: Mapping[tuple[int, str], int] = field(default_factory=dict)


def realise(
    machines: Iterable[FreeMachine], chosen: Mapping[str, Candidate], layout: Layout | None = None
) -> dict[str, tuple[PlacedGang, ...]] | None:
    """Put the chosen rows on machines; None when this way of packing finds no room.

    Without a layout: pinned GPUs first, then slot, machine, rack and cluster gangs, largest first, each by best fit and
    as near as it can lie (nearer than asked when it can). That is a heuristic; with the layout of a feasible solution
    the same order stays within it and always succeeds. Gangs alike are dealt out by app id.

    Args:
        machines: The free machines.
        chosen: The winning row by app id.
        layout: Places to stay within, or None.

    Returns:
        Gangs by app id, nearest first, pinned parts last.
    """
    packer = _Packer(Room(machines), layout)
    pinned = [(machine, count) for row in chosen.values() for machine, count in row.pinned]
    if not all(packer.room.reserve(machine, count) for machine, count in pinned):
        return None
    placed: dict[str, list[PlacedGang]] = {app_id: [] for app_id in sorted(chosen)}
    for kind, app_id in _in_packing_order(chosen):
        gang = packer.place(kind)
        if gang is None:
            return None
        placed[app_id].append(gang)
    return {
        app_id: (*sorted(gangs, key=by_nearness), *pinned_gangs(chosen[app_id].pinned_parts, packer.room.rack_of))
        for app_id, gangs in placed.items()
    }


def _in_packing_order(chosen: Mapping[str, Candidate]) -> list[tuple[Kind, str]]:
    gangs = [(kind, app_id) for app_id, row in chosen.items() for kind, count in row.kinds for _ in range(count)]
    return sorted(gangs, key=lambda gang: (_rank(gang[0]), gang[1]))


def _rank(kind: Kind) -> tuple[int, ...]:
    """Units that must stay whole before single GPUs; within these nearest level first, then the largest gang."""
    return (int(kind.unit == 1), kind.level, -kind.unit, -kind.gpus)


def by_nearness(gang: PlacedGang) -> tuple[int, int, tuple[tuple[str, int], ...], int]:
    """Key that sorts gangs as a win tells them: nearest first, then the largest, then by place."""
    return (gang.level, -gang.gpus.gpus, gang.gpus.counts, -1 if gang.slot is None else gang.slot)


def pinned_gangs(parts: Sequence[Allocation], rack_of: Mapping[str, str]) -> Sequence[PlacedGang]:
    """Pinned parts as gangs, with the level that each spans."""
    return [PlacedGang(gpus=part, level=span([machine for machine, _ in part], rack_of), pinned=True) for part in parts]


class _Packer:
    """Places one gang after the other in a room, within a layout's quotas where one is given."""

    def __init__(self, room: Room, layout: Layout | None) -> None:
        self.room = room
        self._bound = layout is not None
        limits = layout or Layout()
        self._slots = Counter(limits.slots)
        self._machines = Counter(limits.machines)
        self._racks = Counter(limits.racks)
        self._units = Counter(limits.units)
        self._place: Mapping[Level, Callable[[Kind], PlacedGang | None]] = {
            Level.SLOT: self._in_slot,
            Level.MACHINE: self._on_machine,
            Level.RACK: self._in_rack,
            Level.CLUSTER: self._anywhere,
        }

    def place(self, kind: Kind) -> PlacedGang | None:
        """The gang on its machines, taken out of the room; None when there is no place."""
        return self._place[kind.level](kind)

    def _in_slot(self, kind: Kind) -> PlacedGang | None:
        places = [
            (free, self.room.free(machine_id), machine_id, slot)
            for machine_id in self.room.machine_ids
            for slot, free in enumerate(self.room.slot_free(machine_id))
            if free >= kind.gpus and (not self._bound or self._slots[kind.gpus, machine_id, slot] > 0)
        ]
        if not places:
            return None
        _, _, machine_id, slot = min(places)
        self._slots[kind.gpus, machine_id, slot] -= 1
        return self.room.take_slot(machine_id, slot, kind.gpus)

    def _on_machine(self, kind: Kind) -> PlacedGang | None:
        places = [
            (self.room.free(machine_id), machine_id)
            for machine_id in self.room.machine_ids
            if self.room.free(machine_id) >= kind.gpus
            and (not self._bound or self._machines[kind.gpus, machine_id] > 0)
        ]
        if not places:
            return None
        _, machine_id = min(places)
        self._machines[kind.gpus, machine_id] -= 1
        return self.room.take({machine_id: kind.gpus})

    def _in_rack(self, kind: Kind) -> PlacedGang | None:
        units = self._units_free(kind)
        room = {rack: sum(units[machine] for machine in members) for rack, members in self.room.racks.items()}
        fitting = [
            (free, rack)
            for rack, free in room.items()
            if free >= kind.units and (not self._bound or self._racks[kind, rack] > 0)
        ]
        if not fitting:
            return None
        _, rack = min(fitting)
        self._racks[kind, rack] -= 1
        return self._take_units(kind, spread(units, {rack: self.room.racks[rack]}, kind.units))

    def _anywhere(self, kind: Kind) -> PlacedGang | None:
        return self._take_units(kind, spread(self._units_free(kind), self.room.racks, kind.units))

    def _units_free(self, kind: Kind) -> dict[str, int]:
        units = {machine_id: self.room.free(machine_id) // kind.unit for machine_id in self.room.machine_ids}
        if self._bound and kind.unit > 1:
            return {machine_id: min(free, self._units[kind.unit, machine_id]) for machine_id, free in units.items()}
        return units

    def _take_units(self, kind: Kind, units: Mapping[str, int] | None) -> PlacedGang | None:
        if units is None:
            return None
        for machine_id, count in units.items():
            self._units[kind.unit, machine_id] -= count
        return self.room.take({machine_id: count * kind.unit for machine_id, count in units.items()})
