"""The markets of the benchmark: reproducible, valid, contended, and of the requested kind."""

import pickle

import pytest

from themis.errors import InputError
from themis_lab.bench.apps import GangMix
from themis_lab.bench.auction_markets import MIN_CONTENTION, auction_market, explicit_market, round_scene
from themis_lab.bench.holdings import ClusterState
from themis_lab.bench.sizes import SIZES, cluster_of, size_of

TESTBED, SIMULATED = SIZES[64], SIZES[168]
VARIANTS = [(mix, state) for mix in GangMix for state in ClusterState]


@pytest.mark.parametrize("size", SIZES.values(), ids=str)
def test_clusters_have_their_named_size(size):
    cluster = cluster_of(size)
    assert (cluster.gpus, len(cluster.machines)) == (size.gpus, size.machines)
    assert len(cluster.racks) > 1
    assert max(len(rack) for rack in cluster.racks.values()) <= 16


def test_unknown_size_is_refused():
    with pytest.raises(InputError, match="known: 64, 168, 1024, 10000"):
        size_of(65)


@pytest.mark.parametrize(("gangs", "cluster"), VARIANTS)
def test_market_depends_on_seed(gangs, cluster):
    draw = [pickle.dumps(auction_market(TESTBED, seed, gangs=gangs, cluster=cluster)) for seed in (3, 3, 4)]
    assert draw[0] == draw[1] != draw[2]


@pytest.mark.parametrize("make", [auction_market, explicit_market])
@pytest.mark.parametrize(("gangs", "cluster"), VARIANTS)
def test_every_row_fits_free_gpus_and_beats_empty_bundle(make, gangs, cluster):
    for seed in range(3):
        market = make(TESTBED, seed, gangs=gangs, cluster=cluster)
        assert len(market.bids) == TESTBED.bidders
        assert len({bid.app_id for bid in market.bids}) == TESTBED.bidders
        for bid in market.bids:
            assert bid.empty_value > 0
            for row in bid.rows:
                assert row.value > bid.empty_value
                assert row.gpus <= market.free.gpus
                assert row.pinned.within(market.free)


@pytest.mark.parametrize(("gangs", "cluster"), VARIANTS)
def test_bidders_contend(gangs, cluster):
    for seed in range(4):
        scene = round_scene(TESTBED, seed, gangs=gangs, cluster=cluster)
        free = sum(machine.free for machine in scene.machines)
        asked = 0
        for bidder in scene.bidders:
            kept = sum(gang.gpus.gpus - gang.renewable_gpus.gpus for gang in bidder.app.held)
            asked += sum(job.shape.demand_max_gpus for job in bidder.app.jobs) - kept
        assert asked >= MIN_CONTENTION * free > 0


def test_power_gangs_are_powers_of_two():
    for seed in range(4):
        market = auction_market(TESTBED, seed, gangs=GangMix.POWERS, elastic_share=0.5)
        assert {gang.gpus for bid in market.bids for row in bid.rows for gang in row.gangs} <= {1, 2, 4, 8}


def test_any_gangs_have_other_sizes_too():
    markets = [auction_market(SIMULATED, seed, gangs=GangMix.ANY) for seed in range(3)]
    sizes = {gang.gpus for market in markets for bid in market.bids for row in bid.rows for gang in row.gangs}
    assert sizes & {3, 5, 6, 7}
    assert sizes <= set(range(1, 9))


def test_share_of_elastic_apps_is_as_requested():
    def elastic(share):
        scenes = [round_scene(SIMULATED, seed, elastic_share=share) for seed in range(8)]
        shapes = [bidder.app.median_job.shape for scene in scenes for bidder in scene.bidders]
        return sum(shape.min_tasks < shape.tasks for shape in shapes) / len(shapes)

    assert elastic(0.0) == 0.0
    assert 0.1 < elastic(0.2) < 0.3
    assert elastic(1.0) == 1.0


def test_empty_cluster_has_no_pinned_gpus():
    market = auction_market(SIMULATED, 0)
    assert market.free.gpus == SIMULATED.gpus
    assert not any(row.pinned for bid in market.bids for row in bid.rows)


def test_fragmented_cluster_has_kept_and_renewable_gangs():
    scenes = [round_scene(SIMULATED, seed, cluster=ClusterState.FRAGMENTED) for seed in range(3)]
    bidders = [bidder for scene in scenes for bidder in scene.bidders]
    whole = {machine.machine_id: machine.gpus for machine in cluster_of(SIMULATED).machines}
    for scene in scenes:
        assert any(0 < machine.free < whole[machine.machine_id] for machine in scene.machines)
    gangs = [gang for bidder in bidders for gang in bidder.app.held]
    assert any(not gang.renewable for gang in gangs)
    assert any(gang.renewable_gpus == gang.gpus for gang in gangs)
    assert any(gang.renewable and gang.renewable_gpus != gang.gpus for gang in gangs)
    assert all(gang.renewable_gpus.within(bidder.offer.free) for bidder in bidders for gang in bidder.app.held)
    assert any(row.pinned for bidder in bidders for row in bidder.bid().rows)


def test_held_gpus_are_disjoint_and_not_free():
    scene = round_scene(SIMULATED, 1, cluster=ClusterState.FRAGMENTED)
    taken = {machine.machine_id: machine.free for machine in scene.machines}
    for bidder in scene.bidders:
        for gang in bidder.app.held:
            for machine, gpus in gang.gpus - gang.renewable_gpus:
                taken[machine] += gpus
    assert all(gpus <= cluster_of(SIMULATED).machine(machine).gpus for machine, gpus in taken.items())


def test_explicit_tables_name_many_machines_and_sizes():
    market = explicit_market(TESTBED, 0)
    rows = [row for bid in market.bids for row in bid.rows]
    assert not any(row.gangs for row in rows)
    assert len({machine for row in rows for machine, _ in row.pinned}) == TESTBED.machines
    assert len({row.gpus for row in rows}) > 3
