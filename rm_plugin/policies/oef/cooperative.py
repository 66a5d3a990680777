"""Cooperative OEF: the largest total efficiency without envy (Middleware'24, equation 10).

    maximise   sum over l of W_l . x_l
    subject to W_l . x_l / pi_l >= W_l . x_i / pi_i   for all tenants l and i: l does not prefer i's GPUs
               sum over l of x_l^j <= m_j             for every type j
               x >= 0

The equal split is feasible, so an optimum exists and every tenant gets at least its part of an equal split (theorem
5.1: sharing incentive). The variables here are y_l = x_l / pi_l, which keeps weights out of the envy constraints.
Demand counts nothing here, as in the paper; `bounded_demand.py` adds it.

Row generation. Few of the n (n - 1) envy constraints bind. The programme starts with those between neighbours in the
order of speedup vectors, and adds the ones that its optimum violates most until none is violated. The result is an
optimum of the full programme, because it is feasible there and the programme with fewer constraints bounds it from
above.

Example: one K80 and one V100; tenants (1, 2) and (1, 5). The total is 5.25: the first gets the K80 and 1/4 of the V100,
which is worth 1.5 to it, exactly as much as the other's 3/4 of the V100.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations

import numpy as np

from rm_plugin.policies.oef.fair_share import FairShare
from rm_plugin.policies.oef.programme import Variables, capacity_constraints, fair_share, share_matrix, share_variables
from rm_plugin.policies.oef.speedup import Matrix, Speedups
from rm_plugin.solvers.linear import Constraint, LinearStatus, MakeModel, Vector

ENVY_TOLERANCE = 1e-7
"""GPUs of the reference type, for each device of the largest type: envy below it counts as none."""

_ADDED_PER_TENANT = 3
"""How many violated constraints a tenant adds before the programme is solved again."""

Pair = tuple[int, int]
"""A tenant l, and the one whose GPUs it must not prefer, i."""


def cooperative(speedups: Speedups, make_model: MakeModel, *, generate_rows: bool = True) -> FairShare:
    """Solve equation 10 with weights. If the solver fails, the result is the equal split.

    Args:
        speedups: The instance in normal form.
        make_model: Begins a linear programme.
        generate_rows: Whether envy constraints are added as needed. False states all of them at once: the reference.
    """
    tenants = len(speedups.matrix)
    pairs = neighbours(tenants) if generate_rows else list(permutations(range(tenants), 2))

    def envy(per_weight: Matrix) -> Matrix:
        efficiency = speedups.matrix @ per_weight.T
        return np.asarray(efficiency - np.diag(efficiency)[:, None])

    return without_envy(speedups, make_model, pairs, lambda pair: (speedups.matrix[pair[0]], 0.0), envy)


def without_envy(
    speedups: Speedups,
    make_model: MakeModel,
    pairs: list[Pair],
    worth: Callable[[Pair], tuple[Vector, float]],
    envy: Callable[[Matrix], Matrix],
    limits: Sequence[Constraint] = (),
    grows: Mapping[Pair, Vector] | None = None,
) -> FairShare:
    """Maximise the total efficiency without envy, by row generation.

    Args:
        speedups: The instance in normal form.
        make_model: Begins a linear programme.
        pairs: Whose envy constraints the programme starts with.
        worth: What i's GPUs are worth to l, as a linear function of y_i: its slopes and its constant.
        envy: By (l, i) at these y: what i's GPUs are worth to l, minus W_l . y_l.
        limits: Further constraints.
        grows: How much the constant of `worth` rises per further device of each type, if it does.
    """
    variables = share_variables(speedups)
    model = make_model((speedups.matrix * speedups.weights[:, None])[variables >= 0])
    model.add_constraints([*capacity_constraints(speedups, variables, speedups.weights), *limits])
    first_row = len(speedups.capacity) + len(limits)
    stated: list[Pair] = []
    solves = 0
    while True:
        model.add_constraints([_envy_constraint(speedups, variables, pair, worth(pair)) for pair in pairs])
        stated += pairs
        optimum = model.maximise()
        solves += 1
        if optimum.status is not LinearStatus.OPTIMAL:
            break
        per_weight = share_matrix(optimum.values, variables)
        known = set(stated)
        pairs = [pair for pair in _most_violated(speedups, envy(per_weight)) if pair not in known]
        if not pairs:
            break
    return fair_share(
        speedups,
        variables,
        model,
        optimum,
        capacity_at=0,
        constraints=first_row + len(stated),
        scale=speedups.weights,
        solves=solves,
        grows={first_row + row: grows[pair] for row, pair in enumerate(stated) if grows and pair in grows},
    )


def neighbours(tenants: int) -> list[Pair]:
    """Both constraints between neighbours; tenants are ordered by speedup vector."""
    return [pair for one in range(tenants - 1) for pair in ((one, one + 1), (one + 1, one))]


def _envy_constraint(speedups: Speedups, variables: Variables, pair: Pair, worth: tuple[Vector, float]) -> Constraint:
    """W_l . y_l - slopes . y_i >= constant, for the pair (l, i) and what i's GPUs are worth to l."""
    (tenant, other), (slopes, constant) = pair, worth
    own = variables[tenant] >= 0
    others = (variables[other] >= 0) & (slopes > 0)
    return Constraint(
        columns=np.concatenate((variables[tenant, own], variables[other, others])),
        values=np.concatenate((speedups.matrix[tenant, own], -slopes[others])),
        lower=constant,
    )


def _most_violated(speedups: Speedups, envy: Matrix) -> list[Pair]:
    """The constraints that each tenant's envy violates most, at most `_ADDED_PER_TENANT` of each."""
    most = np.argsort(-envy, axis=1, kind="stable")[:, :_ADDED_PER_TENANT]
    tolerance = ENVY_TOLERANCE * max(1.0, float(speedups.capacity.max()))
    return [
        (tenant, int(other))
        for tenant, others in enumerate(most)
        for other in others
        if envy[tenant, other] > tolerance
    ]
