"""All distinct placements of a gang, and slots for the gangs of one machine: for small exhaustive searches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from themis.bids import FreeMachine, GangRequest, PlacedGang
from themis.cluster import Allocation, Level, level_across
from themis.values import Value


class FreeCounts(Value, frozen=True):
    """Free GPUs of machines as an immutable, hashable value. Every gang taken gives another value.

    Attributes:
        machines: The machines. Their own `free_slots` are not read.
        free: Free GPUs of each machine, in the same order.
        slots: Free GPUs of each slot of each machine. Gangs outside slots lower only `free`, so a slot has at most as
            many free GPUs as its machine. That is exact if all slot gangs are taken before the others.
    """

    machines: tuple[FreeMachine, ...]
    free: tuple[int, ...]
    slots: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, machines: Sequence[FreeMachine]) -> FreeCounts:
        """The free GPUs that the machines state."""
        return cls(
            tuple(machines),
            tuple([machine.free for machine in machines]),
            tuple([machine.free_slots for machine in machines]),
        )

    def without(self, parts: Sequence[tuple[int, int]], slot: int | None = None) -> FreeCounts:
        """The free GPUs after some are taken: GPUs by index of the machine, all from one slot if it is given."""
        free, slots = list(self.free), list(self.slots)
        for machine, gpus in parts:
            free[machine] -= gpus
            if slot is not None:
                here = slots[machine]
                slots[machine] = (*here[:slot], here[slot] - gpus, *here[slot + 1 :])
        return replace(self, free=tuple(free), slots=tuple(slots))


def placements(gang: GangRequest, capacity: FreeCounts) -> Iterator[tuple[PlacedGang, FreeCounts]]:
    """Yield every distinct placement of one gang, with the GPUs that it leaves free.

    Machines of one rack and device type with equal free GPUs are interchangeable: of placements in a slot or on a
    machine only the one on the first of them is yielded. The same holds for equal slots of a machine. Placements over
    several machines come after those on one, and may be interchangeable. All GPUs of a gang have one device type.
    """
    yield from _on_one_machine(gang, capacity)
    if gang.within <= Level.MACHINE:
        return
    machines = capacity.machines
    rack_of = {machine.machine_id: machine.rack_id for machine in machines}
    groups: dict[tuple[str, str], list[int]] = {}
    for index, machine in enumerate(machines):
        if gang.device in ("", machine.device):
            group = (machine.rack_id if gang.within is Level.RACK else "", machine.device)
            groups.setdefault(group, []).append(index)
    for _, members in sorted(groups.items()):
        for parts in _divide(gang.gpus, gang.unit_gpus, members, capacity.free):
            if len(parts) > 1:
                counts = {machines[index].machine_id: gpus for index, gpus in parts}
                yield (
                    PlacedGang(gpus=Allocation.of(counts), level=level_across(counts, rack_of)),
                    capacity.without(parts),
                )


def _on_one_machine(gang: GangRequest, capacity: FreeCounts) -> Iterator[tuple[PlacedGang, FreeCounts]]:
    free = capacity.free
    seen: set[tuple[object, ...]] = set()
    for index, machine in enumerate(capacity.machines):
        key = (machine.rack_id, machine.device, free[index], capacity.slots[index])
        if free[index] < gang.gpus or gang.device not in ("", machine.device) or key in seen:
            continue
        seen.add(key)
        gpus = Allocation(((machine.machine_id, gang.gpus),))
        if gang.within is not Level.SLOT:
            yield PlacedGang(gpus=gpus, level=Level.MACHINE), capacity.without([(index, gang.gpus)])
            continue
        slots = capacity.slots[index]
        for slot, slot_free in enumerate(slots):
            if slot_free >= gang.gpus and slot_free not in slots[:slot]:
                placed = PlacedGang(gpus=gpus, level=Level.SLOT, slot=slot)
                yield placed, capacity.without([(index, gang.gpus)], slot)


def _divide(gpus: int, unit: int, members: Sequence[int], free: Sequence[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Every division of GPUs over machines, in whole units; the most on the first machines first."""
    if gpus == 0:
        yield ()
        return
    if not members:
        return
    for here in range(min(gpus, free[members[0]]) // unit * unit, -1, -unit):
        for rest in _divide(gpus - here, unit, members[1:], free):
            yield ((members[0], here), *rest) if here else rest


def assign_slots(gangs: Iterable[int], free_slots: Sequence[int]) -> list[tuple[int, int]] | None:
    """Find a slot for every gang of one machine by exhaustive search, the largest gangs first.

    Args:
        gangs: The GPUs of each gang.
        free_slots: Free GPUs of each slot.

    Returns:
        (GPUs, slot) of each gang, largest first; None if they do not fit. Ties: the smaller slot number.
    """
    sizes = sorted(gangs, reverse=True)
    if not sizes:
        return []
    for slot, free in enumerate(free_slots):
        if free < sizes[0] or free in free_slots[:slot]:
            continue
        rest = assign_slots(sizes[1:], [*free_slots[:slot], free - sizes[0], *free_slots[slot + 1 :]])
        if rest is not None:
            return [(sizes[0], slot), *rest]
    return None
