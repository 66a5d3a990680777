"""Placement of one gang: fastest, then nearest, then tightest."""

import pytest

from rm_plugin.arbiter.placement import place_gang, take_gang
from themis.apps import CRUDE_SLOWDOWN, Slowdown
from themis.bids import FreeMachine, GangDemand
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
