"""Free capacity: slots, reserved GPUs, copies; spreading over few machines."""

import random

import pytest

from themis.bids import FreeMachine
from themis.cluster import Level
from themis.errors import InvariantError
from themis.placement.best_fit import spread
from themis.placement.free_capacity import FreeCapacity, slots_after


def capacity(*machines):
    return FreeCapacity(FreeMachine(machine_id=name, rack_id=rack, free_slots=slots) for name, rack, slots in machines)


def test_a_gang_on_one_machine_goes_into_one_slot_when_it_can():
    gang = capacity(("m0", "r0", (2, 4, 3))).place({"m0": 3})
    assert (gang.level, gang.slot) == (Level.SLOT, 2)


def test_a_gang_over_slots_spans_the_machine():
    free = capacity(("m0", "r0", (2, 4)))
    gang = free.place({"m0": 5})
    assert (gang.level, gang.slot) == (Level.MACHINE, None)
    assert free.machines()[0].free_slots == (0, 1)


def test_ties_go_to_the_smaller_machine_and_slot():
    """Rules 2 and 3 of `themis.placement`, by hand."""
    equal = capacity(("m1", "r0", (2, 2)), ("m0", "r0", (2, 2)))
    assert equal.tightest_slot(2) == (4, "m0", 0)
    assert equal.tightest_slot_on("m1", 2, 4) == 0
    fuller_machine = capacity(("m0", "r0", (2, 2)), ("m1", "r0", (1, 2)))
    assert fuller_machine.tightest_slot(2) == (3, "m1", 1)
    assert capacity(("m1", "r0", (3,)), ("m0", "r0", (3,))).tightest_machine(3) == "m0"
    assert capacity(("m0", "r0", (3, 2, 2))).place({"m0": 2}).slot == 1
    assert slots_after((3, 2, 2), 2) == (3, 0, 2)
    # No slot holds five: the first of the two smallest is emptied, then the tightest that holds the other three.
    assert slots_after((4, 2, 2), 5) == (1, 0, 2)
    assert slots_after((2, 2), 1) == (1, 2)


def test_slots_with_too_few_gpus_are_a_defect():
    with pytest.raises(InvariantError, match="too few free GPUs"):
        slots_after((2, 1), 4)


def test_levels_follow_racks():
    free = capacity(("m0", "r0", (2,)), ("m1", "r0", (2,)), ("m2", "r1", (2,)))
    assert free.place({"m0": 1, "m1": 1}).level is Level.RACK
    assert free.place({"m0": 1, "m2": 1}).level is Level.CLUSTER


def test_reserved_gpus_are_not_free_in_any_slot():
    free = capacity(("m0", "r0", (2, 2)))
    assert free.reserve("m0", 3)
    assert not free.reserve("m0", 2)
    assert free.slot_free("m0") == [1, 1]
    assert free.free("m0") == 1
    assert sum(free.machines()[0].free_slots) == 1


def test_taking_more_gpus_than_are_free_is_a_defect():
    with pytest.raises(InvariantError):
        capacity(("m0", "r0", (2, 2))).place({"m0": 5})
    with pytest.raises(InvariantError):
        capacity(("m0", "r0", (2, 2))).place_in_slot("m0", 0, 3)


def test_spread_takes_few_machines_and_the_tightest_last():
    racks = {"r0": ["a", "b", "c", "d"]}
    assert spread({"a": 2, "b": 4, "c": 3, "d": 1}, racks, 5) == {"b": 4, "d": 1}
    assert spread({"a": 2, "b": 4, "c": 3, "d": 1}, racks, 3) == {"c": 3}
    assert spread({"a": 2}, racks, 3) is None


def test_spread_stays_in_one_rack_when_it_can():
    racks = {"r0": ["a"], "r1": ["b", "c"]}
    assert spread({"a": 3, "b": 2, "c": 2}, racks, 4) == {"b": 2, "c": 2}


def test_only_machines_with_a_free_gpu_are_open():
    free = capacity(("m1", "r0", (2, 1)), ("m0", "r0", (0,)), ("m2", "r1", (1,)))
    assert (list(free.units(1)), free.gpus) == (["m1", "m2"], 4)
    assert free.units(2) == {"m1": 1, "m2": 0}
    free.place({"m1": 3})
    assert (list(free.units(1)), free.gpus) == (["m2"], 1)
    assert free.units(2) == {"m2": 0}
    assert free.reserve("m2", 1)
    assert (list(free.units(1)), free.gpus) == ([], 0)


def test_a_part_is_an_independent_copy():
    free = capacity(("m0", "r0", (2, 2)), ("m1", "r0", (2,)), ("m2", "r1", (2,)))
    part = free.part({"m1": 1, "m0": 3, "elsewhere": 5})
    assert part.machine_ids == ("m0", "m1")
    assert [part.free(name) for name in ("m0", "m1", "m2")] == [3, 1, 0]
    assert part.slot_free("m0") == [2, 2]
    part.place({"m0": 3, "m1": 1})
    assert (part.gpus, free.gpus) == (0, 8)
    assert free.slot_free("m0") == [2, 2]
    assert part.level_of(["m0", "m2"]) is Level.CLUSTER


def slots_plainly(free):
    """Free slots as (free GPUs, free GPUs of the machine, machine, slot), one by one."""
    return [
        (count, free.free(name), name, slot)
        for name in free.machine_ids
        for slot, count in enumerate(free.slot_free(name))
        if count
    ]


@pytest.mark.parametrize("seed", range(60))
def test_the_tightest_slot_is_found_after_takes_and_reservations(seed):
    rng = random.Random(seed)
    whole = capacity(
        *((f"m{each}", "r0", tuple(rng.randint(0, 4) for _ in range(rng.randint(1, 3)))) for each in range(6))
    )
    free = whole.part({name: rng.randint(0, 8) for name in whole.machine_ids}) if rng.random() < 0.5 else whole
    while free.gpus:
        plain = slots_plainly(free)
        by_free = {(count, *place) for count, places in free.slots_by_free().items() for place in places}
        assert by_free == set(plain)
        for gpus in range(1, 6):
            best = min([each for each in plain if each[0] >= gpus], default=None)
            assert free.tightest_slot(gpus) == (best and best[1:])
        for _ in range(rng.randint(1, 2)):
            if free.gpus:
                name = rng.choice(list(free.units(1)))
                take = rng.choice((free.reserve, lambda name, gpus: free.place({name: gpus})))
                take(name, rng.randint(1, free.free(name)))
