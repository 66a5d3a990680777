"""The common case of placement, quickly: a whole gang, as large as its job can use, as near as it can lie."""

from __future__ import annotations

from rm_plugin.arbiter.placement import Standing, place_in
from rm_plugin.solvers.packing import Room
from themis.bids import GangDemand, PlacedGang
from themis.cluster import Allocation, Level


def place_near(room: Room, demand: GangDemand, standing: Standing | None = None) -> PlacedGang | None:
    """The same gang as `place_in`, which compares all levels, without it where nothing could be better.

    A whole gang in one slot has the largest throughput that there is; so has one on one machine, where S is the same
    there as in a slot and no slot holds it.
    """
    gpus = demand.max_gpus // demand.unit_gpus * demand.unit_gpus
    if gpus >= demand.min_gpus:
        place = _fresh(room, demand, gpus) if standing is None else _beside(room, demand, gpus, standing)
        held = standing.gpus.gpus if standing else 0
        if place is not None and (held + gpus) / demand.slowdown.at(place.level) > demand.faster_than:
            return place
    return place_in(room, demand, standing)


def _fresh(room: Room, demand: GangDemand, gpus: int) -> PlacedGang | None:
    open_ids = [machine for machine in room.machine_ids if room.free(machine) >= gpus]
    slots = [
        (free, room.free(machine), machine, slot)
        for machine in open_ids
        for slot, free in enumerate(room.slot_free(machine))
        if free >= gpus
    ]
    if slots:
        _, _, machine, slot = min(slots)
        return PlacedGang(gpus=Allocation(((machine, gpus),)), level=Level.SLOT, slot=slot)
    if open_ids and demand.slowdown.machine == demand.slowdown.slot:
        _, machine = min((room.free(machine) // demand.unit_gpus, machine) for machine in open_ids)
        return PlacedGang(gpus=Allocation(((machine, gpus),)), level=Level.MACHINE)
    return None


def _beside(room: Room, demand: GangDemand, gpus: int, standing: Standing) -> PlacedGang | None:
    if len(standing.gpus.counts) != 1:
        return None
    ((machine, _),) = standing.gpus.counts
    if room.free(machine) < gpus:
        return None
    if standing.slot is not None:
        if room.slot_free(machine)[standing.slot] >= gpus:
            return PlacedGang(gpus=Allocation(((machine, gpus),)), level=Level.SLOT, slot=standing.slot)
        if demand.slowdown.machine != demand.slowdown.slot:
            return None
    return PlacedGang(gpus=Allocation(((machine, gpus),)), level=Level.MACHINE)
