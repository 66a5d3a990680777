"""How many gangs fit into free GPUs: by hand, and against a search for small capacities."""

import itertools

import pytest

from themis.bids import FreeMachine, GangRequest
from themis.cluster import Level
from themis.placement.enumeration import FreeCounts, placements
from themis.placement.gang_capacity import GangCapacity, parts_together


def machines(*slots, racks=("r0",)):
    return [
        FreeMachine(machine_id=f"m{place}", rack_id=racks[place % len(racks)], free_slots=each)
        for place, each in enumerate(slots)
    ]


def test_a_unit_never_spans_machines():
    capacity = GangCapacity.of(machines((3,), (3,), (2,)))
    assert capacity.most(4, 1, Level.MACHINE) == 0
    assert capacity.most(4, 1, Level.CLUSTER) == 2
    assert capacity.most(4, 2, Level.CLUSTER) == 1


def test_rack_gangs_need_the_units_of_one_rack():
    capacity = GangCapacity.of(machines((3,), (2,), (1,), racks=("r0", "r1", "r1")))
    assert capacity.most(3, 1, Level.RACK) == 2
    assert capacity.most(4, 1, Level.RACK) == 0
    assert capacity.most(4, 1, Level.CLUSTER) == 1


def test_slots_count_at_most_the_free_gpus_of_their_machine():
    assert GangCapacity({"m0": 3}, {"m0": (2, 2)}, {}).most(2, 1, Level.SLOT) == 2
    assert GangCapacity({"m0": 1}, {"m0": (2, 2)}, {}).most(2, 1, Level.SLOT) == 0


def levels_here(capacity):
    return [capacity.level_here(level) for level in Level]


def test_levels_coincide_if_the_offer_has_one_slot_a_machine_or_one_rack():
    slot, machine, rack, cluster = Level
    assert levels_here(GangCapacity.of(machines((2,), (4,)))) == [slot, slot, rack, rack]
    assert levels_here(GangCapacity.of(machines((2, 1), (4,)))) == [slot, machine, rack, rack]
    assert levels_here(GangCapacity.of(machines((2,), (4,), racks=("r0", "r1")))) == [slot, slot, rack, cluster]
    assert levels_here(GangCapacity({"m0": 2}, {"m0": (2,)}, {})) == [slot, slot, rack, cluster]


def test_machines_without_free_gpus_do_not_count():
    assert GangCapacity.of(machines((2,), (0, 0), racks=("r0", "r1"))).traits == (True, True)


@pytest.mark.parametrize(
    ("held_in", "expected"), [("r0", Level.RACK), ("r1", Level.CLUSTER), (None, Level.CLUSTER)], ids=str
)
def test_held_machines_of_another_or_unknown_rack_widen_the_level(held_in, expected):
    racks = {"m0": "r0"} | ({"held": held_in} if held_in else {})
    assert GangCapacity({"m0": 2}, {}, racks).level_with(["held"]) is expected


def test_free_gpus_of_a_rack_come_in_order_of_machines():
    capacity = GangCapacity({"m2": 1, "m1": 2, "m0": 3}, {}, {"m2": "r0", "m1": "r0", "m0": "r1"})
    assert list(capacity.in_rack("r0").items()) == [("m1", 2), ("m2", 1)]


@pytest.mark.parametrize(
    ("gang", "size", "expected"),
    [
        (GangRequest(5, Level.MACHINE), 2, 2),
        (GangRequest(6, Level.CLUSTER, unit_gpus=2), 2, 3),
        (GangRequest(6, Level.CLUSTER, unit_gpus=3), 2, 2),
        (GangRequest(6, Level.CLUSTER), 2, 0),
    ],
    ids=str,
)
def test_parts_that_are_provably_on_one_machine(gang, size, expected):
    assert parts_together(gang, size) == expected


def fit_together(gangs, free):
    """Whether gangs fit together, by trying all placements."""
    if not gangs:
        return True
    return any(fit_together(gangs[1:], left) for _, left in placements(gangs[0], free))


@pytest.mark.parametrize("slots", [((2, 2), (2,), (1,)), ((3,), (1, 1)), ((4,), (2, 1), (1,))], ids=str)
def test_mixes_that_fit_meet_all_limits(slots):
    free = machines(*slots)
    capacity = GangCapacity.of(free)
    asked = [(2, Level.SLOT), (2, Level.MACHINE), (3, Level.MACHINE), (3, Level.CLUSTER), (1, Level.CLUSTER)]
    kinds = [GangRequest(gpus, within, most) for gpus, within in asked if (most := capacity.most(gpus, 1, within))]
    limits, fitting = capacity.limits(kinds), 0
    for counts in itertools.product(range(3), repeat=len(kinds)):
        # Tightest first, as the free GPUs of slots require.
        gangs = [
            GangRequest(kind.gpus, kind.within) for kind, count in zip(kinds, counts, strict=True) for _ in range(count)
        ]
        if fit_together(gangs, FreeCounts.of(free)):
            fitting += 1
            for taken, most in limits:
                assert sum(take * count for take, count in zip(taken, counts, strict=True)) <= most
    assert fitting > len(kinds)
