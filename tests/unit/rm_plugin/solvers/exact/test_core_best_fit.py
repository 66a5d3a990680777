"""The compiled best fit: what it places is feasible, and where it must succeed it does."""

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from core_cases import LEVELS, Cluster, draw_gangs, draw_machines, draw_pins, fits, kinds_of, one_row, wrongs_of
from small_markets import bid, machine, market

from rm_plugin.solvers.exact.market_arrays import read_market
from rm_plugin.solvers.exact.row_placement import Packed, RowPlacer, _market_row
from rm_plugin.solvers.realise import realise
from themis.bids import GangRequest
from themis.cluster import Allocation, Level

SLOT, MACHINE, RACK, CLUSTER = Level.SLOT, Level.MACHINE, Level.RACK, Level.CLUSTER


def test_gangs_in_racks_come_first_where_one_found_no_place():
    """The gang of 4 fits most tightly on the machine of 4, which the rack's gang of 6 needs beside that of 2."""
    machines = (machine("m0", 4), machine("m1", 2), machine("m2", 5, rack="r1"))
    rows = [one_row((GangRequest(4, MACHINE),), Allocation()), one_row((GangRequest(6, Level.RACK),), Allocation())]
    arrays = read_market(market(machines, *(bid(f"a{n}", 0.5, row) for n, row in enumerate(rows))))
    places, chosen = RowPlacer(arrays), np.arange(arrays.rows.rows)
    assert isinstance(places._by_best_fit(chosen, sparing=False), int)
    packed = places.pack(chosen)
    assert isinstance(packed, Packed)
    assert wrongs_of(machines, rows, [packed.gangs()[row] for row in chosen.tolist()]) == []


def test_a_rack_is_chosen_where_whole_parts_are_spared():
    """3 single GPUs: in r1 they are left over beside parts of 2, in r0 they would take two of these."""
    cluster = Cluster((machine("m0", 4), *(machine(f"m{n}", 3, rack="r1") for n in (1, 2, 3))))
    written, parts = cluster.pack([(Level.RACK, 3, 1), *[(MACHINE, 2, 2)] * 5], sparing=True)
    assert written > 0
    assert sorted(part[1] for part in parts if part[0] == 0) == [1, 2, 3]
    assert cluster.pack([(Level.RACK, 3, 1), *[(MACHINE, 2, 2)] * 6], sparing=True)[0] < 0


# The rules of themis.placement where places tie: free GPUs by machine (of slots, by rack), gangs, and what they get as
# (gang, machine, slot, GPUs).
TIES = {
    "slot: the machine with fewer free GPUs": ([("r0", 2, 2), ("r0", 2)], [(SLOT, 2, 2)], [[0, 1, 0, 2]]),
    "slot: the smaller machine": ([("r0", 2), ("r0", 2)], [(SLOT, 2, 2)], [[0, 0, 0, 2]]),
    "slot: the smaller slot": ([("r0", 2, 2)], [(SLOT, 2, 2)], [[0, 0, 0, 2]]),
    "machine: the smaller number": ([("r0", 2), ("r0", 2)], [(MACHINE, 2, 2)], [[0, 0, 0, 2]]),
    "machine: the tightest slot of all": ([("r0", 1, 2), ("r0", 4, 2)], [(MACHINE, 2, 2)], [[0, 0, 1, 2]]),
    "machine: its smaller slot": ([("r0", 2, 2)], [(MACHINE, 2, 2)], [[0, 0, 0, 2]]),
    # Drained to (1, 0, 3). Largest first would leave (0, 1, 3).
    "machine: no slot holds it, so the smallest first": (
        [("r0", 3, 2, 3)],
        [(MACHINE, 4, 4), (SLOT, 1, 1)],
        [[0, 0, -1, 4], [1, 0, 0, 1]],
    ),
    "rack: the smaller number": (
        [("r0", 1), ("r0", 1), ("r1", 1), ("r1", 1)],
        [(RACK, 2, 1)],
        [[0, 0, -1, 1], [0, 1, -1, 1]],
    ),
    "rack: of the roomiest machines the smaller number": (
        [("r0", 2), ("r0", 2), ("r0", 1)],
        [(RACK, 3, 1)],
        [[0, 0, -1, 2], [0, 2, -1, 1]],
    ),
    "rack: of the tightest machines the smaller number": (
        [("r0", 2), ("r0", 1), ("r0", 1)],
        [(RACK, 3, 1)],
        [[0, 0, -1, 2], [0, 1, -1, 1]],
    ),
    "anywhere: of the roomiest racks the smaller number": (
        [("r0", 2), ("r1", 2)],
        [(CLUSTER, 3, 1)],
        [[0, 0, -1, 2], [0, 1, -1, 1]],
    ),
    "anywhere: the tightest rack for the rest": (
        [("r0", 3), ("r1", 2), ("r2", 1)],
        [(CLUSTER, 4, 1)],
        [[0, 0, -1, 3], [0, 2, -1, 1]],
    ),
}
SPARING_TIES = {
    "the machine with fewer free GPUs": ([("r0", 3), ("r0", 1)], [(RACK, 1, 1)], [[0, 1, -1, 1]]),
    "the smaller machine": ([("r0", 1), ("r0", 1)], [(RACK, 1, 1)], [[0, 0, -1, 1]]),
    "the smaller rack": ([("r0", 1), ("r1", 1)], [(RACK, 1, 1)], [[0, 0, -1, 1]]),
}


def cluster_of(machines):
    return Cluster(tuple(machine(f"m{n}", *slots, rack=rack) for n, (rack, *slots) in enumerate(machines)))


@pytest.mark.parametrize(("machines", "gangs", "parts"), TIES.values(), ids=TIES)
def test_ties_are_broken_as_documented(machines, gangs, parts):
    assert cluster_of(machines).pack(gangs)[1] == parts


@pytest.mark.parametrize(("machines", "gangs", "parts"), SPARING_TIES.values(), ids=SPARING_TIES)
def test_sparing_ties_are_broken_as_documented(machines, gangs, parts):
    assert cluster_of(machines).pack(gangs, sparing=True)[1] == parts


@pytest.mark.parametrize("racks", [1, 3])
def test_the_compiled_best_fit_places_rows_as_realise_does(racks):
    rng, outcomes = random.Random(racks), Counter()
    for _ in range(500):
        machines = draw_machines(rng, most=7, racks=racks, slots=3)
        rows = [one_row(draw_gangs(rng, 3, (1, 2, 3, 4, 6)), draw_pins(rng, machines, 1)) for _ in range(3)]
        arrays = read_market(market(machines, *(bid(f"a{n}", 0.5, row) for n, row in enumerate(rows))))
        chosen = np.arange(arrays.rows.rows)
        packed = RowPlacer(arrays)._by_best_fit(chosen, sparing=False)
        placed = realise(machines, {str(row): _market_row(arrays, row) for row in chosen.tolist()})
        assert isinstance(packed, Packed) is (placed is not None)
        if placed is not None:
            won = packed.gangs()
            assert {row: won.get(int(row), ()) for row in placed} == {
                row: tuple(gang for gang in gangs if not gang.pinned) for row, gangs in placed.items()
            }
        outcomes[placed is not None, len(chosen)] += 1
    assert min(outcomes[True, 3], outcomes[False, 3]) > 20


@pytest.mark.parametrize("racks", [1, 3])
def test_packed_rows_are_feasible(racks):
    rng, packed_some, refused_some = random.Random(racks), 0, 0
    for _ in range(300):
        machines = draw_machines(rng, most=5, racks=racks)
        rows = [one_row(draw_gangs(rng, 2), draw_pins(rng, machines, 1)) for _ in range(2)]
        arrays = read_market(market(machines, *(bid(f"a{n}", 0.5, row) for n, row in enumerate(rows))))
        chosen = np.arange(arrays.rows.rows)
        places = RowPlacer(arrays)
        if len(chosen) < 2 or places.left_beside(chosen).min() < 0:
            continue
        packed = places.pack(chosen)
        if not isinstance(packed, Packed):
            assert arrays.rows.counts[chosen, packed].any()
            refused_some += 1
            continue
        packed_some += 1
        placed = packed.gangs()
        assert wrongs_of(machines, rows, [placed.get(row, ()) for row in chosen.tolist()]) == []
    assert packed_some > 50
    assert refused_some > 20


def test_the_first_unplaced_gang_is_returned_and_earlier_ones_fit():
    rng, failed = random.Random(1), 0
    for _ in range(300):
        machines = draw_machines(rng, racks=2)
        gangs = [
            (kind.level, kind.gpus, kind.unit)
            for kind, many in kinds_of(draw_gangs(rng, 4), machines).items()
            for _ in range(many)
        ]
        cluster = Cluster(machines)
        written, _ = cluster.pack(gangs)
        if written < 0:
            failed += 1
            assert 0 <= -1 - written < len(gangs)
            assert cluster.pack(gangs[: -1 - written])[0] >= 0
            assert cluster.pack(gangs[:-written])[0] == written
    assert failed > 50


def parts_hold(machines, pinned, gangs):
    """The limits of the theorem: enough parts of every size, whatever machine they lie on."""
    taken = pinned.by_machine()
    left = [each.free - taken.get(each.machine_id, 0) for each in machines]
    units = [(gang.gpus if gang.within is MACHINE else gang.unit_gpus, gang.total_gpus) for gang in gangs]
    sizes = {unit for unit, _ in units} | {1}
    return all(
        sum(gpus // unit * (unit // size) for unit, gpus in units) <= sum(free // size for free in left)
        for size in sizes
    )


@pytest.mark.parametrize("sizes", [(1, 2, 4, 8), (1, 3, 6), (2, 6, 12)])
def test_sizes_that_divide_each_other_fit_exactly_when_the_parts_do(sizes):
    assert all(larger % smaller == 0 for smaller, larger in pairwise(sizes))
    rng, answers = random.Random(sum(sizes)), []
    for _ in range(250):
        machines = draw_machines(rng, most=4, racks=2, slots=2, slot_gpus=sizes[-1] // 2 + 2)
        pinned = draw_pins(rng, machines, 2)
        drawn = draw_gangs(rng, 4, sizes, (MACHINE, CLUSTER), units=sizes)
        gangs = [GangRequest(each.gpus, each.within, each.count, each.unit_gpus) for each in drawn]
        kinds = kinds_of(gangs, machines)
        largest_first = sorted(kinds, key=lambda kind: -kind.unit)
        shapes = [(kind.level, kind.gpus, kind.unit) for kind in largest_first for _ in range(kinds[kind])]
        answers.append(Cluster(machines, pinned).pack(shapes)[0] >= 0)
        assert answers[-1] == parts_hold(machines, pinned, gangs)
    assert 50 < sum(answers) < 200


def test_best_fit_never_accepts_an_infeasible_choice():
    rng, told_apart = random.Random(5), set()
    for _ in range(150):
        machines = draw_machines(rng, most=3)
        gangs, pinned = draw_gangs(rng, 3), draw_pins(rng, machines, 1)
        shapes = [
            (kind.level, kind.gpus, kind.unit) for kind, many in kinds_of(gangs, machines).items() for _ in range(many)
        ]
        packed = Cluster(machines, pinned).pack(shapes, sparing=rng.random() < 0.5)[0] >= 0
        exact = fits(machines, one_row(gangs, pinned))
        assert exact or not packed
        told_apart.add((exact, packed))
    assert (False, False) in told_apart
    assert (True, True) in told_apart


def test_a_hundred_thousand_single_gpus_are_packed():
    cluster = Cluster([machine("m0", 100_000), machine("m1", 7, rack="r1")])
    written, parts = cluster.pack([(CLUSTER, 1, 1)] * 100_007)
    assert written == 100_007
    assert sum(gpus for _, _, _, gpus in parts) == 100_007
    assert cluster.pack([(CLUSTER, 1, 1)] * 100_008)[0] == -100_008


def test_every_level_is_drawn():
    rng = random.Random(0)
    assert {gang.within for _ in range(100) for gang in draw_gangs(rng)} == set(LEVELS)
