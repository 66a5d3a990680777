"""Winner-determination solvers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.exact.solver import ExactSolver
from rm_plugin.solvers.gurobi import GurobiSolver
from rm_plugin.solvers.highs import HighsSolver
from rm_plugin.solvers.port import WinnerDetermination
from themis.errors import UnknownNameError

SOLVERS: Mapping[str, Callable[[], WinnerDetermination]] = {
    ExactSolver.name: ExactSolver,
    HighsSolver.name: HighsSolver,
    GurobiSolver.name: GurobiSolver,
    BruteForceSolver.name: BruteForceSolver,
}
"""Known solvers; each call makes a fresh one."""


def solver(name: str) -> WinnerDetermination:
    """The solver of that name; an unknown one raises UnknownNameError with the nearest known."""
    try:
        return SOLVERS[name]()
    except KeyError:
        raise UnknownNameError("solver", name, SOLVERS) from None
