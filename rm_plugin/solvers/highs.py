"""Winner determination by HiGHS, the reference: one mixed-integer programme over machines per problem (ties: `mip`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.bidders import BidderMemo
from rm_plugin.solvers.highs_package import highspy
from rm_plugin.solvers.machine_model import MachineModel
from rm_plugin.solvers.mip import TOLERANCE, Answer, AtLeast, solve_by
from rm_plugin.solvers.port import Solution, SolveStatus, each_alone
from themis.bids import Market
from themis.errors import InvariantError

_STATUS = {
    highspy.HighsModelStatus.kOptimal: SolveStatus.OPTIMAL,
    highspy.HighsModelStatus.kTimeLimit: SolveStatus.TIME_LIMIT,
}


class HighsSolver:
    """Exact winner determination with highspy."""

    name = "highs"

    def __init__(self) -> None:
        self._memo = BidderMemo()

    def solve(self, market: Market, time_limit_s: float) -> Solution:
        """Solve one market; see `mip.solve_by`.

        Raises:
            InputError: Two bids of one app, or a finite market with an empty bundle worth 0.
        """
        return solve_by(run_highs, market, self._memo.bidders_of, time_limit_s)

    def without(self, market: Market, app_ids: Sequence[str], time_limit_s: float) -> dict[str, Solution]:
        """One problem after the other. They share the bidders' canonical form."""
        return each_alone(self, market, app_ids, time_limit_s)


def run_highs(
    model: MachineModel, gains: NDArray[np.float64], time_limit_s: float, at_least: AtLeast | None = None
) -> Answer:
    """One HiGHS run; see `mip.Run`."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in _options(time_limit_s).items():
        highs.setOptionValue(option, value)
    if highs.passModel(_linear_programme(model, gains)) == highspy.HighsStatus.kError:
        raise InvariantError("HiGHS refuses the model of a market", value=model.gains.shape)
    if at_least is not None:
        columns = np.flatnonzero(at_least.weights).astype(np.int32)
        highs.addRow(float(at_least.number), highspy.kHighsInf, len(columns), columns, at_least.weights[columns])
    highs.run()
    return _answer(highs)


def _answer(highs: highspy.Highs) -> Answer:
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kModelEmpty:
        return Answer(status=SolveStatus.OPTIMAL, solution=np.zeros(0, dtype=np.int64), bound=0.0)
    if status not in _STATUS:
        raise InvariantError("HiGHS ended a winner determination in an unexpected way", value=str(status))
    info = highs.getInfo()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    return Answer(
        status=_STATUS[status],
        solution=np.rint(np.array(highs.getSolution().col_value)).astype(np.int64) if found else None,
        bound=float(info.mip_dual_bound),
    )


def _options(time_limit_s: float) -> dict[str, bool | int | float | str]:
    return {
        "output_flag": False,
        # Presolve of HiGHS 1.15.1 reports wrong optima, even for five variables (a test shows it; see also HiGHS issues
        # #3043, #3073 and #3094). These models solve faster without it. A restart would presolve.
        "presolve": "off",
        "mip_allow_restart": False,
        "threads": 1,
        "random_seed": 0,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 0.0,
        # HiGHS replaces an incumbent only by one that is better by this much.
        "mip_feasibility_tolerance": TOLERANCE,
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
