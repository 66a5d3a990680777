"""Winner determination by any mixed-integer solver: the stages, the status and gap, and the gangs' places.

Ties. Rows worth no more than the empty bundle are never chosen, nor dominated rows. The programme is built in canonical
order: bidders and machines by id, rows by value and content. So the order in which the market lists them does not
matter. Among bidders with the same bid the earlier app id gets the better row. All other ties are left to the solver.
It runs on one thread with a fixed seed, so one release always gives the same answer. Perturbation is not used, because
it would have to be smaller than the solver's own tolerances.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from rm_plugin.solvers.bidders import Bidder, MarketRow
from rm_plugin.solvers.machine_model import MachineModel, build_model
from rm_plugin.solvers.port import SMALLEST_GAP, Solution, SolveStatus, Win
from rm_plugin.solvers.realise import realise
from themis.bids import Market
from themis.errors import InvariantError
from themis.values import Value

TOLERANCE = 1e-9
"""Least improvement that counts, and feasibility tolerance. The usual 1e-6 is too coarse for log values."""


class AtLeast(Value, frozen=True, kw_only=True):
    """One more constraint on a programme: `weights . z >= number`."""

    weights: NDArray[np.float64]
    number: int


class Answer(Value, frozen=True, kw_only=True):
    """How one run ended: its integer solution (None if it found none) and its upper bound."""

    status: SolveStatus
    solution: NDArray[np.int64] | None
    bound: float

    @property
    def proven(self) -> bool:
        """Whether the solution is proven optimal."""
        return self.status is SolveStatus.OPTIMAL


_OUT_OF_TIME = Answer(status=SolveStatus.TIME_LIMIT, solution=None, bound=math.inf)
"""The answer without a run."""


class Run(Protocol):
    """One run of a mixed-integer solver; each adapter implements it."""

    def __call__(
        self,
        model: MachineModel,
        gains: NDArray[np.float64],
        time_limit_s: float,
        at_least: AtLeast | None = None,
    ) -> Answer:
        """Maximise `gains . z` over the model's constraints, and `at_least` if given."""
        ...


def solve_by(
    run: Run, market: Market, bidders_of: Callable[[Market], Sequence[Bidder]], time_limit_s: float
) -> Solution:
    """Solve one market.

    Args:
        run: The solver.
        market: Free machines and bids.
        bidders_of: Brings the market's bidders into canonical form.
        time_limit_s: Seconds for the whole solve, reading the bids and building the model included. Past it the best
            choice found is returned with its gap. If there is none, no bidder wins, which is always feasible.

    Raises:
        InvariantError: The solver's choice does not fit the free GPUs.
    """
    deadline_s = time.monotonic() + time_limit_s
    bidders = bidders_of(market)
    model = build_model(market.machines, bidders) if _left_s(deadline_s) else None
    if model is None or not _left_s(deadline_s):
        return _solution(bidders, _OUT_OF_TIME, {}, {}, positive_open=True)
    answer, positive_open = _solve_stages(run, model, bidders, deadline_s)
    chosen = _order_identical_bidders(bidders, chosen_rows(model, bidders, answer.solution))
    wins = _wins(market, model, chosen, answer.solution)
    return _solution(bidders, answer, chosen, wins, positive_open=positive_open)


def _left_s(deadline_s: float) -> float:
    """Seconds until a time on the monotonic clock, 0 once it is past."""
    return max(0.0, deadline_s - time.monotonic())


def _solution(
    bidders: Sequence[Bidder],
    answer: Answer,
    chosen: Mapping[str, MarketRow],
    wins: Mapping[str, Win],
    *,
    positive_open: bool,
) -> Solution:
    """Convert an answer to a solution. If no row can win, the choice without winners is optimal."""
    proven = answer.proven or not any(bidder.rows for bidder in bidders)
    log_objective, positive = _score(bidders, chosen)
    return Solution(
        status=SolveStatus.OPTIMAL if proven else answer.status,
        gap=0.0 if proven else _gap(bidders, answer, chosen, positive_open=positive_open),
        log_objective=log_objective,
        positive=positive,
        wins=wins,
    )


def _solve_stages(run: Run, model: MachineModel, bidders: Sequence[Bidder], deadline_s: float) -> tuple[Answer, bool]:
    """Solve. If empty bundles are worth 0, maximise the bidders with a positive value first, then the product.

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
) -> dict[str, MarketRow]:
    """The rows that a solution takes, by app id; empty without a solution."""
    if solution is None:
        return {}
    taken = np.flatnonzero(solution[: len(model.choice_of)])
    choices = [model.choice_of[column] for column in taken]
    return {bidders[bidder].app_id: bidders[bidder].rows[position] for bidder, position in choices}


def _gap(bidders: Sequence[Bidder], answer: Answer, chosen: Mapping[str, MarketRow], *, positive_open: bool) -> float:
    """Distance of the log objective from the solver's bound, or from the sum of all best rows without one.

    It is never 0, which would claim a proof.
    """
    won = math.fsum(bidder.gain(chosen[bidder.app_id]) for bidder in bidders if bidder.app_id in chosen)
    # If winning nothing is worth 0, a row may have a negative log value. Then no row is best for the sum.
    best = math.fsum(max([0.0, *(bidder.gain(row) for row in bidder.rows)]) for bidder in bidders)
    bound = best if positive_open or not math.isfinite(answer.bound) else min(best, answer.bound)
    return max(SMALLEST_GAP, bound - won)


def _wins(
    market: Market, model: MachineModel, chosen: Mapping[str, MarketRow], solution: NDArray[np.int64] | None
) -> dict[str, Win]:
    if not chosen or solution is None:
        return {}
    machines, has_types = market.machines, model.has_types
    placed = realise(machines, chosen, has_types=has_types) or realise(
        machines, chosen, model.layout(solution), has_types=has_types
    )
    if placed is None:
        raise InvariantError("a solver chose rows that do not fit the free GPUs", value=sorted(chosen))
    return {app_id: Win(row=chosen[app_id].row, gangs=gangs) for app_id, gangs in placed.items()}


def _score(bidders: Sequence[Bidder], chosen: Mapping[str, MarketRow]) -> tuple[float, int]:
    """The log objective of a choice over the bidders with a positive value, and the number of these bidders."""
    logs = [chosen[bidder.app_id].log_value if bidder.app_id in chosen else bidder.log_empty for bidder in bidders]
    positive = [log for log in logs if log is not None]
    return math.fsum(positive), len(positive)


def _order_identical_bidders(bidders: Sequence[Bidder], chosen: Mapping[str, MarketRow]) -> dict[str, MarketRow]:
    """Give the better rows to the earlier app ids among bidders with the same bid, in any order of its rows.

    Args:
        bidders: All bidders in canonical form, by app id. Equal bids have equal rows at equal places.
        chosen: The row won by app id.
    """
    groups: dict[tuple[object, ...], list[Bidder]] = {}
    for bidder in bidders:
        rows = tuple((row.log_value, row.kinds, row.pinned, tuple(sorted(row.pinned_parts))) for row in bidder.rows)
        groups.setdefault((bidder.log_empty, rows), []).append(bidder)
    ordered: dict[str, MarketRow] = {}
    for alike in groups.values():
        places = sorted(bidder.rows.index(chosen[bidder.app_id]) for bidder in alike if bidder.app_id in chosen)
        ordered |= {bidder.app_id: bidder.rows[place] for bidder, place in zip(alike, places, strict=False)}
    return dict(sorted(ordered.items()))
