"""Free GPUs as a working copy: which machine, rack or slot has room, and gangs put there by best fit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from themis.bids import FreeMachine, PlacedGang
from themis.cluster import Allocation, Level
from themis.errors import InvariantError

Place = tuple[int, str, int]
"""A slot: the free GPUs of its machine, the machine's id, the slot's number. Of equal slots the least is the best."""


class Room:
    """Free GPUs of each slot by machine; gangs are taken out one after the other.

    GPUs can be reserved on a machine without saying in which slot (pinned GPUs: only their count by machine is known);
    they stop counting as free at once, and leave the choice of slots to the gangs that care.

    Args:
        machines: The free machines, in any order; every choice between equals goes to the smaller machine id.
    """

    __slots__ = (
        "_by_free",
        "_machine_free",
        "_moved",
        "_open",
        "_places",
        "_racks",
        "_slots",
        "_units",
        "gpus",
        "machine_ids",
        "rack_of",
    )

    def __init__(self, machines: Iterable[FreeMachine]) -> None:
        ordered = sorted(machines, key=lambda machine: machine.machine_id)
        self.machine_ids: tuple[str, ...] = tuple(machine.machine_id for machine in ordered)
        self.rack_of: dict[str, str] = {machine.machine_id: machine.rack_id for machine in ordered}
        self._slots = {machine.machine_id: list(machine.free_slots) for machine in ordered}
        self._machine_free = {machine.machine_id: machine.free for machine in ordered}
        self._racks: dict[str, list[str]] = {}
        for machine in ordered:
            self._racks.setdefault(machine.rack_id, []).append(machine.machine_id)
        self._count()

    def _count(self) -> None:
        """What follows from the free GPUs of each machine; `_less` keeps it so."""
        self.gpus = sum(self._machine_free.values())
        # Machines with a free GPU, smaller ids first. In a busy cluster they are few, and all others need no look.
        self._open = {machine_id: None for machine_id, free in self._machine_free.items() if free}
        self._units: dict[int, dict[str, int]] = {}
        # Slots by what they have free: as of some time, and the machines that changed since.
        self._by_free: dict[int, set[Place]] = {}
        self._places: dict[str, list[tuple[int, Place]]] = {}
        self._moved = set(self._open)

    def units(self, unit_gpus: int) -> Mapping[str, int]:
        """Whole units free on each machine that has a free GPU; not to be kept while gangs are taken."""
        units = self._units.get(unit_gpus)
        if units is None:
            units = {machine_id: self._machine_free[machine_id] // unit_gpus for machine_id in self._open}
            self._units[unit_gpus] = units
        return units

    def part(self, gpus: Mapping[str, int]) -> Room:
        """A room of its own with at most so many of the free GPUs of each machine, in the same slots and racks."""
        part = Room.__new__(Room)
        part.rack_of, part._racks = self.rack_of, self._racks
        part._machine_free = {
            machine_id: min(self._machine_free[machine_id], count)
            for machine_id, count in sorted(gpus.items())
            if machine_id in self._machine_free
        }
        part.machine_ids = tuple(part._machine_free)
        part._slots = {machine_id: list(self._drained_slots(machine_id)) for machine_id in part.machine_ids}
        part._count()
        return part

    @property
    def racks(self) -> Mapping[str, Sequence[str]]:
        """Machine ids by rack."""
        return self._racks

    def free(self, machine_id: str) -> int:
        """Free GPUs of a machine, reserved ones left aside; 0 for a machine that is not here."""
        return self._machine_free.get(machine_id, 0)

    def slot_free(self, machine_id: str) -> Sequence[int]:
        """Free GPUs of each slot; never more than the machine's own free GPUs. Not to be kept while gangs are taken."""
        limit, slots = self._machine_free[machine_id], self._slots[machine_id]
        # Mostly nothing is reserved.
        return slots if not slots or limit >= max(slots) else [min(free, limit) for free in slots]

    def tightest_slot(self, gpus: int) -> Place | None:
        """The slot with least free GPUs, but at least so many; of equals the least place. None where there is none."""
        by_free = self.slots_by_free()
        fitting = [free for free, places in by_free.items() if free >= gpus and places]
        return min(by_free[min(fitting)]) if fitting else None

    def tightest_slot_on(self, machine_id: str, gpus: int, most: int) -> int | None:
        """`tightest_slot` on one machine that is here, of which no more than `most` GPUs count as free.

        As in a `part` of the room, reserved GPUs are taken out of the smallest slots first.
        """
        limit = min(self._machine_free[machine_id], most)
        fitting = [
            (min(free, limit), slot) for slot, free in enumerate(self._drained_slots(machine_id)) if free >= gpus
        ]
        return min(fitting)[1] if fitting else None

    def slots_by_free(self) -> Mapping[int, Collection[Place]]:
        """Slots by how many GPUs of them are free, as `slot_free` tells; not to be kept while gangs are taken.

        Among them may be numbers of GPUs that no slot has free.
        """
        # Mostly one machine: the last gang was taken there.
        for machine_id in self._moved:
            for free, place in self._places.pop(machine_id, ()):
                self._by_free[free].discard(place)
            there = self._machine_free[machine_id]
            if there:
                slots = self.slot_free(machine_id)
                places = [(free, (there, machine_id, slot)) for slot, free in enumerate(slots) if free]
                self._places[machine_id] = places
                for free, place in places:
                    self._by_free.setdefault(free, set()).add(place)
        self._moved.clear()
        return self._by_free

    def reserve(self, machine_id: str, gpus: int) -> bool:
        """Set GPUs of a machine aside without a slot; False, and nothing changed, when there are too few."""
        if self.free(machine_id) < gpus:
            return False
        if gpus:
            self._less(machine_id, gpus)
        return True

    def take_slot(self, machine_id: str, slot: int, gpus: int) -> PlacedGang:
        """Take a gang out of one slot."""
        self._take_slot(machine_id, slot, gpus)
        return PlacedGang(gpus=Allocation(((machine_id, gpus),)), level=Level.SLOT, slot=slot)

    def take(self, parts: Mapping[str, int]) -> PlacedGang:
        """Take a gang out of these machines, GPUs by machine; the result carries the level that it really spans."""
        if len(parts) == 1:
            ((machine_id, gpus),) = parts.items()
            slot = self._tightest_slot(machine_id, gpus)
            if slot is not None:
                return self.take_slot(machine_id, slot, gpus)
        for machine_id, gpus in parts.items():
            self._take_spread(machine_id, gpus)
        return PlacedGang(gpus=Allocation.of(parts), level=self.level_of(parts))

    def remove(self, gang: PlacedGang) -> None:
        """Take a placed gang's GPUs out, of its slot where it has one."""
        if gang.slot is not None:
            ((machine_id, gpus),) = gang.gpus.counts
            self._take_slot(machine_id, gang.slot, gpus)
            return
        for machine_id, gpus in gang.gpus:
            self._take_spread(machine_id, gpus)

    def level_of(self, machine_ids: Iterable[str]) -> Level:
        """The level that spans these machines: MACHINE, RACK or CLUSTER."""
        return span(machine_ids, self.rack_of)

    def machines(self) -> tuple[FreeMachine, ...]:
        """What is free now, as values; reserved GPUs are taken out of the smallest slots first."""
        rest = []
        for machine_id in self.machine_ids:
            slots = self._drained_slots(machine_id)
            rest.append(FreeMachine(machine_id=machine_id, rack_id=self.rack_of[machine_id], free_slots=slots))
        return tuple(rest)

    def _drained_slots(self, machine_id: str) -> tuple[int, ...]:
        slots = tuple(self._slots[machine_id])
        reserved = sum(slots) - self._machine_free[machine_id]
        return _drained(slots, reserved) if reserved else slots

    def _less(self, machine_id: str, gpus: int) -> None:
        """Count so many GPUs of a machine as free no more."""
        self._machine_free[machine_id] -= gpus
        self.gpus -= gpus
        if not self._machine_free[machine_id]:
            self._open.pop(machine_id, None)
        self._units.clear()
        self._moved.add(machine_id)

    def _tightest_slot(self, machine_id: str, gpus: int) -> int | None:
        fitting = [(free, slot) for slot, free in enumerate(self.slot_free(machine_id)) if free >= gpus]
        return min(fitting)[1] if fitting else None

    def _take_slot(self, machine_id: str, slot: int, gpus: int) -> None:
        slots = self._slots[machine_id]
        if slots[slot] < gpus or self._machine_free[machine_id] < gpus:
            raise InvariantError("a slot has too few free GPUs", value=(machine_id, slot, gpus))
        slots[slot] -= gpus
        self._less(machine_id, gpus)

    def _take_spread(self, machine_id: str, gpus: int) -> None:
        if self.free(machine_id) < gpus:
            raise InvariantError("a machine has too few free GPUs", value=(machine_id, gpus))
        self._less(machine_id, gpus)
        self._slots[machine_id] = list(_drained(tuple(self._slots[machine_id]), gpus))


def span(machine_ids: Iterable[str], rack_of: Mapping[str, str]) -> Level:
    """The level that spans these machines: MACHINE, RACK or CLUSTER."""
    members = set(machine_ids)
    if len(members) <= 1:
        return Level.MACHINE
    return Level.RACK if len({rack_of[machine_id] for machine_id in members}) == 1 else Level.CLUSTER


@lru_cache(1 << 14)
def _drained(slots: tuple[int, ...], gpus: int) -> tuple[int, ...]:
    """What is left of slots once GPUs are taken: of the tightest that holds all, else of the smallest first.

    Machines are alike, and most of them are full or nearly so: few different questions are asked.
    """
    left = list(slots)
    while gpus:
        fitting = [(free, slot) for slot, free in enumerate(left) if free >= gpus]
        free, slot = min(fitting) if fitting else min((free, slot) for slot, free in enumerate(left) if free)
        taken = min(free, gpus)
        left[slot] -= taken
        gpus -= taken
    return tuple(left)


def spread(
    units_by_machine: Mapping[str, int], racks: Mapping[str, Sequence[str]], units: int
) -> dict[str, int] | None:
    """Put `units` units on few machines of few racks, or None when there is too little room.

    The last piece goes where it fits most tightly, pieces before it take the roomiest rack or machine whole; equals go
    to the smaller id.

    Args:
        units_by_machine: Units that each machine has room for.
        racks: Machine ids by rack; machines outside them are not used.
        units: Units to place.
    """
    room = {rack: sum(units_by_machine.get(machine, 0) for machine in members) for rack, members in racks.items()}
    chosen: dict[str, int] = {}
    for rack, rack_units in _cover(room, units).items():
        inside = {machine: units_by_machine.get(machine, 0) for machine in racks[rack]}
        chosen.update(_cover(inside, rack_units))
    return chosen if sum(chosen.values()) == units else None


def _cover(room: Mapping[str, int], wanted: int) -> dict[str, int]:
    """Cover `wanted` with the fewest holders: whole largest ones, then the one that fits the rest most tightly."""
    left = {name: units for name, units in room.items() if units > 0}
    chosen: dict[str, int] = {}
    while wanted > 0 and left:
        fitting = [(units, name) for name, units in left.items() if units >= wanted]
        name = min(fitting)[1] if fitting else min((-units, name) for name, units in left.items())[1]
        chosen[name] = min(left.pop(name), wanted)
        wanted -= chosen[name]
    return chosen
