"""What the programmes share: one variable for each GPU type that a tenant can use, the capacity constraints, and X."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rm_plugin.policies.oef.fair_share import FairShare, ShareStatus, clean, equal_split
from rm_plugin.policies.oef.speedup import Speedups
from rm_plugin.solvers.linear import Constraint, LinearStatus, Optimum, Vector

Variables = NDArray[np.int32]
"""The number of each variable x_l^j, of shape (tenants, types); -1 if tenant l cannot use type j or j has no device."""


def share_variables(speedups: Speedups) -> Variables:
    """Number the variables tenant by tenant."""
    usable = (speedups.matrix > 0) & (speedups.capacity > 0)
    return np.where(usable, np.cumsum(usable).reshape(usable.shape) - 1, -1).astype(np.int32)


def capacity_constraints(speedups: Speedups, variables: Variables, scale: Vector | None = None) -> list[Constraint]:
    """For every type j: the sum over l of x_l^j is at most m_j.

    Args:
        speedups: The instance.
        variables: From `share_variables`.
        scale: GPUs that a 1 in tenant l's variables stands for; 1 by default.
    """
    scales = np.ones(len(variables)) if scale is None else scale
    constraints = []
    for number, devices in enumerate(speedups.capacity):
        users = variables[:, number] >= 0
        constraints.append(Constraint(columns=variables[users, number], values=scales[users], upper=float(devices)))
    return constraints


def share_matrix(optimum: Optimum, variables: Variables) -> Vector:
    """The values of the variables, of shape (tenants, types)."""
    return np.where(variables >= 0, optimum.values[variables], 0.0)


def fair_share(
    speedups: Speedups,
    variables: Variables,
    optimum: Optimum,
    *,
    prices: slice,
    constraints: int,
    scale: Vector | None = None,
    solves: int = 1,
) -> FairShare:
    """The shares that a programme found, or the equal split if the solver failed.

    Args:
        speedups: The instance in normal form.
        variables: From `share_variables`.
        optimum: The solver's answer.
        prices: Where the capacity constraints are among the programme's constraints.
        constraints: Those of the programme when it was solved.
        scale: GPUs that a 1 in tenant l's variables stands for; 1 by default.
        solves: How often the programme was solved.
    """
    if optimum.status is not LinearStatus.OPTIMAL:
        return FairShare(status=ShareStatus.EQUAL_SPLIT, speedups=speedups, matrix=equal_split(speedups))
    matrix = share_matrix(optimum, variables)
    return FairShare(
        status=ShareStatus.OPTIMAL,
        speedups=speedups,
        matrix=clean(matrix if scale is None else matrix * scale[:, None], speedups.capacity),
        prices=tuple(map(float, optimum.duals[prices])),
        constraints=constraints,
        solves=solves,
    )
