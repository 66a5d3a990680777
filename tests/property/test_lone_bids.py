"""Bids of single jobs, which are made without tables, say what tables make of the same apps."""

from random import Random

import pytest
from agent_cases import CRUDE_SLOWDOWN, FLAT, STRICT, app_of, around_of, cluster_of, job
from bid_cases import offer_of_gpus, random_around, random_market

from am.agent import bidding
from am.agent.bidding import make_bid
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
        around = around_of(cluster, contention=2.0, active_apps=3, lease_s=around.lease_s, rule=rule)
        bid, by_tables, lone = both_ways(monkeypatch, app, offer_of_gpus(offered, cluster), around)
        assert bid == by_tables
        assert lone or shape.tasks - shape.min_tasks > _MOST_KINDS // 4 - 1
        rows.add(len(bid.rows))
    assert len(rows) > 3


def test_where_kinds_are_many_tables_tell(monkeypatch):
    cluster = cluster_of((8, 8), (8, 8), (8, 8), racks=("r0", "r1"))
    app = app_of([job("j", 1000, JobShape(tasks=40), STRICT)])
    bid, by_tables, lone = both_ways(
        monkeypatch, app, offer_of_gpus(set(cluster.gpu_ids()), cluster), around_of(cluster)
    )
    assert bid == by_tables
    assert not lone
    assert len(bid.rows) > 20
