"""Bids of single jobs, which are made without tables, say what tables make of the same apps."""

import gc
from random import Random

import pytest
from agent_cases import CRUDE_SLOWDOWN, FLAT, STRICT, app_of, around_of, cluster_of, job
from bid_cases import offer_of_gpus, random_around, random_market

from am.agent import bidding
from am.agent.bidding import make_bid
from am.agent.kinds import Room
from am.agent.lone import _MOST_KINDS
from am.app_view import held_gang
from themis.apps import JobShape, Slowdown
from themis.choices import BundleRule


def both_ways(monkeypatch, app, offer, around):
    """The bid, how it is made of tables, and whether it was made without."""
    known = []
    real = bidding.lone_rows
    with monkeypatch.context() as patch:
        patch.setattr(bidding, "lone_rows", lambda *asked: known.append(real(*asked)) or known[-1])
        bid = make_bid(app, offer, around)
        patch.setattr(bidding, "lone_rows", lambda *_: None)
        return bid, make_bid(app, offer, around), known[0] is not None


def test_tiny_apps(monkeypatch):
    rng = Random(1)
    alone = 0
    for _ in range(400):
        apps, offer, around, _ = random_market(rng, 1, most_jobs=1)
        bid, by_tables, lone = both_ways(monkeypatch, apps[0], offer, around)
        assert bid == by_tables
        alone += lone
    assert 100 < alone < 400


@pytest.mark.parametrize("slowdown", [FLAT, CRUDE_SLOWDOWN, STRICT, Slowdown(1.0, 1.01, 1.3, 1.31)])
@pytest.mark.parametrize("rule", BundleRule)
def test_jobs_of_many_sizes_on_larger_clusters(monkeypatch, slowdown, rule):
    rng = Random(f"{slowdown} {rule}")
    cluster = cluster_of((4, 4), (2, 2), (2, 2), (4,), (3,), (1,), racks=("r0", "r1"))
    rows = set()
    for _ in range(60):
        least, unit = rng.choice([1, 1, 2, 4]), rng.choice([1, 1, 1, 2])
        shape = JobShape(tasks=least + rng.randint(0, 8), min_tasks=least, gpus_per_task=unit)
        free = set(rng.sample(sorted(cluster.gpu_ids()), rng.randint(0, cluster.gpus)))
        mine = sorted(free)[: rng.randint(1, 6)] if free and rng.random() < 0.6 else []
        held = (held_gang("j", mine, mine, cluster),) if mine else ()
        offered = free if rng.random() < 0.9 else free - set(mine[:1])
        app = app_of(
            [job("j", rng.choice([5, 100, 4000]), shape, slowdown)],
            held=held,
            elapsed_s=rng.choice([0.0, 70.0]),
            restart_s=rng.choice([0.0, 3.0]),
        )
        around = random_around(rng, cluster)
        around = around_of(cluster, active_apps=3, lease_s=around.lease_s, rule=rule)
        bid, by_tables, lone = both_ways(monkeypatch, app, offer_of_gpus(offered, cluster), around)
        assert bid == by_tables
        assert lone or shape.tasks - shape.min_tasks > _MOST_KINDS // 4 - 1
        rows.add(len(bid.rows))
    assert len(rows) > 3


def test_gangs_of_another_job_or_without_gpus_are_for_tables(monkeypatch):
    cluster = cluster_of((2, 2), (2,))
    offered = offer_of_gpus(set(cluster.gpu_ids()), cluster)
    mine = sorted(cluster.gpu_ids())[:2]
    for held in (held_gang("gone", mine, mine, cluster), held_gang("j", [], [], cluster)):
        app = app_of([job("j", 1000, JobShape(tasks=2), STRICT)], held=(held,), restart_s=3.0)
        bid, by_tables, lone = both_ways(monkeypatch, app, offered, around_of(cluster))
        assert bid == by_tables
        assert not lone


def test_values_that_gain_the_same_stand_in_for_each_other(monkeypatch):
    """Work that is all but done: what asks are worth differs in the last bits, their logs do not."""
    rng, cluster, alike = Random(4), cluster_of((2, 2), (2, 2), racks=("r0", "r1")), 0
    for _ in range(300):
        shape = JobShape(tasks=4, min_tasks=1)
        app = app_of(
            [job("j", 10.0 ** rng.uniform(-10, -2), shape, STRICT)],
            elapsed_s=10.0 ** rng.uniform(3, 7),
            work_total_gpu_s=100.0,
        )
        around = around_of(cluster, lease_s=100.0)
        bid, by_tables, lone = both_ways(monkeypatch, app, offer_of_gpus(set(cluster.gpu_ids()), cluster), around)
        assert lone
        assert bid == by_tables
        alike += len({row.value for row in bid.rows}) < 4
    assert alike > 10


def test_old_rooms_are_not_kept():
    """A long run meets thousands of rooms."""
    rng, cluster = Random(5), cluster_of(*[(4, 4)] * 12, racks=("r0", "r1", "r2"))
    app, around = app_of([job("j", 1000, JobShape(tasks=4), STRICT)]), around_of(cluster)
    before = sum(isinstance(each, Room) for each in gc.get_objects())
    for _ in range(600):
        free = set(rng.sample(sorted(cluster.gpu_ids()), rng.randint(1, cluster.gpus)))
        assert make_bid(app, offer_of_gpus(free, cluster), around).rows
    gc.collect()
    assert sum(isinstance(each, Room) for each in gc.get_objects()) - before < 300


def test_where_kinds_are_many_tables_tell(monkeypatch):
    cluster = cluster_of((8, 8), (8, 8), (8, 8), racks=("r0", "r1"))
    app = app_of([job("j", 1000, JobShape(tasks=40), STRICT)])
    bid, by_tables, lone = both_ways(
        monkeypatch, app, offer_of_gpus(set(cluster.gpu_ids()), cluster), around_of(cluster)
    )
    assert bid == by_tables
    assert not lone
    assert len(bid.rows) > 20
