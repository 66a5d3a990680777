"""Presolve of markets of one machine, in which only the number of GPUs counts: answered as the search answers them."""

import pytest
from msgspec.structs import replace
from presolved_markets import count_solved_as_by_search
from small_markets import bid, gang, machine, market, row, rows_won

from rm_plugin.arbiter.auction import run_auction
from rm_plugin.solvers import presolve
from rm_plugin.solvers.exact.market_arrays import read_market
from rm_plugin.solvers.exact.row_placement import RowPlacer
from rm_plugin.solvers.ladder import exact_ladder
from themis.choices import EmptyBundle
from themis.cluster import Level
from themis_lab.audit.recipes import Recipe, random_market

ABOVE_SLOTS = (Level.MACHINE, Level.RACK, Level.CLUSTER)
ONE = Recipe(machines=1, levels=ABOVE_SLOTS, bidders=6)
RECIPES = {
    "a GPU": replace(ONE, slot_gpus=1),
    "several GPUs": replace(ONE, slot_gpus=4),
    "slots": replace(ONE, levels=tuple(Level), slot_gpus=4),
    "few values": replace(ONE, sizes=(1, 2), value=lambda rng: rng.choice((0.25, 0.5, 1.0)), empty=(0.125, 0.125)),
    "pinned": replace(ONE, pinned_gangs=True, units=False),
    "pinned in other parts": replace(ONE, regrouped=True, bidders=4),
    "tables": replace(ONE, explicit=True),
    "lexicographic": replace(ONE, empty_bundle=EmptyBundle.LEXICOGRAPHIC),
    "many bidders": replace(ONE, bidders=30, slot_gpus=2),
}
GPU = gang(1, Level.CLUSTER)


def one_machine_of(given):
    arrays = read_market(given)
    return presolve._one_machine(arrays, RowPlacer(arrays))


@pytest.mark.parametrize("name", RECIPES)
def test_all_problems_are_answered_as_by_the_search(name):
    assert count_solved_as_by_search(RECIPES[name], 100, one_machine_of) > 50


def test_the_winner_pays_the_value_of_the_next_best():
    values = {"a": 3.0, "b": 4.0, "c": 2.0}
    given = market([machine("m0", 1)], *(bid(app, 1.0, row(value, GPU)) for app, value in values.items()))
    assert one_machine_of(given) is not None
    outcome = run_auction(given, exact_ladder(), 10.0)
    assert rows_won(outcome) == {"b": 0}
    assert outcome.shares == {"a": 1.0, "b": pytest.approx(1 / 3), "c": 1.0}
    assert outcome.optimal


def test_equal_choices_prefer_fewer_gpus():
    pair = gang(2, Level.MACHINE)
    given = market([machine("m0", 2)], bid("a", 1.0, row(4.0, pair)), bid("b", 1.0, row(4.0, GPU)))
    assert one_machine_of(given) is not None
    assert rows_won(run_auction(given, exact_ladder(), 10.0)) == {"b": 0}


def test_markets_in_which_slots_or_machines_matter_are_left_to_the_search():
    slots = (machine("m0", 1, 1), gang(2, Level.SLOT))
    several = market([machine("m0", 1), machine("m1", 1)], bid("a", 1.0, row(3.0, GPU)), bid("b", 1.0, row(4.0, GPU)))
    in_slots = market(slots[:1], bid("a", 1.0, row(3.0, slots[1])), bid("b", 1.0, row(4.0, GPU)))
    assert one_machine_of(several) is None
    assert one_machine_of(in_slots) is None
    # Of one slot all GPUs are as near to each other as can be.
    one_slot = market([machine("m0", 0, 2)], bid("a", 1.0, row(3.0, slots[1])), bid("b", 1.0, row(4.0, GPU)))
    assert one_machine_of(one_slot) is not None
    assert rows_won(run_auction(one_slot, exact_ladder(), 10.0)) == {"b": 0}


def test_very_large_markets_are_left_to_the_search(monkeypatch):
    given = random_market(1, RECIPES["several GPUs"])
    arrays = read_market(given)
    assert one_machine_of(given) is not None
    monkeypatch.setattr(presolve, "_MAX_STEPS", (arrays.rows.rows + len(given.bids)) * arrays.free_gpus - 1)
    assert one_machine_of(given) is None
