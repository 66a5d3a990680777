"""Best-fit placement of one gang on free GPUs, for leftovers and for policies that place gangs one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from rm_plugin.solvers.packing import Room, spread
from themis.apps import Slowdown
from themis.bids import FreeMachine, GangDemand, PlacedGang
from themis.cluster import Allocation, Level
from themis.values import Value


class Standing(Value, frozen=True, kw_only=True):
    """The gang that a job runs on already and would grow: its GPUs, and its slot when all lie in one."""

    gpus: Allocation
    slot: int | None = None


_Option = tuple[Level, int, Callable[[], PlacedGang | None]]
"""A placement to consider: its level, how many GPUs it adds, and what works out the place once it is chosen."""


def place_gang(machines: Sequence[FreeMachine], demand: GangDemand) -> PlacedGang | None:
    """The best place for what a job could use more; nothing is taken yet (`take_gang` does).

    Best is the largest throughput g / S(level), g counting GPUs that the job holds already. Equals go to the nearer
    level. At that level the place that fits most tightly is taken: least left over in the slot, on the machine or in
    the rack; then the smaller machine id. A gang over several machines takes few of them, in whole units.

    Args:
        machines: Free machines. Include machines without a free GPU where `demand.held` lies: their rack matters.
        demand: Between `min_gpus` and `max_gpus` GPUs on top of `held`, in units of `unit_gpus` on one machine each.

    Returns:
        The added GPUs, with the level that they span together with those held; None when no placement fits, or none
        is faster than what the job holds and than `faster_than`.
    """
    return place_in(Room(machines), demand, _standing(demand))


def take_gang(machines: Sequence[FreeMachine], gang: PlacedGang) -> tuple[FreeMachine, ...]:
    """What stays free once a gang is taken; a gang without a slot comes out of the tightest slots that hold it.

    Raises:
        InvariantError: The gang does not fit.
    """
    room = Room(machines)
    room.remove(gang)
    return room.machines()


def _standing(demand: GangDemand) -> Standing | None:
    return Standing(gpus=demand.held) if demand.held else None


def place_in(room: Room, demand: GangDemand, standing: Standing | None = None) -> PlacedGang | None:
    """`place_gang` on a working copy, growing `standing` where given; takes nothing either."""
    usable = _usable(room.gpus, demand)
    if not usable:
        return None
    tightest = None if standing else room.tightest_slot(usable)
    if tightest is not None:
        # All that can be used, in one slot: no other place is faster.
        _, machine_id, slot = tightest
        faster = _throughput(usable, Level.SLOT, demand.slowdown) > demand.faster_than
        return _in_one_slot(machine_id, usable, slot) if faster else None
    held = standing.gpus.gpus if standing else 0
    best: Callable[[], PlacedGang | None] | None = None
    most = demand.faster_than
    if standing:
        most = max(most, _throughput(held, _level_of_standing(room, standing), demand.slowdown))
    for level, gpus, place in _options(room, demand, standing):
        reached = _throughput(held + gpus, level, demand.slowdown)
        if reached > most:
            best, most = place, reached
        if gpus == usable:
            # More cannot be had, and farther away as many are no faster.
            break
    return best() if best else None


def place_on_own(room: Room, gpus: Allocation, demand: GangDemand) -> PlacedGang | None:
    """`place_in` for a new gang with only so many of the free GPUs of each machine."""
    if len(gpus.counts) == 1:
        # Mostly a gang lay in one slot, and finds all it can use there.
        ((machine_id, count),) = gpus.counts
        usable = _usable(min(count, room.free(machine_id)), demand)
        if not usable:
            return None
        slot = room.tightest_slot_on(machine_id, usable, most=count)
        if slot is not None:
            faster = _throughput(usable, Level.SLOT, demand.slowdown) > demand.faster_than
            return _in_one_slot(machine_id, usable, slot) if faster else None
    return place_in(room.part(gpus.by_machine()), demand)


def _throughput(gpus: int, level: Level, slowdown: Slowdown) -> float:
    return gpus / slowdown.at(level)


def _level_of_standing(room: Room, standing: Standing | None) -> Level:
    if standing is None or standing.slot is not None:
        return Level.SLOT
    return room.level_of(machine for machine, _ in standing.gpus)


def _options(room: Room, demand: GangDemand, standing: Standing | None) -> Iterator[_Option]:
    """The largest gang at each level, nearest level first: at one level more GPUs are always faster."""
    for find in (_in_slot, _on_machine, _in_rack, _anywhere):
        option = find(room, demand, standing)
        if option is not None:
            yield option


def _usable(gpus: int, demand: GangDemand) -> int:
    """GPUs of so many that the demand can use: whole units within its bounds, else 0."""
    usable = min(gpus, demand.max_gpus) // demand.unit_gpus * demand.unit_gpus
    return usable if usable >= max(1, demand.min_gpus) else 0


def _in_slot(room: Room, demand: GangDemand, standing: Standing | None) -> _Option | None:
    if standing is not None:
        return _beside(room, demand, standing)
    by_free = room.slots_by_free()
    # Slots have few sizes, and a busy cluster has many slots.
    sizes = [(-usable, free) for free, slots in by_free.items() if slots and (usable := _usable(free, demand))]
    if not sizes:
        return None
    less, free = min(sizes)
    _, machine_id, slot = min(by_free[free])
    return Level.SLOT, -less, partial(_in_one_slot, machine_id, -less, slot)


def _beside(room: Room, demand: GangDemand, standing: Standing) -> _Option | None:
    """More GPUs in the one slot that a gang stands in."""
    if standing.slot is None:
        return None
    ((machine_id, _),) = standing.gpus.counts
    slots = room.slot_free(machine_id) if room.free(machine_id) else ()
    usable = _usable(slots[standing.slot], demand) if standing.slot < len(slots) else 0
    if not usable:
        return None
    return Level.SLOT, usable, partial(_in_one_slot, machine_id, usable, standing.slot)


def _in_one_slot(machine_id: str, gpus: int, slot: int) -> PlacedGang:
    return PlacedGang(gpus=Allocation(((machine_id, gpus),)), level=Level.SLOT, slot=slot)


def _on_machine(room: Room, demand: GangDemand, standing: Standing | None) -> _Option | None:
    units = room.units(demand.unit_gpus)
    candidates = [machine for machine, _ in standing.gpus] if standing else units
    if standing and len(candidates) > 1:
        return None
    places = [
        (-usable, units[machine], machine)
        for machine in candidates
        if (usable := _usable(units.get(machine, 0) * demand.unit_gpus, demand))
    ]
    if not places:
        return None
    less, _, machine = min(places)
    return Level.MACHINE, -less, partial(_gang, Level.MACHINE, {machine: -less})


def _in_rack(room: Room, demand: GangDemand, standing: Standing | None) -> _Option | None:
    there: dict[str, int] = {}
    for machine, count in room.units(demand.unit_gpus).items():
        rack = room.rack_of[machine]
        there[rack] = there.get(rack, 0) + count
    if standing:
        racks = {room.rack_of.get(machine) for machine, _ in standing.gpus}
        if len(racks) > 1:
            return None
        there = {rack: count for rack, count in there.items() if rack in racks}
    places = [
        (-usable, count, rack) for rack, count in there.items() if (usable := _usable(count * demand.unit_gpus, demand))
    ]
    if not places:
        return None
    less, _, rack = min(places)
    inside = {rack: room.racks[rack]}
    return Level.RACK, -less, partial(_spread, Level.RACK, room, inside, -less, demand, standing)


def _anywhere(room: Room, demand: GangDemand, standing: Standing | None) -> _Option | None:
    gpus = _usable(sum(room.units(demand.unit_gpus).values()) * demand.unit_gpus, demand)
    if not gpus:
        return None
    return Level.CLUSTER, gpus, partial(_spread, Level.CLUSTER, room, room.racks, gpus, demand, standing)


def _gang(level: Level, parts: Mapping[str, int]) -> PlacedGang:
    return PlacedGang(gpus=Allocation.of(parts), level=level)


def _spread(
    level: Level,
    room: Room,
    racks: Mapping[str, Sequence[str]],
    gpus: int,
    demand: GangDemand,
    standing: Standing | None,
) -> PlacedGang | None:
    """A gang over machines: those it stands on first (no wider a spread), then few others."""
    units = room.units(demand.unit_gpus)
    wanted = gpus // demand.unit_gpus
    chosen: dict[str, int] = {}
    inside = {machine for members in racks.values() for machine in members}
    for machine, _ in standing.gpus if standing else ():
        if machine in inside:
            chosen[machine] = min(units.get(machine, 0), wanted - sum(chosen.values()))
    rest = {machine: 0 if machine in chosen else count for machine, count in units.items()}
    more = spread(rest, racks, wanted - sum(chosen.values()))
    if more is None:
        return None
    return _gang(level, {machine: count * demand.unit_gpus for machine, count in (chosen | more).items() if count})
