"""From whole GPUs by tenant and type to gangs on machines: by OEF's placer, or by the plain one for comparison.

`oef.placement` places jobs on bare hosts, as the paper's experiments do. Here gangs follow the rules of this scheduler:
a gang has one device type, whole tasks, and a slot, machine or rack. OEF's placer uses the placement rule that all
policies share, and jobs renew in place where they can. The plain one takes the first free GPUs for each job in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rm_plugin.arbiter.leftovers import AppDemand
from rm_plugin.arbiter.round_values import RoundSnapshot
from rm_plugin.policies.gang_allocator import GangAllocator
from rm_plugin.policies.oef.rounding import Whole
from rm_plugin.policies.oef_tenants import startable
from themis.bids import GangDemand, PlacedGang
from themis.choices import Placer
from themis.cluster import Allocation
from themis.placement.free_capacity import FreeCapacity

Gangs = Mapping[str, Mapping[str, PlacedGang]]
"""Gangs by job id by app id."""


def choose_jobs(
    app_demands: Sequence[AppDemand], granted: Whole, by_app: Mapping[str, str], types: Sequence[str]
) -> list[AppDemand]:
    """Return the jobs that the tenants' whole GPUs serve, each with a demand for GPUs of one type.

    Jobs are served in the order of `app_demands`, each up to its largest gang, on the type where that gives it the
    highest throughput. A job whose smallest gang finds enough GPUs of no one type waits.

    Args:
        app_demands: One for each app that wants GPUs, in the order in which apps are served.
        granted: Whole GPUs by tenant and type.
        by_app: The tenant of each app.
        types: The names of the types.
    """
    left = {tenant: list(counts) for tenant, counts in granted.items()}
    chosen = []
    for app_demand in app_demands:
        if app_demand.app_id not in by_app:
            continue
        held = left[by_app[app_demand.app_id]]
        demands = []
        for demand in startable(app_demand.demands):
            options = [
                (gpus * demand.speeds.on(types[number]), number, gpus)
                for number, count in enumerate(held)
                if (gpus := min(count, demand.max_gpus) // demand.unit_gpus * demand.unit_gpus) >= demand.min_gpus
            ]
            throughput, number, gpus = max(options, default=(0.0, 0, 0))
            if throughput > 0.0:
                held[number] -= gpus
                demands.append(of_one_type(demand, types[number], gpus, len(types)))
        if demands:
            chosen.append(replace(app_demand, demands=tuple(demands)))
    return chosen


def of_one_type(demand: GangDemand, device: str, gpus: int, types: int) -> GangDemand:
    """The demand for this many GPUs of one device type at most, on a cluster of this many types."""
    # Gangs name their type only on clusters of several types.
    speeds = demand.speeds if types == 1 else demand.speeds.only(device)
    return replace(demand, max_gpus=gpus, speeds=speeds)


def place_gangs(snapshot: RoundSnapshot, chosen: Sequence[AppDemand]) -> Gangs:
    """Place chosen jobs by the placer of the settings.

    OEF's placer serves larger gangs first. Jobs renew in place unless that splits more gangs over machines.
    """
    if snapshot.settings.placer is Placer.PLAIN:
        return _place_plainly(snapshot, chosen)
    stay = _place(snapshot, chosen, renew=True)
    if not any(app_demand.renewable for app_demand in chosen) or not _split(stay):
        return stay
    afresh = _place(snapshot, chosen, renew=False)
    return stay if _split(stay) <= _split(afresh) else afresh


def _place(snapshot: RoundSnapshot, chosen: Sequence[AppDemand], *, renew: bool) -> Gangs:
    allocator = GangAllocator(snapshot.machines, chosen, snapshot.lease_s)
    for app_demand in chosen if renew else ():
        allocator.renew(app_demand.app_id)
    jobs = [
        (-demand.max_gpus, app_demand.app_id, number)
        for app_demand in chosen
        for number, demand in enumerate(app_demand.demands)
    ]
    for _, app_id, number in sorted(jobs):
        while (proposal := allocator.anywhere(app_id, number)) is not None:
            allocator.take(app_id, number, proposal.gang)
    return allocator.gangs()


def _place_plainly(snapshot: RoundSnapshot, chosen: Sequence[AppDemand]) -> Gangs:
    allocator = GangAllocator(snapshot.machines, chosen, snapshot.lease_s)
    for app_demand in chosen:
        for number, demand in enumerate(app_demand.demands):
            gang = _first_free(allocator.capacity, demand)
            if gang is not None:
                allocator.take(app_demand.app_id, number, gang)
    return allocator.gangs()


def _first_free(capacity: FreeCapacity, demand: GangDemand) -> PlacedGang | None:
    """The first free GPUs that a demand for one type can use, by machine id; None if they are too few."""
    device = demand.speeds.by_type[0][0] if demand.speeds.by_type else ""
    here = capacity.of_type(device) if device else capacity
    wanted, counts = demand.max_gpus // demand.unit_gpus, dict[str, int]()
    for machine_id, units in sorted(here.units(demand.unit_gpus).items()):
        if taken := min(units, wanted):
            counts[machine_id] = taken * demand.unit_gpus
            wanted -= taken
    if sum(counts.values()) < demand.min_gpus:
        return None
    return PlacedGang(gpus=Allocation.of(counts), level=here.level_of(counts), device=device)


def _split(gangs: Gangs) -> int:
    """Gangs on more than one machine."""
    return sum(len(gang.gpus.counts) > 1 for of_app in gangs.values() for gang in of_app.values())
