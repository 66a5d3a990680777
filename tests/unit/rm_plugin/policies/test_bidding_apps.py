"""The filter: the worst ceil((1 - f) N) apps, at least one, that could use more."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm_plugin.policies.auction_options import bidding_apps
from rm_plugin.policies.themis import kept_gangs, market_of
from themis.bids import GangDemand

WANTS = [GangDemand(job_id="j", min_gpus=1, max_gpus=1)]


def names(count):
    return [f"a{place:03d}" for place in range(count)]


@pytest.mark.parametrize(
    ("f", "count", "asked"),
    [
        ("0.8", 5, 1),
        ("0.8", 6, 2),
        ("0.8", 10, 2),
        ("0.8", 11, 3),
        ("0.9", 10, 1),
        ("0.9", 30, 3),
        ("0.7", 10, 3),
        ("0.95", 20, 1),
        ("0.1", 10, 9),
        ("0", 7, 7),
        ("1", 7, 1),
        ("1", 1, 1),
        ("0.999", 3, 1),
        ("0.5", 3, 2),
    ],
)
def test_ceil_without_the_traps_of_floats(make_snapshot, f, count, asked):
    """1 - 0.8 is 0.19999999999999996, and (1 - 0.9) * 30 is 2.9999999999999996; neither may round up or down."""
    shot = make_snapshot(dict.fromkeys(names(count), WANTS), f=float(f))
    assert len(bidding_apps(shot, {})) == asked == max(1, math.ceil((1 - Fraction(f)) * count))


@given(st.integers(0, 100), st.integers(1, 120))
def test_for_every_knob_of_two_digits(hundredths, count):
    places = max(1, math.ceil(round((1.0 - hundredths / 100) * count, 9)))
    assert places == max(1, -(-(100 - hundredths) * count // 100))


def test_worst_first_and_ties_by_name(make_snapshot):
    shot = make_snapshot(dict.fromkeys("dcba", WANTS), rho={"a": 1.0, "b": 2.0, "c": 2.0, "d": math.inf}, f=0.0)
    assert bidding_apps(shot, {}) == ("d", "b", "c", "a")


def test_silent_and_absent_apps_do_not_count(make_snapshot):
    shot = make_snapshot(dict.fromkeys(names(10), WANTS), silent=set(names(10)[:4]), absent={"a009"}, f=0.8)
    assert len(bidding_apps(shot, {})) == 1
    assert bidding_apps(shot, {}) == ("a004",)


def test_apps_that_could_use_nothing_count_but_are_not_asked(make_snapshot):
    demands = {name: WANTS if place < 2 else [] for place, name in enumerate(names(10))}
    shot = make_snapshot(demands, rho=dict.fromkeys(names(10)[2:], 9.0), f=0.8)
    assert bidding_apps(shot, {}) == ("a000", "a001")


def test_no_reachable_app_with_demand_gives_no_worst_apps(make_snapshot):
    assert bidding_apps(make_snapshot({}), {}) == ()
    assert bidding_apps(make_snapshot({"a": WANTS}, absent={"a"}), {}) == ()
    assert bidding_apps(make_snapshot({"a": []}), {}) == ()


def test_the_market_has_the_bids_in_order_and_the_machines_with_room(make_snapshot):
    market = market_of(make_snapshot(dict.fromkeys("ab", WANTS), bids=["b", "a"]), {})
    assert [bid.app_id for bid in market.bids] == ["a", "b"]
    assert [machine.machine_id for machine in market.machines] == ["m0", "m1"]


def test_no_gangs_are_kept_without_an_auction(make_snapshot):
    assert kept_gangs(make_snapshot({"a": WANTS})) == {}
