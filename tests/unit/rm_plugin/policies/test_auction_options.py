"""The choices of themis: who bids, what bids are worth, who gets the leftovers."""

import math

import pytest
from msgspec.structs import replace

from rm_plugin.arbiter.auction import AuctionOutcome
from rm_plugin.arbiter.round_values import RoundSettings
from rm_plugin.policies.auction_options import LEFTOVERS, LOG_VALUES, PRESSURES, bidding_apps, valued_bids
from rm_plugin.policies.due_dates import DueDateMemory
from rm_plugin.policies.themis import ThemisPolicy
from themis.bids import Bid, BidRow, GangDemand, GangRequest, PhaseLeft
from themis.choices import Bidders, BidValues, EmptyBundle, LeftoverOrder
from themis.cluster import Level
from themis.errors import InputError

POLICY = ThemisPolicy()
WANTS = [GangDemand(job_id="j", min_gpus=1, max_gpus=6)]


def with_settings(snapshot, **choices):
    return replace(snapshot, settings=RoundSettings(**choices))


def with_times(snapshot, shared_s, ideal_s=1000.0):
    reports = {
        app_id: replace(report, t_shared_s=shared_s[app_id], t_ideal_s=ideal_s)
        for app_id, report in snapshot.reports.items()
    }
    return replace(snapshot, reports=reports)


def bid(app_id, ideal_s, empty_s, *with_bundle_s):
    """A bid as apps make it: t_ideal over the app's time with nothing, and with one GPU, two GPUs, .."""
    rows = tuple(
        BidRow(value=ideal_s / time_s, gangs=(GangRequest(gpus, Level.MACHINE),))
        for gpus, time_s in enumerate(with_bundle_s, start=1)
    )
    return Bid(app_id=app_id, round_id=1, empty_value=ideal_s / empty_s, rows=rows)


def test_every_choice_is_in_its_table():
    assert (set(PRESSURES), set(LEFTOVERS)) == (set(Bidders), set(LeftoverOrder))
    assert set(LOG_VALUES) == set(BidValues) - {BidValues.RHO}


# ---- who bids -------------------------------------------------------------------------------------------------------


def test_pressed_bidders_are_those_of_the_longest_time_over_their_span(make_snapshot):
    shot = with_times(make_snapshot({"a": WANTS, "b": WANTS}, rho={"b": 9.0}), {"a": 7200.0, "b": 32_400.0})
    spans = {"a": 3600.0, "b": 21_600.0}
    assert bidding_apps(shot, spans) == ("b",)
    assert bidding_apps(with_settings(shot, bidders=Bidders.PRESSED), spans) == ("a",)


def test_app_without_a_due_date_is_pressed_least(make_snapshot):
    shot = with_times(make_snapshot({"a": WANTS, "b": WANTS}), {"a": 9e9, "b": 1.0})
    assert bidding_apps(with_settings(shot, bidders=Bidders.PRESSED), {"b": 10.0}) == ("b",)


def test_all_bidders_are_all_that_want_more_whatever_f(make_snapshot):
    shot = make_snapshot({"a": WANTS, "b": WANTS, "c": []}, rho={"b": 2.0})
    assert bidding_apps(with_settings(shot, bidders=Bidders.ALL, f=1.0), {}) == ("b", "a")


def test_due_dates_are_remembered_only_if_a_choice_goes_by_them(make_snapshot):
    phases = {"a": [PhaseLeft(jobs=1, work_gpu_s=1000.0, longest_gpu_s=1000.0)]}
    shot = make_snapshot({"a": WANTS}, phases=phases, bids=[], outcome=AuctionOutcome(wins={}, shares={}))
    assert POLICY.decide(shot).memory is None
    for choice in ({"bidders": Bidders.PRESSED}, {"values": BidValues.SLACK}):
        memory = POLICY.decide(with_settings(shot, **choice)).memory
        assert isinstance(memory, DueDateMemory)
        assert set(memory.apps) == {"a"}


# ---- what bids are worth --------------------------------------------------------------------------------------------


def valued(make_snapshot, values, spans, *bids):
    names = [each.app_id for each in bids]
    shot = with_times(make_snapshot(dict.fromkeys(names, WANTS)), dict.fromkeys(names, 1.0))
    return valued_bids(replace(with_settings(shot, values=values), bids={each.app_id: each for each in bids}), spans)


def test_by_rho_bids_stay_as_they_came(make_snapshot):
    b, a = bid("b", 1000.0, 2000.0, 1000.0), bid("a", 1000.0, 2000.0, 1500.0)
    assert valued(make_snapshot, BidValues.RHO, {}, b, a) == (a, b)


def test_by_seconds_a_value_grows_by_e_for_each_lease_saved(make_snapshot):
    (found,) = valued(make_snapshot, BidValues.SECONDS, {}, bid("a", 1000.0, 2400.0, 1800.0, 1200.0))
    assert found.empty_value == 1.0
    assert [row.value for row in found.rows] == pytest.approx([math.e, math.e**2])


def test_by_slack_early_apps_count_by_ratios_and_late_ones_by_seconds(make_snapshot):
    bids = bid("a", 1000.0, 2400.0, 1800.0), bid("b", 1000.0, 60_000.0, 59_400.0)
    early, late = valued(make_snapshot, BidValues.SLACK, {"a": 600_000.0, "b": 600.0}, *bids)
    assert early.rows[0].value == pytest.approx(598_200 / 597_600)
    assert late.rows[0].value == pytest.approx(math.e)
    (near,) = valued(make_snapshot, BidValues.SLACK, {"a": 3000.0}, bids[0])
    assert near.rows[0].value == pytest.approx(1.62, abs=0.005)


def test_values_stay_finite_whatever_the_times(make_snapshot):
    (found,) = valued(make_snapshot, BidValues.SECONDS, {}, bid("a", 1000.0, 1e9, 1.0))
    assert found.rows[0].value == pytest.approx(math.exp(300.0))


def test_app_without_an_ideal_time_or_a_due_date_bids_nothing(make_snapshot):
    (found,) = valued(make_snapshot, BidValues.SLACK, {}, bid("a", 1000.0, 2400.0, 1800.0))
    assert found.rows == ()
    shot = with_times(make_snapshot({"a": WANTS}), {"a": 1.0}, ideal_s=math.nan)
    shot = replace(with_settings(shot, values=BidValues.SECONDS), bids={"a": bid("a", 1000.0, 2400.0, 1800.0)})
    assert valued_bids(shot, {})[0].rows == ()


def test_seconds_and_slack_need_finite_empty_bundles():
    for values in (BidValues.SECONDS, BidValues.SLACK):
        with pytest.raises(InputError, match="set empty_bundle finite"):
            RoundSettings(values=values, empty_bundle=EmptyBundle.LEXICOGRAPHIC)


# ---- who gets the leftovers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "first"), [(LeftoverOrder.NEED, "worst"), (LeftoverOrder.SHORTEST, "short")])
def test_leftovers_go_to_whole_apps_in_order(make_snapshot, gpus_of, order, first):
    demands = {
        app_id: [GangDemand(job_id=f"{app_id}{job}", min_gpus=1, max_gpus=3) for job in range(2)]
        for app_id in ("worst", "short")
    }
    phases = {
        "worst": [PhaseLeft(jobs=2, work_gpu_s=9000.0, longest_gpu_s=4500.0)],
        "short": [PhaseLeft(jobs=2, work_gpu_s=1000.0, longest_gpu_s=500.0)],
    }
    shot = make_snapshot(
        demands,
        rho={"worst": 5.0},
        phases=phases,
        bids=["worst"],
        outcome=AuctionOutcome(wins={}, shares={}),
        slots=((3,), (3,)),
    )
    assert gpus_of(POLICY.decide(with_settings(shot, leftovers=order))) == {first: {"m0": 3, "m1": 3}}
    assert set(gpus_of(POLICY.decide(shot))) == {"short"}


@pytest.mark.parametrize("order", [LeftoverOrder.NEED, LeftoverOrder.SHORTEST])
def test_equal_ranks_of_leftovers_go_to_the_smaller_app_id(make_snapshot, gpus_of, order):
    demands = {name: [GangDemand(job_id=name, min_gpus=6, max_gpus=6)] for name in ("beta", "alpha")}
    phases = {name: [PhaseLeft(jobs=1, work_gpu_s=9000.0, longest_gpu_s=9000.0)] for name in demands}
    shot = make_snapshot(demands, phases=phases, bids=["beta"], outcome=AuctionOutcome(wins={}, shares={}))
    assert list(gpus_of(POLICY.decide(with_settings(shot, leftovers=order)))) == ["alpha"]
