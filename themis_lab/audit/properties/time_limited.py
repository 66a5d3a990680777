"""Time-limited auctions: with too little time the auction still ends with a feasible result and a correct gap."""

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
"""With the first limit not even the markets are prepared.

With the second, small markets are, but no larger one is solved.
"""

_SAMPLED = 2


def time_limited(case: Case) -> list[str] | None:
    """Compare auctions under too short time limits with the optima found without a limit.

    Checks places, kept shares, and the gaps of the market and of two random problems without a winner. Returns None if
    the optima are not proven, or if the market exceeds the solver's licence.
    """
    if not case.solved:
        return None
    found = []
    for limit_s in LIMITS_S:
        outcome = case.mechanism.auction(case.market, case.mechanism.make_solver(), limit_s)
        findings = (*infeasible(case.market, outcome.wins), *_out_of_range(case, outcome), *_too_sure(case, outcome))
        found += [f"within {limit_s} s: {finding}" for finding in findings]
    return found


def _out_of_range(case: Case, outcome: AuctionOutcome) -> Iterator[str]:
    """Kept shares outside [0, 1], or shares that leave a winner less than its empty bundle: the others lose no more."""
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
    """Problems whose gap is not finite, contradicts the status, or is smaller than the actual loss."""
    full, *others = outcome.problems
    sampled = case.rng("hurried").sample(others, min(_SAMPLED, len(others)))
    best = {problem.without: problem for problem in case.outcome.problems}
    for problem in (full, *sampled):
        if not math.isfinite(problem.gap) or (problem.status is SolveStatus.OPTIMAL) != (problem.gap == 0.0):
            yield f"{problem.status} with a gap of {problem.gap!r}"
        known = best.get(problem.without) or _solved(case, problem.without)
        if known is not None:
            yield from differs(problem, known, "more time")


def _solved(case: Case, without: str | None) -> Solution | None:
    """Solve the market without a bidder that wins nothing. Returns None if the optimum is not proven."""
    assert without is not None
    found = case.solve(case.market.without(without))
    return found if found.status is SolveStatus.OPTIMAL else None
