"""Rows against enumeration: the best row in every bundle is worth what the best division of that bundle is worth."""

import random

import numpy as np
import pytest
from agent_cases import (
    CRUDE_SLOWDOWN,
    FLAT,
    STRICT,
    app_of,
    cluster_of,
    cluster_view_of,
    held,
    job,
    jobs_of,
    offer_of,
    whole_offer,
)
from bid_cases import random_market
from bid_enumeration import Enumeration, best_product, best_rows

from am.agent.bids.bidding import make_bid
from rm_plugin.solvers.highs import HighsSolver
from themis.apps import JobShape
from themis.bids import FreeMachine, Market

EQUAL = 1e-9


def tables_of(app, offer, cluster_view, cluster):
    """V by bundle: from the rows of the bid, and the true one."""
    bid = make_bid(app, offer, cluster_view)
    assert bid.rows_dropped == 0
    enumeration = Enumeration(app, offer, cluster_view, cluster)
    return best_rows(bid, enumeration), enumeration.values


@pytest.mark.parametrize("block", range(8))
def test_each_bundle_contains_a_row_of_its_value(block):
    """Single and many jobs, of one shape and of several, rigid and elastic, holding nothing, kept and ending gangs."""
    for seed in range(100 * block, 100 * block + 100):
        (app,), offer, cluster_view, cluster = random_market(random.Random(seed), 1)
        if offer.free:
            reported, true = tables_of(app, offer, cluster_view, cluster)
            assert np.allclose(reported, true, rtol=EQUAL, atol=0.0), seed


@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("bidders", [2, 3])
def test_the_optimum_over_rows_is_the_optimum_over_all_divisions_of_all_bundles(bidders, block):
    for seed in range(15 * block, 15 * block + 15):
        apps, offer, cluster_view, cluster = random_market(random.Random(seed), bidders, max_gpus=7)
        if not offer.free:
            continue
        bids = tuple(make_bid(app, offer, cluster_view) for app in apps)
        machines = tuple(
            FreeMachine(machine_id=machine, rack_id=cluster_view.rack_of[machine], free_slots=counts)
            for machine, counts in sorted(offer.slots.items())
        )
        solution = HighsSolver().solve(Market(machines=machines, bids=bids), 60.0)
        true = best_product([Enumeration(app, offer, cluster_view, cluster).values for app in apps])
        assert solution.log_objective == pytest.approx(true, rel=EQUAL, abs=EQUAL), seed


FOUR = cluster_of((2, 2), (2,), (2,), racks=("r0", "r1"))
CLUSTER_VIEW = cluster_view_of(FOUR, active_apps=4, lease_s=20.0)


@pytest.mark.parametrize("slowdown", [FLAT, CRUDE_SLOWDOWN, STRICT], ids=["flat", "crude", "strict"])
@pytest.mark.parametrize(
    "shapes",
    [
        [JobShape(tasks=4)] * 4,
        [JobShape(tasks=2, min_tasks=2)] * 4,
        [JobShape(), JobShape(tasks=2, min_tasks=2), JobShape(tasks=4, min_tasks=4)],
        [JobShape(tasks=3), JobShape(tasks=2, gpus_per_task=2), JobShape(tasks=2, min_tasks=2)],
    ],
    ids=["elastic", "rigid", "gangs of 1, 2 and 4", "tasks of 1 and 2"],
)
def test_four_jobs_on_eight_gpus(shapes, slowdown):
    jobs = [job(f"j{place}", 100 + 30 * place, shape, slowdown) for place, shape in enumerate(shapes)]
    reported, true = tables_of(app_of(jobs), whole_offer(FOUR), CLUSTER_VIEW, FOUR)
    assert np.allclose(reported, true, rtol=EQUAL, atol=0.0)


def test_three_like_jobs_on_five_gpus_are_best_run_on_three_and_two():
    """An even split has the third job wait for a gang of one or two."""
    cluster = cluster_of((3,), (2,))
    app = app_of(jobs_of([100.0] * 3, JobShape(tasks=4)))
    whole, view = whole_offer(cluster), cluster_view_of(cluster, active_apps=4, lease_s=20.0)
    reported, true = tables_of(app, whole, view, cluster)
    assert reported[3, 2] == true[3, 2]
    bid = make_bid(app, whole_offer(cluster), cluster_view_of(cluster, active_apps=4, lease_s=20.0))
    best = max((row for row in bid.rows if row.gpus == 5), key=lambda row: row.value)
    assert sorted((gang.gpus, gang.count) for gang in best.gangs) == [(2, 1), (3, 1)]


@pytest.mark.parametrize("up", [None, True, {"m0": 1}], ids=["kept", "ending", "ending in part"])
def test_a_held_gang_grows_on_its_machine_in_its_rack_and_anywhere(up):
    app = app_of(jobs_of([1000, 900], JobShape(tasks=4), STRICT), held=(held("j0", {"m0": 2}, up=up),), restart_s=3.0)
    free = {"m0": (2, 0) if up is None else (2, 2) if up is True else (2, 1), "m1": (2,), "m2": (2,)}
    reported, true = tables_of(app, offer_of(free), CLUSTER_VIEW, FOUR)
    assert np.allclose(reported, true, rtol=EQUAL, atol=0.0)
