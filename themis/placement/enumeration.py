"""All placements of a gang, one of each set of interchangeable ones: for small exhaustive searches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from themis.bids import FreeMachine, Gang, PlacedGang
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


def placements(gang: Gang, capacity: FreeCounts) -> Iterator[tuple[PlacedGang, FreeCounts]]:
    """Yield every distinct placement of one gang, with the GPUs that it leaves free.

    Machines of one rack and device type with equal free GPUs are interchangeable: of placements in a slot or on a
    machine only the one on the first of them is yielded. The same holds for equal slots of a machine. Placements over
    several machines come after those on one, and may be interchangeable.
    """
    machines, free = capacity.machines, capacity.free
    seen: set[tuple[object, ...]] = set()
    for index, machine in enumerate(machines):
        key = (machine.rack_id, machine.device, free[index], capacity.slots[index])
        if free[index] < gang.gpus or key in seen:
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
    if gang.within <= Level.MACHINE:
        return
    racks = sorted({machine.rack_id for machine in machines})
    rack_of = {machine.machine_id: machine.rack_id for machine in machines}
    groups = [[n for n, machine in enumerate(machines) if machine.rack_id == rack] for rack in racks]
    for members in groups if gang.within is Level.RACK else [list(range(len(machines)))]:
        for parts in _divide(gang.gpus, gang.unit_gpus, members, free):
            if len(parts) > 1:
                counts = {machines[index].machine_id: gpus for index, gpus in parts}
                yield (
                    PlacedGang(gpus=Allocation.of(counts), level=level_across(counts, rack_of)),
                    capacity.without(parts),
                )


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
