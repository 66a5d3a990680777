"""What the programmes share: one variable for each GPU type that a tenant can use, the capacity constraints, and X."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rm_plugin.policies.oef.demand import usable_shares
from rm_plugin.policies.oef.fair_share import FairShare, ShareStatus, clean, equal_split
from rm_plugin.policies.oef.speedup import Matrix, Speedups
from rm_plugin.solvers.linear import Constraint, LinearModel, LinearStatus, Optimum, Vector

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


def demand_constraints(speedups: Speedups, variables: Variables, scale: Vector | None = None) -> list[Constraint]:
    """For every tenant l of bounded demand: the sum over j of x_l^j is at most d_l.

    Args:
        speedups: The instance.
        variables: From `share_variables`.
        scale: As in `capacity_constraints`.
    """
    if speedups.demand is None:
        return []
    scales = np.ones(len(variables)) if scale is None else scale
    constraints = []
    for tenant in np.flatnonzero(np.isfinite(speedups.demand)):
        own = variables[tenant][variables[tenant] >= 0]
        upper = float(speedups.demand[tenant] / scales[tenant])
        constraints.append(Constraint(columns=own, values=np.ones(len(own)), upper=upper))
    return constraints


def share_matrix(values: Vector, variables: Variables) -> Matrix:
    """Numbers by variable, in shape (tenants, types); 0 where there is no variable."""
    return np.where(variables >= 0, values[variables], 0.0)


def fair_share(
    speedups: Speedups,
    variables: Variables,
    model: LinearModel,
    optimum: Optimum,
    *,
    capacity_at: int | None,
    constraints: int,
    scale: Vector | None = None,
    solves: int = 1,
    grows: Mapping[int, Vector] | None = None,
) -> FairShare:
    """The shares that a programme found, or what tenants can use of the equal split if the solver failed.

    Args:
        speedups: The instance in normal form.
        variables: From `share_variables`.
        model: The programme.
        optimum: The answer of its last solve.
        capacity_at: The number of its first capacity constraint; those of the other types follow. None if other
            constraints depend on the capacity as well: then the duals of these are not the whole price.
        constraints: Those of the programme when it was solved.
        scale: GPUs that a 1 in tenant l's variables stands for; 1 by default.
        solves: How often the programme was solved.
        grows: How much the bound of other constraints rises per further device of each type, by constraint.
    """
    if optimum.status is not LinearStatus.OPTIMAL:
        split = usable_shares(speedups, equal_split(speedups))
        return FairShare(status=ShareStatus.EQUAL_SPLIT, speedups=speedups, matrix=split)
    matrix = share_matrix(optimum.values, variables)
    scales = np.ones((len(matrix), 1)) if scale is None else scale[:, None]
    prices = marginals = None
    if capacity_at is not None:
        rows = range(capacity_at, capacity_at + len(speedups.capacity))
        price = optimum.duals[rows.start : rows.stop]
        # dE_l / dm_j is the sum over the types i of W_l^i dx_l^i / dm_j.
        changes = [share_matrix(model.sensitivity(row), variables) * scales for row in rows]
        for row, slopes in (grows or {}).items():
            price = price + optimum.duals[row] * slopes
            change = share_matrix(model.sensitivity(row), variables) * scales
            changes = [former + slope * change for former, slope in zip(changes, slopes, strict=True)]
        prices = tuple(float(each) if devices else None for each, devices in zip(price, speedups.capacity, strict=True))
        marginals = np.column_stack([(speedups.matrix * each).sum(axis=1) for each in changes])
    return FairShare(
        status=ShareStatus.OPTIMAL,
        speedups=speedups,
        matrix=clean(matrix * scales, speedups.capacity),
        prices=prices,
        marginals=marginals,
        constraints=constraints,
        solves=solves,
    )
