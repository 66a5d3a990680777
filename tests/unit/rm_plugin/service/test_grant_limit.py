"""What refused requests, YARN's headroom and running tasks show of the GPUs that the engine grants an app."""

import math

import pytest

from rm_plugin.service.grant_limit import NO_GRANT_LIMIT

UNFIT_S = 30.0


def refused(limit=NO_GRANT_LIMIT, *, asked=3, held=5, headroom=3, now_s=1000.0):
    return limit.after_refusal(
        "no container", asked_gpus=asked, held_gpus=held, headroom_gpus=headroom, now_s=now_s, unfit_s=UNFIT_S
    )


def heartbeat(limit, *, running=0, headroom=None, now_s=1001.0):
    return limit.after_heartbeat(running_gpus=running, headroom_gpus=headroom, now_s=now_s)


def test_app_that_was_granted_everything_has_no_limit():
    assert NO_GRANT_LIMIT.at(0.0) is None
    assert NO_GRANT_LIMIT.shown(0.0) == ""


@pytest.mark.parametrize("headroom", [None, 3, 4])
def test_first_refusal_suspects_the_machines(headroom):
    limit = refused(headroom=headroom)
    assert limit.at(1001.0) is None
    assert limit.shown(1029.0) == "no container"
    assert limit.shown(1030.0) == ""


@pytest.mark.parametrize("headroom", [0, 1, 2])
def test_too_small_headroom_limits_the_app_at_once(headroom):
    limit = refused(headroom=headroom)
    assert limit.at(1029.0) == 5 + headroom
    assert limit.at(1030.0) is None
    assert limit.shown(1010.0) == f"no container; at most {5 + headroom} GPUs are leased to it for 20 s"
    assert limit.shown(1029.9).endswith("for 1 s")
    assert limit.shown(1030.0) == ""


def test_second_refusal_limits_the_app_to_what_it_holds():
    assert refused(refused(), now_s=1030.0).at(1031.0) == 5


def test_machine_at_fault_limits_no_app_and_leaves_a_limit_as_it_is():
    assert refused(refused(headroom=None), now_s=1030.0, headroom=None).at(1031.0) is None
    limited = refused(headroom=0)
    assert refused(limited, now_s=1020.0, headroom=None).at(1049.0) == 5
    assert refused(limited, now_s=1040.0, headroom=None).at(1041.0) is None


def test_refusals_during_a_pause_are_one():
    limit = refused(refused(), now_s=1029.0)
    assert (limit.times, limit.at(1029.0), limit.until_s) == (1, None, 1059.0)


def test_pauses_double_up_to_eight_times_the_first():
    limit, now_s, pauses_s = NO_GRANT_LIMIT, 1000.0, []
    for _ in range(6):
        limit = refused(limit, now_s=now_s)
        pauses_s.append(limit.until_s - now_s)
        now_s = limit.until_s
    assert pauses_s == [30.0, 60.0, 120.0, 240.0, 240.0, 240.0]


@pytest.mark.parametrize(("later_s", "times"), [(240.0, 2), (240.1, 1)])
def test_refusal_long_ago_is_forgotten(later_s, times):
    assert refused(refused(), now_s=1030.0 + later_s).times == times


@pytest.mark.parametrize(("running", "limited"), [(5, True), (6, False)])
def test_limit_ends_with_all_its_asks_once_more_is_granted(running, limited):
    limit = heartbeat(refused(headroom=0), running=running)
    assert (limit.at(1001.0) is not None) is limited
    assert limit.times == int(limited)


@pytest.mark.parametrize(
    ("running", "headroom", "limited"), [(5, 2, True), (5, 3, False), (0, 7, True), (0, 8, False), (5, None, True)]
)
def test_limit_ends_once_headroom_covers_what_was_wanted(running, headroom, limited):
    limit = heartbeat(refused(headroom=0), running=running, headroom=headroom)
    assert (limit.at(1001.0) is not None) is limited
    # It only may ask again: the next refusal is one more.
    assert refused(limit, now_s=1002.0, headroom=0).times == 2 - limited


def test_headroom_that_was_large_enough_all_the_time_ends_no_limit():
    first = refused(headroom=5)
    second = refused(first, headroom=5, now_s=1000.0 + UNFIT_S)
    assert second.gpus == 5
    now_s = 1001.0 + UNFIT_S
    assert heartbeat(second, headroom=10, now_s=now_s) is second
    assert heartbeat(second, headroom=11, now_s=now_s).at(now_s) is None


def test_heartbeat_changes_nothing_without_a_limit():
    suspected = refused()
    assert heartbeat(suspected, running=9, headroom=9) is suspected
    over = refused(headroom=0)
    assert heartbeat(over, running=9, headroom=9, now_s=1030.0) is over
    assert NO_GRANT_LIMIT.until_s == -math.inf
