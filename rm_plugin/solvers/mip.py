"""Winner determination by any mixed-integer solver: stages, status, gap, and from its answer to gangs on machines.

Ties. Rows worth no more than the empty bundle, and rows that another beats by asking for no more, are never chosen. The
programme is built in canonical order (bidders and machines by id, rows by value and content), so neither the order of
bidders nor that of rows or machines matters. Between bidders with the same bid the earlier app id gets the better row.
What is then still equal is left to the solver, which runs on one thread with a fixed seed: the same release answers the
same. No perturbation is used, because below a solver's own tolerances none could be trusted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.candidates import Bidder, Candidate
from rm_plugin.solvers.choice import deal_among_alike, score
from rm_plugin.solvers.machine_model import MachineModel, build_model
from rm_plugin.solvers.port import SMALLEST_GAP, Solution, SolveStatus, Win
from rm_plugin.solvers.realise import realise
from themis.bids import Market
from themis.errors import InvariantError

TOLERANCE = 1e-9
"""By how much an answer must be better to count, or a variable may be off; the usual 1e-6 is too coarse for logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLeast:
    """One more constraint on a programme: `weights . z >= number`."""

    weights: NDArray[np.float64]
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How one run ended: a whole solution (None when none was found), and its upper bound."""

    status: SolveStatus
    solution: NDArray[np.int64] | None
    bound: float

    @property
    def proven(self) -> bool:
        """True when no better solution exists."""
        return self.status is SolveStatus.OPTIMAL


_OUT_OF_TIME = Answer(status=SolveStatus.TIME_LIMIT, solution=None, bound=math.inf)
"""No run at all."""


class Run(Protocol):
    """One run of a mixed-integer solver; each adapter brings its own."""

    def __call__(
        self,
        model: MachineModel,
        gains: NDArray[np.float64],
        time_limit_s: float,
        at_least: AtLeast | None = None,
    ) -> Answer:
        """Maximise `gains . z` over the model's constraints, and one more where given."""
        ...


def solve_by(
    run: Run, market: Market, bidders_of: Callable[[Market], Sequence[Bidder]], time_limit_s: float
) -> Solution:
    """Solve one market.

    Args:
        run: The solver.
        market: Free machines and bids.
        bidders_of: Brings the market's bidders into canonical form.
        time_limit_s: Seconds for the whole solve, in which bids are read and the model is built. Past it the best
            choice found is returned with its gap; when there is none, nobody wins, which is always feasible.

    Raises:
        InvariantError: The solver's choice does not fit the free GPUs.
    """
    deadline_s = time.monotonic() + time_limit_s
    bidders = bidders_of(market)
    model = build_model(market.machines, bidders) if _left_s(deadline_s) else None
    if model is None or not _left_s(deadline_s):
        return _solution(bidders, _OUT_OF_TIME, {}, {}, positive_open=True)
    answer, positive_open = _solve_stages(run, model, bidders, deadline_s)
    chosen = deal_among_alike(bidders, chosen_rows(model, bidders, answer.solution))
    wins = _wins(market, model, chosen, answer.solution)
    return _solution(bidders, answer, chosen, wins, positive_open=positive_open)


def _left_s(deadline_s: float) -> float:
    """Seconds until a time on the monotonic clock, 0 once it is past."""
    return max(0.0, deadline_s - time.monotonic())


def _solution(
    bidders: Sequence[Bidder],
    answer: Answer,
    chosen: Mapping[str, Candidate],
    wins: Mapping[str, Win],
    *,
    positive_open: bool,
) -> Solution:
    """What was found, in the terms of the port. Where no row can win, nobody's winning is proven to be the best."""
    proven = answer.proven or not any(bidder.candidates for bidder in bidders)
    log_objective, positive = score(bidders, chosen)
    return Solution(
        status=SolveStatus.OPTIMAL if proven else answer.status,
        gap=0.0 if proven else _gap(bidders, answer, chosen, positive_open=positive_open),
        log_objective=log_objective,
        positive=positive,
        wins=wins,
    )


def _solve_stages(run: Run, model: MachineModel, bidders: Sequence[Bidder], deadline_s: float) -> tuple[Answer, bool]:
    """Solve; with empty bundles worth 0, first for the most bidders of positive value, then for the product.

    Returns:
        The answer, and whether the number of bidders of positive value remained unproven.
    """
    rescued = np.array([bidders[bidder].log_empty is None for bidder, _ in model.choice_of], dtype=np.float64)
    if not rescued.any():
        return run(model, model.gains, _left_s(deadline_s)), False
    counting = np.zeros_like(model.gains)
    counting[: len(rescued)] = rescued
    first = run(model, counting, _left_s(deadline_s))
    if first.solution is None or not first.proven:
        return first, True
    most = AtLeast(weights=counting, number=round(float(counting @ first.solution)))
    second = run(model, model.gains, _left_s(deadline_s), most)
    if second.solution is None and second.status is SolveStatus.TIME_LIMIT:
        second = replace(second, solution=first.solution)
    return second, False


def chosen_rows(
    model: MachineModel, bidders: Sequence[Bidder], solution: NDArray[np.int64] | None
) -> dict[str, Candidate]:
    """The rows that a solution takes, by app id; none without a solution."""
    if solution is None:
        return {}
    taken = np.flatnonzero(solution[: len(model.choice_of)])
    choices = [model.choice_of[column] for column in taken]
    return {bidders[bidder].app_id: bidders[bidder].candidates[position] for bidder, position in choices}


def _gap(bidders: Sequence[Bidder], answer: Answer, chosen: Mapping[str, Candidate], *, positive_open: bool) -> float:
    """How far the log objective can still rise: against the solver's bound, or everybody's best row if it has none.

    Never 0, which would say that there is a proof.
    """
    won = math.fsum(bidder.gain(chosen[bidder.app_id]) for bidder in bidders if bidder.app_id in chosen)
    # Where winning nothing is worth 0 a row may count less than none: then not to win is what is best for the sum.
    best = math.fsum(max([0.0, *(bidder.gain(row) for row in bidder.candidates)]) for bidder in bidders)
    bound = best if positive_open or not math.isfinite(answer.bound) else min(best, answer.bound)
    return max(SMALLEST_GAP, bound - won)


def _wins(
    market: Market, model: MachineModel, chosen: Mapping[str, Candidate], solution: NDArray[np.int64] | None
) -> dict[str, Win]:
    if not chosen or solution is None:
        return {}
    placed = realise(market.machines, chosen) or realise(market.machines, chosen, model.layout(solution))
    if placed is None:
        raise InvariantError("a solver chose rows that do not fit the free GPUs", value=sorted(chosen))
    return {app_id: Win(row=chosen[app_id].row, gangs=gangs) for app_id, gangs in placed.items()}
