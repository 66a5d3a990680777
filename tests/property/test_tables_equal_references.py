"""Markets of explicit tables by the solver `exact`: against brute force on small ones, HiGHS on those of the bench."""

import pytest
from random_markets import Recipe, check_feasible, random_market

from bench.apps import GangMix
from bench.auction_markets import explicit_market
from bench.holdings import ClusterState
from bench.sizes import SIZES
from rm_plugin.arbiter.auction import run_auction
from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.exact import tables
from rm_plugin.solvers.exact.solver import ExactSolver
from rm_plugin.solvers.highs import HighsSolver
from rm_plugin.solvers.port import SolveStatus
from themis.choices import EmptyBundle

EXPLICIT = {
    "fought over": Recipe(machines=3, explicit=True, bidders=5, rows=5, slot_gpus=2),
    "one machine": Recipe(machines=1, explicit=True, bidders=5, rows=5, slot_gpus=6),
    "lexicographic": Recipe(explicit=True, bidders=4, rows=5, empty_bundle=EmptyBundle.LEXICOGRAPHIC),
}
SMALLEST = min(SIZES.values(), key=lambda size: size.gpus)


def assert_same_auction(market, reference):
    ours, theirs = run_auction(market, ExactSolver(), 60.0), run_auction(market, reference, 60.0)
    assert ours.optimal
    assert theirs.optimal
    check_feasible(market, ours.wins)
    # Of equal optima another may be taken, and then others win.
    expected = {problem.without: problem.log_objective for problem in theirs.problems}
    found = {problem.without: problem.log_objective for problem in ours.problems}
    for without in expected.keys() & found.keys():
        assert found[without] == pytest.approx(expected[without], rel=1e-9, abs=1e-9), without


@pytest.mark.parametrize("name", EXPLICIT)
def test_small_auctions_end_as_brute_force_says(name):
    for seed in range(30):
        assert_same_auction(random_market(seed, EXPLICIT[name]), BruteForceSolver())


@pytest.mark.parametrize("cluster", list(ClusterState))
@pytest.mark.parametrize("gangs", list(GangMix))
def test_markets_of_the_bench_end_as_highs_says(gangs, cluster):
    market = explicit_market(SMALLEST, 1, gangs=gangs, cluster=cluster)
    ours, solver = ExactSolver(), HighsSolver()
    found = ours.solve(market, 60.0)
    winner = min(found.wins)
    check_feasible(market, found.wins)
    without = ours.without(market, [winner], 60.0)[winner]
    for mine, other in ((found, market), (without, market.without(winner))):
        assert mine.status is SolveStatus.OPTIMAL
        assert mine.log_objective == pytest.approx(solver.solve(other, 60.0).log_objective, rel=1e-9, abs=1e-9)


def test_past_its_nodes_it_falls_back_and_still_finds_the_optimum(monkeypatch):
    market = explicit_market(SMALLEST, 0, cluster=ClusterState.EMPTY)
    expected = ExactSolver().solve(market, 60.0)
    monkeypatch.setattr(tables, "_MOST_NODES", 1)
    found = ExactSolver().solve(market, 60.0)
    assert found.status is SolveStatus.OPTIMAL
    assert found.log_objective == pytest.approx(expected.log_objective, rel=1e-12)


def test_out_of_time_the_answer_is_feasible_and_its_gap_covers_what_is_lost():
    market = explicit_market(SMALLEST, 2, cluster=ClusterState.EMPTY)
    expected = ExactSolver().solve(market, 60.0)
    found = ExactSolver().solve(market, 0.0)
    check_feasible(market, found.wins)
    assert found.log_objective <= expected.log_objective + 1e-9 <= found.log_objective + found.gap + 2e-9
