"""Why an app got no more, in words, from records of rounds alone."""

import pytest
from sim_records import bid, played

from themis.errors import UnknownNameError
from themis_lab.simulator.explain import explain

LEFT_2 = "nothing was left after c (4) for the 2 GPUs that it could still use"
LEFT_4 = "nothing was left after c (6) for the 4 GPUs that it could still use"
ALL = {"m0": 4, "m1": 2}
NO_AUCTION = {"asked": (), "bids": {}, "proportional": {}, "shares": {}}


def why(app, **changed):
    (found,) = explain([played(**changed)], app)
    return found.why


def test_a_winner_sees_the_gpus_that_payment_took():
    (found,) = explain([played()], "a")
    assert (found.rank, found.apps, found.asked, found.demand_gpus, found.free_gpus) == (1, 3, True, 4, 6)
    assert (found.won, found.granted, found.share, found.payment) == ({"m0": 4}, {"m0": 2}, 0.5, 0.5)
    assert found.lease_end_s == 1200.0
    assert found.why == ("payment took 2 GPUs", LEFT_2)


def test_a_loser_sees_the_winners():
    (found,) = explain([played()], "b")
    assert (found.won, found.granted, found.payment, found.lease_end_s) == ({}, {}, 0.0, None)
    assert found.why == (
        "lost against a (4)",
        "nothing was left after c (4), a (2) for the 4 GPUs that it could still use",
    )


def test_the_winners_of_most_gpus_are_named_first_and_the_rest_counted():
    many = {f"w{n}": {"m0": n} for n in range(1, 7)}
    assert why("b", proportional=many)[0] == "lost against w6 (6), w5 (5), w4 (4), w3 (3) and 2 more"


def test_winners_of_as_many_gpus_are_named_in_the_order_of_their_names():
    assert why("b", proportional={"w10": {"m0": 2}, "w1": {"m1": 2}})[0] == "lost against w1 (2), w10 (2)"


def test_an_app_that_was_not_asked_may_be_served_by_leftovers():
    (found,) = explain([played()], "c")
    assert (found.asked, found.bid, found.share, found.payment) == (False, None, None, None)
    assert found.leftovers == {"m0": 2, "m1": 2}
    assert found.why == ("not asked: 2 of 3 apps were, the worst that could use more", "its demand was met")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"demand_gpus": {"a": 0}}, ("it could use nothing more",)),
        ({"free": {}, **NO_AUCTION, "granted": {}, "leftovers": {}}, ("no GPU was free",)),
        (
            {"bids": {"a": bid(rows=0)}, "proportional": {}, "granted": {}},
            (
                "no bundle of what was free is worth more to it than what it keeps",
                "none of the 2 GPUs left serves any of its jobs better than what they have",
            ),
        ),
        ({"bids": {}, "proportional": {}, "granted": {}, "leftovers": {"c": ALL}}, ("its bid was refused", LEFT_4)),
        (
            {"proportional": {}, "granted": {}, "leftovers": {"c": ALL}, "status": "licence"},
            ("no app won: the auction ended licence", LEFT_4),
        ),
        ({"granted": {"a": {"m0": 4}}, "leftovers": {}}, ("its demand was met",)),
    ],
)  # fmt: skip
def test_every_reason_has_its_words(changed, expected):
    assert why("a", **changed) == expected


def test_a_policy_without_an_auction_names_the_served_apps():
    changed = {**NO_AUCTION, "leftovers": {}}
    assert why("c", granted={"b": {"m0": 4}, "a": {"m1": 2}}, **changed) == (
        "nothing was left after b (4), a (2) for the 4 GPUs that it could still use",
    )
    assert why("b", granted={"b": {"m0": 4}, "a": {"m1": 2}}, **changed) == ("its demand was met",)


def test_gpus_lost_to_payment_are_explained():
    assert why("a", free={"m0": 2}, leftovers={}) == (
        "payment took 2 GPUs",
        "nothing was left for the 2 GPUs that it could still use",
    )


def test_only_rounds_with_a_report_of_the_app_are_explained():
    rounds = [played(round_id=1), played(round_id=2, rho={"b": 1.0}), played(round_id=3)]
    assert [found.round_id for found in explain(rounds, "a")] == [1, 3]


def test_an_unknown_app_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match="unknown app"):
        explain([played()], "z")
