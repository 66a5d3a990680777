"""Placement of one gang: fastest, then nearest, then tightest."""

import random
from dataclasses import replace

import pytest

from rm_plugin.arbiter import placement
from rm_plugin.arbiter.placement import Standing, place_gang, place_in, place_on_own, take_gang
from rm_plugin.solvers.packing import Room
from themis.apps import CRUDE_SLOWDOWN, Slowdown
from themis.bids import FreeMachine, GangDemand, PlacedGang
from themis.cluster import Allocation, Level

STRICT = Slowdown(1.0, 1.2, 3.0, 5.0)


def machines(*entries):
    return tuple(FreeMachine(machine_id=name, rack_id=rack, free_slots=slots) for name, rack, slots in entries)


def demand(least, most, unit=1, slowdown=CRUDE_SLOWDOWN, **held):
    return GangDemand(
        job_id="j",
        min_gpus=least,
        max_gpus=most,
        unit_gpus=unit,
        slowdown=slowdown,
        held=Allocation.of(held),
    )


def placed(free, wanted):
    gang = place_gang(free, wanted)
    return gang and (gang.gpus.by_machine(), gang.level, gang.slot)


def test_the_tightest_slot_that_holds_the_gang():
    free = machines(("m0", "r0", (4,)), ("m1", "r0", (1, 3)), ("m2", "r0", (2, 2)), ("m3", "r0", (2, 0)))
    assert placed(free, demand(2, 2)) == ({"m3": 2}, Level.SLOT, 0)
    assert placed(free, demand(3, 3)) == ({"m1": 3}, Level.SLOT, 1)


def test_the_tightest_machine_when_no_slot_holds_it():
    free = machines(("m0", "r0", (3, 3)), ("m1", "r0", (2, 2)))
    assert placed(free, demand(4, 4)) == ({"m1": 4}, Level.MACHINE, None)


def test_more_gpus_farther_apart_only_where_they_are_faster():
    free = machines(("m0", "r0", (2,)), ("m1", "r0", (2,)))
    assert placed(free, demand(1, 4)) == ({"m0": 2, "m1": 2}, Level.RACK, None)
    assert placed(free, demand(1, 4, slowdown=STRICT)) == ({"m0": 2}, Level.SLOT, 0)


def test_a_rack_before_the_cluster_and_few_machines():
    free = machines(("m0", "r0", (2,)), ("m1", "r1", (1,)), ("m2", "r1", (1,)), ("m3", "r1", (2,)))
    assert placed(free, demand(3, 3)) == ({"m1": 1, "m3": 2}, Level.RACK, None)
    assert placed(free, demand(5, 5)) == ({"m0": 1, "m1": 1, "m2": 1, "m3": 2}, Level.CLUSTER, None)


def test_units_stay_whole():
    free = machines(("m0", "r0", (3,)), ("m1", "r0", (3,)))
    assert placed(free, demand(2, 6, unit=2)) == ({"m0": 2, "m1": 2}, Level.RACK, None)
    assert placed(free, demand(6, 6, unit=2)) is None
    assert placed(free, demand(4, 4, unit=4)) is None


def test_nothing_fits_nothing_is_placed():
    assert placed((), demand(1, 1)) is None
    assert placed(machines(("m0", "r0", (0,))), demand(1, 1)) is None
    assert placed(machines(("m0", "r0", (1,))), demand(2, 2)) is None


def test_a_held_gang_grows_on_its_machine_first():
    free = machines(("m0", "r0", (1, 1)), ("m1", "r0", (4,)))
    assert placed(free, demand(1, 2, m0=2)) == ({"m0": 2}, Level.MACHINE, None)
    assert placed(free, demand(1, 4, m0=2)) == ({"m0": 2, "m1": 2}, Level.RACK, None)


def test_a_held_gang_does_not_grow_where_that_slows_it_down():
    free = machines(("m0", "r0", (0,)), ("m1", "r0", (2,)))
    assert placed(free, demand(1, 2, slowdown=STRICT, m0=2)) is None
    assert placed(free, demand(1, 2, m0=2)) == ({"m1": 2}, Level.RACK, None)


def test_taking_a_gang_gives_new_values():
    free = machines(("m0", "r0", (2, 2)), ("m1", "r0", (2,)))
    gang = place_gang(free, demand(2, 2))
    assert gang is not None
    assert take_gang(free, gang)[1].free_slots == (0,)
    assert free[1].free_slots == (2,)


@pytest.mark.parametrize("count", range(1, 11))
def test_gangs_placed_one_by_one_use_all_gpus(count):
    free = machines(("m0", "r0", (2, 2)), ("m1", "r0", (2,)), ("m2", "r1", (1, 3)))
    for _ in range(count):
        gang = place_gang(free, demand(1, 1))
        assert gang is not None
        free = take_gang(free, gang)
    assert sum(machine.free for machine in free) == 10 - count


def in_slot_plainly(room, demand, standing):
    """The tightest of all slots, looked at one by one."""
    machines = [machine for machine, _ in standing.gpus] if standing else room.machine_ids
    places = [
        (-usable, free, room.free(machine), machine, slot)
        for machine in machines
        for slot, free in enumerate(room.slot_free(machine) if machine in room.machine_ids else ())
        if (standing is None or slot == standing.slot) and (usable := placement._usable(free, demand))
    ]
    if not places:
        return None
    less, _, _, machine, slot = min(places)
    return PlacedGang(gpus=Allocation.of({machine: -less}), level=Level.SLOT, slot=slot)


def placed_plainly(room, demand, standing):
    """The first of the fastest gangs of all levels, nearest first."""
    gangs = [in_slot_plainly(room, demand, standing)]
    for find in (placement._on_machine, placement._in_rack, placement._anywhere):
        option = find(room, demand, standing)
        gangs.append(option and option[2]())
    held = standing.gpus.gpus if standing else 0
    best, most = None, demand.faster_than
    if standing:
        level = placement._level_of_standing(room, standing)
        most = max(most, held / demand.slowdown.at(level))
    for gang in gangs:
        if gang is not None and (held + gang.gpus.gpus) / demand.slowdown.at(gang.level) > most:
            best, most = gang, (held + gang.gpus.gpus) / demand.slowdown.at(gang.level)
    return best


def drawn_demand(rng):
    unit = rng.choice((1, 1, 1, 2))
    least = unit * rng.randint(1, 2)
    return GangDemand(
        job_id="j",
        min_gpus=least,
        max_gpus=least + unit * rng.randint(0, 3),
        unit_gpus=unit,
        slowdown=rng.choice((CRUDE_SLOWDOWN, STRICT)),
        faster_than=rng.choice((0.0, 0.0, 0.9, 1.0, 2.5)),
    )


@pytest.mark.parametrize("seed", range(150))
def test_the_place_is_that_of_all_levels_compared(seed):
    rng = random.Random(seed)
    room = Room(
        machines(*((f"m{each}", f"r{rng.randrange(2)}", (rng.randint(0, 4), rng.randint(0, 2))) for each in range(5)))
    )
    while room.gpus:
        wanted, standing = drawn_demand(rng), None
        if rng.random() < 0.4:
            standing = Standing(gpus=Allocation.of({f"m{rng.randrange(5)}": 1}), slot=rng.choice((None, 0, 1)))
        gang = place_in(room, wanted, standing)
        assert gang == placed_plainly(room, wanted, standing)
        if gang is None or rng.random() < 0.3:
            name = rng.choice(list(room.units(1)))
            gang = room.take({name: rng.randint(1, room.free(name))})
        else:
            room.remove(gang)


@pytest.mark.parametrize("seed", range(200))
def test_on_own_gpus_a_gang_lies_where_it_would_if_there_were_no_others(seed):
    rng = random.Random(seed)
    free = machines(
        *((f"m{n}", f"r{n % 2}", tuple(rng.randint(0, 4) for _ in range(rng.randint(1, 3)))) for n in range(4))
    )
    room = Room(free)
    for machine in free:
        # Pinned GPUs are counted by machine, and leave the choice of slots to others.
        room.reserve(machine.machine_id, rng.randint(0, machine.free))
    before = room.machines()
    own = {f"m{n}": rng.randint(1, 6) for n in rng.sample(range(6), rng.choice([1, 1, 1, 2, 3]))}
    least, unit = rng.randint(1, 3), rng.choice([1, 1, 2])
    wanted = demand(least * unit, (least + rng.randint(0, 4)) * unit, unit, rng.choice([STRICT, CRUDE_SLOWDOWN]))
    if rng.random() < 0.2:
        wanted = replace(wanted, faster_than=rng.choice([0.5, 2.0, 9.0]))
    assert place_on_own(room, Allocation.of(own), wanted) == place_in(room.part(own), wanted)
    assert room.machines() == before
