"""What the programmes share: one variable for each GPU type that a tenant can use, and the capacity constraints."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rm_plugin.policies.oef.speedup import Speedups
from rm_plugin.solvers.linear import Constraint, Optimum, Vector

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
