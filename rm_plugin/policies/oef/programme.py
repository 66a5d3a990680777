"""What the programmes share: one variable for each GPU type that a tenant can use, and the capacity rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rm_plugin.policies.oef.speedup import Speedups
from rm_plugin.solvers.linear import Optimum, Row, Vector

Variables = NDArray[np.int32]
"""The number of each variable x_l^j, of shape (tenants, types); -1 if tenant l cannot use type j or j has no device."""


def share_variables(speedups: Speedups) -> Variables:
    """Number the variables row by row."""
    usable = (speedups.matrix > 0) & (speedups.capacity > 0)
    return np.where(usable, np.cumsum(usable).reshape(usable.shape) - 1, -1).astype(np.int32)


def capacity_rows(speedups: Speedups, variables: Variables, unit: Vector | None = None) -> list[Row]:
    """For every type j: the sum over l of x_l^j is at most m_j.

    Args:
        speedups: The instance.
        variables: From `share_variables`.
        unit: GPUs that one unit of tenant l's variables is worth; 1 by default.
    """
    units = np.ones(len(variables)) if unit is None else unit
    rows = []
    for number, devices in enumerate(speedups.capacity):
        users = variables[:, number] >= 0
        rows.append(Row(columns=variables[users, number], values=units[users], upper=float(devices)))
    return rows


def share_matrix(optimum: Optimum, variables: Variables) -> Vector:
    """The values of the variables, of shape (tenants, types)."""
    return np.where(variables >= 0, optimum.values[variables], 0.0)
