"""Hurried: with too little time an auction still ends with what fits, and the optimum is no further than it says."""

from __future__ import annotations

import math
from collections.abc import Iterator

from audit.case import Case
from audit.feasibility import infeasible
from audit.properties.optimality import differs
from rm_plugin.arbiter.auction import AuctionOutcome, Problem, run_auction
from rm_plugin.solvers.port import SolveStatus

LIMITS_S = (0.0, 0.004)
"""Not even markets are made ready in the first; small ones are in the second, and none of the larger is solved."""

_DRAWN = 2


def hurried(case: Case) -> list[str] | None:
    """The auction under time limits that are too short, against the optima that it found with time.

    Places, shares, and gaps of the market and of two drawn problems without a winner. None where the optima are not
    proven, or where the market is past the solver's licence.
    """
    if not case.solved:
        return None
    return [finding for limit_s in LIMITS_S for finding in _findings(case, limit_s)]


def _findings(case: Case, limit_s: float) -> Iterator[str]:
    outcome = run_auction(case.market, case.mechanism.make_solver(), limit_s)
    for finding in (*infeasible(case.market, outcome.wins), *_out_of_range(outcome), *_too_sure(case, outcome)):
        yield f"within {limit_s} s: {finding}"


def _out_of_range(outcome: AuctionOutcome) -> Iterator[str]:
    for app_id, share in outcome.shares.items():
        if not 0.0 <= share <= 1.0:
            yield f"c of {app_id} is {share!r}"


def _too_sure(case: Case, outcome: AuctionOutcome) -> Iterator[str]:
    """Problems whose gap is no number, or does not go with the status, or is less than what is lost."""
    full, *others = outcome.problems
    drawn = case.rng("hurried").sample(others, min(_DRAWN, len(others)))
    best = {problem.without: problem for problem in case.outcome.problems}
    for problem in (full, *drawn):
        if not math.isfinite(problem.gap) or (problem.status is SolveStatus.OPTIMAL) != (problem.gap == 0.0):
            yield f"{problem.status} with a gap of {problem.gap!r}"
        yield from differs(problem, best.get(problem.without) or _solved(case, problem), "more time")


def _solved(case: Case, problem: Problem) -> Problem:
    """A problem without a bidder that wins nothing when there is time."""
    assert problem.without is not None
    found = case.solve(case.market.without(problem.without))
    return Problem(
        without=problem.without,
        solved_for=problem.without,
        status=found.status,
        gap=found.gap,
        log_objective=found.log_objective,
        positive=found.positive,
    )
