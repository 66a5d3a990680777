"""Choices in place of a proof, in markets too wide to search: they fit, and their gaps hold."""

import time
from collections import Counter

import numpy as np
import pytest

from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.exact import compiled as compiled_module
from rm_plugin.solvers.exact.compiled import CompiledMarket
from rm_plugin.solvers.exact.found import as_solution
from rm_plugin.solvers.exact.mending import swaps
from rm_plugin.solvers.exact.places import Searched
from rm_plugin.solvers.exact.problem import solve_problem
from rm_plugin.solvers.exact.resources import Resource
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
    monkeypatch.setattr(compiled_module, "_MOST_STATES", 1)
    monkeypatch.setattr(compiled_module, "_TOO_LARGE", -1)


def in_time():
    return time.monotonic() + 60.0


@pytest.mark.parametrize("name", RECIPES)
def test_a_choice_in_place_of_a_proof_fits_and_its_gap_covers_what_is_lost(name, too_wide):
    unproven = 0
    for seed in range(25):
        given = random_market(seed, RECIPES[name])
        compiled = CompiledMarket(given)
        found = as_solution(compiled.arrays, solve_problem(compiled, -1, in_time()), placed=True)
        best = BruteForceSolver().solve(given, 60.0)
        assert infeasible(given, found.wins) == [], seed
        if found.positive == best.positive:
            assert found.log_objective <= best.log_objective + 1e-9, seed
            assert found.log_objective + found.gap >= best.log_objective - 1e-9, seed
        unproven += found.gap > 0.0
    assert unproven > 5


def test_without_a_bidder_too(too_wide):
    for seed in range(20):
        given = random_market(seed, RECIPES["odd sizes"])
        compiled = CompiledMarket(given)
        solve_problem(compiled, -1, in_time())
        for skip in range(len(compiled.arrays.bids)):
            found = as_solution(compiled.arrays, solve_problem(compiled, skip, in_time()), placed=False)
            best = BruteForceSolver().solve(given.without(compiled.arrays.bids[skip].app_id), 60.0)
            assert best.log_objective - 1e-9 <= found.log_objective + found.gap, (seed, skip)
            assert found.log_objective <= best.log_objective + 1e-9, (seed, skip)


def test_twice_the_same(too_wide):
    for seed in range(10):
        given = random_market(seed, RECIPES["odd sizes"])
        first, second = (solve_problem(CompiledMarket(given), -1, in_time()) for _ in range(2))
        assert first == second


def test_what_is_swapped_loses_least_and_asks_for_fewer_of_the_gangs_that_found_no_place():
    swapped = 0
    for seed in range(30):
        compiled = CompiledMarket(random_market(seed, RECIPES["anything"]))
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


def test_what_is_settled_quickly_is_true():
    """A limit is broken by the choice and by no feasible one; places are places."""
    answers = Counter()
    for seed in range(60):
        given = random_market(seed, Recipe(machines=3, bidders=4, sizes=(1, 2, 3, 4, 5), pinned=False))
        compiled = CompiledMarket(given)
        rows = compiled.arrays.rows
        chosen = np.array([row for row, end in zip(rows.row_start, rows.row_start[1:], strict=False) if end > row])
        if not len(chosen):
            continue
        settled = compiled.settle_quickly(chosen.astype(np.int32))
        fits = compiled.places.fits(chosen.astype(np.int32))
        answers[type(settled)] += 1
        if isinstance(settled, Resource):
            assert fits is False, seed
            used = int((rows.counts[chosen] @ settled.by_kind).sum())
            assert used > settled.capacity
        elif isinstance(settled, Searched):
            assert fits is not False, seed
            assert set(settled.gangs()) <= set(chosen.tolist())
    assert answers[Resource] > 5
    assert answers[Searched] > 5


def test_search_budgets_fall_with_failures_and_rise_with_proofs():
    compiled = CompiledMarket(random_market(0, Recipe()))
    first = compiled.most_states
    compiled.search_less()
    assert compiled.most_states < first
    for _ in range(12):
        compiled.search_less()
    least = compiled.most_states
    assert 0 < least <= compiled.few_states < first
    for _ in range(12):
        compiled.search_more()
    assert compiled.most_states == compiled.few_states


def test_what_wide_searches_spend_is_limited_in_markets_too_large_for_highs(monkeypatch):
    small = CompiledMarket(random_market(0, Recipe()))
    monkeypatch.setattr(compiled_module, "_TOO_LARGE", -1)
    large = CompiledMarket(random_market(0, Recipe()))
    first = large.most_states
    large.spend(large.few_states)
    assert large.most_states == first
    large.spend(first + large.few_states)
    assert large.most_states == large.few_states
    small.spend(100 * first)
    assert small.most_states == first
