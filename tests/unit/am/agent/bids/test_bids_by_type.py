"""Bids on clusters of several device types: rows name the type, and each is worth what the app's T is on it."""

import pytest
from agent_cases import CRUDE_SLOWDOWN, app_of, held, job, offer_of
from msgspec.structs import replace

from am.agent.bids.bidding import make_bid
from am.agent.model.fairness import Valuer, cluster_time_s, declaration_of
from am.agent.model.finish_time import finish_time_s
from am.agent.model.views import GangAt
from am.app_view import make_cluster_view
from themis.apps import JobShape
from themis.choices import BundleRule
from themis.cluster import Cluster, DeviceType, Level, Machine
from themis.speeds import Speeds

DEVICES = {"k80": DeviceType(name="k80"), "v100": DeviceType(name="v100", speed=3.0)}
CLUSTER = Cluster(
    name="mixed",
    machines=(
        Machine(machine_id="k0", rack_id="r", slots=(4,), device="k80"),
        Machine(machine_id="v0", rack_id="r", slots=(2,), device="v100"),
    ),
    devices=DEVICES,
)
CLUSTER_VIEW = make_cluster_view(CLUSTER, active_apps=2, lease_s=600.0, rule=BundleRule.CONTINUATION)
SPEEDS = Speeds.of([("k80", 1.0), ("v100", 3.0)])
OFFER = offer_of({"k0": (4,), "v0": (2,)})


def app(tasks=4, **changes):
    jobs = [replace(job("j", 1200.0, JobShape(tasks=tasks), CRUDE_SLOWDOWN), speeds=SPEEDS)]
    return app_of(jobs, **changes)


def test_every_row_names_one_type_and_is_worth_v_on_it():
    bid = make_bid(app(), OFFER, CLUSTER_VIEW)
    assert {gang.device for row in bid.rows for gang in row.gangs} == {"k80", "v100"}
    valuer = Valuer.of(app(), CLUSTER_VIEW)
    for row in bid.rows:
        (gang,) = row.gangs
        # The machines are in one rack.
        level = min(gang.within, Level.RACK) if gang.gpus > 1 else Level.SLOT
        time_s = finish_time_s(app(), [GangAt(gang.gpus, level, 1, gang.device)], CLUSTER_VIEW)
        slowdown = CRUDE_SLOWDOWN.at(level)
        assert time_s == pytest.approx(1200.0 * slowdown / (gang.gpus * SPEEDS.on(gang.device)))
        assert row.value == pytest.approx(valuer.value(time_s), rel=1e-9)


def test_one_fast_gpu_is_worth_as_much_as_three_slow_ones():
    values = {(row.gangs[0].device, row.gpus): row.value for row in make_bid(app(), OFFER, CLUSTER_VIEW).rows}
    assert values["v100", 1] == pytest.approx(values["k80", 3], rel=1e-9)
    assert max(values, key=values.get) == ("v100", 2)


def test_with_one_type_on_offer_gangs_need_not_name_it():
    bid = make_bid(app(), offer_of({"v0": (2,)}), CLUSTER_VIEW)
    assert {gang.device for row in bid.rows for gang in row.gangs} == {""}


def test_no_row_asks_for_a_type_that_cannot_run_the_job():
    only_k80 = app()
    only_k80 = replace(only_k80, jobs=(replace(only_k80.jobs[0], speeds=Speeds.of([("k80", 1.0)])),))
    bid = make_bid(only_k80, OFFER, CLUSTER_VIEW)
    assert {gang.device for row in bid.rows for gang in row.gangs} == {"k80"}


def test_t_cluster_counts_the_best_types_first():
    # Two v100 of speed 3 and two k80: 8 reference GPUs.
    assert cluster_time_s(app(), CLUSTER_VIEW) == pytest.approx(1200.0 / 8.0)
    assert cluster_time_s(app(tasks=1), CLUSTER_VIEW) == pytest.approx(1200.0 / 3.0)


def test_a_gang_kept_on_another_type_does_not_grow_there():
    gang = replace(held("j", {"k0": 1}, Level.SLOT), device="k80")
    keeping = app(held=(gang,))
    bid = make_bid(keeping, offer_of({"v0": (2,)}), CLUSTER_VIEW)
    assert bid.rows == ()


def test_app_declares_its_share_of_the_cluster_in_its_own_reference_units():
    one = replace(job("j", 300.0, JobShape(tasks=1), CRUDE_SLOWDOWN), speeds=SPEEDS)
    (phase,) = declaration_of(app_of([one]), CLUSTER_VIEW).phases
    # 100 s on a V100, which is 3 of the 4 * 1 + 2 * 3 reference GPUs of the cluster's 6.
    assert (phase.time_s, phase.gpus) == pytest.approx((100.0, 3 / 10 * 6))
    only_v100 = replace(one, speeds=Speeds.of([("v100", 3.0)]))
    (phase,) = declaration_of(app_of([only_v100]), CLUSTER_VIEW).phases
    # Half of the GPUs that it can run on.
    assert (phase.time_s, phase.gpus) == pytest.approx((100.0, 3.0))
