"""Winner determination by HiGHS: the reference, one mixed-integer programme over machines a problem.

Ties. Rows worth no more than the empty bundle, and rows that another beats by asking for no more, are never chosen. The
programme is built in canonical order (bidders and machines by id, rows by value and content), so neither the order of
bidders nor that of rows or machines matters. Between bidders with the same bid the earlier app id gets the better row.
What is then still equal is left to HiGHS, which is deterministic on one thread with a fixed seed: the same release
answers the same. No perturbation is used, because below the solver's own tolerances none could be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.candidates import Bidder, BidderMemo, Candidate
from rm_plugin.solvers.machine_model import MachineModel, build_model
from rm_plugin.solvers.port import Solution, SolveStatus, Win, each_alone
from rm_plugin.solvers.realise import realise
from themis.bids import Bid, Market
from themis.errors import InvariantError

_TOLERANCE = 1e-9
"""HiGHS asks an improvement of this much before it replaces an incumbent; its default, 1e-6, is too coarse for logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A solve's whole solution (None when HiGHS found none in time), its upper bound, whether proven, seconds used."""

    solution: NDArray[np.int64] | None
    bound: float
    proven: bool
    used_s: float


class HighsSolver:
    """Exact winner determination with highspy (themis.md, section 3; auction.md, section 4 on the tolerances)."""

    name = "highs"

    def __init__(self) -> None:
        self._memo = BidderMemo()

    def solve(self, market: Market, time_limit_s: float) -> Solution:
        """Solve one market.

        Args:
            market: Free machines and bids.
            time_limit_s: Seconds for the whole solve. Past it the best choice found is returned with its gap;
                when there is none, nobody wins, which is always feasible.

        Raises:
            InputError: Two bids of one app, or a finite market with an empty bundle worth 0.
        """
        bidders = self._memo.bidders_of(market)
        model = build_model(market.machines, bidders)
        answer, positive_open = _solve_stages(model, bidders, time_limit_s)
        chosen = _deal_among_alike(_chosen(model, bidders, answer.solution), market.bids)
        log_objective, positive = score(bidders, chosen)
        proven = answer.proven and not positive_open
        return Solution(
            status=SolveStatus.OPTIMAL if proven else SolveStatus.TIME_LIMIT,
            gap=0.0 if proven else _gap(bidders, answer, chosen, positive_open=positive_open),
            log_objective=log_objective,
            positive=positive,
            wins=_wins(market, model, chosen, answer.solution),
        )

    def without(self, market: Market, app_ids: Sequence[str], time_limit_s: float) -> dict[str, Solution]:
        """One problem after the other; only the bidders' canonical form is shared."""
        return each_alone(self, market, app_ids, time_limit_s)


def score(bidders: Sequence[Bidder], chosen: Mapping[str, Candidate]) -> tuple[float, int]:
    """The log objective of a choice over the bidders of positive value, and how many these are."""
    logs = [chosen[bidder.app_id].log_value if bidder.app_id in chosen else bidder.log_empty for bidder in bidders]
    positive = [log for log in logs if log is not None]
    return math.fsum(positive), len(positive)


def _solve_stages(model: MachineModel, bidders: Sequence[Bidder], time_limit_s: float) -> tuple[_Answer, bool]:
    """Solve; with empty bundles worth 0, first for the most bidders of positive value, then for the product.

    Returns:
        The answer, and whether the number of bidders of positive value remained unproven.
    """
    rescued = np.array([bidders[bidder].log_empty is None for bidder, _ in model.choice_of], dtype=np.float64)
    if not rescued.any():
        return _run(model, model.gains, time_limit_s), False
    counting = np.zeros_like(model.gains)
    counting[: len(rescued)] = rescued
    first = _run(model, counting, time_limit_s)
    if first.solution is None:
        return first, True
    most = round(float(counting @ first.solution))
    if not first.proven:
        return first, True
    second = _run(model, model.gains, max(0.0, time_limit_s - first.used_s), at_least=(counting, most))
    if second.solution is None:
        return _Answer(solution=first.solution, bound=second.bound, proven=False, used_s=second.used_s), False
    return second, False


def _run(
    model: MachineModel,
    gains: NDArray[np.float64],
    time_limit_s: float,
    at_least: tuple[NDArray[np.float64], int] | None = None,
) -> _Answer:
    """One HiGHS run: maximise `gains`, with one more constraint `weights . z >= number` where given."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in _options(time_limit_s).items():
        highs.setOptionValue(option, value)
    if highs.passModel(_linear_programme(model, gains)) == highspy.HighsStatus.kError:
        raise InvariantError("HiGHS refuses the model of a market", value=model.gains.shape)
    if at_least is not None:
        weights, number = at_least
        columns = np.flatnonzero(weights).astype(np.int32)
        highs.addRow(float(number), highspy.kHighsInf, len(columns), columns, weights[columns])
    highs.run()
    info = highs.getInfo()
    status = highs.getModelStatus()
    if status not in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kTimeLimit):
        if status == highspy.HighsModelStatus.kModelEmpty:
            return _Answer(solution=np.zeros(0, dtype=np.int64), bound=0.0, proven=True, used_s=0.0)
        raise InvariantError("HiGHS ended a winner determination in an unexpected way", value=str(status))
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    solution = np.rint(np.array(highs.getSolution().col_value)).astype(np.int64) if found else None
    return _Answer(
        solution=solution,
        bound=float(info.mip_dual_bound),
        proven=status == highspy.HighsModelStatus.kOptimal,
        used_s=float(highs.getRunTime()),
    )


def _options(time_limit_s: float) -> dict[str, bool | int | float | str]:
    return {
        "output_flag": False,
        # Presolve of HiGHS 1.15.1 reports wrong optima, on a market of five variables already (a test holds it; issues
        # #3043, #3073 and #3094 of HiGHS tell of more). These models solve faster without it. A restart would presolve.
        "presolve": "off",
        "mip_allow_restart": False,
        "threads": 1,
        "random_seed": 0,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 0.0,
        "mip_feasibility_tolerance": _TOLERANCE,
        "time_limit": float(time_limit_s),
    }


def _linear_programme(model: MachineModel, gains: NDArray[np.float64]) -> highspy.HighsLp:
    lp = highspy.HighsLp()
    lp.num_col_ = len(model.gains)
    lp.num_row_ = len(model.lower)
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = gains
    lp.col_lower_ = np.zeros(len(gains))
    lp.col_upper_ = model.upper_bounds
    lp.row_lower_ = model.lower
    lp.row_upper_ = model.upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = model.starts
    lp.a_matrix_.index_ = model.columns
    lp.a_matrix_.value_ = model.values
    lp.integrality_ = [highspy.HighsVarType.kInteger] * len(gains)
    return lp


def _chosen(model: MachineModel, bidders: Sequence[Bidder], solution: NDArray[np.int64] | None) -> dict[str, Candidate]:
    if solution is None:
        return {}
    taken = np.flatnonzero(solution[: len(model.choice_of)])
    choices = [model.choice_of[column] for column in taken]
    return {bidders[bidder].app_id: bidders[bidder].candidates[position] for bidder, position in choices}


def _deal_among_alike(chosen: Mapping[str, Candidate], bids: Sequence[Bid]) -> dict[str, Candidate]:
    """Among bidders with the same bid, give the better rows to the earlier app ids."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for bid in sorted(bids, key=lambda bid: bid.app_id):
        groups.setdefault((bid.empty_value, bid.rows), []).append(bid.app_id)
    dealt: dict[str, Candidate] = {}
    for app_ids in groups.values():
        won = sorted(
            (chosen[app_id] for app_id in app_ids if app_id in chosen), key=lambda row: (-row.log_value, row.row)
        )
        dealt.update(zip(app_ids, won, strict=False))
    return dict(sorted(dealt.items()))


def _gap(bidders: Sequence[Bidder], answer: _Answer, chosen: Mapping[str, Candidate], *, positive_open: bool) -> float:
    """How far the log objective can still rise: against HiGHS's bound, or against everybody's best row if none."""
    won = math.fsum(bidder.gain(chosen[bidder.app_id]) for bidder in bidders if bidder.app_id in chosen)
    best = math.fsum(max((bidder.gain(row) for row in bidder.candidates), default=0.0) for bidder in bidders)
    bound = best if positive_open or not math.isfinite(answer.bound) else min(best, answer.bound)
    return max(0.0, bound - won)


def _wins(
    market: Market, model: MachineModel, chosen: Mapping[str, Candidate], solution: NDArray[np.int64] | None
) -> dict[str, Win]:
    if not chosen or solution is None:
        return {}
    placed = realise(market.machines, chosen) or realise(market.machines, chosen, model.layout(solution))
    if placed is None:
        raise InvariantError("HiGHS chose rows that do not fit the free GPUs", value=sorted(chosen))
    return {app_id: Win(row=chosen[app_id].row, gangs=gangs) for app_id, gangs in placed.items()}
