"""Ties: where many choices are worth the same, the order of bidders, rows and machines decides nothing."""

import random

import pytest
from msgspec.structs import replace
from random_markets import Recipe, random_market

from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.kinds import count_kinds, has_one_rack
from rm_plugin.solvers.ladder import exact_ladder
from rm_plugin.solvers.registry import SOLVERS, solver
from themis.bids import Market
from themis.choices import EmptyBundle

VALUES = (0.25, 0.5, 1.0)


def few_values(rng):
    return rng.choice(VALUES)


TIED = Recipe(value=few_values, empty=(0.125, 0.125), rows=4)
RECIPES = {
    "gangs": TIED,
    "slots": replace(TIED, slot_gpus=4, pinned=False),
    "pinned": replace(TIED, pinned_gangs=True, regrouped=True, units=False, rows=2),
    "tables": replace(TIED, explicit=True, bidders=4, rows=3),
    "lexicographic": replace(TIED, empty_bundle=EmptyBundle.LEXICOGRAPHIC),
}

every_solver = pytest.mark.parametrize("solver_name", sorted(SOLVERS))
every_recipe = pytest.mark.parametrize("name", RECIPES)


def shuffled(market: Market, rng: random.Random) -> Market:
    """The same market with bidders, the rows of each, and machines in another order."""

    def turned(values):
        return tuple(rng.sample(values, len(values)))

    bids = tuple(replace(bid, rows=turned(bid.rows)) for bid in turned(market.bids))
    return replace(market, bids=bids, machines=turned(market.machines))


def won(market: Market, solution):
    """What each winner wins, wherever it stands in the bid and whatever it is called: value, gangs, their places."""
    one_rack = has_one_rack(market.machines)
    rows = {bid.app_id: bid.rows[solution.wins[bid.app_id].row] for bid in market.bids if bid.app_id in solution.wins}
    return {
        app_id: (row.value, count_kinds(row.gangs, one_rack=one_rack), row.pinned, solution.wins[app_id].gangs)
        for app_id, row in rows.items()
    }


@every_solver
@every_recipe
def test_ties_break_by_content_and_not_by_order(name, solver_name):
    for seed in range(15):
        market = random_market(seed, RECIPES[name])
        rng = random.Random(seed)
        first = won(market, solver(solver_name).solve(market, 60.0))
        for _ in range(3):
            other = shuffled(market, rng)
            assert won(other, solver(solver_name).solve(other, 60.0)) == first, seed


@every_recipe
def test_exact_takes_the_one_that_brute_force_takes(name):
    """Rows of a bid have values of their own here: of rows worth the same, `exact` looks at none that ask for more."""
    compared = 0
    for seed in range(25):
        market = one_value_a_row(random_market(seed, replace(RECIPES[name], regrouped=False, rows=len(VALUES))), seed)
        exact, brute = exact_ladder().solve(market, 60.0), BruteForceSolver().solve(market, 60.0)
        if not exact.fallback:
            assert {app: win.row for app, win in exact.wins.items()} == {
                app: win.row for app, win in brute.wins.items()
            }, seed
            compared += 1
    assert compared > 20


def one_value_a_row(market: Market, seed: int) -> Market:
    rng = random.Random(seed)
    bids = []
    for bid in market.bids:
        values = rng.sample(VALUES, len(bid.rows))
        rows = tuple(replace(row, value=value) for row, value in zip(bid.rows, values, strict=True))
        bids.append(replace(bid, rows=rows))
    return replace(market, bids=tuple(bids))
