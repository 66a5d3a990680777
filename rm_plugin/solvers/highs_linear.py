"""Linear programmes by HiGHS: the dual simplex method, which ends in a vertex and continues after new constraints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rm_plugin.solvers.highs_package import highspy
from rm_plugin.solvers.linear import Constraint, LinearStatus, Optimum, Vector
from themis.errors import InvariantError

_OPTIONS: Mapping[str, bool | int | str] = {
    "output_flag": False,
    "solver": "simplex",
    # The dual simplex: added constraints leave the old basis dual feasible, so a solve continues from it.
    "simplex_strategy": 1,
    "presolve": "off",
    "threads": 1,
    "random_seed": 0,
}
_NOTHING = np.zeros(0)


class HighsModel:
    """A programme in HiGHS; see `linear.LinearModel`.

    Args:
        costs: The objective's coefficients, one for each variable.
    """

    def __init__(self, costs: Vector) -> None:
        self._highs = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in _OPTIONS.items():
            self._highs.setOptionValue(option, value)
        lp = highspy.HighsLp()
        lp.num_col_ = len(costs)
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.col_cost_ = costs
        lp.col_lower_ = np.zeros(len(costs))
        lp.col_upper_ = np.full(len(costs), highspy.kHighsInf)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.zeros(1, dtype=np.int32)
        self._checked(self._highs.passModel(lp))

    def add_constraints(self, constraints: Sequence[Constraint]) -> None:
        """Add constraints."""
        if not constraints:
            return
        sizes = [len(each.columns) for each in constraints]
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int32)
        lower = np.array([each.lower for each in constraints])
        upper = np.array([each.upper for each in constraints])
        columns = np.concatenate([each.columns for each in constraints]).astype(np.int32)
        values = np.concatenate([each.values for each in constraints])
        self._checked(self._highs.addRows(len(constraints), lower, upper, sum(sizes), starts, columns, values))

    def maximise(self) -> Optimum:
        """Solve the present programme."""
        self._highs.run()
        status = self._highs.getModelStatus()
        if status == highspy.HighsModelStatus.kModelEmpty:
            duals = np.zeros(self._highs.getNumRow())
            return Optimum(status=LinearStatus.OPTIMAL, values=_NOTHING, duals=duals, objective=0.0)
        if status != highspy.HighsModelStatus.kOptimal:
            return Optimum(status=LinearStatus.FAILED, values=_NOTHING, duals=_NOTHING, objective=np.nan)
        solution = self._highs.getSolution()
        return Optimum(
            status=LinearStatus.OPTIMAL,
            values=np.array(solution.col_value),
            duals=np.array(solution.row_dual),
            objective=float(self._highs.getInfo().objective_function_value),
        )

    def sensitivity(self, constraint: int) -> Vector:
        """Return the column of the constraint in the inverse of the last basis, by variable; 0 for non-basic ones."""
        change = np.zeros(self._highs.getNumCol())
        if not len(change):
            return change
        _, basic = self._highs.getBasicVariables()  # type: ignore[attr-defined]
        _, column = self._highs.getBasisInverseCol(constraint)  # type: ignore[attr-defined]
        # Negative numbers are the slack variables of constraints.
        change[basic[basic >= 0]] = column[basic >= 0]
        return change

    @staticmethod
    def _checked(status: highspy.HighsStatus) -> None:
        if status == highspy.HighsStatus.kError:
            raise InvariantError("HiGHS refuses a linear programme", value=str(status))
