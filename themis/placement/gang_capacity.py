"""How many gangs of a size some free GPUs hold, alone and together, and the levels that these GPUs distinguish."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from themis.bids import FreeMachine, GangRequest
from themis.cluster import Level

_Counted = dict[int, int]
"""The number of holders (machines, slots) by their free GPUs."""

Limit = tuple[tuple[int, ...], int]
"""How much one gang of each kind takes of a capacity, and that capacity."""


class GangCapacity:
    """Free GPUs, by the number of gangs that they hold. Nothing is placed: see `best_fit` for that.

    Machines with equally many free GPUs count together, so a question about a thousand machines is quick. Example:
    machines with 3, 3 and 2 free GPUs hold no gang of four within a machine. Anywhere they hold two in units of one
    GPU, and one in units of two: a unit never spans machines, so the machines hold three units.

    Args:
        free: Free GPUs by machine, at least one each.
        slots: Free GPUs of each slot by machine. Slots that are not free may be missing.
        rack_of: The rack by machine. Machines of unknown rack count as one rack, and might be in the rack of any other.

    Attributes:
        free: Free GPUs by machine.
        slots: Free GPUs of each slot by machine.
        rack_of: The rack by machine.
        gpus: All free GPUs.
    """

    def __init__(self, free: Mapping[str, int], slots: Mapping[str, Sequence[int]], rack_of: Mapping[str, str]) -> None:
        self.free, self.slots, self.rack_of = free, slots, rack_of
        self.gpus = sum(free.values())
        self._machines: _Counted = {}
        self._slots: _Counted = {}
        self._one_slot = True
        by_rack: dict[str | None, _Counted] = {}
        for machine, count in free.items():
            self._machines[count] = self._machines.get(count, 0) + 1
            in_slots = [gpus for gpus in slots.get(machine, ()) if gpus]
            self._one_slot = self._one_slot and len(in_slots) == 1
            for gpus in in_slots:
                within = min(gpus, count)
                self._slots[within] = self._slots.get(within, 0) + 1
            rack = by_rack.setdefault(rack_of.get(machine), {})
            rack[count] = rack.get(count, 0) + 1
        self._racks = by_rack
        self._one_rack = len(by_rack) <= 1 and None not in by_rack
        self._most: dict[tuple[int, int, Level], int] = {}

    @classmethod
    def of(cls, machines: Iterable[FreeMachine]) -> GangCapacity:
        """The capacity of some machines."""
        some = [machine for machine in machines if machine.free]
        return cls(
            {machine.machine_id: machine.free for machine in some},
            {machine.machine_id: machine.free_slots for machine in some},
            {machine.machine_id: machine.rack_id for machine in some},
        )

    # ---- levels ----

    @property
    def traits(self) -> tuple[bool, bool]:
        """What `level_here` depends on."""
        return self._one_slot, self._one_rack

    def level_here(self, level: Level) -> Level:
        """The tightest level at which a gang within `level` provably is here."""
        if level is Level.CLUSTER and self._one_rack:
            return Level.RACK
        return Level.SLOT if level is Level.MACHINE and self._one_slot else level

    def level_with(self, machines: Collection[str]) -> Level:
        """RACK if one rack provably spans these machines and all free GPUs, else CLUSTER."""
        racks = {self.rack_of.get(machine) for machine in machines} | self._racks.keys()
        return Level.RACK if len(racks) == 1 and None not in racks else Level.CLUSTER

    def in_rack(self, rack: str) -> dict[str, int]:
        """Free GPUs by machine of one rack, smaller ids first."""
        return {machine: self.free[machine] for machine in sorted(self.free) if self.rack_of.get(machine) == rack}

    # ---- how many gangs ----

    def most(self, gpus: int, unit_gpus: int, level: Level) -> int:
        """The most gangs of `gpus` GPUs, in units of `unit_gpus`, that fit within a level if nothing else is placed."""
        key = gpus, unit_gpus, level
        most = self._most.get(key)
        if most is None:
            most = self._most[key] = self._count_most(gpus, unit_gpus, level)
        return most

    def limits(self, gangs: Sequence[GangRequest]) -> tuple[Limit, ...]:
        """Necessary conditions for gangs of several kinds to fit together; gangs that meet them usually fit.

        Gangs within machines, or slots, need those with enough free GPUs, and each of these holds whole parts only.

        Args:
            gangs: The kinds; `count` is the most gangs of that kind that fit alone.
        """
        limits = [(tuple([gang.gpus for gang in gangs]), self.gpus)]
        for place, gang in enumerate(gangs):
            limits.append((tuple([int(other == place) for other in range(len(gangs))]), gang.count))
        in_slots = [gang.within is Level.SLOT for gang in gangs]
        for size in sorted({together_gpus(gang) for gang in gangs} - {1}):
            for holders, here in ((self._machines, [True] * len(gangs)), (self._slots, in_slots)):
                mine = [there and together_gpus(gang) >= size for gang, there in zip(gangs, here, strict=True)]
                taken = tuple([gang.gpus * takes for gang, takes in zip(gangs, mine, strict=True)])
                limits.append((taken, sum(count * many for count, many in holders.items() if count >= size)))
                parts = tuple([parts_together(gang, size) * takes for gang, takes in zip(gangs, mine, strict=True)])
                limits.append((parts, _whole(holders, size)))
        return tuple(limits)

    def _count_most(self, gpus: int, unit_gpus: int, level: Level) -> int:
        if level is Level.SLOT:
            return _whole(self._slots, gpus)
        if level is Level.MACHINE:
            return _whole(self._machines, gpus)
        units = [_whole(rack, unit_gpus) for rack in self._racks.values()]
        wanted = gpus // unit_gpus
        return sum(count // wanted for count in units) if level is Level.RACK else sum(units) // wanted


def together_gpus(gang: GangRequest) -> int:
    """The number of a gang's GPUs that are provably on one machine."""
    return gang.gpus if gang.within <= Level.MACHINE else gang.unit_gpus


def parts_together(gang: GangRequest, size: int) -> int:
    """The number of parts of `size` GPUs, each on one machine, that a gang provably has."""
    together = together_gpus(gang)
    return gang.gpus // together * (together // size)


def _whole(holders: Mapping[int, int], gpus: int) -> int:
    return sum(count // gpus * many for count, many in holders.items())
