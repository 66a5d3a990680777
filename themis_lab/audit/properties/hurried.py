"""Hurried: with too little time an auction still ends with what fits, and the optimum is no further than it says."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rm_plugin.arbiter.auction import AuctionOutcome
from rm_plugin.arbiter.payments import NOISE
from rm_plugin.solvers.port import Solution, SolveStatus
from themis.choices import EmptyBundle
from themis_lab.audit.case import Case, value_won
from themis_lab.audit.feasibility import infeasible
from themis_lab.audit.properties.optimality import differs

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
    outcome = case.mechanism.auction(case.market, case.mechanism.make_solver(), limit_s)
    for finding in (*infeasible(case.market, outcome.wins), *_out_of_range(case, outcome), *_too_sure(case, outcome)):
        yield f"within {limit_s} s: {finding}"


def _out_of_range(case: Case, outcome: AuctionOutcome) -> Iterator[str]:
    """Shares that are none, or by which a winner has less than it would by winning nothing: others lose no more."""
    finite = case.market.empty_bundle is EmptyBundle.FINITE
    for app_id, share in outcome.shares.items():
        if not 0.0 <= share <= 1.0:
            yield f"c of {app_id} is {share!r}"
        elif finite and app_id in outcome.wins:
            bid = case.bids[app_id]
            kept = share * value_won(bid, outcome)
            if kept < bid.empty_value * (1.0 - 2.0 * NOISE):
                yield f"{app_id} keeps {kept!r} of its win, nothing is worth {bid.empty_value!r} to it"


def _too_sure(case: Case, outcome: AuctionOutcome) -> Iterator[str]:
    """Problems whose gap is no number, or does not go with the status, or is less than what is lost."""
    full, *others = outcome.problems
    drawn = case.rng("hurried").sample(others, min(_DRAWN, len(others)))
    best = {problem.without: problem for problem in case.outcome.problems}
    for problem in (full, *drawn):
        if not math.isfinite(problem.gap) or (problem.status is SolveStatus.OPTIMAL) != (problem.gap == 0.0):
            yield f"{problem.status} with a gap of {problem.gap!r}"
        known = best.get(problem.without) or _solved(case, problem.without)
        if known is not None:
            yield from differs(problem, known, "more time")


def _solved(case: Case, without: str | None) -> Solution | None:
    """A problem without a bidder that wins nothing when there is time; None where its optimum is not proven."""
    assert without is not None
    found = case.solve(case.market.without(without))
    return found if found.status is SolveStatus.OPTIMAL else None
