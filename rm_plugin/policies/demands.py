"""What apps could still use, as policies see it: the jobs of their reports less the gangs that they won."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from rm_plugin.arbiter.leftovers import Claim
from rm_plugin.arbiter.placement import place_gang, take_gang
from rm_plugin.arbiter.round_values import Decision, RoundSnapshot
from rm_plugin.solvers.packing import Room
from themis.bids import FreeMachine, GangDemand, PlacedGang
from themis.cluster import Allocation

_NOTHING = Allocation()


def unmet(
    demands: Sequence[GangDemand], won: Sequence[PlacedGang], renewable: Allocation = _NOTHING
) -> tuple[GangDemand, ...]:
    """The demands that are left when gangs have been won: the largest gang serves the job with most work left.

    A job that won less than its largest gang is left with the room to grow beside it. A pinned gang serves one job: it
    renews what a job of the app ran on, or tops up the gang that a job holds there. Pinned gangs that fit no job by
    themselves (a part of a gang, or GPUs of several told as one) serve jobs by their count, as far as they go.

    Args:
        demands: The app's report.
        won: Gangs won, pinned ones included.
        renewable: What the app held until now.
    """
    if len(demands) <= 1 and not won:
        return tuple(demands)
    left = sorted(demands, key=lambda demand: (-demand.work_left_gpu_s, demand.job_id))
    if not won:
        return tuple(left)
    ordered = sorted(won, key=lambda gang: (-gang.gpus.gpus, gang))
    renewed = growing = 0
    until_now = renewable.by_machine()
    for gang in ordered:
        if gang.pinned and not _renews(gang, left, until_now) and not _tops_up(gang, left):
            in_place = sum(min(count, until_now.get(machine, 0)) for machine, count in gang.gpus)
            renewed, growing = renewed + in_place, growing + gang.gpus.gpus - in_place
    left, over = _served_by_count(left, renewed, growing=False)
    left, _ = _served_by_count(left, growing + over, growing=True)
    strays = [gang for gang in ordered if not gang.pinned and not _serve(gang, left, _serves)]
    for gang in strays:
        # GPUs that a gang grew by may lie anywhere, where S is the same for its job.
        _serve(gang, left, lambda gang, demand: bool(demand.held) and gang.gpus.gpus <= demand.max_gpus)
    return tuple(left)


def _renews(gang: PlacedGang, left: list[GangDemand], until_now: Mapping[str, int]) -> bool:
    """True when a pinned gang is what a job without a gang ran on until now; that job is served then."""
    gpus = 0
    for machine, count in gang.gpus.counts:
        if count > until_now.get(machine, 0):
            return False
        gpus += count
    for place, demand in enumerate(left):
        if not demand.held.counts and demand.min_gpus <= gpus <= demand.max_gpus:
            del left[place]
            return True
    return False


def _tops_up(gang: PlacedGang, left: list[GangDemand]) -> bool:
    """True when a pinned gang lies beside what a job holds and would grow; that job is served then."""
    return _serve(gang, left, lambda gang, demand: bool(demand.held) and _serves(gang, demand))


def _serve(gang: PlacedGang, left: list[GangDemand], suits: Callable[[PlacedGang, GangDemand], bool]) -> bool:
    """Serve the first demand that a gang suits; what that job could still use stays. False when there is none."""
    place = next((place for place, demand in enumerate(left) if suits(gang, demand)), None)
    if place is None:
        return False
    rest = room_to_grow(left[place], gang)
    left[place : place + 1] = [] if rest is None else [rest]
    return True


def _served_by_count(demands: Sequence[GangDemand], gpus: int, *, growing: bool) -> tuple[list[GangDemand], int]:
    """The demands and GPUs that are left once so many GPUs served only jobs that grow, or only those without a gang."""
    left = []
    for demand in demands:
        if bool(demand.held) is growing and gpus >= demand.min_gpus:
            gpus -= min(gpus, demand.max_gpus)
        else:
            left.append(demand)
    return left, gpus


def claims_of(snapshot: RoundSnapshot, won: dict[str, tuple[PlacedGang, ...]]) -> list[Claim]:
    """A claim for every app that answers and could use more; `won` is what each got already in this round."""
    claims, bids = [], snapshot.bids or {}
    renewables = {app.app_id: app.renewable for app in snapshot.apps if app.renewable.counts}
    for app_id, report in snapshot.answered.items():
        demands = report.demands
        if not demands:
            continue
        # Most apps won nothing and want one gang.
        mine, renewable = won.get(app_id, ()), renewables.get(app_id, _NOTHING)
        left = unmet(demands, mine, renewable) if mine or len(demands) > 1 else demands
        if left:
            renewable = _less(renewable, mine) if mine else renewable
            claims.append(Claim(app_id=app_id, demands=left, renewable=renewable, bid=app_id in bids))
    return claims


def _less(renewable: Allocation, won: Sequence[PlacedGang]) -> Allocation:
    taken = sum((gang.gpus for gang in won), Allocation())
    return Allocation.of({machine: max(0, count - taken.count(machine)) for machine, count in renewable})


def machines_after(
    machines: Sequence[FreeMachine], grants: dict[str, tuple[PlacedGang, ...]]
) -> tuple[FreeMachine, ...]:
    """The machines with the granted gangs taken off, as `room_after`."""
    return room_after(machines, grants).machines() if any(grants.values()) else tuple(machines)


def room_after(machines: Sequence[FreeMachine], grants: Mapping[str, tuple[PlacedGang, ...]]) -> Room:
    """The room on machines once the granted gangs are taken.

    Gangs within a slot come first, whosever they are: the others take any slot, and must leave those theirs.
    """
    room = Room(machines)
    gangs = [(gang.slot is None, app_id, gang) for app_id, mine in grants.items() for gang in mine]
    for _, _, gang in sorted(gangs):
        room.remove(gang)
    return room


def gangs_of(by_job: Mapping[str, Mapping[str, PlacedGang]]) -> dict[str, tuple[PlacedGang, ...]]:
    """Gangs by app, from gangs by job by app."""
    return {app_id: tuple(gangs.values()) for app_id, gangs in by_job.items()}


def unserved(claims: Sequence[Claim], by_job: Mapping[str, Mapping[str, PlacedGang]]) -> tuple[Claim, ...]:
    """What is left of claims once jobs were given gangs: jobs without one, and the room to grow of small ones."""
    # Most claims got nothing.
    left = [_left_of(claim, by_job[claim.app_id]) if claim.app_id in by_job else claim for claim in claims]
    return tuple([claim for claim in left if claim is not None])


def _left_of(claim: Claim, gangs: Mapping[str, PlacedGang]) -> Claim | None:
    """What is left of a claim beside gangs by job."""
    rest = [
        demand if (gang := gangs.get(demand.job_id)) is None else room_to_grow(demand, gang) for demand in claim.demands
    ]
    demands = tuple([demand for demand in rest if demand is not None])
    return replace(claim, demands=demands) if demands else None


def usable_left(machines: Sequence[FreeMachine], decision: Decision) -> int:
    """GPUs that some app could still use after all grants; a work-conserving policy leaves none."""
    left = machines_after(machines, decision.grants())
    usable = 0
    for claim in decision.unserved:
        for demand in claim.demands:
            gang = place_gang(left, demand)
            if gang is not None:
                usable += gang.gpus.gpus
                left = take_gang(left, gang)
    return usable


def room_to_grow(demand: GangDemand, gang: PlacedGang) -> GangDemand | None:
    """What a job could still use beside a gang that it was given; None when that is no whole unit."""
    # Whole units: what is left of a unit serves nobody, and a demand for it would be none.
    room = (demand.max_gpus - gang.gpus.gpus) // demand.unit_gpus * demand.unit_gpus
    if room < demand.unit_gpus:
        return None
    # Growing has to beat the gang as it was placed: `held` alone does not tell that it lies within one slot. A pinned
    # gang tells no level of its own.
    reached = 0.0 if gang.pinned else (demand.held.gpus + gang.gpus.gpus) / demand.slowdown.at(gang.level)
    return replace(
        demand,
        min_gpus=demand.unit_gpus,
        max_gpus=room,
        held=demand.held + gang.gpus,
        faster_than=max(demand.faster_than, reached),
    )


def _serves(gang: PlacedGang, demand: GangDemand) -> bool:
    if demand.held:
        # Growth is served only next to what the job holds.
        return gang.gpus.gpus <= demand.max_gpus and any(demand.held.count(machine) for machine, _ in gang.gpus)
    return gang.gpus.gpus >= demand.min_gpus
