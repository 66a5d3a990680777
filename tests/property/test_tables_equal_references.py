"""Markets of explicit tables by the solver `exact`: against brute force on small ones, HiGHS on those of the bench."""

import math
import time
from dataclasses import replace

import pytest
from random_markets import Recipe, check_feasible, random_market
from small_markets import bid, machine, market, row, rows_won

from rm_plugin.arbiter.auction import run_auction
from rm_plugin.arbiter.payments import kept_share
from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.exact import tables
from rm_plugin.solvers.exact.compiled import CompiledMarket
from rm_plugin.solvers.exact.found import Found, as_solution
from rm_plugin.solvers.exact.problem import solve_problem
from rm_plugin.solvers.exact.solver import ExactSolver
from rm_plugin.solvers.highs import HighsSolver
from rm_plugin.solvers.port import SolveStatus
from themis.choices import EmptyBundle
from themis_lab.audit.corners import tied_value
from themis_lab.bench.apps import GangMix
from themis_lab.bench.auction_markets import explicit_market
from themis_lab.bench.holdings import ClusterState
from themis_lab.bench.sizes import SIZES

EXPLICIT = {
    "fought over": Recipe(machines=3, explicit=True, bidders=5, rows=5, slot_gpus=2),
    "one machine": Recipe(machines=1, explicit=True, bidders=5, rows=5, slot_gpus=6),
    "lexicographic": Recipe(explicit=True, bidders=4, rows=5, empty_bundle=EmptyBundle.LEXICOGRAPHIC),
}
SMALLEST = min(SIZES.values(), key=lambda size: size.gpus)


TIED = {
    "finite": Recipe(machines=3, explicit=True, bidders=5, rows=6, value=tied_value, empty=(0.125, 0.125)),
    "lexicographic": Recipe(
        machines=3, explicit=True, bidders=5, rows=6, value=tied_value, empty_bundle=EmptyBundle.LEXICOGRAPHIC
    ),
}
POOR = Recipe(machines=3, explicit=True, bidders=8, rows=4, value=tied_value, empty_bundle=EmptyBundle.LEXICOGRAPHIC)


def alike(number):
    """So many bidders alike, each with a row for each of as many machines of one GPU."""
    machines = [machine(f"m{index}", 1) for index in range(number)]
    rows = [row(1.0, **{each.machine_id: 1}) for each in machines]
    return market(machines, *(bid(f"a{index}", 0.5, *rows) for index in range(number)))


def by_knapsack(market):
    compiled = CompiledMarket(market)
    return as_solution(compiled.arrays, solve_problem(compiled, -1, time.monotonic() + 60.0), placed=True)


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


@pytest.mark.parametrize("recipe", TIED.values(), ids=TIED)
def test_of_equal_choices_it_takes_the_one_that_the_knapsack_takes(recipe):
    for seed in range(60):
        drawn = random_market(seed, recipe)
        ours, theirs = ExactSolver().solve(drawn, 60.0), by_knapsack(drawn)
        assert ours.status is theirs.status is SolveStatus.OPTIMAL
        assert rows_won(ours) == rows_won(theirs), seed


def shares_kept(market):
    """What winners keep, each by the problem without it among all others of the market and by that problem alone."""
    solver = ExactSolver()
    full = solver.solve(market, 60.0)
    for app_id, among in solver.without(market, sorted(full.wins), 60.0).items():
        alone = ExactSolver().solve(market.without(app_id), 60.0)
        yield kept_share(market, full, among, app_id), kept_share(market, full, alone, app_id)


def test_what_a_winner_keeps_does_not_depend_on_the_problems_solved_before():
    shares = []
    # 67 and 154 have equal products of other values, which were whole units apart in one of the problems.
    for seed in (*range(40), 67, 154):
        drawn = random_market(seed, POOR)
        shares += shares_kept(replace(drawn, bids=tuple(replace(each, empty_value=0.0) for each in drawn.bids)))
    assert [among for among, _ in shares] == [alone for _, alone in shares]
    assert min(shares) < (1.0, 1.0)


def test_what_a_winner_keeps_is_by_the_first_of_equal_choices_without_it():
    shares = set()
    for number in range(12):
        # Without the rich one, any of the others may have its machine: only the digests of ids tell which.
        machines = [machine("best", 1), machine("rich", 1), machine("poor", 5)]
        rich = bid("a", 0.0, row(4.0, best=1, rich=1))
        poor = (bid(f"{name}{number}", 0.0, row(1.0, best=1), row(0.5, poor=1)) for name in "bcdefg")
        among, alone = next(shares_kept(market(machines, rich, *poor, lexicographic=True)))
        assert among == alone
        shares.add(among)
    assert shares == {0.5, 1.0}


def test_bidders_alike_have_too_many_optima_to_visit_them_all_and_take_no_time():
    drawn = alike(10)
    begin_s = time.process_time()
    found = ExactSolver().solve(drawn, 60.0)
    assert time.process_time() - begin_s < 0.5
    assert (found.status, found.fallback, len(found.wins)) == (SolveStatus.OPTIMAL, False, 10)
    assert rows_won(found) == rows_won(by_knapsack(drawn))


def test_a_value_that_is_proven_is_optimal_though_no_time_is_left_to_tell_equals_apart(monkeypatch):
    monkeypatch.setattr(tables, "solve_problem", lambda compiled, skip, _: solve_problem(compiled, skip, 0.0))
    found = ExactSolver().solve(alike(20), 60.0)
    assert (found.status, found.gap, len(found.wins)) == (SolveStatus.OPTIMAL, 0.0, 20)


def test_past_its_nodes_it_falls_back_and_still_finds_the_optimum(monkeypatch):
    market = explicit_market(SMALLEST, 0, cluster=ClusterState.EMPTY)
    expected = ExactSolver().solve(market, 60.0)
    handed_over = []

    def noted(compiled, skip, deadline_s):
        handed_over.append(solve_problem(compiled, skip, deadline_s))
        return handed_over[-1]

    monkeypatch.setattr(tables, "_MOST_NODES", 1)
    monkeypatch.setattr(tables, "solve_problem", noted)
    found = ExactSolver().solve(market, 60.0)
    assert found.status is SolveStatus.OPTIMAL
    assert found.log_objective == pytest.approx(expected.log_objective, rel=1e-12)
    (other,) = handed_over
    assert found.fallback == other.fallback
    assert found.states > other.states > 0


def test_of_two_choices_that_are_not_proven_the_better_counts_and_the_lower_of_both_bounds(monkeypatch):
    market = explicit_market(SMALLEST, 2, cluster=ClusterState.EMPTY)
    optimum = ExactSolver().solve(market, 60.0).log_objective
    nobody = sum(math.log(each.empty_value) for each in market.bids)
    monkeypatch.setattr(tables, "_MOST_NODES", 1)
    gaps = {}
    for above in (1e-3, 100.0):
        other = Found(skip=-1, row_of={}, gap=optimum - nobody + above, states=7, fallback=True)
        monkeypatch.setattr(tables, "solve_problem", lambda *_, other=other: other)
        found = ExactSolver().solve(market, 60.0)
        assert (found.status, found.fallback) == (SolveStatus.TIME_LIMIT, True)
        assert nobody < found.log_objective <= optimum
        assert found.states > 7
        gaps[above] = found.log_objective + found.gap - optimum
    assert gaps[1e-3] == pytest.approx(1e-3, abs=1e-9)
    assert 1e-3 < gaps[100.0] < 1.0


def test_out_of_time_the_answer_is_feasible_and_its_gap_covers_what_is_lost():
    market = explicit_market(SMALLEST, 2, cluster=ClusterState.EMPTY)
    expected = ExactSolver().solve(market, 60.0)
    found = ExactSolver().solve(market, 0.0)
    check_feasible(market, found.wins)
    assert found.log_objective <= expected.log_objective + 1e-9 <= found.log_objective + found.gap + 2e-9
