"""Bids, offers, demands and reports: what they refuse. A value that got in must not be able to break a round."""

import math

import pytest

from themis.bids import AppReport, Bid, BidRow, FreeMachine, GangDemand, GangRequest, Market
from themis.cluster import Allocation, Level
from themis.errors import InputError


@pytest.mark.parametrize("gang", [(0, 1, 1), (1, 0, 1), (2, 1, 0), (3, 1, 2)])
def test_a_gang_is_whole_units(gang):
    gpus, count, unit = gang
    with pytest.raises(InputError):
        GangRequest(gpus, Level.SLOT, count, unit)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_the_value_of_a_row_is_a_positive_number(value):
    with pytest.raises(InputError):
        BidRow(value=value, gangs=(GangRequest(1, Level.SLOT),))


def test_a_row_asks_for_something():
    with pytest.raises(InputError):
        BidRow(value=1.0)
    row = BidRow(value=1.0, gangs=(GangRequest(2, Level.RACK, 3),), pinned=Allocation.of({"m": 1}))
    assert row.gpus == 7


@pytest.mark.parametrize("gangs", [({"m": 1}, {}), ({},), ({"m": 2},), ({"m": 1}, {"n": 1})])
def test_pinned_gangs_sum_to_the_pinned_gpus_without_empty_ones(gangs):
    # A payment of three gangs in four would be paid with gangs that hold nothing.
    reported = tuple(Allocation.of(gang) for gang in gangs)
    with pytest.raises(InputError, match="pinned gang"):
        BidRow(value=1.0, pinned=Allocation.of({"m": 1}), pinned_gangs=reported)


@pytest.mark.parametrize("value", [-1e-9, math.inf, math.nan])
def test_the_value_of_the_empty_bundle_is_a_number_of_0_or_more(value):
    with pytest.raises(InputError):
        Bid(app_id="a", round_id=1, empty_value=value, rows=())


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_gpus": 0},
        {"min_gpus": 3},
        {"unit_gpus": 0},
        {"unit_gpus": -1},
        {"work_left_gpu_s": math.nan},
        {"work_left_gpu_s": -1.0},
    ],
)
def test_a_demand_that_would_break_a_round_is_refused(wrong):
    with pytest.raises(InputError):
        GangDemand(**{"job_id": "j", "min_gpus": 1, "max_gpus": 2, **wrong})


def test_a_report_of_a_rho_that_cannot_be_is_refused():
    with pytest.raises(InputError):
        AppReport(app_id="a", round_id=1, rho=-0.1, t_shared_s=1.0, t_ideal_s=1.0)


def test_a_report_adds_its_demands_up():
    demands = tuple(GangDemand(job_id=f"j{n}", min_gpus=1, max_gpus=n) for n in (2, 3))
    report = AppReport(app_id="a", round_id=1, rho=math.inf, t_shared_s=math.inf, t_ideal_s=1.0, demands=demands)
    assert report.demand_gpus == 5


def test_a_market_without_one_bidder():
    machines = (FreeMachine(machine_id="m", rack_id="r", free_slots=(2, 0)),)
    bids = tuple(Bid(app_id=name, round_id=1, empty_value=1.0, rows=()) for name in "ab")
    market = Market(machines=machines, bids=bids)
    assert market.without("a").bids == bids[1:]
    assert market.without("nobody") == market
    assert market.free == Allocation.of({"m": 2})
