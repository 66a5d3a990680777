"""Winner determination by Gurobi, the paper's solver. An optional extra; the programme is that of HiGHS (ties: `mip`).

Without a licence key gurobipy runs programmes of up to 2,000 variables and 2,000 constraints. Larger ones end with the
status LICENCE.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.bidders import BidderMemo
from rm_plugin.solvers.machine_model import MachineModel
from rm_plugin.solvers.mip import TOLERANCE, Answer, AtLeast, solve_by
from rm_plugin.solvers.port import Solution, SolveStatus, each_alone
from themis.bids import Market
from themis.errors import InputError, InvariantError, ThemisError

if TYPE_CHECKING:
    import gurobipy

_PARAMETERS: Mapping[str, int | float] = {
    "OutputFlag": 0,
    "Threads": 1,
    "Seed": 0,
    "MIPGap": 0.0,
    "MIPGapAbs": 0.0,
    "FeasibilityTol": TOLERANCE,
    "IntFeasTol": TOLERANCE,
    "OptimalityTol": TOLERANCE,
}


class GurobiSolver:
    """Exact winner determination with gurobipy, which is imported when the first solver is made.

    Raises:
        InputError: gurobipy is not installed.
    """

    name = "gurobi"

    def __init__(self) -> None:
        try:
            import gurobipy  # noqa: F401 - optional and slow to import
        except ImportError as error:
            remedy = "pip install 'themis-scheduler[gurobi]', or choose another solver"
            raise InputError("the solver gurobi needs gurobipy", value=str(error), remedy=remedy) from None
        self._memo = BidderMemo()
        self._env: gurobipy.Env | None = None

    def solve(self, market: Market, time_limit_s: float) -> Solution:
        """Solve one market; see `mip.solve_by`. Beyond the licence no bidder wins, and the status is LICENCE.

        Raises:
            InputError: Two bids of one app, or a finite market with an empty bundle worth 0.
            ThemisError: Gurobi failed for another reason than its licence.
        """
        return solve_by(self._run, market, self._memo.bidders_of, time_limit_s)

    def without(self, market: Market, app_ids: Sequence[str], time_limit_s: float) -> dict[str, Solution]:
        """One problem after the other. They share the bidders' canonical form and Gurobi's environment."""
        return each_alone(self, market, app_ids, time_limit_s)

    def _run(
        self,
        model: MachineModel,
        gains: NDArray[np.float64],
        time_limit_s: float,
        at_least: AtLeast | None = None,
    ) -> Answer:
        """One Gurobi run; see `mip.Run`."""
        import gurobipy

        deadline_s = time.monotonic() + time_limit_s
        try:
            with gurobipy.Model(env=self._environment()) as programme:
                _fill(programme, model, gains, at_least)
                programme.setParam("TimeLimit", max(0.0, deadline_s - time.monotonic()))
                programme.optimize()
                return _answer(programme)
        except gurobipy.GurobiError as error:
            if error.errno in (gurobipy.GRB.Error.SIZE_LIMIT_EXCEEDED, gurobipy.GRB.Error.NO_LICENSE):
                return Answer(status=SolveStatus.LICENCE, solution=None, bound=math.inf)
            raise ThemisError("Gurobi failed", value=str(error), remedy="choose another solver") from error

    def _environment(self) -> gurobipy.Env:
        """One environment per solver: starting one may fetch a token. The default one writes to standard output."""
        import gurobipy

        if self._env is None:
            self._env = gurobipy.Env(params=dict(_PARAMETERS))
        return self._env


def _fill(programme: gurobipy.Model, model: MachineModel, gains: NDArray[np.float64], at_least: AtLeast | None) -> None:
    """Build the programme row by row: the matrix interface of gurobipy needs SciPy."""
    from gurobipy import GRB, LinExpr

    columns = [
        programme.addVar(ub=upper, obj=gain, vtype=GRB.INTEGER)
        for upper, gain in zip(model.upper_bounds.tolist(), gains.tolist(), strict=True)
    ]
    programme.ModelSense = GRB.MAXIMIZE
    for row, (lower, upper) in enumerate(zip(model.lower.tolist(), model.upper.tolist(), strict=True)):
        inside = slice(model.starts[row], model.starts[row + 1])
        weights = model.values[inside].tolist()
        terms = LinExpr(weights, [columns[column] for column in model.columns[inside].tolist()])
        # A lower bound that variables of 0 or more cannot violate would only count against the licence.
        if math.isfinite(lower) and not (lower <= 0 <= min(weights, default=0)):
            programme.addLConstr(terms, GRB.GREATER_EQUAL, lower)
        if math.isfinite(upper):
            programme.addLConstr(terms, GRB.LESS_EQUAL, upper)
    if at_least is not None:
        weighed = np.flatnonzero(at_least.weights).tolist()
        terms = LinExpr(at_least.weights[weighed].tolist(), [columns[column] for column in weighed])
        programme.addLConstr(terms, GRB.GREATER_EQUAL, at_least.number)


def _answer(programme: gurobipy.Model) -> Answer:
    from gurobipy import GRB

    if programme.Status == GRB.INTERRUPTED:
        # Gurobi catches Ctrl-C itself; the caller must end nevertheless.
        raise KeyboardInterrupt
    if programme.Status not in (GRB.OPTIMAL, GRB.TIME_LIMIT):
        raise InvariantError("Gurobi ended a winner determination in an unexpected way", value=programme.Status)
    found = [variable.X for variable in programme.getVars()] if programme.SolCount else None
    return Answer(
        status=SolveStatus.OPTIMAL if programme.Status == GRB.OPTIMAL else SolveStatus.TIME_LIMIT,
        solution=None if found is None else np.rint(np.array(found)).astype(np.int64),
        bound=float(programme.ObjBound),
    )
