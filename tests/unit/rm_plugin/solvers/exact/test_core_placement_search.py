"""The compiled search for places against brute force: an exact yes or no, or no answer, but never a wrong one."""

import random

import pytest
from core_cases import Cluster, draw_gangs, draw_machines, draw_pins, fits, kinds_of, one_row
from small_markets import machine

from rm_plugin.solvers.kinds import Kind
from themis.bids import GangRequest
from themis.cluster import Allocation, Level

NO, YES, NOT_DECIDED = 0, 1, 2
IN_RACK, ON_MACHINE, IN_SLOT = -2, -1, 0

DRAWS = {
    "slots": {"levels": (Level.SLOT, Level.SLOT, Level.MACHINE, Level.CLUSTER), "units": (1,)},
    "racks": {"levels": (Level.RACK, Level.RACK, Level.MACHINE), "units": (1,)},
    "units": {"levels": (Level.RACK, Level.CLUSTER), "sizes": (2, 4, 6), "units": (2, 3)},
    "everything": {},
}


def slots_hold(sizes, room):
    if not sizes:
        return True
    return any(
        slots_hold(sizes[1:], [*room[:slot], free - sizes[0], *room[slot + 1 :]])
        for slot, free in enumerate(room)
        if free >= sizes[0]
    )


def certified(cluster, kinds, parts):
    """Whether parts are places for these gangs: counts, room of machines, slots and racks."""
    shapes, left = list(kinds), cluster.free.tolist()
    units = dict.fromkeys(range(len(shapes)), 0)
    in_racks, in_slots, hosted = dict(units), {}, {}
    for number, place, where, gpus in parts:
        kind = shapes[number]
        if where == IN_RACK:
            in_racks[number] += 1
            hosted.setdefault((number, int(cluster.rack[place])), 0)
            hosted[number, int(cluster.rack[place])] += kind.units
            continue
        assert gpus == kind.unit
        assert (where == IN_SLOT) == (kind.level is Level.SLOT)
        left[place] -= gpus
        units[number] += 1
        if where == IN_SLOT:
            in_slots.setdefault(place, []).append(gpus)
        elif kind.level is Level.RACK:
            hosted[number, int(cluster.rack[place])] -= 1
    assert all(kinds[shapes[n]] == many for n, many in in_racks.items() if shapes[n].level is Level.RACK)
    whole = [n for n, kind in enumerate(shapes) if kind.unit > 1]
    assert all(units[n] == kinds[shapes[n]] * shapes[n].units for n in whole)
    assert all(many == 0 for (n, _), many in hosted.items() if shapes[n].unit > 1)
    slots = [cluster.machines[place].free_slots for place in range(len(left))]
    assert all(slots_hold(sorted(sizes, reverse=True), list(slots[place])) for place, sizes in in_slots.items())
    owed = dict.fromkeys(range(cluster.racks), 0)
    for (n, rack), many in hosted.items():
        owed[rack] += many if shapes[n].unit == 1 else 0
    racks = cluster.rack.tolist()
    room = {rack: sum(free for free, at in zip(left, racks, strict=True) if at == rack) for rack in owed}
    anywhere = sum(kind.gpus * kinds[kind] for kind in shapes if kind.level is Level.CLUSTER and kind.unit == 1)
    enough = all(room[rack] >= owed[rack] for rack in owed) and sum(room.values()) - sum(owed.values()) >= anywhere
    return min(left) >= 0 and enough


@pytest.mark.parametrize("name", DRAWS)
def test_placements_agree_with_brute_force(name):
    rng, answers = random.Random(name), []
    for _ in range(200):
        machines = draw_machines(rng, most=4, racks=rng.randint(1, 3))
        gangs, pinned = draw_gangs(rng, 3, **DRAWS[name]), draw_pins(rng, machines, rng.randint(0, 2))
        kinds, cluster = kinds_of(gangs, machines), Cluster(machines, pinned)
        answer, parts = cluster.fit(kinds)
        assert answer == (YES if fits(machines, one_row(gangs, pinned)) else NO), (machines, gangs, pinned)
        assert answer == NO or certified(cluster, kinds, parts)
        answers.append(answer)
    assert 20 < sum(answers) < 180


def test_few_steps_never_make_a_wrong_answer():
    rng, answers = random.Random(7), set()
    for _ in range(200):
        machines = draw_machines(rng, most=5, racks=2)
        kinds, cluster = kinds_of(draw_gangs(rng, 4), machines), Cluster(machines)
        short, whole = cluster.fit(kinds, most_steps=rng.randint(0, 3))[0], cluster.fit(kinds)[0]
        assert short in (whole, NOT_DECIDED)
        answers.add((short, whole))
    assert {(NOT_DECIDED, NO), (NO, NO), (YES, YES)} <= answers


def test_slots_that_take_long_to_try_are_not_decided():
    """Twenty odd slots and even gangs: one GPU of each slot is lost, which shows only after ages of trying."""
    room = list(range(9, 49, 2))
    gangs = [GangRequest(6, Level.SLOT, 45), GangRequest(4, Level.SLOT, 70)]
    machines = [machine("m0", *room)]
    assert sum(room) - len(room) < sum(gang.total_gpus for gang in gangs) < sum(room)
    assert Cluster(machines).fit(kinds_of(gangs, machines), most_steps=20_000)[0] == NOT_DECIDED


@pytest.mark.parametrize(("slots", "decided"), [(64, True), (65, False)])
def test_more_slots_than_it_has_room_for_are_not_decided(slots, decided):
    machines = [machine("m0", *[1] * slots)]
    kinds = {Kind(Level.SLOT, 2, 2): 1}
    assert Cluster(machines).fit(kinds)[0] == (NO if decided else NOT_DECIDED)


@pytest.mark.parametrize(("sizes", "decided"), [(48, True), (49, False)])
def test_more_kinds_than_it_has_room_for_are_not_decided(sizes, decided):
    machines = [machine(f"m{gpus}", gpus) for gpus in range(2, sizes + 2)]
    kinds = {Kind(Level.MACHINE, gpus, gpus): 1 for gpus in range(2, sizes + 2)}
    assert Cluster(machines).fit(kinds)[0] == (YES if decided else NOT_DECIDED)


def test_more_machines_than_it_can_recurse_over_are_not_decided():
    kinds = {Kind(Level.MACHINE, gpus, gpus): 1 for gpus in (2, 3, 4, 5)}
    assert Cluster([machine(f"m{n}", 6) for n in range(1_250)]).fit(kinds)[0] == YES
    assert Cluster([machine(f"m{n}", 6) for n in range(50_000)]).fit(kinds)[0] == NOT_DECIDED


def test_gpus_pinned_leave_slots_whole_but_fewer_gpus():
    machines = [machine("m0", 3, 3)]
    kinds = {Kind(Level.SLOT, 3, 3): 1}
    for pinned, answer in ((3, YES), (4, NO)):
        assert Cluster(machines, Allocation.of({"m0": pinned})).fit(kinds)[0] == answer


def test_a_rack_that_owes_gpus_to_its_gang_leaves_them_to_it():
    """Five GPUs of the rack of six are owed, so the pair must go elsewhere though it would fit there."""
    machines = [machine("m0", 4), machine("m1", 2), machine("m2", 2, rack="r1")]
    gangs = (GangRequest(5, Level.RACK), GangRequest(2, Level.MACHINE))
    assert Cluster(machines).fit(kinds_of(gangs, machines))[0] == YES
    assert Cluster(machines[:2]).fit(kinds_of(gangs, machines))[0] == NO
