"""Optimality: objectives equal those of brute force on tiny markets and of HiGHS on larger ones, in every problem."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rm_plugin.arbiter.auction import Problem
from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.highs import HighsSolver
from rm_plugin.solvers.port import Solution, SolveStatus, WinnerDetermination
from themis_lab.audit.case import Case, same
from themis_lab.audit.enumeration import is_tiny

REFERENCE_LIMIT_S = 60.0
"""Time limit of the reference for one problem. Problems that exceed it are skipped and counted."""

MANY_ROWS = 500
_DRAWN = 2


def optimality(case: Case) -> list[str] | None:
    """Compare the full market and the market without each winner with another solver.

    A problem that ran out of time must be within its stated gap. For a market with more than `MANY_ROWS` rows, two
    random problems without a winner are compared, because the reference takes seconds for each. Returns None if there
    is no reference (a larger market under HiGHS itself), or if the reference solved no problem in time.
    """
    reference = _reference(case)
    if reference is None:
        return None
    findings = list(_misstated(case))
    problems = _problems(case)
    case.unreferenced = 0
    for problem in problems:
        left_out = problem.without
        market = case.market if left_out is None else case.market.without(left_out)
        best = reference.solve(market, REFERENCE_LIMIT_S)
        if best.status is SolveStatus.OPTIMAL:
            findings += differs(problem, best, reference.name)
        else:
            case.unreferenced += 1
    return None if case.unreferenced == len(problems) and not findings else findings


def _problems(case: Case) -> list[Problem]:
    full, *others = case.outcome.problems
    if sum(len(bid.rows) for bid in case.market.bids) > MANY_ROWS and len(others) > _DRAWN:
        others = case.rng("optimality").sample(others, _DRAWN)
    return [full, *others]


def _reference(case: Case) -> WinnerDetermination | None:
    if is_tiny(case.market):
        return BruteForceSolver()
    return None if case.solver.name == HighsSolver.name else HighsSolver()


def _misstated(case: Case) -> Iterator[str]:
    """The stated objective must be that of the rows won."""
    logs = [math.log(value) for value in case.values.values() if value > 0]
    stated = case.outcome.problems[0]
    if len(logs) != stated.positive or not same(math.fsum(logs), stated.log_objective):
        yield (
            f"rows won make {len(logs)} positive values and {math.fsum(logs)!r},"
            f" stated are {stated.positive} and {stated.log_objective!r}"
        )


def differs(problem: Problem, best: Problem | Solution, reference: str) -> Iterator[str]:
    """Compare a problem's answer with the known optimum. An answer out of time must be within its gap."""
    name = "the market" if problem.without is None else f"the market without {problem.without}"
    if problem.status is SolveStatus.OPTIMAL:
        equal = problem.positive == best.positive and same(problem.log_objective, best.log_objective)
    else:
        equal = _within_gap(problem, best)
    if not equal:
        yield (
            f"{name}: {problem.positive} positive values, objective {problem.log_objective!r}, gap {problem.gap!r};"
            f" by {reference} {best.positive} and {best.log_objective!r}"
        )


def _within_gap(problem: Problem, best: Problem | Solution) -> bool:
    if problem.positive != best.positive:
        return problem.positive < best.positive
    above = best.log_objective - problem.log_objective
    return same(above, 0.0) or 0.0 < above <= problem.gap + 1e-9
