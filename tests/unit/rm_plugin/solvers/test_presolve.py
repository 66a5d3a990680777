"""Presolve of markets without contention: answered as the search answers them."""

import pytest
from presolved_markets import count_solved_as_by_search
from small_markets import bid, gang, machine, market, row, rows_won

from rm_plugin.arbiter.auction import run_auction
from rm_plugin.solvers import presolve
from rm_plugin.solvers.exact.market_arrays import read_market
from rm_plugin.solvers.exact.row_placement import RowPlacer
from rm_plugin.solvers.ladder import exact_ladder
from themis.choices import EmptyBundle
from themis.cluster import Level
from themis_lab.audit.recipes import Recipe

ROOMY = {
    "anything": Recipe(machines=6, bidders=3, slot_gpus=8),
    "slots": Recipe(levels=(Level.SLOT, Level.MACHINE), machines=5, slot_gpus=6, bidders=3, pinned=False),
    "racks": Recipe(machines=6, racks=3, sizes=(2, 4, 6), levels=(Level.RACK, Level.MACHINE), bidders=3, slot_gpus=8),
    "pinned": Recipe(pinned_gangs=True, machines=6, units=False, bidders=3, slot_gpus=8),
    "tables": Recipe(explicit=True, machines=6, bidders=3, slot_gpus=8),
    "lexicographic": Recipe(empty_bundle=EmptyBundle.LEXICOGRAPHIC, machines=6, bidders=3, rows=3, slot_gpus=8),
}


def uncontended_of(given):
    arrays = read_market(given)
    return presolve._uncontended(arrays, RowPlacer(arrays))


@pytest.mark.parametrize("name", ROOMY)
def test_all_problems_are_answered_as_by_the_search(name):
    assert count_solved_as_by_search(ROOMY[name], 60, uncontended_of) > 10


def test_no_bidder_pays_without_contention():
    machines = machine("m0", 4), machine("m1", 4)
    given = market(machines, *(bid(app, 0.1, row(0.9, gang(2, Level.SLOT))) for app in "ab"))
    assert run_auction(given, exact_ladder(), 60.0).shares == {"a": 1.0, "b": 1.0}


def test_equal_rows_prefer_the_fewest_gpus():
    rows = row(0.9, gang(4, Level.MACHINE)), row(0.9, gang(2, Level.MACHINE))
    given = market([machine("m0", 8)], bid("a", 0.1, *rows), bid("b", 0.1, *rows))
    assert rows_won(uncontended_of(given).solution(None)) == {"a": 1, "b": 1}


def test_markets_in_which_a_bidder_loses_are_contended():
    too_many = market([machine("m0", 4)], *(bid(app, 0.1, row(0.9, gang(3, Level.MACHINE))) for app in "ab"))
    assert uncontended_of(too_many) is None
    both_pin = market([machine("m0", 2), machine("m1", 2)], *(bid(app, 0.1, row(0.9, m0=2)) for app in "ab"))
    assert uncontended_of(both_pin) is None
    no_place = market([machine("m0", 2), machine("m1", 2)], bid("a", 0.1, row(0.9, gang(4, Level.MACHINE))))
    assert uncontended_of(no_place) is None


def test_a_market_without_rows_has_no_contention():
    given = market([machine("m0", 2)], bid("a", 0.5), bid("b", 0.9, row(0.2, gang(1, Level.SLOT))))
    found = uncontended_of(given).solution(None)
    assert (found.wins, found.gap, found.positive) == ({}, 0.0, 2)
