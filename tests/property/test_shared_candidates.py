"""Single jobs of one shape and S share their candidates: a bid with a shared memory equals the one made without."""

from random import Random

import pytest
from agent_cases import CRUDE_SLOWDOWN, FLAT, STRICT, app_of, cluster_of, cluster_view_of, job
from bid_cases import offer_of_gpus, random_cluster_view, random_market

from am.agent.bids.bidding import BidMemory, make_bid
from am.app_view import held_gang
from themis.apps import JobShape, Slowdown
from themis.choices import BundleRule


def test_tiny_apps():
    rng, memory = Random(1), BidMemory()
    for _ in range(400):
        (app,), offer, cluster_view, _ = random_market(rng, 1, most_jobs=1)
        assert make_bid(app, offer, cluster_view, memory) == make_bid(app, offer, cluster_view)


@pytest.mark.parametrize("slowdown", [FLAT, CRUDE_SLOWDOWN, STRICT, Slowdown(1.0, 1.01, 1.3, 1.31)])
@pytest.mark.parametrize("rule", BundleRule)
def test_jobs_of_many_sizes_on_larger_clusters(slowdown, rule):
    rng, memory = Random(f"{slowdown} {rule}"), BidMemory()
    cluster = cluster_of((4, 4), (2, 2), (2, 2), (4,), (3,), (1,), racks=("r0", "r1"))
    rows = set()
    for _ in range(60):
        least, unit = rng.choice([1, 1, 2, 4]), rng.choice([1, 1, 1, 2])
        shape = JobShape(tasks=least + rng.randint(0, 8), min_tasks=least, gpus_per_task=unit)
        free = set(rng.sample(sorted(cluster.gpu_ids()), rng.randint(0, cluster.gpus)))
        mine = sorted(free)[: rng.randint(1, 6)] if free and rng.random() < 0.4 else []
        held = (held_gang("j", mine, mine, cluster),) if mine else ()
        app = app_of(
            [job("j", rng.choice([5, 100, 4000]), shape, slowdown)],
            held=held,
            elapsed_s=rng.choice([0.0, 70.0]),
            restart_s=rng.choice([0.0, 3.0]),
        )
        cluster_view = cluster_view_of(
            cluster, active_apps=3, lease_s=random_cluster_view(rng, cluster).lease_s, rule=rule
        )
        bid = make_bid(app, offer_of_gpus(free, cluster), cluster_view, memory)
        assert bid == make_bid(app, offer_of_gpus(free, cluster), cluster_view)
        rows.add(len(bid.rows))
    assert len(rows) > 3


def test_values_with_equal_gains_dominate_each_other():
    """Work that is almost done: values of candidates differ in the last bits, their logarithms do not."""
    rng, cluster, few = Random(4), cluster_of((2, 2), (2, 2), racks=("r0", "r1")), 0
    for _ in range(300):
        app = app_of(
            [job("j", 10.0 ** rng.uniform(-10, -2), JobShape(tasks=4, min_tasks=1), STRICT)],
            elapsed_s=10.0 ** rng.uniform(3, 7),
            work_total_gpu_s=100.0,
        )
        cluster_view = cluster_view_of(cluster, lease_s=100.0)
        bid = make_bid(app, offer_of_gpus(set(cluster.gpu_ids()), cluster), cluster_view)
        few += len({row.value for row in bid.rows}) < 4
    assert few > 10


def test_a_memory_stays_bounded():
    """A long run meets thousands of different offers."""
    rng, cluster, memory = Random(5), cluster_of(*[(4, 4)] * 12, racks=("r0", "r1", "r2")), BidMemory()
    app, cluster_view = app_of([job("j", 1000, JobShape(tasks=4), STRICT)]), cluster_view_of(cluster)
    for _ in range(600):
        free = set(rng.sample(sorted(cluster.gpu_ids()), rng.randint(1, cluster.gpus)))
        assert make_bid(app, offer_of_gpus(free, cluster), cluster_view, memory).rows
    assert len(memory._sets) < 100
