"""What the newest round that asked for rho did for an app."""

import pytest

from rm_plugin.service.web.round_record import RoundRecord
from rm_plugin.service.web.round_words import round_in_words


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


def test_an_unfinished_round_is_skipped():
    new = record(round_id=6, granted=False, outcome="", won={})
    assert "round 5 " in round_in_words("a", [new, record()], "themis")


def test_a_round_that_has_no_reports_yet_is_passed_over():
    new = record(round_id=6, reported_at_s=None, rho={})
    assert "round 5 " in round_in_words("a", [new, record()], "themis")
    assert round_in_words("a", [new], "themis") == "no round has been played yet"


@pytest.mark.parametrize(
    ("app_id", "changes", "expected"),
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
        ("a", {"offered": (), "won": {"b": {}}}, "themis gave it no more GPUs in round 5, and none to others"),
        ("a", {"granted": False, "outcome": "", "won": {}}, "round 5 is being played"),
        ("a", {"granted": False, "outcome": "abandoned", "won": {}}, "round 5 was abandoned"),
    ],
)
def test_each_outcome_gives_its_reason(app_id, changes, expected):
    assert expected in round_in_words(app_id, [record(**changes)], "themis")
