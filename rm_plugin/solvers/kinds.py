"""Kinds of gangs: gangs with the same requirements are one kind, however a bid states them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from themis.bids import FreeMachine, GangRequest
from themis.cluster import Level
from themis.values import Value


class Kind(Value, frozen=True, order=True):
    """`gpus` GPUs within one slot, machine, rack or cluster. Gangs above the machine consist of units of `unit` GPUs.

    Canonical form: within a slot or machine the unit is the whole gang, and a single GPU has the level CLUSTER. All
    GPUs have the device type `device`, or any one type if that is empty.
    """

    level: Level
    gpus: int
    unit: int
    device: str = ""

    @property
    def units(self) -> int:
        """Number of units of the gang."""
        return self.gpus // self.unit


def packing_order(kind: Kind) -> tuple[int, ...]:
    """The sort key by which best fit packs gangs of several kinds: what is hardest to place comes first.

    Large units come before small ones and before single GPUs, which fit anywhere. A gang that names its device type
    has fewer places than one that does not.
    """
    return (int(kind.unit == 1), -kind.unit, kind.level, -kind.gpus, int(not kind.device))


def has_types(machines: Iterable[FreeMachine], kinds: Iterable[Kind]) -> bool:
    """Whether device types matter: free GPUs are of several types, or a gang names its type."""
    return len({machine.device for machine in machines if machine.free}) > 1 or any(kind.device for kind in kinds)


def has_one_rack(machines: Iterable[FreeMachine]) -> bool:
    """Whether all machines with a free GPU are in one rack, so that the levels RACK and CLUSTER mean the same."""
    return len({machine.rack_id for machine in machines if machine.free}) <= 1


def kind_of(gang: GangRequest, *, one_rack: bool) -> Kind:
    """The kind of a gang in canonical form."""
    if gang.gpus == 1:
        return Kind(Level.CLUSTER, 1, 1, gang.device)
    if gang.within is Level.SLOT:
        return Kind(Level.SLOT, gang.gpus, gang.gpus, gang.device)
    if gang.within is Level.MACHINE or gang.unit_gpus == gang.gpus:
        return Kind(Level.MACHINE, gang.gpus, gang.gpus, gang.device)
    level = Level.CLUSTER if one_rack else gang.within
    return Kind(level, gang.gpus, gang.unit_gpus, gang.device)


def count_kinds(gangs: Iterable[GangRequest], *, one_rack: bool) -> Counter[Kind]:
    """How many gangs of each kind."""
    kinds: Counter[Kind] = Counter()
    for gang in gangs:
        kinds[kind_of(gang, one_rack=one_rack)] += gang.count
    return kinds
