"""Best-fit placement of one gang on free GPUs, for leftovers and for policies that place gangs one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rm_plugin.solvers.packing import Room, spread
from themis.apps import Slowdown
from themis.bids import FreeMachine, GangDemand, PlacedGang
from themis.cluster import Allocation, Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The gang that a job runs on already and would grow: its GPUs, and its slot when all lie in one."""

    gpus: Allocation
    slot: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """A placement to consider: GPUs added at a level; `slot` within `machine_id`, else `parts` by machine."""

    level: Level
    gpus: int
    parts: Mapping[str, int]
    slot: int | None = None


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
        is faster than what the job holds.
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
    held = standing.gpus.gpus if standing else 0
    best: _Option | None = None
    most = _throughput(held, _level_of_standing(room, standing), demand.slowdown) if standing else 0.0
    for option in _options(room, demand, standing):
        reached = _throughput(held + option.gpus, option.level, demand.slowdown)
        if reached > most:
            best, most = option, reached
    if best is None:
        return None
    return PlacedGang(gpus=Allocation.of(best.parts), level=best.level, slot=best.slot)


def _throughput(gpus: int, level: Level, slowdown: Slowdown) -> float:
    return gpus / slowdown.at(level)


def _level_of_standing(room: Room, standing: Standing | None) -> Level:
    if standing is None or standing.slot is not None:
        return Level.SLOT
    return room.level_of(machine for machine, _ in standing.gpus)


def _options(room: Room, demand: GangDemand, standing: Standing | None) -> Iterator[_Option]:
    """The largest gang at each level, nearest level first: at one level more GPUs are always faster."""
    unit = demand.unit_gpus
    units = {machine_id: room.free(machine_id) // unit for machine_id in room.machine_ids}
    for option in (
        _in_slot(room, demand, standing),
        _on_machine(units, demand, standing),
        _in_rack(room, units, demand, standing),
        _anywhere(room, units, demand, standing),
    ):
        if option is not None:
            yield option


def _usable(gpus: int, demand: GangDemand) -> int:
    """GPUs of so many that the demand can use: whole units within its bounds, else 0."""
    usable = min(gpus, demand.max_gpus) // demand.unit_gpus * demand.unit_gpus
    return usable if usable >= max(1, demand.min_gpus) else 0


def _in_slot(room: Room, demand: GangDemand, standing: Standing | None) -> _Option | None:
    if standing is not None and standing.slot is None:
        return None
    machine_ids = [machine for machine, _ in standing.gpus] if standing else room.machine_ids
    places = [
        (_usable(free, demand), free, room.free(machine_id), machine_id, slot)
        for machine_id in machine_ids
        if room.free(machine_id)
        for slot, free in enumerate(room.slot_free(machine_id))
        if standing is None or slot == standing.slot
    ]
    gpus, _, _, machine_id, slot = min(places, key=lambda place: (-place[0], *place[1:]), default=(0, 0, 0, "", 0))
    return _Option(level=Level.SLOT, gpus=gpus, parts={machine_id: gpus}, slot=slot) if gpus else None


def _on_machine(units: Mapping[str, int], demand: GangDemand, standing: Standing | None) -> _Option | None:
    candidates = [machine for machine, _ in standing.gpus] if standing else list(units)
    if standing and len(candidates) > 1:
        return None
    places = [(-_usable(units.get(machine, 0) * demand.unit_gpus, demand), machine) for machine in candidates]
    best = min(((gpus, units.get(machine, 0), machine) for gpus, machine in places), default=(0, 0, ""))
    return _Option(level=Level.MACHINE, gpus=-best[0], parts={best[2]: -best[0]}) if best[0] else None


def _in_rack(room: Room, units: Mapping[str, int], demand: GangDemand, standing: Standing | None) -> _Option | None:
    racks = {room.rack_of.get(machine) for machine, _ in standing.gpus} if standing else set(room.racks)
    if None in racks or (standing and len(racks) > 1):
        return None
    places = []
    for rack in racks:
        there = sum(units[machine] for machine in room.racks[str(rack)])
        places.append((-_usable(there * demand.unit_gpus, demand), there, str(rack)))
    gpus, _, rack = min(places, default=(0, 0, ""))
    if not gpus:
        return None
    return _spread_option(Level.RACK, units, {rack: room.racks[rack]}, -gpus, demand, standing)


def _anywhere(room: Room, units: Mapping[str, int], demand: GangDemand, standing: Standing | None) -> _Option | None:
    gpus = _usable(sum(units.values()) * demand.unit_gpus, demand)
    return _spread_option(Level.CLUSTER, units, room.racks, gpus, demand, standing) if gpus else None


def _spread_option(
    level: Level,
    units: Mapping[str, int],
    racks: Mapping[str, Sequence[str]],
    gpus: int,
    demand: GangDemand,
    standing: Standing | None,
) -> _Option | None:
    """A gang over machines: those it stands on first (no wider a spread), then few others."""
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
    parts = {machine: count * demand.unit_gpus for machine, count in (chosen | more).items() if count}
    return _Option(level=level, gpus=gpus, parts=parts)
