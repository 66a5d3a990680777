"""Why an app has no more GPUs, by the newest round that asked for rho."""

import math

import pytest

from rm_plugin.service.web.round_record import RoundRecord
from rm_plugin.service.web.waiting import MAX_AHEAD, why_waiting


def record(**changes):
    fields = {
        "round_id": 5,
        "started_at_s": 0.0,
        "active": ("a", "b", "c"),
        "rho": {"a": 1.0, "b": 3.0, "c": 2.0},
        "demand_gpus": {"a": 4, "b": 4, "c": 4},
        "reported_at_s": 1.0,
        "offered": ("b",),
        "bids": {"b": {}},
        "won": {"b": {"m0": 4}},
        "auction": {"payments": {"b": 0.75}},
        "granted": True,
        "outcome": "granted",
    }
    return RoundRecord(**{**fields, **changes})


def reason(app_id="a", **changes):
    return why_waiting(app_id, [record(**changes)], "themis").reason


def test_apps_with_larger_rho_are_ahead():
    waiting = why_waiting("a", [record()], "themis")
    assert (waiting.round_id, waiting.rank, waiting.of, waiting.ahead) == (5, 3, 3, ("b", "c"))


def test_apps_without_demand_are_not_ahead():
    assert why_waiting("a", [record(demand_gpus={"a": 4, "b": 0, "c": 4})], "themis").ahead == ("c",)


def test_no_end_in_sight_is_worst_and_not_a_number_last():
    waiting = why_waiting("a", [record(rho={"a": 1.0, "b": math.inf, "c": math.nan})], "themis")
    assert (waiting.rank, waiting.ahead) == (2, ("b",))
    assert why_waiting("c", [record(rho={"a": 1.0, "b": 2.0, "c": math.nan})], "themis").rank == 3


def test_equal_apps_rank_by_id():
    assert [why_waiting(app, [record(rho=dict.fromkeys("cab", 1.0))], "t").rank for app in "abc"] == [1, 2, 3]


def test_the_list_is_short():
    many = {f"app-{place:03d}": 9.0 for place in range(50)} | {"a": 1.0}
    waiting = why_waiting("a", [record(rho=many, demand_gpus=dict.fromkeys(many, 1))], "themis")
    assert (waiting.rank, len(waiting.ahead)) == (51, MAX_AHEAD)


def test_an_unfinished_round_is_skipped():
    new = record(round_id=6, granted=False, outcome="", won={})
    assert why_waiting("a", [new, record()], "themis").round_id == 5


def test_a_round_that_has_no_reports_yet_is_passed_over():
    new = record(round_id=6, reported_at_s=None, rho={})
    assert why_waiting("a", [new, record()], "themis").round_id == 5
    assert why_waiting("a", [new], "themis").reason == "no round has been played yet"


@pytest.mark.parametrize(
    ("app_id", "changes", "told"),
    [
        ("b", {}, "got 4 GPUs in round 5, where it kept 0.75 of what it won"),
        ("a", {"leftovers": {"a": {"m0": 1, "m1": 1}}}, "got 2 GPUs in round 5"),
        ("a", {"demand_gpus": {}}, "asked for nothing in round 5"),
        ("new", {}, "came after round 5 had begun"),
        ("new", {"absent": ("new",)}, "did not report rho in time for round 5"),
        ("b", {"won": {}}, "bid in round 5 and got nothing"),
        ("c", {"bids_absent": {"c": "no bid by the deadline"}}, "sent no bid: no bid by the deadline"),
        ("a", {}, "round 5 offered its GPUs to the 1 app with the worst rho"),
        ("a", {"offered": ()}, "themis gave the GPUs of round 5 to others"),
        ("a", {"granted": False, "outcome": "", "won": {}}, "round 5 is being played"),
        ("a", {"granted": False, "outcome": "abandoned", "won": {}}, "round 5 was abandoned"),
    ],
)
def test_each_outcome_gives_its_reason(app_id, changes, told):
    assert told in reason(app_id, **changes)
