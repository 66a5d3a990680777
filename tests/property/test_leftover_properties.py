"""Leftovers for seeded random demands: feasible, within demand, and no usable GPU idles."""

import itertools
import random

from rm_plugin.arbiter.leftovers import AppDemand, share_leftovers
from themis.apps import Slowdown
from themis.bids import FreeMachine, GangDemand
from themis.cluster import Allocation, Level
from themis.placement.free_capacity import FreeCapacity


def _case(seed: int) -> tuple[tuple[FreeMachine, ...], list[AppDemand]]:
    rng = random.Random(seed)
    machines = tuple(
        FreeMachine(
            machine_id=f"m{index}",
            rack_id=f"r{rng.randrange(2)}",
            free_slots=tuple(rng.randint(0, 3) for _ in range(rng.randint(1, 2))),
        )
        for index in range(5)
    )
    return machines, [_claim(f"a{index}", rng) for index in range(4)]


def _claim(app_id: str, rng: random.Random) -> AppDemand:
    demands = []
    for job in range(rng.randint(0, 4)):
        unit = rng.choice((1, 1, 2))
        least = rng.randint(1, 2) * unit
        steps = sorted(rng.uniform(1.0, 2.5) for _ in range(3))
        held = {f"m{rng.randrange(5)}": unit} if rng.random() < 0.2 else {}
        demands.append(
            GangDemand(
                job_id=f"j{job}",
                min_gpus=least,
                max_gpus=least + rng.randint(0, 2) * unit,
                unit_gpus=unit,
                slowdown=Slowdown(1.0, *steps),
                held=Allocation.of(held),
            )
        )
    renewable = {f"m{rng.randrange(5)}": rng.randint(1, 3) for _ in range(rng.randint(0, 2))}
    return AppDemand(app_id=app_id, demands=tuple(demands), renewable=Allocation.of(renewable), bid=rng.random() < 0.5)


def test_grants_are_feasible_and_within_demand():
    for seed in range(150):
        machines, app_demands = _case(seed)
        granted = share_leftovers(FreeCapacity(machines), app_demands, seed)
        used: dict[str, int] = {}
        in_slot: dict[tuple[str, int], int] = {}
        for app_demand in app_demands:
            for demand in app_demand.demands:
                gang = granted.get(app_demand.app_id, {}).get(demand.job_id)
                if gang is None:
                    continue
                assert demand.min_gpus <= gang.gpus.gpus <= demand.max_gpus
                assert all(count % demand.unit_gpus == 0 for _, count in gang.gpus)
                assert gang.level == _level(machines, demand.held + gang.gpus, gang.slot)
                for machine, count in gang.gpus:
                    used[machine] = used.get(machine, 0) + count
                    if gang.slot is not None:
                        in_slot[machine, gang.slot] = in_slot.get((machine, gang.slot), 0) + count
        by_id = {machine.machine_id: machine for machine in machines}
        assert all(count <= by_id[machine].free for machine, count in used.items())
        assert all(count <= by_id[machine].free_slots[slot] for (machine, slot), count in in_slot.items())


def test_no_free_gpus_would_serve_a_demand_that_is_not_met():
    """By trying every way to add whole units of the free GPUs to a job."""
    idle = 0
    for seed in range(150):
        machines, app_demands = _case(seed)
        granted = share_leftovers(FreeCapacity(machines), app_demands, seed)
        taken = sum((gang.gpus for jobs in granted.values() for gang in jobs.values()), Allocation())
        free = (Allocation.of({machine.machine_id: machine.free for machine in machines}) - taken).by_machine()
        idle += sum(free.values())
        for app_demand in app_demands:
            for demand in app_demand.demands:
                gang = granted.get(app_demand.app_id, {}).get(demand.job_id)
                assert not _could_use(machines, free, demand, gang), (seed, app_demand.app_id, demand.job_id)
    assert idle > 0


def _could_use(machines, free: dict[str, int], demand: GangDemand, gang) -> bool:
    got = gang.gpus if gang else Allocation()
    now = demand.held + got
    speed = now.gpus / demand.slowdown.at(_nearest(machines, now, gang)) if now else 0.0
    unit = demand.unit_gpus
    choices = [range(0, count + 1, unit) for count in free.values()]
    for added in itertools.product(*choices):
        total = sum(added)
        least = unit if gang else demand.min_gpus
        if not least <= total <= demand.max_gpus - got.gpus:
            continue
        after = now + Allocation.of(zip(free, added, strict=True))
        # Slots are left aside: on one machine the slowdown of the machine is the most it can be.
        if after.gpus / demand.slowdown.at(_level(machines, after, None)) > speed + 1e-9:
            return True
    return False


def _nearest(machines, allocation: Allocation, gang) -> Level:
    level = _level(machines, allocation, None)
    return gang.level if gang is not None and gang.level < level else level


def _level(machines, allocation: Allocation, slot: int | None) -> Level:
    racks = {machine.machine_id: machine.rack_id for machine in machines}
    if len(allocation.counts) <= 1:
        return Level.MACHINE if slot is None else Level.SLOT
    return Level.RACK if len({racks[machine] for machine, _ in allocation}) == 1 else Level.CLUSTER
