"""Unmet demand as policies see it: the demands of an app's report, less the gangs that it won."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from rm_plugin.arbiter.gang_assignment import pinned_first
from rm_plugin.arbiter.leftovers import AppDemand
from rm_plugin.arbiter.round_values import Decision, RoundSnapshot
from themis.bids import FreeMachine, GangDemand, PlacedGang
from themis.cluster import Allocation
from themis.placement.best_fit import CurrentGang, best_fit
from themis.placement.free_capacity import FreeCapacity, SlotCounts, own_slots_after

_NOTHING = Allocation()


def unmet(
    demands: Sequence[GangDemand], won: Sequence[PlacedGang], renewable: Allocation = _NOTHING
) -> tuple[GangDemand, ...]:
    """The demands that are left after gangs were won. The largest gang serves the job with the most work left.

    A job that won less than its largest gang keeps a demand for the rest, next to what it won. A pinned gang serves one
    job: it renews what a job of the app ran on, or extends the gang that a job holds there. Pinned gangs that fit no
    single job (a part of a gang, or GPUs of several gangs stated as one) serve jobs by their total count.

    Example: jobs a and b each want one to four GPUs, a has more work left. The app won gangs of four and two. What is
    left is one demand of b, for one or two GPUs next to its two.

    Args:
        demands: The demands of the app's report.
        won: Gangs won, pinned ones included.
        renewable: GPUs that the app held until now.
    """
    if len(demands) <= 1 and not won:
        return tuple(demands)
    left = sorted(demands, key=lambda demand: (-demand.work_left_gpu_s, demand.job_id))
    if not won:
        return tuple(left)
    ordered = sorted(won, key=lambda gang: (-gang.gpus.gpus, gang))
    held_until_now = renewable.by_machine()
    renewed = growing = 0
    for gang in ordered:
        if gang.pinned and not _serve_renewal(gang, left, held_until_now) and not _serve(gang, left, _extends):
            in_place = sum(min(count, held_until_now.get(machine, 0)) for machine, count in gang.gpus)
            renewed, growing = renewed + in_place, growing + gang.gpus.gpus - in_place
    left, over = _serve_by_count(left, renewed, growing=False)
    left, _ = _serve_by_count(left, growing + over, growing=True)
    strays = [gang for gang in ordered if not gang.pinned and not _serve(gang, left, _serves)]
    for gang in strays:
        # If S is the same everywhere for its job, the GPUs that a gang grew by can be on any machine.
        _serve(gang, left, lambda gang, demand: bool(demand.held) and gang.gpus.gpus <= demand.max_gpus)
    return tuple(left)


def _serve_renewal(gang: PlacedGang, left: list[GangDemand], held_until_now: Mapping[str, int]) -> bool:
    """Serve a job without a gang by a pinned gang that the app held until now. Returns False if none fits."""
    gpus = 0
    for machine, count in gang.gpus.counts:
        if count > held_until_now.get(machine, 0):
            return False
        gpus += count
    for index, demand in enumerate(left):
        if not demand.held.counts and demand.min_gpus <= gpus <= demand.max_gpus:
            del left[index]
            return True
    return False


def _serve(gang: PlacedGang, left: list[GangDemand], suits: Callable[[PlacedGang, GangDemand], bool]) -> bool:
    """Serve the first demand that suits a gang, and keep the rest of it. Returns False if no demand suits."""
    index = next((index for index, demand in enumerate(left) if suits(gang, demand)), None)
    if index is None:
        return False
    rest = room_to_grow(left[index], gang)
    left[index : index + 1] = [] if rest is None else [rest]
    return True


def _serves(gang: PlacedGang, demand: GangDemand) -> bool:
    return _extends(gang, demand) if demand.held else gang.gpus.gpus >= demand.min_gpus


def _extends(gang: PlacedGang, demand: GangDemand) -> bool:
    """Whether a gang extends what a job holds: it is not too large, and shares a machine with it."""
    return (
        bool(demand.held)
        and gang.gpus.gpus <= demand.max_gpus
        and any(demand.held.count(machine) for machine, _ in gang.gpus)
    )


def _serve_by_count(demands: Sequence[GangDemand], gpus: int, *, growing: bool) -> tuple[list[GangDemand], int]:
    """Serve jobs by GPU count: only those that hold a gang (`growing`), or only those without. Returns the rest."""
    left = []
    for demand in demands:
        if bool(demand.held) is growing and gpus >= demand.min_gpus:
            gpus -= min(gpus, demand.max_gpus)
        else:
            left.append(demand)
    return left, gpus


def app_demands_of(snapshot: RoundSnapshot, won: dict[str, tuple[PlacedGang, ...]]) -> list[AppDemand]:
    """The demand of every app that reported and can use more GPUs. `won` is what each app already got in this round."""
    app_demands, bids = [], snapshot.bids or {}
    renewables = {app.app_id: app for app in snapshot.apps if app.renewable.counts}
    for app_id, report in snapshot.answered.items():
        demands = report.demands
        if not demands:
            continue
        # Most apps won nothing and want one gang.
        mine, standing = won.get(app_id, ()), renewables.get(app_id)
        renewable, slots = (_NOTHING, ()) if standing is None else (standing.renewable, standing.renewable_slots)
        left = unmet(demands, mine, renewable) if mine or len(demands) > 1 else demands
        if left:
            if mine:
                renewable, slots = _less(renewable, mine), _slots_less(slots, mine)
            app_demand = AppDemand(
                app_id=app_id,
                demands=left,
                renewable=renewable,
                renewable_slots=slots,
                bid=app_id in bids,
                restart_s=report.restart_s,
            )
            app_demands.append(app_demand)
    return app_demands


def _less(renewable: Allocation, won: Sequence[PlacedGang]) -> Allocation:
    taken = Allocation.sum_of(gang.gpus for gang in won)
    return Allocation.of({machine: max(0, count - taken.count(machine)) for machine, count in renewable})


def _slots_less(slots: SlotCounts, won: Sequence[PlacedGang]) -> SlotCounts:
    """The renewable GPUs by slot that are left after the arbiter gave the gangs won their GPUs."""
    left = dict(slots)
    for gang in sorted(won, key=pinned_first):
        for machine_id, count in gang.gpus:
            if machine_id in left:
                left[machine_id] = own_slots_after(left[machine_id], count, gang.slot)
    return tuple((machine_id, free) for machine_id, free in left.items() if any(free))


def capacity_after(machines: Sequence[FreeMachine], grants: Mapping[str, tuple[PlacedGang, ...]]) -> FreeCapacity:
    """The free capacity of machines after the granted gangs are taken.

    Gangs within a slot are taken first, for all apps: the others can use any slot, and must leave those slots alone.
    """
    capacity = FreeCapacity(machines)
    gangs = [(gang.slot is None, app_id, gang) for app_id, mine in grants.items() for gang in mine]
    for _, _, gang in sorted(gangs):
        capacity.take(gang)
    return capacity


def gangs_of(by_job: Mapping[str, Mapping[str, PlacedGang]]) -> dict[str, tuple[PlacedGang, ...]]:
    """Gangs by app, from gangs by job by app."""
    return {app_id: tuple(gangs.values()) for app_id, gangs in by_job.items()}


def demands_left(
    app_demands: Sequence[AppDemand], by_job: Mapping[str, Mapping[str, PlacedGang]]
) -> tuple[AppDemand, ...]:
    """What is left of demands after jobs got gangs (by job by app)."""
    # Most apps got nothing.
    left = [
        _rest_of(app_demand, by_job[app_demand.app_id]) if app_demand.app_id in by_job else app_demand
        for app_demand in app_demands
    ]
    return tuple([app_demand for app_demand in left if app_demand is not None])


def _rest_of(app_demand: AppDemand, gangs: Mapping[str, PlacedGang]) -> AppDemand | None:
    rest = [
        demand if (gang := gangs.get(demand.job_id)) is None else room_to_grow(demand, gang)
        for demand in app_demand.demands
    ]
    demands = tuple([demand for demand in rest if demand is not None])
    return replace(app_demand, demands=demands) if demands else None


def usable_left(machines: Sequence[FreeMachine], decision: Decision) -> int:
    """GPUs that some app could still use after all grants. A work-conserving policy leaves none."""
    capacity = capacity_after(machines, decision.grants())
    usable = 0
    for app_demand in decision.unserved if capacity.gpus else ():
        for demand in app_demand.demands:
            gang = best_fit(capacity, demand, CurrentGang(gpus=demand.held) if demand.held else None)
            if gang is not None:
                usable += gang.gpus.gpus
                capacity.take(gang)
    return usable


def room_to_grow(demand: GangDemand, gang: PlacedGang) -> GangDemand | None:
    """What a job could use in addition to a gang that it got. Returns None if that is less than a unit."""
    room = (demand.max_gpus - gang.gpus.gpus) // demand.unit_gpus * demand.unit_gpus
    if room < demand.unit_gpus:
        return None
    # An extension must be faster than the gang as it was placed: `held` alone does not say that it is in one slot. The
    # level of a pinned gang is not its own.
    reached = 0.0
    if not gang.pinned:
        gpus, speed = demand.held.gpus + gang.gpus.gpus, demand.speeds.on(gang.device)
        reached = gpus * speed / demand.slowdown.at(gang.level)
    return replace(
        demand,
        min_gpus=demand.unit_gpus,
        max_gpus=room,
        held=demand.held + gang.gpus,
        faster_than=max(demand.faster_than, reached),
    )
