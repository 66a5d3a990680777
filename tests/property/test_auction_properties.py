"""The auction on seeded markets: shares by definition and in [0, 1], Pareto efficient, order invariant."""

import math

import pytest
from random_markets import Recipe, check_feasible, random_market

from rm_plugin.arbiter.auction import run_auction
from rm_plugin.solvers.brute_force import BruteForceSolver, _choices, place_all
from rm_plugin.solvers.registry import SOLVERS, solver
from themis.bids import Bid, Market
from themis.choices import EmptyBundle

FINITE = Recipe(machines=3, bidders=3, rows=4)
LEXICOGRAPHIC = Recipe(machines=3, bidders=4, rows=3, empty_bundle=EmptyBundle.LEXICOGRAPHIC)


every_solver = pytest.mark.parametrize("solver_name", sorted(set(SOLVERS) - {BruteForceSolver.name}))


def _values(market: Market, wins) -> dict[str, float]:
    return {
        bid.app_id: bid.rows[wins[bid.app_id].row].value if bid.app_id in wins else bid.empty_value
        for bid in market.bids
    }


@every_solver
def test_shares_follow_the_definition(solver_name):
    for seed in range(40):
        market = random_market(seed, FINITE)
        outcome = run_auction(market, solver(solver_name), 60.0)
        values = _values(market, outcome.wins)
        for bid in market.bids:
            others = math.fsum(math.log(value) for app_id, value in values.items() if app_id != bid.app_id)
            without = BruteForceSolver().solve(market.without(bid.app_id), 60.0).log_objective
            assert outcome.shares[bid.app_id] == pytest.approx(math.exp(others - without), abs=1e-9)


@every_solver
@pytest.mark.parametrize("recipe", [FINITE, LEXICOGRAPHIC], ids=["finite", "lexicographic"])
def test_shares_lie_between_0_and_1_and_losers_pay_nothing(recipe, solver_name):
    for seed in range(40):
        market = random_market(seed, recipe)
        outcome = run_auction(market, solver(solver_name), 60.0)
        check_feasible(market, outcome.wins)
        assert outcome.optimal
        assert outcome.worst_gap == 0.0
        assert set(outcome.shares) == {bid.app_id for bid in market.bids}
        assert all(0.0 <= share <= 1.0 for share in outcome.shares.values())
        assert all(outcome.shares[bid.app_id] == 1.0 for bid in market.bids if bid.app_id not in outcome.wins)
        assert len(outcome.problems) == 1 + len(outcome.wins)


@every_solver
def test_no_feasible_choice_is_better_for_one_and_worse_for_none(solver_name):
    for seed in range(25):
        market = random_market(seed, FINITE)
        values = _values(market, run_auction(market, solver(solver_name), 60.0).wins)
        bids = list(market.bids)
        for choice in _choices(bids, market.free.gpus):
            rows = {bid.app_id: bid.rows[row] for bid, row in zip(bids, choice, strict=True) if row is not None}
            other = {bid.app_id: rows[bid.app_id].value if bid.app_id in rows else bid.empty_value for bid in bids}
            better = all(other[app] >= values[app] for app in values) and other != values
            assert not (better and place_all(market.machines, rows)), (seed, choice)


@every_solver
def test_equal_bidders_share_one_solve_without_changing_results(solver_name):
    for seed in range(30):
        market = random_market(seed, FINITE)
        twin = market.bids[0]
        copies = tuple(
            Bid(app_id=f"t{index}", round_id=0, empty_value=twin.empty_value, rows=twin.rows) for index in range(2)
        )
        market = Market(machines=market.machines, bids=market.bids + copies)
        outcome = run_auction(market, solver(solver_name), 60.0)
        values = _values(market, outcome.wins)
        for app_id in outcome.wins:
            others = math.fsum(math.log(value) for other, value in values.items() if other != app_id)
            without = solver(solver_name).solve(market.without(app_id), 60.0).log_objective
            assert outcome.shares[app_id] == pytest.approx(math.exp(min(0.0, others - without)), abs=1e-9)
        alike = [app for app in ("a0", "t0", "t1") if app in outcome.wins]
        assert {problem.solved_for for problem in outcome.problems if problem.without in alike} == set(alike[:1])


@every_solver
def test_the_order_of_bidders_does_not_matter(solver_name):
    for seed in range(30):
        market = random_market(seed, FINITE)
        turned = Market(machines=market.machines, bids=market.bids[::-1])
        assert run_auction(market, solver(solver_name), 60.0) == run_auction(turned, solver(solver_name), 60.0)
