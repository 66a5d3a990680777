"""What a memory of earlier bids holds changes no bid."""

from copy import deepcopy
from random import Random

import pytest
from agent_cases import CRUDE_SLOWDOWN, FLAT, ONE, STRICT, app_of, cluster_of, cluster_view_of, jobs_of, offer_of
from msgspec.structs import replace

from am.agent.bids.bidding import BidMemory, make_bid
from am.agent.bids.reports import make_report
from themis.apps import JobShape

CLUSTER = cluster_of((2, 2), (2, 2), (2, 1), (2,), (1,), racks=("r0", "r1"))
CLUSTER_VIEW = cluster_view_of(CLUSTER, active_apps=9, lease_s=60.0)
SHAPES = (ONE, JobShape(tasks=2, min_tasks=2), JobShape(tasks=6), JobShape(tasks=3, gpus_per_task=2))


def drawn_offer(rng):
    slots = {each.machine_id: tuple(rng.randint(0, size) for size in each.slots) for each in CLUSTER.machines}
    return offer_of({machine: counts for machine, counts in slots.items() if any(counts)})


@pytest.mark.parametrize("slowdown", [FLAT, STRICT, CRUDE_SLOWDOWN])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_app_that_waits_bids_and_reports_as_one_that_was_never_asked_before(shape, slowdown):
    rng = Random(f"{shape} {slowdown}")
    waiting = app_of(jobs_of([1000], shape, slowdown), restart_s=5.0)
    bids, memory = set(), BidMemory()
    for elapsed_s in range(0, 4000, 100):
        offer = drawn_offer(rng) if elapsed_s else offer_of({})
        app = replace(waiting, elapsed_s=float(elapsed_s), contention=rng.uniform(1.0, 9.0))
        cluster_view = replace(CLUSTER_VIEW, active_apps=rng.randint(1, 9))
        bid = make_bid(app, offer, cluster_view, memory)
        assert bid == make_bid(deepcopy(app), offer, cluster_view)
        assert make_report(app, cluster_view, 1) == make_report(deepcopy(app), cluster_view, 1)
        bids.add(tuple(row.gangs for row in bid.rows))
    assert len(bids) > 1
