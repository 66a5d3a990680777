"""Gangs of idle GPUs as they count: over machines with the unit in which their GPUs lie there."""

from random import Random

import pytest
from agent_cases import FLAT, cluster_of, job

from am.agent.model.views import GangAt
from am.jobs.pool import Pool
from themis.apps import JobShape
from themis.cluster import Allocation, GpuId, Level
from themis.placement.best_fit import best_fit
from themis.placement.free_capacity import FreeCapacity

SINGLES, PAIRS = JobShape(tasks=4, min_tasks=4), JobShape(tasks=2, min_tasks=2, gpus_per_task=2)

LAID = [  # slots of machines in one rack, and the gang that all of their GPUs are
    ([(2,), (2,)], GangAt(4, Level.RACK, 2)),
    ([(2,), (1,), (1,)], GangAt(4, Level.RACK, 1)),
    ([(1,), (1,), (1,), (1,)], GangAt(4, Level.RACK, 1)),
    ([(2, 2)], GangAt(4, Level.MACHINE)),
    ([(4,)], GangAt(4, Level.SLOT)),
]


def pool_of(slots, racks=("r0",)):
    cluster = cluster_of(*slots, racks=racks)
    return Pool(cluster.gpu_set, cluster)


@pytest.mark.parametrize(("slots", "gang"), LAID)
def test_a_gang_is_placed_in_units_of_its_gpus(slots, gang):
    assert pool_of(slots).place_in_turn([job("j", 100.0, SINGLES, FLAT)], [4]) == [gang]


@pytest.mark.parametrize(("slots", "gang"), LAID)
def test_gpus_in_use_count_at_their_prospective_placement(slots, gang):
    pool = pool_of(slots)
    assert pool.gang_of(sorted(pool.gpus)) == gang


def test_a_gang_over_racks_has_its_unit_too():
    assert pool_of([(2,), (2,)], racks=("r0", "r1")).place_in_turn([job("j", 100.0, SINGLES, FLAT)], [4]) == [
        GangAt(4, Level.CLUSTER, 2)
    ]


def test_the_unit_is_that_of_the_gpus_and_not_of_the_job():
    """Single GPUs that lie in pairs hold tasks of two; those of four machines, or of two and one and one, do not."""
    held = {tuple(slots): gang.holds_tasks_of(2) for slots, gang in LAID}
    assert list(held.values()) == [True, False, False, True, True]
    for slots, holds in held.items():
        laid = pool_of(slots).place_in_turn([job("j", 100.0, PAIRS, FLAT)], [4])
        assert laid == (
            pool_of(slots).place_in_turn([job("j", 100.0, SINGLES, FLAT)], [4]) if holds else [GangAt(0, Level.SLOT)]
        )


def test_later_gangs_are_placed_on_the_remaining_gpus():
    jobs = [job(name, 100.0, SINGLES, FLAT) for name in ("a", "b")]
    assert pool_of([(3,), (2,), (3,)]).place_in_turn(jobs, [4, 4]) == [
        GangAt(4, Level.RACK, 1),
        GangAt(4, Level.RACK, 1),
    ]


@pytest.mark.parametrize("seed", range(40))
def test_prospective_gangs_match_the_later_placement_without_taking_gpus(seed):
    rng = Random(seed)
    slots = [rng.choice(((2, 2), (4,), (1, 3), (4, 4), (1,))) for _ in range(rng.randint(1, 8))]
    pool = pool_of(slots, racks=("r0", "r1"))
    shapes = (SINGLES, PAIRS, JobShape(tasks=3))
    jobs = [job(f"j{number}", 100.0, rng.choice(shapes), FLAT) for number in range(rng.randint(1, 12))]
    sizes = [rng.randint(1, 6) for _ in range(rng.randint(0, len(jobs)))]
    before = pool.gpus
    laid = pool.place_in_turn(jobs, sizes)
    assert pool.gpus == before
    assert laid == [pool.gang_of(pool.take(each, size)) for each, size in zip(jobs, sizes, strict=False)]


@pytest.mark.parametrize("seed", range(40))
def test_gangs_go_where_the_placement_rule_puts_them(seed):
    rng = Random(seed)
    cluster = cluster_of(*(rng.choice(((2, 2), (4,), (1, 3), (1,))) for _ in range(6)), racks=("r0", "r1"))
    idle = rng.sample(sorted(cluster.gpu_set), cluster.gpus * 2 // 3)
    pool = Pool(idle, cluster)
    while len(pool):
        each = job("j", 100.0, rng.choice((SINGLES, PAIRS, JobShape(tasks=3))), FLAT)
        gang = best_fit(FreeCapacity(pool.machines()), each.demand)
        gpus = pool.take(each, each.demand.max_gpus)
        idle = sorted({*idle} - {*gpus})
        assert Allocation.of_gpus(gpus) == (gang.gpus if gang else Allocation())
        assert pool.gpus == frozenset(idle)
        assert [free for free in pool.machines() if free.free] == list(Pool(idle, cluster).machines())
        if gang is None:
            break


def test_equal_slots_are_taken_on_the_machine_with_the_fewest_free_gpus_first():
    cluster = cluster_of((2, 2), (2,), (4,))
    pool = Pool(cluster.gpu_set, cluster)
    taken = [pool.take(job("j", 100.0, JobShape(tasks=2, min_tasks=2), FLAT), 2) for _ in range(5)]
    places = [("m1", 0), ("m0", 0), ("m0", 2), ("m2", 0), ("m2", 2)]
    assert taken == [(GpuId(machine, first), GpuId(machine, first + 1)) for machine, first in places]


def test_the_rest_of_a_gang_over_machines_goes_where_it_fits_best():
    cluster = cluster_of((3,), (2,), (1,))
    gpus = Pool(cluster.gpu_set, cluster).take(job("j", 100.0, SINGLES, FLAT), 4)
    assert Allocation.of_gpus(gpus) == Allocation.of({"m0": 3, "m2": 1})


def test_added_gpus_count_as_if_they_had_been_there():
    cluster = cluster_of((2, 2), (2,), (4,))
    gpus = sorted(cluster.gpu_set)
    late, whole = Pool(gpus[:2], cluster).plus(gpus[2:]), Pool(gpus, cluster)
    pair = job("j", 100.0, JobShape(tasks=2, min_tasks=2), FLAT)
    assert [late.take(pair, 2) for _ in range(5)] == [whole.take(pair, 2) for _ in range(5)]
