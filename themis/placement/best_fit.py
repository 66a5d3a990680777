"""Best fit of one gang on free GPUs: the fastest level first, then the tightest place (rule: `themis.placement`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from themis.bids import GangDemand, PlacedGang
from themis.cluster import Allocation, Level
from themis.placement.free_capacity import FreeCapacity
from themis.speeds import SAME_SPEED
from themis.values import Value


class CurrentGang(Value, frozen=True, kw_only=True):
    """The gang that a job has and would extend: its GPUs, and its slot if all of them are in one."""

    gpus: Allocation
    slot: int | None = None


_Option = tuple[Level, int, Callable[[], PlacedGang | None]]
"""A candidate: its level, the GPUs that it adds, and a function that computes the place."""


def best_fit(capacity: FreeCapacity, demand: GangDemand, current: CurrentGang | None = None) -> PlacedGang | None:
    """Find the fastest place for a gang, or for an extension of `current`. Takes nothing.

    Args:
        capacity: Free GPUs. It must know the machines of `current`, even if they have no free GPU: their rack matters.
        demand: Between `min_gpus` and `max_gpus` GPUs in addition to `current`, in units of `unit_gpus`.
        current: The gang that the job has.

    Returns:
        The added GPUs, with the level that they span together with those of `current`. None if no placement fits, or
        none is faster than both `current` and `demand.faster_than`.
    """
    if len(capacity.device_types) > 1 or demand.speeds.by_type:
        return _best_fit_by_type(capacity, demand, current)
    return _best_fit_on_one_type(capacity, demand, current)


def _best_fit_by_type(capacity: FreeCapacity, demand: GangDemand, current: CurrentGang | None) -> PlacedGang | None:
    """The fastest of the best fits on each device type; an extension stays on the type of `current`."""
    types, held = capacity.device_types, 0
    if current is not None:
        types, held = (capacity.device_of(current.gpus.counts[0][0]),), current.gpus.gpus
    best, fastest = None, 0.0
    for device in sorted(types, key=lambda name: (-demand.speeds.on(name), name)):
        speed = demand.speeds.on(device)
        # The largest gang in one slot is the fastest that a type can offer.
        if speed <= 0.0 or (held + demand.max_gpus) * speed / demand.slowdown.slot <= fastest:
            break
        here = replace(demand, speeds=SAME_SPEED, faster_than=demand.faster_than / speed)
        gang = _best_fit_on_one_type(capacity.of_type(device), here, current)
        if gang is None:
            continue
        throughput = (held + gang.gpus.gpus) * speed / demand.slowdown.at(gang.level)
        if throughput > fastest:
            best, fastest = replace(gang, device=device), throughput
    return best


def _best_fit_on_one_type(capacity: FreeCapacity, demand: GangDemand, current: CurrentGang | None) -> PlacedGang | None:
    """`best_fit` with one device type on which the job has speed 1."""
    usable = _usable(capacity.gpus, demand)
    if not usable:
        return None
    tightest = None if current else capacity.tightest_slot(usable)
    if tightest is not None:
        # A slot holds all usable GPUs: no other place is faster.
        _, machine_id, slot = tightest
        return _in_slot_if_faster(machine_id, slot, usable, demand)
    held, fastest = 0, demand.faster_than
    if current is not None:
        held = current.gpus.gpus
        level = capacity.level_of([name for name, _ in current.gpus], current.slot)
        fastest = max(fastest, held / demand.slowdown.at(level))
    best: Callable[[], PlacedGang | None] | None = None
    for level, gpus, place in _options(capacity, demand, current):
        throughput = (held + gpus) / demand.slowdown.at(level)
        if throughput > fastest:
            best, fastest = place, throughput
        if gpus == usable:
            # Looser levels have no more usable GPUs and are no faster.
            break
    return best() if best else None


def best_fit_within(capacity: FreeCapacity, gpus: Allocation, demand: GangDemand) -> PlacedGang | None:
    """`best_fit` of a new gang with at most these of the free GPUs of each machine."""
    if len(gpus.counts) == 1 and not demand.speeds.by_type:
        # Usually the gang was in one slot, and finds all usable GPUs there: no copy is needed.
        ((machine_id, count),) = gpus.counts
        usable = _usable(min(count, capacity.free(machine_id)), demand)
        if not usable:
            return None
        slot = capacity.tightest_slot_on(machine_id, usable, count)
        if slot is not None:
            return _in_slot_if_faster(machine_id, slot, usable, demand)
    return best_fit(capacity.part(gpus.by_machine()), demand)


def spread(
    units_by_machine: Mapping[str, int], racks: Mapping[str, Sequence[str]], units: int
) -> dict[str, int] | None:
    """Put `units` units on few machines of few racks. Returns units by machine, or None if there are too few.

    The largest racks and machines are taken whole; the rest goes where it fits best. Ties: the smaller id.

    Args:
        units_by_machine: Free units of each machine.
        racks: Machine ids by rack. Other machines are not used.
        units: Units to place.
    """
    in_rack = {rack: sum(units_by_machine.get(machine, 0) for machine in members) for rack, members in racks.items()}
    chosen: dict[str, int] = {}
    for rack, rack_units in _cover(in_rack, units).items():
        chosen.update(_cover({machine: units_by_machine.get(machine, 0) for machine in racks[rack]}, rack_units))
    return chosen if sum(chosen.values()) == units else None


def _cover(free: Mapping[str, int], wanted: int) -> dict[str, int]:
    """Cover `wanted` units with few holders: the largest whole, then the one that fits the rest best."""
    left = {name: units for name, units in free.items() if units > 0}
    chosen: dict[str, int] = {}
    while wanted > 0 and left:
        fitting = [(units, name) for name, units in left.items() if units >= wanted]
        name = min(fitting)[1] if fitting else min((-units, name) for name, units in left.items())[1]
        chosen[name] = min(left.pop(name), wanted)
        wanted -= chosen[name]
    return chosen


def _usable(gpus: int, demand: GangDemand) -> int:
    """How many of `gpus` free GPUs the demand can use: whole units within its bounds, else 0."""
    usable = min(gpus, demand.max_gpus) // demand.unit_gpus * demand.unit_gpus
    return usable if usable >= max(1, demand.min_gpus) else 0


def _in_slot(machine_id: str, slot: int, gpus: int) -> PlacedGang:
    return PlacedGang(gpus=Allocation(((machine_id, gpus),)), level=Level.SLOT, slot=slot)


def _in_slot_if_faster(machine_id: str, slot: int, gpus: int, demand: GangDemand) -> PlacedGang | None:
    return _in_slot(machine_id, slot, gpus) if gpus / demand.slowdown.slot > demand.faster_than else None


def _options(capacity: FreeCapacity, demand: GangDemand, current: CurrentGang | None) -> Iterator[_Option]:
    """The largest gang of each level, tightest level first: within a level, more GPUs are always faster."""
    own = [machine_id for machine_id, _ in current.gpus] if current else []
    if current is None:
        yield from _in_tightest_slot(capacity, demand)
    elif current.slot is not None:
        yield from _in_own_slot(capacity, demand, own[0], current.slot)
    units = capacity.units(demand.unit_gpus)
    if len(own) <= 1:
        most = units.get(own[0], 0) if own else max(units.values(), default=0)
        usable = _usable(most * demand.unit_gpus, demand)
        machine_id = own[0] if own else capacity.tightest_machine(usable) if usable else None
        if usable and machine_id is not None:
            gang = PlacedGang(gpus=Allocation(((machine_id, usable),)), level=Level.MACHINE)
            yield Level.MACHINE, usable, lambda: gang
    yield from _in_rack(capacity, demand, own)
    usable = _usable(sum(units.values()) * demand.unit_gpus, demand)
    if usable:
        yield Level.CLUSTER, usable, lambda: _spread(capacity, demand, Level.CLUSTER, capacity.racks, usable, own)


def _in_tightest_slot(capacity: FreeCapacity, demand: GangDemand) -> Iterator[_Option]:
    usable = _usable(capacity.largest_slot(), demand)
    tightest = capacity.tightest_slot(usable) if usable else None
    if tightest is not None:
        _, machine_id, slot = tightest
        yield Level.SLOT, usable, lambda: _in_slot(machine_id, slot, usable)


def _in_own_slot(capacity: FreeCapacity, demand: GangDemand, machine_id: str, slot: int) -> Iterator[_Option]:
    slots = capacity.slot_free(machine_id) if capacity.free(machine_id) else ()
    usable = _usable(slots[slot], demand) if slot < len(slots) else 0
    if usable:
        yield Level.SLOT, usable, lambda: _in_slot(machine_id, slot, usable)


def _in_rack(capacity: FreeCapacity, demand: GangDemand, own: Sequence[str]) -> Iterator[_Option]:
    in_rack: dict[str, int] = {}
    for machine_id, count in capacity.units(demand.unit_gpus).items():
        rack = capacity.rack_of[machine_id]
        in_rack[rack] = in_rack.get(rack, 0) + count
    if own:
        racks = {capacity.rack_of.get(machine_id) for machine_id in own}
        in_rack = {rack: count for rack, count in in_rack.items() if racks == {rack}}
    usable = _usable(max(in_rack.values(), default=0) * demand.unit_gpus, demand)
    if usable:
        _, rack = min((count, rack) for rack, count in in_rack.items() if count * demand.unit_gpus >= usable)
        inside = {rack: capacity.racks[rack]}
        yield Level.RACK, usable, lambda: _spread(capacity, demand, Level.RACK, inside, usable, own)


def _spread(
    capacity: FreeCapacity,
    demand: GangDemand,
    level: Level,
    racks: Mapping[str, Sequence[str]],
    gpus: int,
    own: Sequence[str],
) -> PlacedGang | None:
    """A gang over machines: first the job's own (they make the gang no wider), then few others."""
    units = capacity.units(demand.unit_gpus)
    wanted = gpus // demand.unit_gpus
    inside = {machine_id for members in racks.values() for machine_id in members}
    chosen: dict[str, int] = {}
    for machine_id in own:
        if machine_id in inside:
            chosen[machine_id] = min(units.get(machine_id, 0), wanted)
            wanted -= chosen[machine_id]
    others = {machine_id: 0 if machine_id in chosen else count for machine_id, count in units.items()}
    more = spread(others, racks, wanted)
    if more is None:
        return None
    counts = {machine_id: count * demand.unit_gpus for machine_id, count in (chosen | more).items() if count}
    return PlacedGang(gpus=Allocation.of(counts), level=level)
