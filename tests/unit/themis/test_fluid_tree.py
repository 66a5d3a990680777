"""Events of the fluid fair cluster touch few totals, however many users there are, and change no life."""

import math
import random

import pytest

from themis.fluid_cluster import FluidCluster, FluidPhase
from themis.fluid_tree import Total
from themis.queues import ROOT, AppOwner, Queue, Queues

QUEUES = Queues(queues={ROOT: Queue(name=ROOT), "a": Queue(name="a", parent=ROOT, weight=3.0)})


def crowd(users, gpus=64.0):
    """Two apps of two phases of each user, all there from the start."""
    rng = random.Random(1)
    cluster = FluidCluster(gpus, queues=QUEUES)
    for number in range(2 * users):
        phases = [FluidPhase(rng.uniform(5.0, 50.0), rng.choice([1.0, 2.0, 4.0, 8.0])) for _ in range(2)]
        cluster.arrive(f"app-{number}", phases, 0.0, owner=AppOwner(user=f"user-{number % users}", queue="a"))
    return cluster


@pytest.mark.parametrize("users", [50, 800])
def test_events_touch_few_totals_however_many_users(users, monkeypatch):
    cluster = crowd(users)
    added, add = [], Total.__add__
    monkeypatch.setattr(Total, "__add__", lambda total, other: added.append(total) or add(total, other))
    lives = cluster.run_out()
    # Four phases of each user end. From an app to the root there are about log2(users) + 2 totals, and an event changes
    # those of an app or two: now and then one turns full.
    assert all(math.isfinite(life.ends_s) for life in lives.values())
    assert 0 < len(added) / (4 * users) < 4 * (math.log2(users) + 2)


def test_place_of_an_app_that_left_is_used_again():
    cluster = FluidCluster(4.0)
    for number in range(100):
        cluster.arrive(f"app-{number}", [FluidPhase(1.0, 4.0)], 10.0 * number)
    branch = cluster._branches[QUEUES.tenant(AppOwner())]
    cluster.advance(2000.0)
    assert len(branch._children) == 1
    assert {life.time_s for life in cluster.ended.values()} == {1.0}


def test_user_who_comes_back_has_the_share_of_the_weight():
    cluster = FluidCluster(4.0)
    anna, bob = AppOwner(user="anna"), AppOwner(user="bob")
    cluster.arrive("a", [FluidPhase(10.0, 4.0)], 0.0, owner=anna)
    cluster.advance(20.0)
    cluster.arrive("b", [FluidPhase(10.0, 4.0)], 20.0, owner=bob)
    cluster.arrive("c", [FluidPhase(10.0, 4.0)], 20.0, owner=anna)
    cluster.arrive("d", [FluidPhase(10.0, 4.0)], 20.0, owner=anna)
    lives = cluster.run_out()
    # Bob has half until 40 s. Anna's two apps have a quarter each until then, and half each after it.
    assert {app_id: life.ends_s for app_id, life in lives.items()} == pytest.approx(
        {"a": 10, "b": 40, "c": 50, "d": 50}
    )
    assert lives["c"].contention == pytest.approx((20 * 4 + 10 * 2) / 30)
