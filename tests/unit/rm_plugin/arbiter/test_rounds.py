"""A round as a generator: its questions in order, answers checked, absences survived."""

import math

import pytest
from msgspec.structs import replace

from rm_plugin.arbiter.auction import AuctionOutcome
from rm_plugin.arbiter.round_values import (
    AppStanding,
    AskBids,
    AskReports,
    Decision,
    RoundSettings,
    RoundSnapshot,
    SolveAuction,
    Wait,
)
from rm_plugin.arbiter.rounds import check_bids, check_reports, play_round
from rm_plugin.arbiter.seeds import child_digests, child_seed
from rm_plugin.policies.auction_options import bidding_apps
from rm_plugin.policies.demands import app_demands_of
from rm_plugin.policies.themis import ThemisPolicy
from themis.bids import AppReport, Bid, BidRow, FreeMachine, GangDemand, GangRequest, PlacedGang, RhoOf
from themis.choices import EmptyBundle
from themis.cluster import Allocation, Cluster, Level, Machine
from themis.errors import InputError

CLUSTER = Cluster(name="c", machines=(Machine(machine_id="m", rack_id="r", slots=(4,)),))
FREE = (FreeMachine(machine_id="m", rack_id="r", free_slots=(4,)),)


def standing(app_id, **changes):
    return AppStanding(**{"app_id": app_id, "submitted_at_s": 0.0, **changes})


def snapshot(*apps, settings=None, machines=FREE):
    return RoundSnapshot(
        round_id=3,
        now_s=0.0,
        lease_s=600.0,
        cluster=CLUSTER,
        machines=machines,
        apps=tuple(standing(app) if isinstance(app, str) else app for app in apps),
        settings=settings or RoundSettings(f=0.0),
        seed=1,
    )


def report(app_id, rho=1.0):
    demand = GangDemand(job_id="j", min_gpus=1, max_gpus=2)
    return AppReport(app_id=app_id, round_id=3, rho=rho, t_shared_s=1.0, t_ideal_s=1.0, demands=(demand,))


def bid(name, /, **changes):
    fields = {
        "app_id": name,
        "round_id": 3,
        "empty_value": 0.1,
        "rows": (BidRow(value=1.0, gangs=(GangRequest(1, Level.CLUSTER),)),),
    }
    return Bid(**{**fields, **changes})


def play(round_, *answers):
    """Send the answers; returns the questions and the result."""
    questions = [next(round_), *map(round_.send, answers[:-1])]
    with pytest.raises(StopIteration) as end:
        round_.send(answers[-1])
    return questions, end.value.value


class Scripted:
    """A policy that returns given answers, and records its arguments."""

    name = "scripted"

    def __init__(self, *steps):
        self._steps = list(steps)
        self.shown = []

    def decide(self, shown):
        self.shown.append(shown)
        return self._steps.pop(0)


class TestQuestions:
    def test_reports_are_requested_first_from_reachable_apps(self):
        round_ = play_round(snapshot("a", standing("b", silent=True), "c"), Scripted(Decision()))
        questions, result = play(round_, {"a": report("a")})
        assert questions == [AskReports(("a", "c"))]
        assert dict(result.snapshot.reports) == {"a": report("a")}

    def test_a_policy_receives_the_answer_to_each_request(self):
        market = object()
        outcome = AuctionOutcome(wins={}, shares={"a": 1.0})
        policy = Scripted(AskBids(("a",)), SolveAuction(market), Decision())
        questions, result = play(play_round(snapshot("a"), policy), {"a": report("a")}, {"a": bid("a")}, outcome)
        assert questions == [AskReports(("a",)), AskBids(("a",)), SolveAuction(market)]
        assert [shown.bids for shown in policy.shown] == [None, {"a": bid("a")}, {"a": bid("a")}]
        assert [shown.outcome for shown in policy.shown] == [None, None, outcome]
        assert result.decision == Decision()

    def test_themis_asks_for_bids_and_the_auction(self):
        questions, result = play(
            play_round(snapshot("a", "b"), ThemisPolicy()),
            {app: report(app) for app in "ab"},
            {app: bid(app) for app in "ab"},
            None,
        )
        assert [type(question) for question in questions] == [AskReports, AskBids, SolveAuction]
        assert [each.app_id for each in questions[2].market.bids] == ["a", "b"]
        assert set(result.decision.grants()) == {"a", "b"}


class TestReportsThatAreChecked:
    def checked(self, reports, *apps, rho_of=RhoOf.APPS_WITH_DEMAND):
        return check_reports(snapshot(*apps), tuple(apps), reports, rho_of)

    def test_apps_that_were_not_asked_are_dropped(self):
        assert self.checked({"a": report("a"), "x": report("x")}, "a", "b") == ({"a": report("a")}, {})

    def test_reports_of_another_round_are_refused(self):
        valid, refused = self.checked({"a": replace(report("a"), round_id=2), "c": report("c")}, "a", "b", "c")
        assert valid == {"c": report("c")}
        assert refused == {"a": "the report is app a's for round 2"}

    def test_a_report_without_rho_is_refused_if_the_round_asks_for_it(self):
        reports = {"a": report("a"), "b": report("b", math.nan)}
        assert self.checked(reports, "a", "b") == ({"a": report("a")}, {"b": "the report has no rho"})
        valid, refused = self.checked(reports, "a", "b", rho_of=RhoOf.NO_APP)
        assert list(valid) == ["a", "b"]
        assert refused == {}

    def test_a_report_is_refused_if_one_of_a_job_s_machines_is_unknown(self):
        def holding(app_id, **counts):
            (demand,) = report(app_id).demands
            return replace(report(app_id), demands=(replace(demand, held=Allocation.of(counts)),))

        valid, refused = self.checked({"a": holding("a", m=1), "b": holding("b", m=1, gone=1)}, "a", "b")
        assert list(valid) == ["a"]
        assert refused == {"b": "a job is said to be on a machine that the cluster does not have"}

    def test_refused_reports_come_in_the_order_of_the_apps(self):
        _, refused = self.checked({name: report("x") for name in "cab"}, "a", "b", "c")
        assert list(refused) == ["a", "b", "c"]

    def test_the_worst_apps_that_could_use_more_are_asked_to_bid(self):
        reports = {"c": report("c", 4.0), "a": report("a", 3.0), "b": report("b", 5.0)}
        shot = replace(snapshot("a", "b", "c", settings=RoundSettings(f=0.5)), reports=reports)
        assert bidding_apps(shot, {}) == ("b", "c")
        assert [app_demand.app_id for app_demand in app_demands_of(shot, {})] == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["f", "alpha", "preemption_margin"])
def test_shares_lie_in_0_to_1_both_included(name):
    for share in (0.0, 1.0):
        assert getattr(RoundSettings(**{name: share}), name) == share
    for share in (-1e-9, 1.0 + 1e-9, math.nan):
        with pytest.raises(InputError, match="must lie in 0 to 1"):
            RoundSettings(**{name: share})


def test_offer_has_the_slots_of_machines_with_a_free_gpu():
    full = FreeMachine(machine_id="full", rack_id="r", free_slots=(0,))
    assert snapshot("a", machines=(*FREE, full)).offer_to("a", 9.0).slots == {"m": (4,)}


class TestAbsence:
    def test_no_reports_no_bids_and_no_outcome_still_make_a_round(self):
        questions, result = play(play_round(snapshot("a"), ThemisPolicy()), {}, {}, None)
        assert questions[1] == AskBids(())
        assert result.decision.grants() == {}

    def test_an_app_that_does_not_bid_gets_leftovers(self):
        _, result = play(play_round(snapshot("a"), ThemisPolicy()), {"a": report("a")}, {}, None)
        assert result.decision.auction == {}
        assert result.decision.leftovers["a"][0].gpus == Allocation.of({"m": 2})

    def test_an_auction_that_failed_has_no_winners(self):
        policy = Scripted(AskBids(("a",)), SolveAuction(None), Decision())
        _, result = play(play_round(snapshot("a"), policy), {}, {"a": bid("a")}, None)
        assert result.snapshot.outcome == AuctionOutcome(wins={}, shares={"a": 1.0})


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"app_id": "b"}, "names app b"),
            ({"round_id": 2}, "round 2"),
            ({"empty_value": 0.0}, "positive value"),
            ({"rows": (BidRow(value=1.0, pinned=Allocation.of({"m": 5})),)}, "not offered"),
            ({"rows": (BidRow(value=1.0, pinned=Allocation.of({"x": 1})),)}, "not offered"),
        ],
    )
    def test_an_invalid_bid_costs_its_app_the_bid_and_is_named(self, changes, reason):
        policy = Scripted(AskBids(("a", "c")), Decision())
        _, result = play(play_round(snapshot("a", "c"), policy), {}, {"a": bid("a", **changes), "c": bid("c")})
        assert list(result.snapshot.bids) == ["c"]
        assert list(result.refused) == ["a"]
        assert reason in result.refused["a"]

    def test_unrequested_bids_are_dropped_silently(self):
        valid, refused = check_bids(snapshot("a", "b"), ("a",), {"b": bid("b")})
        assert (valid, refused) == ({}, {})

    def test_the_empty_bundle_may_have_value_0_in_a_lexicographic_auction(self):
        shot = snapshot("a", settings=RoundSettings(empty_bundle=EmptyBundle.LEXICOGRAPHIC))
        valid, refused = check_bids(shot, ("a",), {"a": bid("a", empty_value=0.0)})
        assert list(valid) == ["a"]
        assert not refused

    def test_a_bid_without_rows_is_a_bid(self):
        valid, _ = check_bids(snapshot("a"), ("a",), {"a": bid("a", rows=())})
        assert list(valid) == ["a"]

    def test_unrequested_reports_are_dropped(self):
        policy = Scripted(Decision())
        shot = snapshot("a", standing("b", silent=True))
        _, result = play(play_round(shot, policy), {app: report(app) for app in "abz"})
        assert list(result.snapshot.reports) == ["a"]

    def test_a_report_with_unknown_machines_is_refused_by_name(self):
        ghost = replace(
            report("a"),
            demands=(GangDemand(job_id="j", min_gpus=1, max_gpus=1, held=Allocation.of({"x": 1, "y": 1})),),
        )
        _, result = play(play_round(snapshot("a", "b"), ThemisPolicy()), {"a": ghost, "b": report("b")}, {}, None)
        assert list(result.snapshot.reports) == ["b"]
        assert "machine" in result.refused["a"]
        assert set(result.decision.grants()) == {"b"}

    @pytest.mark.parametrize("changes", [{"app_id": "b"}, {"round_id": 2}])
    def test_a_report_of_another_app_or_round_is_refused(self, changes):
        _, result = play(play_round(snapshot("a"), Scripted(Decision())), {"a": replace(report("a"), **changes)})
        assert list(result.snapshot.reports) == []
        assert list(result.refused) == ["a"]

    @pytest.mark.parametrize(
        ("rho_of", "refused"),
        [(RhoOf.EVERY_APP, ["a", "b"]), (RhoOf.APPS_WITH_DEMAND, ["a"]), (RhoOf.NO_APP, [])],
    )
    def test_a_report_without_a_rho_that_was_asked_for_is_refused(self, rho_of, refused):
        silent = {"a": report("a", math.nan), "b": replace(report("b", math.nan), demands=())}
        questions, result = play(play_round(snapshot("a", "b"), Scripted(Decision()), rho_of), silent)
        assert questions == [AskReports(("a", "b"), rho_of)]
        assert list(result.refused) == refused
        assert all("no rho" in reason for reason in result.refused.values())

    def test_refused_reports_are_listed_with_refused_bids(self):
        policy = Scripted(AskBids(("b",)), Decision())
        answers = {"a": replace(report("a"), round_id=2), "b": report("b")}
        _, result = play(play_round(snapshot("a", "b"), policy), answers, {"b": bid("b", round_id=2)})
        assert sorted(result.refused) == ["a", "b"]

    def test_a_demand_on_kept_machines_is_accepted(self):
        near = replace(
            report("a"),
            demands=(GangDemand(job_id="j", min_gpus=1, max_gpus=1, held=Allocation.of({"m": 1})),),
        )
        shot = snapshot(standing("a", kept=Allocation.of({"m": 1})))
        _, result = play(play_round(shot, Scripted(Decision())), {"a": near})
        assert list(result.snapshot.reports) == ["a"]


class TestValues:
    def test_grants_join_the_auction_and_leftovers_by_app(self):
        one, two = (PlacedGang(gpus=Allocation.of({"m": count}), level=Level.SLOT) for count in (1, 2))
        decision = Decision(auction={"b": (one,)}, leftovers={"a": (one,), "b": (two,)})
        assert decision.grants() == {"a": (one,), "b": (one, two)}
        assert list(decision.grants()) == ["a", "b"]

    def test_child_seeds_are_their_own(self):
        seeds = {
            child_seed(1, "a"),
            child_seed(1, "b"),
            child_seed(2, "a"),
            child_seed(1, "a", "b"),
            child_seed(1, "ab"),
        }
        assert len(seeds) == 5
        assert all(0 <= seed < 2**64 for seed in seeds)
        assert child_seed(1, "a") == 263842516872826314

    def test_digests_order_as_their_seeds(self):
        names = [f"app-{number}" for number in range(50)]
        digests = dict(zip(child_digests(1, ("a",), names), names, strict=True))
        assert [int.from_bytes(digest[:8], "big") for digest in digests] == [child_seed(1, "a", name) for name in names]
        by_seed = sorted(names, key=lambda name: child_seed(1, "a", name))
        assert [digests[digest] for digest in sorted(digests)] == by_seed
        assert child_digests(1, ("a",), []) == []


@pytest.mark.parametrize(
    ("until_s", "text"),
    [
        (None, "later"),
        (110.0, "later; expected to start there in 10 s"),
        (100.0, "later; expected to start there now"),
        (90.0, "later; expected to start there now"),
    ],
)
def test_wait_says_in_how_many_seconds_the_job_is_expected_to_start(until_s, text):
    assert Wait(job_id="j", reason="later", machine_id="m0", until_s=until_s).text(100.0) == text
