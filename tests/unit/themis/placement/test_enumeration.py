"""Placements of a gang: all of them, one of each set of interchangeable ones."""

import itertools
import random

import pytest

from themis.bids import FreeMachine, GangRequest
from themis.cluster import Level, level_across
from themis.placement.enumeration import FreeCounts, assign_slots, placements


def machines(*entries):
    return tuple(FreeMachine(machine_id=name, rack_id=rack, free_slots=slots) for name, rack, slots in entries)


def found(gang, free):
    return [
        (dict(placed.gpus.counts), placed.level, placed.slot) for placed, _ in placements(gang, FreeCounts.of(free))
    ]


def test_interchangeable_machines_and_slots_are_tried_once():
    free = machines(("m0", "r0", (2, 2)), ("m1", "r0", (2, 2)), ("m2", "r1", (2, 2)), ("m3", "r0", (3, 1)))
    assert found(GangRequest(2, Level.SLOT), free) == [
        ({"m0": 2}, Level.SLOT, 0),
        ({"m2": 2}, Level.SLOT, 0),
        ({"m3": 2}, Level.SLOT, 0),
    ]
    assert [parts for parts, _, _ in found(GangRequest(4, Level.MACHINE), free)] == [{"m0": 4}, {"m2": 4}, {"m3": 4}]


def test_a_rack_gang_stays_in_a_rack_and_keeps_units_whole():
    free = machines(("m0", "r0", (3,)), ("m1", "r0", (3,)), ("m2", "r1", (2,)))
    assert found(GangRequest(4, Level.RACK, unit_gpus=2), free) == [({"m0": 2, "m1": 2}, Level.RACK, None)]
    everywhere = [parts for parts, _, _ in found(GangRequest(4, Level.CLUSTER, unit_gpus=2), free)]
    assert everywhere == [{"m0": 2, "m1": 2}, {"m0": 2, "m2": 2}, {"m1": 2, "m2": 2}]


def test_a_placement_takes_its_gpus():
    free = FreeCounts.of(machines(("m0", "r0", (2, 3))))
    ((_, left),) = placements(GangRequest(3, Level.SLOT), free)
    assert (left.free, left.slots) == ((2,), ((2, 0),))
    ((_, left),) = placements(GangRequest(4, Level.MACHINE), free)
    assert (left.free, left.slots) == ((1,), ((2, 3),))


def class_of(free, parts, slot):
    """What a placement is up to interchangeable machines and slots."""
    by_id = {machine.machine_id: machine for machine in free}
    counts = sorted((by_id[name].rack_id, by_id[name].free_slots, gpus) for name, gpus in parts.items())
    return tuple(counts), None if slot is None else by_id[next(iter(parts))].free_slots[slot]


def all_plainly(gang, free):
    """Every placement, counted out over all machines."""
    rack_of = {machine.machine_id: machine.rack_id for machine in free}
    for counts in itertools.product(*(range(0, machine.free + 1, gang.unit_gpus) for machine in free)):
        parts = {machine.machine_id: count for machine, count in zip(free, counts, strict=True) if count}
        on_one = len(parts) == 1
        if sum(counts) != gang.gpus or (not on_one and level_across(parts, rack_of) > gang.within):
            continue
        if gang.within is not Level.SLOT:
            yield parts, None
        elif on_one:
            (machine,) = [machine for machine in free if machine.machine_id in parts]
            yield from ((parts, slot) for slot, there in enumerate(machine.free_slots) if there >= gang.gpus)


@pytest.mark.parametrize("seed", range(80))
def test_every_placement_is_found_up_to_interchangeable_ones(seed):
    rng = random.Random(seed)
    free = machines(
        *(
            (f"m{n}", f"r{rng.randrange(2)}", tuple(rng.randint(0, 3) for _ in range(rng.randint(1, 2))))
            for n in range(4)
        )
    )
    unit = rng.choice((1, 1, 2))
    gang = GangRequest(unit * rng.randint(1, 3), rng.choice(list(Level)), unit_gpus=unit)
    listed = [class_of(free, parts, slot) for parts, _, slot in found(gang, free)]
    assert set(listed) == {class_of(free, parts, slot) for parts, slot in all_plainly(gang, free)}
    if gang.within <= Level.MACHINE:
        assert len(listed) == len(set(listed))


@pytest.mark.parametrize(
    ("gangs", "free_slots", "expected"),
    [
        ([], (), []),
        ([1, 3], (1, 3), [(3, 1), (1, 0)]),
        # The gang of 3 in the slot of 4 would leave no slot for the gangs of 2: the first choice is taken back.
        ([2, 3, 2], (4, 3), [(3, 1), (2, 0), (2, 0)]),
        ([2, 2], (3, 1), None),
    ],
)
def test_gangs_of_one_machine_get_slots(gangs, free_slots, expected):
    assert assign_slots(gangs, free_slots) == expected
