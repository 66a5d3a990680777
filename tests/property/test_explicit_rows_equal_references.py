"""Markets of explicit rows by the solver `exact`: against brute force on small ones, HiGHS on those of the bench."""

import pytest
from msgspec.structs import replace
from random_markets import Recipe, check_feasible, random_market
from small_markets import bid, machine, market, row

from rm_plugin.arbiter.auction import run_auction
from rm_plugin.arbiter.payments import kept_share
from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.highs import HighsSolver
from rm_plugin.solvers.ladder import exact_ladder
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


POOR = Recipe(machines=3, explicit=True, bidders=8, rows=4, value=tied_value, empty_bundle=EmptyBundle.LEXICOGRAPHIC)


def assert_same_auction(market, reference):
    ours, theirs = run_auction(market, exact_ladder(), 60.0), run_auction(market, reference, 60.0)
    assert ours.optimal
    assert theirs.optimal
    check_feasible(market, ours.wins)
    # Of equal optima another may be taken, and then others win.
    expected = {problem.without: problem.log_objective for problem in theirs.problems}
    found = {problem.without: problem.log_objective for problem in ours.problems}
    for without in expected.keys() & found.keys():
        assert found[without] == pytest.approx(expected[without], rel=1e-9, abs=1e-9), without


@pytest.mark.parametrize("name", EXPLICIT)
def test_small_auctions_agree_with_brute_force(name):
    for seed in range(30):
        assert_same_auction(random_market(seed, EXPLICIT[name]), BruteForceSolver())


@pytest.mark.parametrize("cluster", list(ClusterState))
@pytest.mark.parametrize("gangs", list(GangMix))
def test_markets_of_the_bench_agree_with_highs(gangs, cluster):
    market = explicit_market(SMALLEST, 1, gangs=gangs, cluster=cluster)
    ours, solver = exact_ladder(), HighsSolver()
    found = ours.solve(market, 60.0)
    winner = min(found.wins)
    check_feasible(market, found.wins)
    without = ours.without(market, [winner], 60.0)[winner]
    for mine, other in ((found, market), (without, market.without(winner))):
        assert mine.status is SolveStatus.OPTIMAL
        assert mine.log_objective == pytest.approx(solver.solve(other, 60.0).log_objective, rel=1e-9, abs=1e-9)


def shares_kept(market):
    """What winners keep, each by the problem without it among all others of the market and by that problem alone."""
    solver = exact_ladder()
    full = solver.solve(market, 60.0)
    for app_id, among in solver.without(market, sorted(full.wins), 60.0).items():
        alone = exact_ladder().solve(market.without(app_id), 60.0)
        yield kept_share(market, full, among, app_id), kept_share(market, full, alone, app_id)


def test_kept_shares_do_not_depend_on_problems_solved_before():
    shares = []
    # 67 and 154 have equal products of other values, which were whole units apart in one of the problems.
    for seed in (*range(40), 67, 154):
        drawn = random_market(seed, POOR)
        shares += shares_kept(replace(drawn, bids=tuple(replace(each, empty_value=0.0) for each in drawn.bids)))
    assert [among for among, _ in shares] == [alone for _, alone in shares]
    assert min(shares) < (1.0, 1.0)


def test_kept_shares_use_the_first_of_equal_choices_without_the_winner():
    shares = set()
    for number in range(12):
        # Without the rich one, any of the others may have its machine: only the digests of ids decide which.
        machines = [machine("best", 1), machine("rich", 1), machine("poor", 5)]
        rich = bid("a", 0.0, row(4.0, best=1, rich=1))
        poor = (bid(f"{name}{number}", 0.0, row(1.0, best=1), row(0.5, poor=1)) for name in "bcdefg")
        among, alone = next(shares_kept(market(machines, rich, *poor, lexicographic=True)))
        assert among == alone
        shares.add(among)
    assert shares == {0.5, 1.0}


def test_an_expired_limit_gives_a_feasible_answer_with_a_valid_gap():
    market = explicit_market(SMALLEST, 2, cluster=ClusterState.EMPTY)
    expected = exact_ladder().solve(market, 60.0)
    found = exact_ladder().solve(market, 0.0)
    check_feasible(market, found.wins)
    assert found.log_objective <= expected.log_objective + 1e-9 <= found.log_objective + found.gap + 2e-9
