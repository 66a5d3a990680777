"""The order of `fair_finish`: which apps are pressed, and what counts as service left."""

import math

import pytest
from msgspec.structs import replace

from rm_plugin.arbiter.fair_finish_order import (
    Contender,
    Turn,
    fair_finish_order,
    lateness_after_lease,
    latest_pressing_due_s,
)
from rm_plugin.arbiter.user_ranks import Users
from themis.queues import ONE_QUEUE, AppOwner

LEASE_S = 600.0
HOLDER = Contender(
    app_id="a",
    submitted_at_s=0.0,
    due_s=2000.0,
    left_gpu_s=900.0,
    time_left_s=900.0,
    restart_s=20.0,
    kept_gpus=0,
    held_gpus=1,
    wanted_gpus=1,
)
NEWCOMER = replace(HOLDER, held_gpus=0)


def lateness(app, now_s):
    return lateness_after_lease(app, now_s=now_s, lease_s=LEASE_S)


def order_of(*apps, users=(), margin=0.0):
    owners = {app.app_id: AppOwner(user=user) for app, user in zip(apps, users or [""] * len(apps), strict=True)}
    return fair_finish_order(apps, Users(owners, ONE_QUEUE), now_s=0.0, lease_s=LEASE_S, preemption_margin=margin)


def test_app_with_less_slack_than_a_lease_and_a_restart_is_late():
    assert lateness(HOLDER, 480.0) is None
    assert lateness(HOLDER, 480.5) is not None
    assert lateness(HOLDER, 600.0) == pytest.approx(2100.0 / 2000.0)


def test_app_that_holds_nothing_is_late_earlier_by_a_restart():
    assert lateness(NEWCOMER, 460.0) is None
    assert lateness(NEWCOMER, 460.5) is not None
    assert lateness(NEWCOMER, 600.0) == pytest.approx(2120.0 / 2000.0)


def test_app_that_was_due_at_its_submission_is_infinitely_late():
    assert lateness(replace(HOLDER, due_s=0.0), 0.0) == math.inf


def test_no_app_due_at_the_latest_pressing_due_date_is_late():
    latest_s = latest_pressing_due_s([HOLDER, NEWCOMER], now_s=400.0, lease_s=LEASE_S)
    assert latest_s == 400.0 + 920.0 + LEASE_S + 20.0
    assert lateness(replace(NEWCOMER, due_s=latest_s), 400.0) is None
    assert lateness(replace(NEWCOMER, due_s=latest_s - 0.5), 400.0) is not None


def test_without_an_app_that_can_be_pressed_there_is_no_due_date_to_watch():
    keeps, idle, overran = replace(HOLDER, kept_gpus=1), replace(HOLDER, wanted_gpus=0), replace(HOLDER, overran=True)
    assert latest_pressing_due_s([keeps, idle, overran], now_s=0.0, lease_s=LEASE_S) is None


def test_credit_for_held_gpus_counts_none_beyond_those_that_the_app_can_use():
    all_of_them = replace(HOLDER, app_id="all", due_s=1e6, left_gpu_s=880.0, wanted_gpus=2, held_gpus=2)
    twice = replace(all_of_them, app_id="twice", left_gpu_s=900.0, held_gpus=4)
    assert [turn.app_id for turn in order_of(twice, all_of_them, margin=0.2)] == ["all", "twice"]


def test_app_that_can_use_no_gpu_gets_no_credit_for_gpus_that_it_holds():
    calm = replace(HOLDER, due_s=1e6)
    waits = replace(calm, app_id="idle", wanted_gpus=0, held_gpus=0)
    less = replace(calm, app_id="less", left_gpu_s=850.0, held_gpus=0)
    assert [turn.app_id for turn in order_of(waits, less, margin=0.2)] == ["less", "idle"]
    holds_all = replace(waits, app_id="holder", wanted_gpus=1, held_gpus=1)
    assert [turn.app_id for turn in order_of(holds_all, less, margin=0.2)] == ["holder", "less"]


def test_pressed_app_gets_one_gang_before_all_others_and_its_turn_among_them():
    calm, pressed = replace(HOLDER, app_id="calm", due_s=1e6, left_gpu_s=1.0), replace(HOLDER, due_s=1000.0)
    assert order_of(calm, pressed) == [
        Turn(app_id="a", one_gang=True),
        Turn(app_id="calm", one_gang=False),
        Turn(app_id="a", one_gang=False),
    ]
