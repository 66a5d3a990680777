"""What a bid on idle GPUs would rest on, as a way to share them."""

from collections import Counter

import pytest
from agent_cases import FLAT, STRICT, cluster_of, job

from am.agent.candidates.gang_kinds import GangKind
from am.agent.model.finish_time import phase_time_s
from am.agent.model.views import GangAt
from am.jobs.bid_division import _served, division_of_bid
from am.jobs.pool import Pool
from themis.apps import JobShape
from themis.cluster import Level

ELASTIC, WIDE = JobShape(tasks=4), JobShape(tasks=4, min_tasks=4)
TWOS = JobShape(tasks=2, gpus_per_task=2)


def pool_of(*slots):
    cluster = cluster_of(*slots, racks=("r0", "r1"))
    return Pool(cluster.gpu_set, cluster)


def promised(waiting, pool, running=()):
    return division_of_bid(waiting, running, pool.machines(), pool.place_in_turn)


def test_gangs_that_end_all_jobs_soonest():
    """Four gangs of four run six jobs each, for 150 s; sixteen single GPUs would take 200 s, two jobs each."""
    waiting = [job(f"j{place:02}", 100.0, ELASTIC, FLAT) for place in range(24)]
    pool = pool_of((4,), (4,), (4,), (4,))
    jobs, sizes = promised(waiting, pool)
    laid = pool.place_in_turn(jobs, sizes)
    assert sum(sizes) == 16
    assert phase_time_s(waiting, laid) == pytest.approx(24 * 100.0 / 16)
    assert sorted(each.job_id for each in jobs) == sorted(each.job_id for each in waiting)


def test_each_gang_is_placed_for_a_job_that_fills_it():
    waiting = [job(f"w{place}", 300.0, WIDE, STRICT) for place in range(6)]
    waiting += [job(f"s{place}", 200.0, JobShape(), STRICT) for place in range(8)]
    pool = pool_of((2, 2), (4,), (4,), (1,), (1,))
    jobs, sizes = promised(waiting, pool)
    assert all(each.shape.usable_gpus(size) == size for each, size in zip(jobs, sizes, strict=False))
    gangs = Counter(pool.place_in_turn(jobs, sizes))
    assert all(gang.level <= Level.MACHINE for gang in gangs)


def kinds_of(*gangs):
    """Gangs as (GPUs, level, unit, count)."""
    return [
        GangKind(GangAt(size, level, unit if level > Level.MACHINE else 0), level, unit, 99)
        for size, level, unit, count in gangs
        for _ in range(count)
    ]


def served_sizes(waiting, gangs):
    jobs, sizes = _served(waiting, kinds_of(*gangs))
    assert len({each.job_id for each in jobs}) == len(jobs) == len(waiting)
    return Counter((each.job_id[0], size) for each, size in zip(jobs, sizes, strict=False))


def test_leftover_gangs_for_two_gpu_tasks_serve_other_jobs():
    """The bid puts single tasks there too; without them an eighth of an app's GPUs was in no way to share them."""
    waiting = [job(f"e{place}", 100.0, ELASTIC, FLAT) for place in range(5)]
    waiting += [job(f"t{place}", 100.0, TWOS, FLAT) for place in range(2)]
    gangs = ((2, Level.SLOT, 2, 4), (3, Level.MACHINE, 1, 2))
    assert served_sizes(waiting, gangs) == {("t", 2): 2, ("e", 2): 2, ("e", 3): 2}


def test_gangs_that_few_shapes_can_use_choose_first():
    """Only single tasks can use gangs scattered over the cluster; on one machine both kinds can."""
    waiting = [job(f"e{place}", 100.0, ELASTIC, FLAT) for place in range(3)]
    waiting += [job(f"t{place}", 100.0, TWOS, FLAT) for place in range(3)]
    gangs = ((4, Level.MACHINE, 1, 3), (4, Level.CLUSTER, 1, 3))
    assert served_sizes(waiting, gangs) == {("t", 4): 3, ("e", 4): 3}


def test_the_gangs_in_use_are_counted():
    """The wide gang that runs takes the wide jobs; all that is idle goes to the others."""
    waiting = [job("w", 40.0, WIDE, STRICT), *(job(f"s{place}", 100.0, JobShape(), STRICT) for place in range(4))]
    running = [(job("r", 1.0, WIDE, STRICT), GangAt(4, Level.SLOT))]
    assert promised(waiting, pool_of((4,)), running)[1] == (1, 1, 1, 1)


def test_no_bid_division_without_a_choice():
    assert promised([job(f"j{place}", 10.0, WIDE, FLAT) for place in range(3)], pool_of((4,), (4,))) is None
    assert promised([job("j", 10.0, WIDE, FLAT)], pool_of((2,))) is None


def test_two_kinds_of_gangs_are_a_choice():
    """On two GPUs of one slot: one gang of two, or single GPUs."""
    waiting = [job(f"j{place}", 100.0, JobShape(tasks=2), FLAT) for place in range(3)]
    jobs, sizes = promised(waiting, pool_of((2,)))
    assert (len(jobs), sizes) == (3, (2,))
