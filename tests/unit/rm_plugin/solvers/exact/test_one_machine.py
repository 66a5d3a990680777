"""Markets in which no two bidders can win: told at once, and told as by the knapsack."""

import pytest
from small_markets import bid, gang, machine, market, row, rows_won
from told_markets import told_as_by_knapsack

from audit.recipes import Recipe
from rm_plugin.arbiter.auction import run_auction
from rm_plugin.solvers.exact.one_winner import one_winner
from rm_plugin.solvers.exact.places import Places
from rm_plugin.solvers.exact.rows import read_market
from rm_plugin.solvers.exact.solver import ExactSolver
from themis.choices import EmptyBundle
from themis.cluster import Level

TIGHT = {
    "a GPU": Recipe(machines=1, slot_gpus=1, bidders=6),
    "large gangs": Recipe(machines=2, slot_gpus=2, sizes=(2, 3, 4), bidders=5),
    "slots": Recipe(levels=(Level.SLOT, Level.MACHINE), machines=1, slot_gpus=2, sizes=(2,), bidders=5, pinned=False),
    "racks": Recipe(machines=3, racks=2, sizes=(2, 3), levels=(Level.RACK, Level.CLUSTER), slot_gpus=1, bidders=4),
    "pinned": Recipe(pinned_gangs=True, machines=1, slot_gpus=2, units=False, bidders=5),
    "lexicographic": Recipe(empty_bundle=EmptyBundle.LEXICOGRAPHIC, machines=1, slot_gpus=2, bidders=4),
}


def told_of(given):
    arrays = read_market(given)
    return one_winner(arrays, Places(arrays))


@pytest.mark.parametrize("name", TIGHT)
def test_all_problems_are_answered_as_by_the_knapsack(name):
    assert told_as_by_knapsack(TIGHT[name], 150, told_of) > 10


ONE = gang(1, Level.CLUSTER)


def test_the_winner_keeps_what_the_next_one_leaves_it():
    values = {"a": 3.0, "b": 4.0, "c": 2.0}
    given = market([machine("m0", 1)], *(bid(app, 1.0, row(value, ONE)) for app, value in values.items()))
    assert told_of(given) is not None
    outcome = run_auction(given, ExactSolver(), 10.0)
    assert rows_won(outcome) == {"b": 0}
    assert outcome.shares == {"a": 1.0, "b": pytest.approx(1 / 3), "c": 1.0}
    assert outcome.optimal


def test_where_two_may_win_or_nobody_can_it_is_not_told():
    two = market([machine("m0", 2)], bid("a", 1.0, row(3.0, ONE)), bid("b", 1.0, row(4.0, ONE)))
    nobody = market([machine("m0", 1)], bid("a", 1.0, row(0.5, ONE)), bid("b", 1.0))
    no_place = market([machine("m0", 1), machine("m1", 1)], bid("a", 1.0, row(3.0, gang(2, Level.MACHINE))))
    for given in (two, nobody, no_place):
        assert told_of(given) is None


def test_where_the_next_best_row_finds_no_place_it_is_not_told():
    """That best fit finds none is no proof that there is none."""
    large, larger = row(3.0, gang(2, Level.MACHINE)), row(2.0, gang(3, Level.MACHINE))
    given = market([machine("m0", 2), machine("m1", 1)], bid("a", 1.0, large), bid("b", 1.0, larger))
    assert told_of(given) is None
    assert rows_won(run_auction(given, ExactSolver(), 10.0)) == {"a": 0}
