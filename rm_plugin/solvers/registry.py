"""Winner-determination solvers by name. Each is imported on demand, because most runs need only one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rm_plugin.solvers.port import WinnerDetermination
from themis.errors import InputError, UnknownNameError

DEFAULT = "exact"


def _exact() -> WinnerDetermination:
    from rm_plugin.solvers.ladder import exact_ladder

    return exact_ladder()


def _highs() -> WinnerDetermination:
    from rm_plugin.solvers.ladder import Ladder

    try:
        from rm_plugin.solvers.highs import HighsSolver
    except InputError as error:
        # A user who named this solver can name another one; the auditor, which needs HiGHS as reference, cannot.
        remedy = f"{error.remedy}, or choose another solver"
        raise InputError(error.what, value=error.value, remedy=remedy) from None
    return Ladder("highs", HighsSolver, search=False)


def _gurobi() -> WinnerDetermination:
    from rm_plugin.solvers.gurobi import GurobiSolver
    from rm_plugin.solvers.ladder import Ladder

    programme = GurobiSolver()
    return Ladder("gurobi", lambda: programme, search=False)


def _brute_force() -> WinnerDetermination:
    from rm_plugin.solvers.brute_force import BruteForceSolver

    return BruteForceSolver()


SOLVERS: Mapping[str, Callable[[], WinnerDetermination]] = {
    DEFAULT: _exact,
    "highs": _highs,
    "gurobi": _gurobi,
    "brute_force": _brute_force,
}
"""A factory by name; each call makes a new solver."""


def solver(name: str) -> WinnerDetermination:
    """Make the solver of that name. Raises UnknownNameError, which names the nearest known one."""
    try:
        return SOLVERS[name]()
    except KeyError:
        raise UnknownNameError("solver", name, SOLVERS) from None
