"""Markets that are answered without a search, held against the knapsack."""

from dataclasses import replace

from rm_plugin.solvers.exact.compiled import CompiledMarket
from rm_plugin.solvers.exact.found import as_solution
from rm_plugin.solvers.exact.problem import solve_problem
from themis_lab.audit.feasibility import infeasible
from themis_lab.audit.recipes import random_market


def by_knapsack(given, without=None):
    ready = CompiledMarket(given)
    skip = -1 if without is None else ready.position(without)
    return as_solution(ready.arrays, solve_problem(ready, skip, float("inf")), placed=without is None)


def told_as_by_knapsack(recipe, seeds, told_of):
    """How many of these markets `told_of` answers; every problem of each as the knapsack does."""
    told = 0
    for seed in range(seeds):
        given = random_market(seed, recipe)
        ready = told_of(given)
        if ready is None:
            continue
        told += 1
        full = ready.solution(None)
        assert infeasible(given, full.wins) == [], seed
        assert full == replace(by_knapsack(given), states=0), seed
        for each in given.bids:
            without = ready.solution(each.app_id)
            assert replace(without, others_keep=False) == replace(by_knapsack(given, each.app_id), states=0), seed
            if without.others_keep:
                others = {app_id: win.row for app_id, win in full.wins.items() if app_id != each.app_id}
                assert {app_id: win.row for app_id, win in without.wins.items()} == others, seed
    return told
