"""The solver `exact` as a whole: the steps of its ladder, time limits, ties, and the problems without one bidder."""

import json
import math
import random
import subprocess
import sys
import time

import pytest
from msgspec.structs import replace
from small_markets import bid, gang, machine, market, prepared, row, rows_won

from rm_plugin.solvers import ladder
from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.exact import problem
from rm_plugin.solvers.exact.problem_result import SearchStatus, no_winners
from rm_plugin.solvers.exact.reduced_market import ReducedMarket
from rm_plugin.solvers.highs import HighsSolver
from rm_plugin.solvers.ladder import exact_ladder
from rm_plugin.solvers.port import Solution, SolveStatus
from themis.choices import EmptyBundle
from themis.cluster import Level
from themis_lab.audit.feasibility import infeasible
from themis_lab.audit.recipes import Recipe, random_market

MACHINE, CLUSTER, SLOT, RACK = Level.MACHINE, Level.CLUSTER, Level.SLOT, Level.RACK

RECIPES = {
    "anything": Recipe(),
    "pinned": Recipe(pinned_gangs=True, units=False, bidders=4),
    "explicit": Recipe(explicit=True, bidders=5),
    "lexicographic": Recipe(empty_bundle=EmptyBundle.LEXICOGRAPHIC, bidders=4),
}
MANY = Recipe(machines=14, bidders=12, rows=40, sizes=(1, 2, 3, 4, 5), racks=3, slot_gpus=4)
"""Far too much for a tiny time limit."""


@pytest.mark.parametrize("name", RECIPES)
def test_the_problems_without_one_bidder_are_those_markets_solved(name):
    for seed in range(25):
        given = random_market(seed, RECIPES[name])
        shared = exact_ladder()
        shared.solve(given, 60.0)
        apps = [each.app_id for each in given.bids]
        for app_id, rest in shared.without(given, apps, 60.0).items():
            alone = exact_ladder().solve(given.without(app_id), 60.0)
            assert rest.status is SolveStatus.OPTIMAL
            assert rest.log_objective == pytest.approx(alone.log_objective, abs=1e-10), (seed, app_id)
            assert rest.positive == alone.positive
            assert app_id not in rest.wins
            assert all(win.gangs == () for win in rest.wins.values())


@pytest.mark.parametrize("limit_s", [0.0, 1e-6, 0.003, 0.02])
def test_an_expired_limit_gives_a_feasible_answer_with_a_valid_gap(limit_s):
    late = 0
    for seed in range(6):
        given = random_market(seed, MANY)
        best, found = exact_ladder().solve(given, 60.0), exact_ladder().solve(given, limit_s)
        assert best.status is SolveStatus.OPTIMAL
        assert infeasible(given, found.wins) == []
        assert found.log_objective + found.gap >= best.log_objective - 1e-9
        assert found.log_objective <= best.log_objective + 1e-9
        assert (found.gap > 0.0) == (found.status is SolveStatus.TIME_LIMIT)
        assert math.isfinite(found.gap)
        late += found.status is SolveStatus.TIME_LIMIT
    assert late > 0 or limit_s > 0.001


def test_out_of_time_the_problems_without_one_bidder_have_gaps_too():
    given = random_market(1, MANY)
    shared = exact_ladder()
    shared.solve(given, 0.0)
    for app_id, found in shared.without(given, [each.app_id for each in given.bids[:4]], 0.0).items():
        best = exact_ladder().solve(given.without(app_id), 60.0)
        assert (found.status is SolveStatus.TIME_LIMIT) == (found.gap > 0.0)
        assert best.log_objective - 1e-9 <= found.log_objective + found.gap
        assert found.log_objective <= best.log_objective + 1e-9


def test_it_still_finds_the_optimum_after_it_ran_out_of_time_once():
    given = random_market(2, MANY)
    hurried = exact_ladder()
    hurried.solve(given, 0.0)
    again, fresh = hurried.solve(given, 60.0), exact_ladder().solve(given, 60.0)
    # What the hurried search found to matter is known the second time, so it may look at fewer states.
    assert replace(again, states=0) == replace(fresh, states=0)


def tied_market(seed, values):
    """Machines alike, values of few sorts: many optima."""
    rng = random.Random(seed)
    bids = [
        bid(f"a{n}", 0.125, *(row(rng.choice(values), gang(rng.choice((1, 2, 3)), MACHINE)) for _ in range(4)))
        for n in range(4)
    ]
    return market([machine(f"m{n}", 3) for n in range(2)], *bids)


def test_equal_choices_prefer_the_fewest_requested_gpus():
    few, many = row(0.5, gang(1, CLUSTER)), row(0.5, gang(2, MACHINE), gang(2, SLOT))
    assert rows_won(exact_ladder().solve(market([machine("m0", 4)], bid("a", 0.1, many, few)), 9.0)) == {"a": 1}
    for seed in range(40):
        given = tied_market(seed, (0.5,))
        found, best = exact_ladder().solve(given, 9.0), BruteForceSolver().solve(given, 9.0)
        gpus = [
            sum(each.rows[s.wins[each.app_id].row].gpus for each in given.bids if each.app_id in s.wins)
            for s in (found, best)
        ]
        assert gpus[0] == gpus[1], seed


@pytest.mark.parametrize("name", RECIPES)
def test_highs_decides_if_the_search_does_not(name, monkeypatch):
    asked = 0
    for seed in range(12):
        given = random_market(seed, RECIPES[name])
        best = exact_ladder().solve(given, 60.0)
        with monkeypatch.context() as patched:
            patched.setattr(ladder, "solve_problem", undecided)
            found = exact_ladder().solve(given, 60.0)
        assert (found.status, found.gap, found.positive) == (SolveStatus.OPTIMAL, 0.0, best.positive)
        assert infeasible(given, found.wins) == []
        assert found.log_objective == pytest.approx(best.log_objective, abs=1e-10), seed
        asked += found.fallback
    assert asked > 2


def undecided(market, skip, *_):
    """No app wins, and no row is fixed."""
    rows = tuple(range(market.arrays.rows.rows))
    return replace(no_winners(market.arrays, skip), status=SearchStatus.UNDECIDED, open_rows=rows)


@pytest.mark.parametrize("name", RECIPES)
def test_reduced_cost_fixing_keeps_an_optimum(name):
    fixed = 0
    for seed in range(12):
        given = random_market(seed, RECIPES[name])
        best, market = exact_ladder().solve(given, 60.0), prepared(given)
        if not market.arrays.rows.rows:
            continue
        whole = problem._Problem(market, -1, time.monotonic() + 60.0, math.inf)
        bound = int(market.arrays.rows.gain.sum())
        result = whole._best_found(bound, SearchStatus.UNDECIDED)
        if result.status is SearchStatus.OPTIMAL:
            continue
        reduced = ReducedMarket(given, market.arrays, result.open_rows, -1)
        found = reduced.original(HighsSolver().solve(reduced.market, 60.0))
        assert (found.status, found.positive) == (SolveStatus.OPTIMAL, best.positive)
        assert found.log_objective == pytest.approx(best.log_objective, abs=1e-10), seed
        assert infeasible(given, found.wins) == []
        fixed += len(result.open_rows) < market.arrays.rows.rows
    assert fixed


def test_two_unproven_solutions_give_the_better_value_and_tighter_bound():
    unproven = Solution(status=SolveStatus.TIME_LIMIT, gap=0.5, log_objective=-3.0, positive=2, states=7)
    better = replace(unproven, log_objective=-2.75, gap=1.0, states=None)
    for searched, programmed in ((unproven, better), (replace(better, states=7), replace(unproven, states=None))):
        found = ladder._better(searched, programmed)
        assert (found.log_objective, found.gap, found.states, found.fallback) == (-2.75, 0.25, 7, True)
    more = replace(better, positive=3, log_objective=-9.0)
    assert ladder._better(unproven, more) == replace(more, states=7, fallback=True)


def test_ties_do_not_depend_on_the_order_of_bidders_rows_or_machines():
    for seed in range(40):
        given, rng = tied_market(seed, (0.25, 0.5, 1.0)), random.Random(seed)
        first = exact_ladder().solve(given, 9.0)
        asked = {
            each.app_id: each.rows[first.wins[each.app_id].row] for each in given.bids if each.app_id in first.wins
        }
        for _ in range(3):
            bids = [replace(each, rows=tuple(rng.sample(each.rows, len(each.rows)))) for each in given.bids]
            machines = rng.sample(given.machines, len(given.machines))
            other = market(machines, *rng.sample(bids, len(bids)))
            second = exact_ladder().solve(other, 9.0)
            again = {
                each.app_id: each.rows[second.wins[each.app_id].row] for each in bids if each.app_id in second.wins
            }
            assert asked == again
            gangs = [{app: win.gangs for app, win in s.wins.items()} for s in (first, second)]
            assert gangs[0] == gangs[1]


_IN_A_FRESH_PROCESS = """
import json, sys
from themis_lab.audit.recipes import Recipe, random_market
from rm_plugin.solvers.ladder import exact_ladder
recipe = Recipe(bidders=4, pinned_gangs=True, units=False)
found = [exact_ladder().solve(random_market(seed, recipe), 60.0) for seed in range(12)]
json.dump([repr(each) for each in found], sys.stdout)
"""


def test_a_fresh_process_gives_the_same_answer():
    recipe = Recipe(bidders=4, pinned_gangs=True, units=False)
    here = [repr(exact_ladder().solve(random_market(seed, recipe), 60.0)) for seed in range(12)]
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-c", _IN_A_FRESH_PROCESS]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": hash_seed})
        assert json.loads(done.stdout) == here


# ---- corners ------------------------------------------------------------------------------------------------------


def test_more_sizes_than_the_core_has_room_for_are_solved():
    machines = [machine(f"m{n}", n + 1, rack=f"r{n % 4}") for n in range(170)]
    bids = [
        bid(f"a{k}", 0.1, *(row(0.2 + 0.001 * g, gang(g, MACHINE), gang(2 + k, MACHINE)) for g in range(2, 170)))
        for k in range(3)
    ]
    found = exact_ladder().solve(market(machines, *bids), 30.0)
    # Two machines hold 169 GPUs, a third 168; the small gangs fit beside.
    assert (found.status, sorted(rows_won(found).values())) == (SolveStatus.OPTIMAL, [166, 167, 167])


def test_more_machines_fought_over_than_the_core_has_room_for_are_solved():
    machines = [machine(f"m{n:03}", 3) for n in range(140)]
    bids = [
        bid(f"a{k}", 0.1, *(row(0.2 + 0.001 * n, gang(2, MACHINE), **{f"m{n:03}": 2}) for n in range(140)))
        for k in range(3)
    ]
    found = exact_ladder().solve(market(machines, *bids), 30.0)
    assert found.status is SolveStatus.OPTIMAL
    # 2 of 3 GPUs pinned: one bidder a machine, the three best machines.
    assert sorted(rows_won(found).values()) == [137, 138, 139]


def test_a_machine_of_a_hundred_thousand_gpus_is_dealt_out():
    machines = [machine("m0", 100_000), machine("m1", 60, 40)]
    bids = (
        bid("a", 0.1, row(0.9, gang(1, CLUSTER, 100_000)), row(0.5, gang(7, MACHINE, 100))),
        bid("b", 0.1, row(0.3, gang(3, SLOT, 10)), row(0.2, m0=11)),
        bid("c", 0.1, row(0.3, m0=13)),
    )
    found = exact_ladder().solve(market(machines, *bids), 30.0)
    assert (found.status, rows_won(found)) == (SolveStatus.OPTIMAL, {"a": 0, "b": 0, "c": 0})


def test_pins_that_leave_little_of_a_machine_too_large_to_weigh_are_settled():
    machines = [machine("m0", 600), machine("m1", 4), machine("m2", 4)]
    greedy = row(0.9, gang(3, MACHINE, 2), gang(2, MACHINE), m0=599)
    found = exact_ladder().solve(market(machines, bid("a", 0.1, greedy, row(0.2, gang(3, MACHINE), m0=1))), 9.0)
    assert (found.status, rows_won(found)) == (SolveStatus.OPTIMAL, {"a": 1})


def test_rows_that_exceed_the_cluster_a_thousandfold_do_not_overflow():
    """A price for a whole capacity of one, times a use of thousands, would not fit the core's whole numbers."""
    machines = [machine(f"m{n:05}", 1) for n in range(8_000)] + [machine("z", 2)]
    bids = [
        bid(f"a{n:03}", 0.0, row(1e-9 * (1 + n), gang(2, MACHINE)), row(1e-6, gang(2, MACHINE, 4_000)))
        for n in range(100)
    ]
    found = exact_ladder().solve(market(machines, *bids, lexicographic=True), 30.0)
    assert (found.status, found.gap, rows_won(found)) == (SolveStatus.OPTIMAL, 0.0, {"a099": 0})


def test_many_kinds_of_gangs_end_in_a_proven_answer():
    shapes = [gang(gpus, level) for gpus in range(2, 25) for level in (SLOT, MACHINE, RACK)]
    bids = [
        bid(f"a{k}", 0.1, *(row(0.2 + 0.01 * n + 0.003 * k, each) for n, each in enumerate(shapes))) for k in range(3)
    ]
    machines = [machine(f"m{n}", 13, 11, rack=f"r{n % 2}") for n in range(4)]
    found = exact_ladder().solve(market(machines, *bids), 30.0)
    assert (found.status, rows_won(found)) == (SolveStatus.OPTIMAL, {"a0": 68, "a1": 68, "a2": 68})
