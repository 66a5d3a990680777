"""Turn chosen rows into gangs on machines. The same rows get the same machines on every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import field
from msgspec.structs import replace

from rm_plugin.solvers.bidders import MarketRow
from rm_plugin.solvers.kinds import Kind, packing_order
from themis.apps import Slowdown
from themis.bids import FreeMachine, GangDemand, PlacedGang
from themis.cluster import Allocation, Level, level_across
from themis.placement.best_fit import best_fit, spread
from themis.placement.free_capacity import FreeCapacity
from themis.values import Value


class Layout(Value, frozen=True, kw_only=True):
    """How many gangs a solver put where: a certificate that the chosen rows fit, without saying who gets which gang.

    Attributes:
        slots: Gangs by (kind, machine, slot).
        machines: Gangs by (kind, machine).
        racks: Gangs by (kind, rack).
        types: Cluster gangs by (kind, device type), if device types matter.
        units: Units of rack and cluster gangs by (unit GPUs, machine), for units of at least two GPUs. Single GPUs fit
            on any machine with free GPUs.
    """

    slots: Mapping[tuple[Kind, str, int], int] = field(default_factory=dict)
    machines: Mapping[tuple[Kind, str], int] = field(default_factory=dict)
    racks: Mapping[tuple[Kind, str], int] = field(default_factory=dict)
    types: Mapping[tuple[Kind, str], int] = field(default_factory=dict)
    units: Mapping[tuple[int, str], int] = field(default_factory=dict)


def racks_by_type(machines: Iterable[FreeMachine]) -> tuple[FreeMachine, ...]:
    """The machines with racks of one device type each: those of one type in a rack. Gangs of one type keep their level.

    The rack of a machine is named RACK/TYPE.
    """
    return tuple([replace(machine, rack_id=f"{machine.rack_id}/{machine.device}") for machine in machines])


def realise(
    machines: Sequence[FreeMachine],
    chosen: Mapping[str, MarketRow],
    layout: Layout | None = None,
    *,
    has_types: bool = False,
) -> dict[str, tuple[PlacedGang, ...]] | None:
    """Place the chosen rows on machines. Returns None if this way of packing finds no place for a gang.

    Pinned GPUs come first, then the other gangs, in order of app ids within a kind.

    Without a layout, gangs come in `packing_order`, and each gets the tightest level at which there is a place, by the
    rule of `themis.placement`. That is a heuristic. `exact/core/best_fit.c` is the same in C for markets without device
    types. With the layout of a feasible solution, slot, machine, rack and cluster gangs come in this order, largest
    first, each by best fit within the counts, and this always succeeds.

    Args:
        machines: The free machines.
        chosen: The winning row by app id.
        layout: Counts to stay within, or None.
        has_types: Whether device types matter (`kinds.has_types`).

    Returns:
        Gangs by app id, tightest level first, pinned parts last.
    """
    capacity = FreeCapacity(racks_by_type(machines) if has_types else machines)
    pinned = [(machine, count) for row in chosen.values() for machine, count in row.pinned]
    if not all(capacity.reserve(machine, count) for machine, count in pinned):
        return None
    packer = _BestFit(capacity) if layout is None else _WithinLayout(capacity, layout)
    gangs = [(kind, app_id) for app_id, row in chosen.items() for kind, count in row.kinds for _ in range(count)]
    placed: dict[str, list[PlacedGang]] = {app_id: [] for app_id in sorted(chosen)}
    for kind, app_id in sorted(gangs, key=lambda gang: (packer.order(gang[0]), gang[1])):
        gang = packer.place(kind)
        if gang is None:
            return None
        placed[app_id].append(gang)
    rack_of = {machine.machine_id: machine.rack_id for machine in machines}
    return {
        app_id: (*sorted(gangs, key=by_nearness), *pinned_gangs(chosen[app_id].pinned_parts, rack_of))
        for app_id, gangs in placed.items()
    }


def by_nearness(gang: PlacedGang) -> tuple[int, int, tuple[tuple[str, int], ...], int]:
    """Sort key for the gangs of a win: tightest level first, then the largest, then by place."""
    return (gang.level, -gang.gpus.gpus, gang.gpus.counts, -1 if gang.slot is None else gang.slot)


def pinned_gangs(parts: Sequence[Allocation], rack_of: Mapping[str, str]) -> Sequence[PlacedGang]:
    """Pinned parts as gangs, with the level that each spans."""
    return [
        PlacedGang(gpus=part, level=level_across([machine for machine, _ in part], rack_of), pinned=True)
        for part in parts
    ]


class _BestFit:
    """Places one gang after the other where `themis.placement` puts it, within the level of its kind."""

    order = staticmethod(packing_order)

    def __init__(self, capacity: FreeCapacity) -> None:
        self._capacity = capacity
        self._demands: dict[Kind, GangDemand] = {}

    def place(self, kind: Kind) -> PlacedGang | None:
        """Take a gang out of the free capacity. Returns None if no place is left."""
        demand = self._demands.get(kind)
        if demand is None:
            demand = self._demands[kind] = GangDemand(
                job_id="", min_gpus=kind.gpus, max_gpus=kind.gpus, unit_gpus=kind.unit, slowdown=_BY_LEVEL
            )
        capacity = self._capacity.of_type(kind.device) if kind.device else self._capacity
        gang = best_fit(capacity, demand)
        if gang is None or gang.level > kind.level:
            return None
        self._capacity.take(gang)
        return replace(gang, device="")


_BY_LEVEL = Slowdown(slot=1.0, machine=2.0, rack=3.0, cluster=4.0)
"""Any S that grows from level to level: the tightest level is the fastest."""


class _WithinLayout:
    """Places one gang after the other by best fit, within the counts of a layout."""

    def __init__(self, capacity: FreeCapacity, layout: Layout) -> None:
        self.capacity = capacity
        self._slots = Counter(layout.slots)
        self._machines = Counter(layout.machines)
        self._racks = Counter(layout.racks)
        self._types = Counter(layout.types)
        self._units = Counter(layout.units)

    @staticmethod
    def order(kind: Kind) -> tuple[int, ...]:
        """The sort key of gangs: units before single GPUs, then the tightest level, so that slots stay free."""
        return (int(kind.unit == 1), kind.level, -kind.unit, -kind.gpus, int(not kind.device))

    def place(self, kind: Kind) -> PlacedGang | None:
        """Take a gang out of the free capacity. Returns None if no place is left."""
        if kind.level > Level.MACHINE:
            return self._on_machines(kind)
        if kind.level is Level.MACHINE:
            on = self.capacity.tightest_machine(
                kind.gpus, lambda at: self._suits(kind, at) and self._machines[kind, at] > 0
            )
            if on is None:
                return None
            self._machines[kind, on] -= 1
            return self.capacity.place({on: kind.gpus})
        place = self.capacity.tightest_slot(
            kind.gpus,
            lambda machine_id, slot: self._suits(kind, machine_id) and self._slots[kind, machine_id, slot] > 0,
        )
        if place is None:
            return None
        _, machine_id, slot = place
        self._slots[kind, machine_id, slot] -= 1
        return self.capacity.place_in_slot(machine_id, slot, kind.gpus)

    def _suits(self, kind: Kind, machine_id: str) -> bool:
        return not kind.device or kind.device == self.capacity.device_of(machine_id)

    def _on_machines(self, kind: Kind) -> PlacedGang | None:
        """A gang in a rack, the tightest that holds it, or anywhere on one device type."""
        free = self.capacity.units(kind.unit)
        if kind.unit > 1:
            free = {machine_id: min(units, self._units[kind.unit, machine_id]) for machine_id, units in free.items()}
        racks = self.capacity.racks
        if kind.level is Level.RACK:
            in_rack = {rack: sum([free.get(name, 0) for name in members]) for rack, members in racks.items()}
            fitting = [
                (units, rack)
                for rack, units in in_rack.items()
                if units >= kind.units and self._suits(kind, racks[rack][0]) and self._racks[kind, rack] > 0
            ]
            if not fitting:
                return None
            _, rack = min(fitting)
            self._racks[kind, rack] -= 1
            racks = {rack: racks[rack]}
        elif len(self.capacity.device_types) > 1 or kind.device:
            # Racks have one device type each: those of the chosen type.
            device = self._type_for(kind, free)
            if device is None:
                return None
            self._types[kind, device] -= 1
            racks = {rack: members for rack, members in racks.items() if self.capacity.device_of(members[0]) == device}
        chosen = spread(free, racks, kind.units)
        if chosen is None:
            return None
        for machine_id, units in chosen.items():
            self._units[kind.unit, machine_id] -= units
        return self.capacity.place({machine_id: units * kind.unit for machine_id, units in chosen.items()})

    def _type_for(self, kind: Kind, free: Mapping[str, int]) -> str | None:
        """The device type for a cluster gang: of those that hold it, the one with the fewest free units."""
        by_type: dict[str, int] = {}
        for machine_id, units in free.items():
            device = self.capacity.device_of(machine_id)
            by_type[device] = by_type.get(device, 0) + units
        # A layout does not say where single GPUs of any type go: they fit wherever there is one.
        bound = kind.gpus > 1 or bool(kind.device)
        fitting = [
            (units, device)
            for device, units in by_type.items()
            if units >= kind.units and kind.device in ("", device) and (not bound or self._types[kind, device] > 0)
        ]
        return min(fitting)[1] if fitting else None
