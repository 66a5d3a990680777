"""The solver `exact` as a whole: time limits, ties, the problems without one bidder, and a core that is missing."""

import json
import math
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from small_markets import bid, gang, machine, market, row, rows_won

from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.exact import _core, deciding, problem
from rm_plugin.solvers.exact.compiled import CompiledMarket
from rm_plugin.solvers.exact.found import as_solution
from rm_plugin.solvers.exact.places import Places
from rm_plugin.solvers.exact.solver import ExactSolver
from rm_plugin.solvers.port import SolveStatus
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
        shared = ExactSolver()
        shared.solve(given, 60.0)
        apps = [each.app_id for each in given.bids]
        for app_id, rest in shared.without(given, apps, 60.0).items():
            alone = ExactSolver().solve(given.without(app_id), 60.0)
            assert rest.status is SolveStatus.OPTIMAL
            assert rest.log_objective == pytest.approx(alone.log_objective, abs=1e-10), (seed, app_id)
            assert rest.positive == alone.positive
            assert app_id not in rest.wins
            assert all(win.gangs == () for win in rest.wins.values())


@pytest.mark.parametrize("limit_s", [0.0, 1e-6, 0.003, 0.02])
def test_out_of_time_the_answer_is_feasible_and_its_gap_covers_what_is_lost(limit_s):
    late = 0
    for seed in range(6):
        given = random_market(seed, MANY)
        best, found = ExactSolver().solve(given, 60.0), ExactSolver().solve(given, limit_s)
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
    shared = ExactSolver()
    shared.solve(given, 0.0)
    for app_id, found in shared.without(given, [each.app_id for each in given.bids[:4]], 0.0).items():
        best = ExactSolver().solve(given.without(app_id), 60.0)
        assert (found.status is SolveStatus.TIME_LIMIT) == (found.gap > 0.0)
        assert best.log_objective - 1e-9 <= found.log_objective + found.gap
        assert found.log_objective <= best.log_objective + 1e-9


def test_it_still_finds_the_optimum_after_it_ran_out_of_time_once():
    given = random_market(2, MANY)
    hurried = ExactSolver()
    hurried.solve(given, 0.0)
    again, fresh = hurried.solve(given, 60.0), ExactSolver().solve(given, 60.0)
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


def test_of_equal_choices_the_one_that_asks_for_fewest_gpus_wins():
    few, many = row(0.5, gang(1, CLUSTER)), row(0.5, gang(2, MACHINE), gang(2, SLOT))
    assert rows_won(ExactSolver().solve(market([machine("m0", 4)], bid("a", 0.1, many, few)), 9.0)) == {"a": 1}
    for seed in range(40):
        given = tied_market(seed, (0.5,))
        found, best = ExactSolver().solve(given, 9.0), BruteForceSolver().solve(given, 9.0)
        gpus = [
            sum(each.rows[s.wins[each.app_id].row].gpus for each in given.bids if each.app_id in s.wins)
            for s in (found, best)
        ]
        assert gpus[0] == gpus[1], seed


def test_choices_below_an_optimum_that_does_not_fit_are_found_from_any_distance(monkeypatch):
    """Also from none at all, as where the unit is so coarse that the least gap is no unit: it doubles."""
    monkeypatch.setattr(problem, "_FIRST_GAP", 0.0)
    gaps, choices = [], _core.choices
    monkeypatch.setattr(_core, "choices", lambda *given: gaps.append(given[3]) or choices(*given))
    racks = Recipe(machines=5, racks=3, sizes=(2, 4, 6), levels=(RACK, RACK, MACHINE, CLUSTER))
    given = random_market(38, racks)
    found, best = ExactSolver().solve(given, 60.0), BruteForceSolver().solve(given, 60.0)
    assert (found.status, found.log_objective) == (SolveStatus.OPTIMAL, pytest.approx(best.log_objective, abs=1e-10))
    assert gaps[:3] == [1, 2, 4]


@pytest.mark.parametrize("name", RECIPES)
def test_what_remains_is_decided_over_rows_enough_for_a_proof(name, monkeypatch):
    """However few rows it begins with: HiGHS's best of them counts only once no other row can be part of a better."""
    monkeypatch.setattr(problem, "_FIRST_REMAINDER", 0.0)
    grown = 0
    for seed in range(12):
        given = random_market(seed, RECIPES[name])
        compiled = CompiledMarket(given)
        if not compiled.arrays.rows.rows:
            continue
        whole = problem._Problem(compiled, -1, time.monotonic() + 60.0, 0.0)
        over, asked = whole._over, []
        monkeypatch.setattr(whole, "_over", lambda rows, over=over, asked=asked: asked.append(len(rows)) or over(rows))
        best = ExactSolver().solve(given, 60.0)
        bound = _core.losses(compiled.problem, -1, whole._price, np.empty(compiled.arrays.rows.rows, dtype=np.int64))
        found = as_solution(compiled.arrays, whole._remainder(bound), placed=False)
        assert found.log_objective == pytest.approx(best.log_objective, abs=1e-10), seed
        grown += len(asked) > 1
    assert grown


@pytest.mark.parametrize("name", sorted(set(RECIPES) - {"explicit"}))
def test_the_programme_over_patterns_decides_as_the_search_does(name):
    answers = Counter()
    for seed in range(60):
        compiled, rng = CompiledMarket(random_market(seed, RECIPES[name])), random.Random(seed)
        starts = compiled.arrays.rows.row_start.tolist()
        mine = [range(first, end) for first, end in pairwise(starts) if end > first]
        chosen = np.array([rng.choice(rows) for rows in rng.sample(mine, rng.randint(0, len(mine)))], dtype=np.int32)
        if not len(chosen) or (compiled.places.left_beside(chosen) < 0).any():
            continue
        searched, decided = compiled.places.fits(chosen), compiled.places.decided(chosen, 60.0)
        if searched is not None and decided is not None:
            assert isinstance(searched, bool) == isinstance(decided, bool), seed
            answers[isinstance(decided, bool)] += 1
    assert answers[False] > 3


@pytest.mark.parametrize("limit", ["_MOST_NODES", "_MOST_STEPS"])
def test_what_the_programme_over_patterns_leaves_open_is_decided_over_the_rows_that_remain(limit, monkeypatch):
    monkeypatch.setattr(deciding, limit, 0)
    # Nothing else shall find places, nor what forbids them.
    monkeypatch.setattr(Places, "pack", lambda _, chosen: chosen[0])
    monkeypatch.setattr(Places, "fits", lambda *_: None)
    monkeypatch.setattr(CompiledMarket, "settle", lambda *_: None)
    for seed in range(12):
        given = random_market(seed, Recipe(machines=3, pinned=False))
        best, compiled = BruteForceSolver().solve(given, 60.0), CompiledMarket(given)
        found = problem.solve_problem(compiled, -1, time.monotonic() + 60.0)
        assert found.fallback, seed
        assert found.gap == 0.0
        assert as_solution(compiled.arrays, found, placed=False).log_objective == pytest.approx(best.log_objective)


def test_ties_do_not_depend_on_the_order_of_bidders_rows_or_machines():
    for seed in range(40):
        given, rng = tied_market(seed, (0.25, 0.5, 1.0)), random.Random(seed)
        first = ExactSolver().solve(given, 9.0)
        asked = {
            each.app_id: each.rows[first.wins[each.app_id].row] for each in given.bids if each.app_id in first.wins
        }
        for _ in range(3):
            bids = [replace(each, rows=tuple(rng.sample(each.rows, len(each.rows)))) for each in given.bids]
            machines = rng.sample(given.machines, len(given.machines))
            other = market(machines, *rng.sample(bids, len(bids)))
            second = ExactSolver().solve(other, 9.0)
            again = {
                each.app_id: each.rows[second.wins[each.app_id].row] for each in bids if each.app_id in second.wins
            }
            assert asked == again
            gangs = [{app: win.gangs for app, win in s.wins.items()} for s in (first, second)]
            assert gangs[0] == gangs[1]


_IN_A_FRESH_PROCESS = """
import json, sys
from themis_lab.audit.recipes import Recipe, random_market
from rm_plugin.solvers.exact.solver import ExactSolver
recipe = Recipe(bidders=4, pinned_gangs=True, units=False)
found = [ExactSolver().solve(random_market(seed, recipe), 60.0) for seed in range(12)]
json.dump([repr(each) for each in found], sys.stdout)
"""


def test_a_fresh_process_gives_the_same_answer():
    recipe = Recipe(bidders=4, pinned_gangs=True, units=False)
    here = [repr(ExactSolver().solve(random_market(seed, recipe), 60.0)) for seed in range(12)]
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-c", _IN_A_FRESH_PROCESS]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": hash_seed})
        assert json.loads(done.stdout) == here


_WITHOUT_A_CORE = """
import sys
sys.modules["rm_plugin.solvers.exact._core"] = None
from rm_plugin.solvers.registry import solver
from themis.errors import InputError
try:
    solver("exact")
except InputError as error:
    print(error)
print(solver("highs").name)
"""


def test_without_the_compiled_core_it_says_what_is_missing():
    done = subprocess.run([sys.executable, "-c", _WITHOUT_A_CORE], check=True, capture_output=True, text=True)
    told, other = done.stdout.splitlines()
    assert "compiled core" in told
    assert "highs" in told
    assert other == "highs"


# ---- corners ------------------------------------------------------------------------------------------------------


def test_more_sizes_than_the_core_has_room_for_are_solved():
    machines = [machine(f"m{n}", n + 1, rack=f"r{n % 4}") for n in range(170)]
    bids = [
        bid(f"a{k}", 0.1, *(row(0.2 + 0.001 * g, gang(g, MACHINE), gang(2 + k, MACHINE)) for g in range(2, 170)))
        for k in range(3)
    ]
    found = ExactSolver().solve(market(machines, *bids), 30.0)
    # Two machines hold 169 GPUs, a third 168; the small gangs fit beside.
    assert (found.status, sorted(rows_won(found).values())) == (SolveStatus.OPTIMAL, [166, 167, 167])


def test_more_machines_fought_over_than_the_core_has_room_for_are_solved():
    machines = [machine(f"m{n:03}", 3) for n in range(140)]
    bids = [
        bid(f"a{k}", 0.1, *(row(0.2 + 0.001 * n, gang(2, MACHINE), **{f"m{n:03}": 2}) for n in range(140)))
        for k in range(3)
    ]
    found = ExactSolver().solve(market(machines, *bids), 30.0)
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
    found = ExactSolver().solve(market(machines, *bids), 30.0)
    assert (found.status, rows_won(found)) == (SolveStatus.OPTIMAL, {"a": 0, "b": 0, "c": 0})


def test_pins_that_leave_little_of_a_machine_too_large_to_weigh_are_settled():
    machines = [machine("m0", 600), machine("m1", 4), machine("m2", 4)]
    greedy = row(0.9, gang(3, MACHINE, 2), gang(2, MACHINE), m0=599)
    found = ExactSolver().solve(market(machines, bid("a", 0.1, greedy, row(0.2, gang(3, MACHINE), m0=1))), 9.0)
    assert (found.status, rows_won(found)) == (SolveStatus.OPTIMAL, {"a": 1})


def test_rows_that_ask_for_thousands_of_times_what_there_is_do_no_harm():
    """A price for a whole capacity of one, times a use of thousands, would not fit the core's whole numbers."""
    machines = [machine(f"m{n:05}", 1) for n in range(8_000)] + [machine("z", 2)]
    bids = [
        bid(f"a{n:03}", 0.0, row(1e-9 * (1 + n), gang(2, MACHINE)), row(1e-6, gang(2, MACHINE, 4_000)))
        for n in range(100)
    ]
    found = ExactSolver().solve(market(machines, *bids, lexicographic=True), 30.0)
    assert (found.status, found.gap, rows_won(found)) == (SolveStatus.OPTIMAL, 0.0, {"a099": 0})


def test_many_kinds_of_gangs_end_in_a_proven_answer():
    shapes = [gang(gpus, level) for gpus in range(2, 25) for level in (SLOT, MACHINE, RACK)]
    bids = [
        bid(f"a{k}", 0.1, *(row(0.2 + 0.01 * n + 0.003 * k, each) for n, each in enumerate(shapes))) for k in range(3)
    ]
    machines = [machine(f"m{n}", 13, 11, rack=f"r{n % 2}") for n in range(4)]
    found = ExactSolver().solve(market(machines, *bids), 30.0)
    assert (found.status, rows_won(found)) == (SolveStatus.OPTIMAL, {"a0": 68, "a1": 68, "a2": 68})
