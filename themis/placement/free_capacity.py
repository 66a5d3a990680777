"""Free GPUs by slot, machine and rack, as a working copy from which gangs are taken."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from themis.bids import FreeMachine, PlacedGang
from themis.cluster import Allocation, Level, level_across
from themis.errors import InvariantError

SlotPlace = tuple[int, str, int]
"""A slot: the free GPUs of its machine, the machine id, the slot number.

Their order is the rule on ties (`themis.placement`, rules 2 and 3): of equally free slots the least place fits best. On
one machine that is the slot with the smaller number (`_tightest_of`).
"""


SlotCounts = tuple[tuple[str, tuple[int, ...]], ...]
"""GPUs by slot: pairs of a machine id and the number of GPUs in each of its slots, machines in any order."""


class FreeCapacity:
    """Free GPUs of each slot by machine. Gangs are taken one after the other.

    GPUs can be reserved on a machine without a slot: of pinned GPUs only the count by machine is known. Reserved GPUs
    stop counting as free at once, and the choice of slots is left to gangs that need a certain one.

    Args:
        machines: Free machines, in any order. Machines without a free GPU add only their rack.
    """

    __slots__ = (
        "_by_free",
        "_changed",
        "_device_of",
        "_machine_free",
        "_open",
        "_places",
        "_racks",
        "_slots",
        "_types",
        "_units",
        "_views",
        "gpus",
        "machine_ids",
        "rack_of",
    )

    def __init__(self, machines: Iterable[FreeMachine]) -> None:
        ordered = sorted(machines, key=lambda machine: machine.machine_id)
        self.machine_ids: tuple[str, ...] = tuple(machine.machine_id for machine in ordered)
        self.rack_of: dict[str, str] = {machine.machine_id: machine.rack_id for machine in ordered}
        self._device_of = {machine.machine_id: machine.device for machine in ordered}
        self._types = tuple(sorted(set(self._device_of.values())))
        self._slots = {machine.machine_id: list(machine.free_slots) for machine in ordered}
        self._machine_free = {machine.machine_id: machine.free for machine in ordered}
        self._racks: dict[str, list[str]] = {}
        for machine in ordered:
            self._racks.setdefault(machine.rack_id, []).append(machine.machine_id)
        self._index()

    def _index(self) -> None:
        """Derive totals and indexes from the free GPUs of each machine; `_reduce` keeps them current."""
        self.gpus = sum(self._machine_free.values())
        # Machines with a free GPU, smaller ids first. A busy cluster has few of them.
        self._open = {machine_id: None for machine_id, free in self._machine_free.items() if free}
        self._units: dict[int, dict[str, int]] = {}
        # Slots by their free GPUs. Machines in `_changed` are indexed again on the next read.
        self._by_free: dict[int, set[SlotPlace]] = {}
        self._places: dict[str, list[tuple[int, SlotPlace]]] = {}
        self._changed = set(self._open)
        # Copies by device type, dropped when one of their machines changes.
        self._views: dict[str, FreeCapacity] = {}

    # ---- reading ----

    @property
    def racks(self) -> Mapping[str, Sequence[str]]:
        """Machine ids by rack."""
        return self._racks

    def free(self, machine_id: str) -> int:
        """Free GPUs of a machine without reserved ones; 0 for an unknown machine."""
        return self._machine_free.get(machine_id, 0)

    def slot_free(self, machine_id: str) -> Sequence[int]:
        """Free GPUs of each slot, at most the machine's free GPUs. Valid until the next change."""
        limit, slots = self._machine_free[machine_id], self._slots[machine_id]
        # Usually nothing is reserved.
        return slots if not slots or limit >= max(slots) else [min(free, limit) for free in slots]

    def units(self, unit_gpus: int) -> Mapping[str, int]:
        """Whole free units of each machine that has a free GPU. Valid until the next change."""
        units = self._units.get(unit_gpus)
        if units is None:
            units = {machine_id: self._machine_free[machine_id] // unit_gpus for machine_id in self._open}
            self._units[unit_gpus] = units
        return units

    def level_of(self, machine_ids: Iterable[str], slot: int | None = None) -> Level:
        """The level that a gang on these machines spans; see `level_across`."""
        return level_across(machine_ids, self.rack_of, slot)

    @property
    def device_types(self) -> tuple[str, ...]:
        """The device types of all machines, by name; a type may have no free GPU."""
        return self._types

    def device_of(self, machine_id: str) -> str:
        """The device type of a known machine."""
        return self._device_of[machine_id]

    def of_type(self, device: str) -> FreeCapacity:
        """The machines of one device type, to search them. Valid until the next change; take nothing from it."""
        if self._types == (device,):
            return self
        view = self._views.get(device)
        if view is None:
            view = FreeCapacity([machine for machine in self.machines() if machine.device == device])
            # A gang to extend may be on machines without a free GPU here: their racks count.
            view.rack_of = self.rack_of
            self._views[device] = view
        return view

    def machines(self) -> tuple[FreeMachine, ...]:
        """The free GPUs as values. Reserved GPUs are subtracted from the smallest slots first."""
        return tuple(
            FreeMachine(
                machine_id=machine_id,
                rack_id=self.rack_of[machine_id],
                free_slots=self._unreserved_slots(machine_id),
                device=self._device_of[machine_id],
            )
            for machine_id in self.machine_ids
        )

    # ---- best fit: the tightest holder of a number of GPUs ----

    def largest_slot(self) -> int:
        """Free GPUs of the slot with the most."""
        return max([free for free, places in self.slots_by_free().items() if places], default=0)

    def tightest_slot(self, gpus: int, accept: Callable[[str, int], bool] | None = None) -> SlotPlace | None:
        """The accepted slot with the fewest free GPUs that has at least `gpus`. Ties: the least `SlotPlace`.

        Args:
            gpus: How many GPUs the slot must have free.
            accept: Whether a slot (machine id, slot number) may be used; any may by default.
        """
        by_free = self.slots_by_free()
        for free in sorted([free for free, places in by_free.items() if free >= gpus and places]):
            places = by_free[free]
            accepted = places if accept is None else [place for place in places if accept(*place[1:])]
            if accepted:
                return min(accepted)
        return None

    def tightest_slot_on(self, machine_id: str, gpus: int, limit: int) -> int | None:
        """`tightest_slot` of one known machine, as if at most `limit` of its GPUs were free (see `part`)."""
        most = min(self._machine_free[machine_id], limit)
        return _tightest_of([min(free, most) for free in self._unreserved_slots(machine_id)], gpus)

    def tightest_machine(self, gpus: int, accept: Callable[[str], bool] | None = None) -> str | None:
        """The accepted machine with the fewest free GPUs that has at least `gpus`; ties: the smaller id."""
        fitting = [
            (self._machine_free[machine_id], machine_id)
            for machine_id in self._open
            if self._machine_free[machine_id] >= gpus and (accept is None or accept(machine_id))
        ]
        return min(fitting)[1] if fitting else None

    def slots_by_free(self) -> Mapping[int, Collection[SlotPlace]]:
        """Slots by their free GPUs as `slot_free` counts them. A key may have no slots. Valid until the next change."""
        # Usually one machine: the last gang was taken there.
        for machine_id in self._changed:
            for free, place in self._places.pop(machine_id, ()):
                self._by_free[free].discard(place)
            machine_free = self._machine_free[machine_id]
            if machine_free:
                slots = self.slot_free(machine_id)
                places = [(free, (machine_free, machine_id, slot)) for slot, free in enumerate(slots) if free]
                self._places[machine_id] = places
                for free, place in places:
                    self._by_free.setdefault(free, set()).add(place)
        self._changed.clear()
        return self._by_free

    # ---- copies ----

    def part(self, gpus: Mapping[str, int]) -> FreeCapacity:
        """An independent copy with at most these free GPUs of each machine, in the same slots and racks.

        GPUs beyond that are subtracted from the smallest slots first.
        """
        part = FreeCapacity.__new__(FreeCapacity)
        part.rack_of, part._racks, part._device_of = self.rack_of, self._racks, self._device_of
        part._machine_free = {
            machine_id: min(self._machine_free[machine_id], count)
            for machine_id, count in sorted(gpus.items())
            if machine_id in self._machine_free
        }
        part.machine_ids = tuple(part._machine_free)
        one_type = len(self._types) <= 1
        part._types = self._types if one_type else tuple(sorted({self._device_of[name] for name in part.machine_ids}))
        part._slots = {machine_id: list(self._unreserved_slots(machine_id)) for machine_id in part.machine_ids}
        part._index()
        return part

    def part_of_slots(self, gpus: Mapping[str, Sequence[int]]) -> FreeCapacity:
        """As `part`, with at most these free GPUs of each slot, by machine."""
        part = self.part({machine_id: sum(slots) for machine_id, slots in gpus.items()})
        for machine_id in part.machine_ids:
            free = list(map(min, self._unreserved_slots(machine_id), gpus[machine_id]))
            part._slots[machine_id], part._machine_free[machine_id] = free, sum(free)
        part._index()
        return part

    def copy(self) -> FreeCapacity:
        """An independent copy."""
        return self.part(self._machine_free)

    # ---- taking ----

    def reserve(self, machine_id: str, gpus: int) -> bool:
        """Reserve GPUs of a machine without a slot. Returns False and changes nothing if too few are free."""
        if self.free(machine_id) < gpus:
            return False
        if gpus:
            self._reduce(machine_id, gpus)
        return True

    def take(self, gang: PlacedGang) -> None:
        """Take a placed gang: from its slot if it has one, else from the tightest slots of its machines.

        Raises:
            InvariantError: Too few GPUs are free there.
        """
        if gang.slot is not None:
            ((machine_id, gpus),) = gang.gpus.counts
            self._take_from_slot(machine_id, gang.slot, gpus)
            return
        for machine_id, gpus in gang.gpus:
            self._take_from_machine(machine_id, gpus)

    def take_from_slots(self, machine_id: str, gpus: Sequence[int]) -> None:
        """Take these GPUs of each slot of a machine.

        Raises:
            InvariantError: Too few GPUs are free there.
        """
        for slot, count in enumerate(gpus):
            if count:
                self._take_from_slot(machine_id, slot, count)

    def place_in_slot(self, machine_id: str, slot: int, gpus: int) -> PlacedGang:
        """Take GPUs from one slot and return them as a gang."""
        self._take_from_slot(machine_id, slot, gpus)
        return PlacedGang(gpus=Allocation(((machine_id, gpus),)), level=Level.SLOT, slot=slot)

    def place(self, parts: Mapping[str, int]) -> PlacedGang:
        """Take GPUs by machine and return them as a gang. On one machine the tightest slot that holds all is used."""
        if len(parts) == 1:
            ((machine_id, gpus),) = parts.items()
            slot = _tightest_of(self.slot_free(machine_id), gpus)
            if slot is not None:
                return self.place_in_slot(machine_id, slot, gpus)
        for machine_id, gpus in parts.items():
            self._take_from_machine(machine_id, gpus)
        return PlacedGang(gpus=Allocation.of(parts), level=self.level_of(parts))

    # ---- inside ----

    def _unreserved_slots(self, machine_id: str) -> tuple[int, ...]:
        slots = tuple(self._slots[machine_id])
        reserved = sum(slots) - self._machine_free[machine_id]
        return slots_after(slots, reserved) if reserved else slots

    def _reduce(self, machine_id: str, gpus: int) -> None:
        self._machine_free[machine_id] -= gpus
        self.gpus -= gpus
        if not self._machine_free[machine_id]:
            self._open.pop(machine_id, None)
        self._units.clear()
        self._changed.add(machine_id)
        if self._views:
            self._views.pop(self._device_of[machine_id], None)

    def _take_from_slot(self, machine_id: str, slot: int, gpus: int) -> None:
        slots = self._slots[machine_id]
        if slots[slot] < gpus or self._machine_free[machine_id] < gpus:
            raise InvariantError("a slot has too few free GPUs", value=(machine_id, slot, gpus))
        slots[slot] -= gpus
        self._reduce(machine_id, gpus)

    def _take_from_machine(self, machine_id: str, gpus: int) -> None:
        if self.free(machine_id) < gpus:
            raise InvariantError("a machine has too few free GPUs", value=(machine_id, gpus))
        self._reduce(machine_id, gpus)
        self._slots[machine_id] = list(slots_after(tuple(self._slots[machine_id]), gpus))


def _tightest_of(slots: Sequence[int], gpus: int) -> int | None:
    """The slot of one machine with the fewest free GPUs that has at least `gpus`; ties: the smaller number."""
    fitting = [(free, slot) for slot, free in enumerate(slots) if free >= gpus]
    return min(fitting)[1] if fitting else None


def own_slots_after(own: tuple[int, ...], count: int, slot: int | None) -> tuple[int, ...]:
    """How many of its app's own GPUs are left in each slot of a machine after a gang renewed as many as it can use.

    A gang in a slot renews GPUs of that slot, any other gang those of the tightest slots.

    Example: of own GPUs (1, 2), a gang of two leaves (1, 0), and a gang of two in slot 0 leaves (0, 2).

    Args:
        own: The app's own GPUs in each slot of the machine.
        count: GPUs of the gang on the machine.
        slot: The slot of the gang, if any.
    """
    if slot is None:
        return slots_after(own, min(count, sum(own)))
    return tuple([max(0, free - count) if place == slot else free for place, free in enumerate(own)])


def slots_after(slots: tuple[int, ...], gpus: int) -> tuple[int, ...]:
    """Free GPUs of each slot after `gpus` are taken: from the tightest slot that holds all, else the smallest first.

    Raises:
        InvariantError: The slots have fewer free GPUs.
    """
    left = list(slots)
    while gpus:
        slot = _tightest_of(left, gpus)
        if slot is None:
            slot = _tightest_of(left, 1)
        if slot is None:
            raise InvariantError("the slots have too few free GPUs", value=(slots, gpus))
        taken = min(left[slot], gpus)
        left[slot] -= taken
        gpus -= taken
    return tuple(left)
