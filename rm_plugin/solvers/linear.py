"""The port of linear programmes: maximise `costs . x` over `x >= 0` and constraints `lower <= a . x <= upper`.

An adapter returns a vertex (a basic solution), and the dual of every constraint. `highs_linear` is the adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from themis.values import Value

Vector = NDArray[np.float64]
Columns = NDArray[np.int32]


class LinearStatus(StrEnum):
    """How a solve ended. `FAILED` covers all that should not occur: infeasible, unbounded, numerical trouble."""

    OPTIMAL = "optimal"
    FAILED = "failed"


class Constraint(Value, frozen=True, kw_only=True):
    """One constraint, `lower <= sum(values * x[columns]) <= upper`."""

    columns: Columns
    values: Vector
    lower: float = -np.inf
    upper: float = np.inf


class Optimum(Value, frozen=True, kw_only=True):
    """The answer of a solve.

    Attributes:
        status: How it ended. Unless it is optimal, everything else is empty.
        values: The value of each variable; a vertex.
        duals: By constraint, how much the objective grows per unit that its bound is relaxed or tightened upwards.
        objective: The optimum.
    """

    status: LinearStatus
    values: Vector
    duals: Vector
    objective: float


class LinearModel(Protocol):
    """A programme to which constraints can be added between solves. A solve continues from the last basis."""

    def add_constraints(self, constraints: Sequence[Constraint]) -> None:
        """Add constraints, in this order."""
        ...

    def maximise(self) -> Optimum:
        """Solve the present programme."""
        ...

    def sensitivity(self, constraint: int) -> Vector:
        """Sensitivity of the optimum: the change of each variable per unit by which a binding constraint's bound rises.

        It is a column of B^-1. It holds at the optimum that `maximise` found last, as long as its basis stays feasible.
        `costs . sensitivity` is the constraint's dual.

        Args:
            constraint: Its number, in the order in which constraints were added.
        """
        ...


MakeModel = Callable[[Vector], LinearModel]
"""Begins a programme without constraints, from the costs of its variables."""
