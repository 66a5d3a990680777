"""Markets that presolve answers, tested against the search."""

from msgspec.structs import replace
from small_markets import prepared

from rm_plugin.solvers.exact.problem import solve_problem
from rm_plugin.solvers.exact.problem_result import as_solution
from themis_lab.audit.feasibility import infeasible
from themis_lab.audit.recipes import random_market


def by_search(given, without=None):
    ready = prepared(given)
    skip = -1 if without is None else ready.arrays.position[without]
    return as_solution(ready.arrays, solve_problem(ready, skip, float("inf")), placed=without is None)


def count_solved_as_by_search(recipe, seeds, presolved):
    """How many of these markets `presolved` answers. It answers every problem of each as the search does."""
    solved = 0
    for seed in range(seeds):
        given = random_market(seed, recipe)
        ready = presolved(given)
        if ready is None:
            continue
        solved += 1
        full = ready.solution(None)
        assert infeasible(given, full.wins) == [], seed
        assert full == replace(by_search(given), states=0), seed
        for each in given.bids:
            without = ready.solution(each.app_id)
            assert replace(without, others_keep=False) == replace(by_search(given, each.app_id), states=0), seed
            if without.others_keep:
                others = {app_id: win.row for app_id, win in full.wins.items() if app_id != each.app_id}
                assert {app_id: win.row for app_id, win in without.wins.items()} == others, seed
    return solved
