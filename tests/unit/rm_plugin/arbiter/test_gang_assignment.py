"""The GPUs of a round's gangs: the same as when they are chosen one by one from sets of GPUs."""

import random

import pytest

from rm_plugin.arbiter.gang_assignment import assign_gangs
from rm_plugin.arbiter.lease_table import LeaseTable
from themis.bids import PlacedGang
from themis.cluster import Allocation, Cluster, GpuId, Level, Machine
from themis.errors import InvariantError
from themis.leases import Lease
from themis.placement.free_capacity import FreeCapacity

CLUSTER = Cluster(
    name="c",
    machines=(
        Machine(machine_id="m0", rack_id="r0", slots=(2, 2, 4)),
        Machine(machine_id="m1", rack_id="r0", slots=(4, 4)),
        Machine(machine_id="m2", rack_id="r1", slots=(1, 3)),
        Machine(machine_id="m3", rack_id="r1", slots=(2,)),
    ),
)


# ---- the plain way ----


def plainly(grants, up, free):
    """(app, renewed, others) of every gang, with sets of GPUs."""
    mine = {}
    for lease in up.values():
        mine.setdefault((lease.app_id, lease.gpu.machine_id), set()).add(lease.gpu)
    available = set(free) | set(up)
    found = []
    for app in sorted(grants):
        for gang in sorted(grants[app], key=lambda gang: (not gang.pinned, gang.slot is None, gang)):
            renewed, missing = [], {}
            for machine_id, count in gang.gpus:
                here = mine.get((app, machine_id), set())
                fitting = here if gang.slot is None else whole_or_there(here, count, gang.slot)
                chosen = from_slots(sorted(fitting), min(count, len(fitting)), gang.slot)
                here.difference_update(chosen)
                renewed += chosen
                missing[machine_id] = count - len(chosen)
            available -= set(renewed)
            found.append((app, gang.slot, renewed, missing, []))
    for _, slot, _, missing, others in sorted(found, key=lambda each: each[1] is None):
        for machine_id, count in missing.items():
            here = sorted(gpu for gpu in available if gpu.machine_id == machine_id)
            assert len(here) >= count
            more = from_slots([gpu for gpu in here if gpu not in up], count, slot)
            more += from_slots([gpu for gpu in here if gpu in up], count - len(more), slot)
            available -= set(more)
            others += more
    return [(app, renewed, others) for app, _, renewed, _, others in found]


def slot_of(gpu):
    return CLUSTER.machine(gpu.machine_id).slot_of(gpu.index)


def whole_or_there(mine, count, slot):
    by_slot = {}
    for gpu in mine:
        by_slot.setdefault(slot_of(gpu), set()).add(gpu)
    there = by_slot.get(slot, set())
    whole = [gpus for gpus in by_slot.values() if len(gpus) >= count]
    return there if len(there) >= count or not whole else mine


def from_slots(pool, count, slot):
    by_slot = {}
    for gpu in pool:
        by_slot.setdefault(slot_of(gpu), []).append(gpu)
    chosen = []
    while by_slot and len(chosen) < count:
        lacking = count - len(chosen)
        fitting = [number for number, gpus in by_slot.items() if len(gpus) >= lacking]
        candidates = fitting or list(by_slot)
        number = slot if slot in candidates else min(candidates, key=lambda number: (len(by_slot[number]), number))
        chosen += by_slot.pop(number)[:lacking]
    return chosen


# ---- drawn cases ----


def drawn(seed):
    """Grants, renewable leases and free GPUs; some gangs renew what their app holds, in place or moved."""
    rng = random.Random(seed)
    up, free = {}, []
    for gpu in CLUSTER.gpu_ids():
        kind = rng.random()
        if kind < 0.6:
            lease = Lease(lease_id=len(up) + 1, gpu=gpu, app_id=rng.choice("ab"), granted_at_s=0, expires_at_s=9)
            up[gpu] = lease
        elif kind < 0.85:
            free.append(gpu)
    table = LeaseTable(CLUSTER, up.values())
    capacity = FreeCapacity(table.offered_machines(up.values()))
    grants = {}
    for gpu in sorted(set(CLUSTER.gpu_ids()) - set(up) - set(free)):
        capacity.reserve(gpu.machine_id, 1)
    for _ in range(rng.randint(1, 9)):
        there = {name: capacity.free(name) for name in capacity.machine_ids if capacity.free(name)}
        if there:
            names = rng.sample(sorted(there), min(len(there), rng.choice((1, 1, 1, 2))))
            gang = capacity.place({name: rng.randint(1, there[name]) for name in names})
            if rng.random() < 0.4:
                gang = PlacedGang(gpus=gang.gpus, level=gang.level, pinned=True)
            grants.setdefault(rng.choice("abc"), []).append(gang)
    return grants, up, free


@pytest.mark.parametrize("seed", range(300))
def test_batched_assignment_equals_assignment_one_by_one(seed):
    grants, up, free = drawn(seed)
    masks = {name: sum(1 << gpu.index for gpu in free if gpu.machine_id == name) for name in CLUSTER.rack_of}
    found = assign_gangs(CLUSTER, grants, up, masks)
    assert [(gang.app_id, set(gang.renewed), set(gang.others)) for gang in found] == [
        (app_id, set(renewed), set(others)) for app_id, renewed, others in plainly(grants, up, free)
    ]


def test_assigning_more_gpus_than_are_free_is_a_defect_on_any_machine():
    mine = GpuId("m3", 0)
    up = {mine: Lease(lease_id=1, gpu=mine, app_id="a", granted_at_s=0, expires_at_s=9)}
    for machine_id, gpus in (("m3", 2), ("m2", 2), ("elsewhere", 1)):
        gang = PlacedGang(gpus=Allocation.of({machine_id: gpus}), level=Level.MACHINE)
        with pytest.raises(InvariantError, match="more GPUs are granted"):
            assign_gangs(CLUSTER, {"a": [gang]}, up, {"m2": 1})
