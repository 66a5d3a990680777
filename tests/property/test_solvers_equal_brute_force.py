"""Every solver against brute force on small seeded markets: same objective, feasible places, any order of the input."""

import random
from functools import cache

import pytest
from random_markets import Recipe, check_feasible, random_market

from rm_plugin.solvers.bidders import bidders_of
from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.highs import run_highs
from rm_plugin.solvers.machine_model import build_model
from rm_plugin.solvers.mip import chosen_rows
from rm_plugin.solvers.port import Solution, SolveStatus
from rm_plugin.solvers.realise import realise
from rm_plugin.solvers.registry import SOLVERS, solver
from themis.bids import Bid, Market
from themis.choices import EmptyBundle

RECIPES = {
    "fragmented": Recipe(sizes=(1, 2, 3, 4, 5, 6)),
    "one rack": Recipe(racks=1),
    "many racks": Recipe(machines=5, racks=3, sizes=(2, 4, 6)),
    "units": Recipe(sizes=(2, 4, 6), pinned=False),
    "many units a row": Recipe(sizes=(4, 6), rows=4, units=True, pinned=False, machines=5),
    "pinned": Recipe(units=False),
    "two device types": Recipe(devices=("k80", "v100")),
    "three device types, units": Recipe(
        machines=5, racks=2, sizes=(2, 3, 4, 6), pinned=False, devices=("k80", "p100", "v100")
    ),
    "device types, one rack": Recipe(machines=5, racks=1, sizes=(1, 2, 3, 4), rows=3, devices=("k80", "v100")),
    "lexicographic": Recipe(empty_bundle=EmptyBundle.LEXICOGRAPHIC),
    "lexicographic, more bidders": Recipe(bidders=4, rows=3, empty_bundle=EmptyBundle.LEXICOGRAPHIC),
}
SEEDS = range(60)

every_solver = pytest.mark.parametrize("solver_name", sorted(set(SOLVERS) - {BruteForceSolver.name}))


@cache
def best_of(name: str, seed: int) -> Solution:
    return BruteForceSolver().solve(random_market(seed, RECIPES[name]), 60.0)


@every_solver
@pytest.mark.parametrize("name", RECIPES)
def test_it_finds_the_optimum_of_brute_force(name, solver_name):
    for seed in SEEDS:
        market = random_market(seed, RECIPES[name])
        found = solver(solver_name).solve(market, 60.0)
        best = best_of(name, seed)
        assert found.status is SolveStatus.OPTIMAL
        assert found.gap == 0.0
        assert found.positive == best.positive, seed
        assert found.log_objective == pytest.approx(best.log_objective, abs=1e-10), seed
        check_feasible(market, found.wins)
        check_feasible(market, best.wins)


@every_solver
@pytest.mark.parametrize("name", RECIPES)
def test_the_order_of_bidders_rows_and_machines_does_not_matter(name, solver_name):
    for seed in range(25):
        market = random_market(seed, RECIPES[name])
        shuffled, original_row = _shuffled(market, random.Random(seed))
        first, second = (solver(solver_name).solve(either, 60.0) for either in (market, shuffled))
        assert {app: (win.row, win.gangs) for app, win in first.wins.items()} == {
            app: (original_row[app][win.row], win.gangs) for app, win in second.wins.items()
        }
        assert first.log_objective == second.log_objective


@pytest.mark.parametrize(
    "name",
    [
        "fragmented",
        "many racks",
        "units",
        "many units a row",
        "pinned",
        "two device types",
        "three device types, units",
    ],
)
def test_the_layout_of_a_solution_can_always_be_realised(name):
    """The fall-back when best fit fails must work on its own."""
    for seed in SEEDS:
        market = random_market(seed, RECIPES[name])
        bidders = bidders_of(market)
        model = build_model(market.machines, bidders)
        if not model.choice_of:
            continue
        solution = run_highs(model, model.gains, 60.0).solution
        chosen = chosen_rows(model, bidders, solution)
        placed = realise(market.machines, chosen, model.layout(solution), has_types=model.has_types)
        assert placed is not None, seed


@every_solver
def test_solver_caches_do_not_leak_between_markets(solver_name):
    remembering = solver(solver_name)
    for seed in range(20):
        market = random_market(seed, RECIPES["fragmented"])
        for part in (market, market.without("a0"), market):
            assert remembering.solve(part, 60.0) == solver(solver_name).solve(part, 60.0)


def _shuffled(market: Market, rng: random.Random) -> tuple[Market, dict[str, list[int]]]:
    orders, bids = {}, []
    for bid in market.bids:
        order = list(range(len(bid.rows)))
        rng.shuffle(order)
        orders[bid.app_id] = order
        rows = tuple(bid.rows[index] for index in order)
        bids.append(Bid(app_id=bid.app_id, round_id=0, empty_value=bid.empty_value, rows=rows))
    rng.shuffle(bids)
    machines = list(market.machines)
    rng.shuffle(machines)
    return Market(machines=tuple(machines), bids=tuple(bids), empty_bundle=market.empty_bundle), orders
