"""Beam search and repair, the best found without a proof: choices have places, and gaps hold."""

import time
from collections import Counter

import numpy as np
import pytest
from small_markets import prepared

from rm_plugin.solvers.brute_force import BruteForceSolver, place_all
from rm_plugin.solvers.exact import prepared_market, state_budget
from rm_plugin.solvers.exact.problem import solve_problem
from rm_plugin.solvers.exact.problem_result import as_solution
from rm_plugin.solvers.exact.repair import swaps
from rm_plugin.solvers.exact.resources import Resource
from rm_plugin.solvers.exact.row_placement import Searched
from rm_plugin.solvers.exact.state_budget import StateBudget
from themis.choices import EmptyBundle
from themis_lab.audit.feasibility import infeasible
from themis_lab.audit.recipes import Recipe, random_market

RECIPES = {
    "anything": Recipe(),
    "pinned": Recipe(pinned_gangs=True, units=False, bidders=4),
    "lexicographic": Recipe(empty_bundle=EmptyBundle.LEXICOGRAPHIC, bidders=4),
    "odd sizes": Recipe(machines=4, bidders=4, sizes=(1, 2, 3, 4, 5), racks=2),
}


@pytest.fixture
def too_wide(monkeypatch):
    """Every market is too wide for the search after a state, and too large for HiGHS."""
    monkeypatch.setattr(state_budget, "_MAX_STATES", 1)
    monkeypatch.setattr(prepared_market, "_MAX_PROGRAMME_SIZE", -1)


def in_time():
    return time.monotonic() + 60.0


@pytest.mark.parametrize("name", RECIPES)
def test_best_found_is_feasible_and_its_gap_covers_the_optimum(name, too_wide):
    unproven = 0
    for seed in range(25):
        given = random_market(seed, RECIPES[name])
        compiled = prepared(given)
        found = as_solution(compiled.arrays, solve_problem(compiled, -1, in_time()), placed=True)
        best = BruteForceSolver().solve(given, 60.0)
        assert infeasible(given, found.wins) == [], seed
        if found.positive == best.positive:
            assert found.log_objective <= best.log_objective + 1e-9, seed
            assert found.log_objective + found.gap >= best.log_objective - 1e-9, seed
        unproven += found.gap > 0.0
    assert unproven > 5


def test_gaps_hold_without_a_bidder(too_wide):
    for seed in range(20):
        given = random_market(seed, RECIPES["odd sizes"])
        compiled = prepared(given)
        solve_problem(compiled, -1, in_time())
        for skip in range(len(compiled.arrays.bids)):
            found = as_solution(compiled.arrays, solve_problem(compiled, skip, in_time()), placed=False)
            best = BruteForceSolver().solve(given.without(compiled.arrays.bids[skip].app_id), 60.0)
            assert best.log_objective - 1e-9 <= found.log_objective + found.gap, (seed, skip)
            assert found.log_objective <= best.log_objective + 1e-9, (seed, skip)


def test_best_found_is_reproducible(too_wide):
    for seed in range(10):
        given = random_market(seed, RECIPES["odd sizes"])
        first, second = (solve_problem(prepared(given), -1, in_time()) for _ in range(2))
        assert first == second


def test_swaps_lose_least_and_ask_for_fewer_gangs_of_the_kind():
    swapped = 0
    for seed in range(30):
        compiled = prepared(random_market(seed, RECIPES["anything"]))
        rows = compiled.arrays.rows
        if not rows.rows:
            continue
        starts = rows.row_start[:-1]
        choice = np.where(np.diff(rows.row_start) > 0, starts, -1).astype(np.int32)
        for kind in np.flatnonzero(rows.counts[choice[choice >= 0]].any(axis=0)).tolist():
            found = swaps(rows, choice, kind)
            assert [loss for loss, _, _ in found] == sorted(loss for loss, _, _ in found)
            for loss, bidder, row in found:
                before = choice[bidder]
                assert loss == rows.gain[before] - (rows.gain[row] if row >= 0 else 0)
                assert row < 0 or rows.counts[row, kind] < rows.counts[before, kind]
                assert row < 0 or rows.gpus[row] <= rows.gpus[before]
                swapped += row >= 0
    assert swapped > 20


def test_quick_cuts_and_places_are_valid():
    """A limit is broken by the choice and by no feasible one; places are places."""
    answers = Counter()
    for seed in range(60):
        given = random_market(seed, Recipe(machines=3, bidders=4, sizes=(1, 2, 3, 4, 5), pinned=False))
        compiled = prepared(given)
        rows = compiled.arrays.rows
        chosen = np.array([row for row, end in zip(rows.row_start, rows.row_start[1:], strict=False) if end > row])
        if not len(chosen):
            continue
        settled = compiled.find_cut_or_places_quickly(chosen.astype(np.int32))
        fits = place_all(given.machines, rows_of(compiled.arrays, chosen)) is not None
        answers[type(settled)] += 1
        if isinstance(settled, Resource):
            assert not fits, seed
            used = int((rows.counts[chosen] @ settled.by_kind).sum())
            assert used > settled.capacity
        elif isinstance(settled, Searched):
            assert fits, seed
            assert set(settled.gangs()) <= set(chosen.tolist())
    assert answers[Resource] > 5
    assert answers[Searched] > 5


def rows_of(arrays, chosen):
    bidders = arrays.rows.bidder[chosen].tolist()
    pairs = zip(bidders, arrays.rows.index[chosen].tolist(), strict=True)
    return {arrays.bids[bidder].app_id: arrays.bids[bidder].rows[index] for bidder, index in pairs}


def test_search_budgets_fall_with_failures_and_rise_with_proofs():
    budget = StateBudget(4, shared=False)
    limit = budget.states
    budget.shrink()
    assert budget.states < limit
    for _ in range(12):
        budget.shrink()
    assert 0 < budget.states <= budget.first < limit
    for _ in range(12):
        budget.grow()
    assert budget.states == budget.first


def test_only_a_shared_budget_is_spent_by_wide_searches():
    alone, shared = StateBudget(4, shared=False), StateBudget(4, shared=True)
    first, limit = shared.first, shared.states
    shared.spend(first)
    assert shared.states == limit
    shared.spend(first + limit)
    assert shared.states == first
    alone.spend(100 * limit)
    assert alone.states == limit
