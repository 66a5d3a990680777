"""Lives on the fluid cluster, forecasts and rho of all active apps in one go."""

import math

import msgspec
import pytest
from msgspec.structs import replace

from rm_plugin.arbiter.estimates import AppNow, ClusterNow, ServiceOrder
from rm_plugin.arbiter.prospects import Prospects, Question, Stay, lives_of_stays, packed_prospects, prospects_of
from rm_plugin.arbiter.round_values import RoundSettings
from themis.fluid_cluster import FluidPhase
from themis.queues import ROOT, AppOwner, Queue, Queues, QueueUser

NOW = ClusterNow(
    gpus=4, now_s=1000.0, lease_s=600.0, lease_end_s=1600.0, order=ServiceOrder.FAIR_FINISH, settings=RoundSettings()
)


def stay(app_id, time_s=100.0, arrived_at_s=1000.0, left_at_s=None):
    phase = FluidPhase(time_s, 4.0)
    return Stay(app_id=app_id, owner=AppOwner(), phases=(phase,), arrived_at_s=arrived_at_s, left_at_s=left_at_s)


def ends_s(*stays):
    return {app_id: life.ends_s for app_id, life in lives_of_stays(stays, 4.0).items()}


def prospects_of_stays(apps, stays, gpus, now):
    packed = msgspec.msgpack.encode(Question(apps=apps, stays=stays, cluster_gpus=gpus, now=now))
    return msgspec.msgpack.decode(packed_prospects(packed), type=Prospects)


def test_apps_share_the_cluster_while_both_are_there():
    assert ends_s(stay("a"), stay("b", 50.0)) == pytest.approx({"a": 1150.0, "b": 1100.0})


def test_app_that_was_killed_leaves_its_share_to_the_others():
    """After 60 s together `a` has 70 s of its work left."""
    assert ends_s(stay("a"), stay("b", left_at_s=1060.0))["a"] == pytest.approx(1130.0)


def test_app_that_left_before_the_clock_said_that_it_arrived_takes_nothing():
    assert ends_s(stay("a"), stay("b", left_at_s=900.0))["a"] == pytest.approx(1100.0)


def test_no_apps_have_no_lives():
    assert lives_of_stays([], 4.0) == {}


def now_of(each):
    left = each.phases
    whole_s = math.fsum(phase.time_s for phase in left)
    return AppNow(
        app_id=each.app_id, submitted_at_s=each.arrived_at_s, phases_left=left, whole_time_s=whole_s, largest_gang=4
    )


def test_rho_is_the_estimated_time_over_that_on_the_fluid_cluster():
    """Estimates of apps that hold nothing yet come true a little later than forecast."""
    one = stay("a")
    found = prospects_of_stays([now_of(one)], [one], 4, NOW)
    assert found.forecasts["a"].ends_at_s == pytest.approx(1100.0)
    assert found.rho["a"] == pytest.approx(1.15, abs=0.15)


def test_app_without_a_declaration_or_without_work_has_no_rho():
    declared, idle, silent = stay("a"), stay("idle", 0.0), stay("silent")
    found = prospects_of_stays([now_of(each) for each in (declared, idle, silent)], [declared, idle], 4, NOW)
    assert sorted(found.forecasts) == ["a", "idle", "silent"]
    assert list(found.rho) == ["a"]


def test_rho_counts_also_for_an_app_of_less_than_a_second():
    short = stay("a", 0.5)
    assert list(prospects_of_stays([now_of(short)], [short], 4, NOW).rho) == ["a"]


def test_fluid_cluster_of_a_question_has_the_weights_of_its_users():
    queues = Queues(queues={ROOT: Queue(name=ROOT, users={"anna": QueueUser(weight=3.0)})})
    stays = [replace(stay(user), owner=AppOwner(user=user)) for user in ("anna", "bob")]
    apps, now = [now_of(each) for each in stays], replace(NOW, settings=RoundSettings(queues=queues))
    found = prospects_of_stays(apps, stays, 4, now)
    assert found == prospects_of(apps, lives_of_stays(stays, 4.0, queues), now)
    assert found != prospects_of(apps, lives_of_stays(stays, 4.0), now)
