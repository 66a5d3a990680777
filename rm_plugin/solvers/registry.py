"""Winner-determination solvers by name. Each is imported when it is asked for: most runs need one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rm_plugin.solvers.port import WinnerDetermination
from themis.errors import InputError, UnknownNameError

DEFAULT = "exact"


def _exact() -> WinnerDetermination:
    """Our own solver; its core is compiled when the package is installed, and not all machines have a compiler."""
    try:
        from rm_plugin.solvers.exact.solver import ExactSolver
    except ImportError as error:
        raise InputError(
            "the compiled core of the solver is missing",
            value=DEFAULT,
            remedy="install the package again where a C compiler is found, or take the solver highs",
        ) from error
    return ExactSolver()


def _highs() -> WinnerDetermination:
    try:
        from rm_plugin.solvers.highs import HighsSolver
    except InputError as error:
        # Whoever needs HiGHS as a reference has no choice; whoever named it has.
        remedy = f"{error.remedy}, or choose another solver"
        raise InputError(error.what, value=error.value, remedy=remedy) from None
    return HighsSolver()


def _gurobi() -> WinnerDetermination:
    from rm_plugin.solvers.gurobi import GurobiSolver

    return GurobiSolver()


def _brute_force() -> WinnerDetermination:
    from rm_plugin.solvers.brute_force import BruteForceSolver

    return BruteForceSolver()


SOLVERS: Mapping[str, Callable[[], WinnerDetermination]] = {
    DEFAULT: _exact,
    "highs": _highs,
    "gurobi": _gurobi,
    "brute_force": _brute_force,
}
"""Known solvers; each call makes a fresh one."""


def solver(name: str) -> WinnerDetermination:
    """The solver of that name; an unknown one raises UnknownNameError with the nearest known."""
    try:
        return SOLVERS[name]()
    except KeyError:
        raise UnknownNameError("solver", name, SOLVERS) from None
