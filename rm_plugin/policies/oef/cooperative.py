"""Cooperative OEF: the largest total efficiency without envy (Middleware'24, equation 10).

    maximise   sum over l of W_l . x_l
    subject to W_l . x_l / pi_l >= W_l . x_i / pi_i   for all tenants l and i: l does not prefer i's GPUs
               sum over l of x_l^j <= m_j             for every type j
               x >= 0

The equal split is feasible, so an optimum exists and every tenant gets at least its part of an equal split (theorem
5.1: sharing incentive). The variables here are y_l = x_l / pi_l, which keeps weights out of the envy constraints.

Row generation. Few of the n (n - 1) envy constraints bind. The programme starts with those between neighbours in the
order of speedup vectors, and adds the ones that its optimum violates most until none is violated. The result is an
optimum of the full programme, because it is feasible there and the programme with fewer constraints bounds it from
above.

Example: one K80 and one V100; tenants (1, 2) and (1, 5). The total is 5.25: the first gets the K80 and 1/4 of the V100,
which is worth 1.5 to it, exactly as much as the other's 3/4 of the V100.

Bounded demand. A tenant that can use at most d_l GPUs gets no more, and neither prefers another's GPUs nor its part of
an equal split by what it can use of them:

               sum over j of x_l^j <= d_l
               W_l . y_l >= use_l(y_i)                for all i, and for the equal split in place of y_i

The right side is concave in y_i, so such shares are no convex set. The programme replaces it by its linear bound at a
*level* (`demand.py`), and remains an LP: with the levels of the equal split first, which what tenants can use of the
equal split satisfies, and then with those of its own optimum, as long as the total grows. Each of these programmes
contains the optimum before it, so the total never falls, and there is no envy by what tenants can use. It need not be
the largest total of all shares without envy.

Example: ten equal GPUs; one tenant can use one of them, the other all. The first gets one, the other nine. It has what
it can use, so it does not prefer nine. Without its demand each gets five.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from rm_plugin.policies.oef.demand import LinearBounds, linear_bounds
from rm_plugin.policies.oef.fair_share import FairShare, ShareStatus
from rm_plugin.policies.oef.programme import (
    Variables,
    capacity_constraints,
    demand_constraints,
    fair_share,
    share_matrix,
    share_variables,
)
from rm_plugin.policies.oef.speedup import Matrix, Speedups
from rm_plugin.solvers.linear import Constraint, LinearStatus, MakeModel, Vector

ENVY_TOLERANCE = 1e-7
"""GPUs of the reference type, for each device of the largest type: envy below it counts as none."""

_ADDED_PER_TENANT = 3
"""How many violated constraints a tenant adds before the programme is solved again."""

_GROWTH = 1e-6
"""Relative growth of the total below which new levels end."""

_MOST_LEVELS = 10
"""How often levels are chosen at most; each time costs a programme."""

Pair = tuple[int, int]
"""A tenant, and the one whose GPUs it must not prefer. Itself stands for its part of the equal split."""


def cooperative(speedups: Speedups, make_model: MakeModel, *, generate_rows: bool = True) -> FairShare:
    """Solve equation 10 with weights and demands. If the solver fails, the result is the equal split.

    Args:
        speedups: The instance in normal form.
        make_model: Begins a linear programme.
        generate_rows: Whether envy constraints are added as needed. False states all of them at once: the reference.
    """
    if speedups.demand is None:
        return _solve(speedups, make_model, None, generate_rows)
    split = np.tile(speedups.capacity / speedups.weights.sum(), (len(speedups.matrix), 1))
    fair = _solve(speedups, make_model, linear_bounds(speedups, split), generate_rows)
    for _ in range(_MOST_LEVELS - 1):
        if fair.status is not ShareStatus.OPTIMAL:
            break
        bounds = linear_bounds(speedups, fair.matrix / speedups.weights[:, None])
        again = _solve(speedups, make_model, bounds, generate_rows)
        if again.status is not ShareStatus.OPTIMAL or again.total <= fair.total * (1.0 + _GROWTH):
            break
        fair = replace(again, solves=fair.solves + again.solves)
    return fair


def _solve(speedups: Speedups, make_model: MakeModel, bounds: LinearBounds | None, generate_rows: bool) -> FairShare:
    """Solve the programme; with bounds, the one that they make linear."""
    tenants, types = speedups.matrix.shape
    variables = share_variables(speedups)
    used = variables >= 0
    objective = (speedups.matrix * speedups.weights[:, None])[used]
    model = make_model(objective)
    limits = demand_constraints(speedups, variables, speedups.weights)
    model.add_constraints([*capacity_constraints(speedups, variables, speedups.weights), *limits])
    pairs = _neighbours(tenants) if generate_rows else _all_pairs(tenants, with_split=bounds is not None)
    first_row = types + len(limits)
    stated: list[Pair] = []
    solves = 0
    while True:
        model.add_constraints([_envy_constraint(speedups, variables, pair, bounds) for pair in pairs])
        stated += pairs
        optimum = model.maximise()
        solves += 1
        if optimum.status is not LinearStatus.OPTIMAL:
            break
        per_weight = share_matrix(optimum.values, variables)
        known = set(stated)
        pairs = [pair for pair in _most_violated(speedups, per_weight, bounds) if pair not in known]
        if not pairs:
            break
    grows: dict[int, Vector] = {}
    if bounds is not None:
        # What a tenant can use of the equal split grows with the capacity.
        rows = ((first_row + row, tenant) for row, (tenant, other) in enumerate(stated) if tenant == other)
        grows = {row: bounds.split_slopes[tenant] for row, tenant in rows}
    return fair_share(
        speedups,
        variables,
        model,
        optimum,
        capacity_at=0,
        constraints=first_row + len(stated),
        scale=speedups.weights,
        solves=solves,
        grows=grows,
    )


def _neighbours(tenants: int) -> list[Pair]:
    """Both constraints between neighbours; tenants are ordered by speedup vector."""
    return [pair for one in range(tenants - 1) for pair in ((one, one + 1), (one + 1, one))]


def _all_pairs(tenants: int, with_split: bool) -> list[Pair]:
    return [(one, other) for one in range(tenants) for other in range(tenants) if with_split or one != other]


def _envy_constraint(speedups: Speedups, variables: Variables, pair: Pair, bounds: LinearBounds | None) -> Constraint:
    """W_l . y_l - W_l . y_i >= 0, for the pair (l, i); with bounds, the linear bound of what l can use of y_i."""
    tenant, other = pair
    speedup = speedups.matrix[tenant]
    worth, constant = (speedup, 0.0) if bounds is None else bounds.of(pair, speedup)
    own = variables[tenant] >= 0
    others = (variables[other] >= 0) & (worth > 0)
    return Constraint(
        columns=np.concatenate((variables[tenant, own], variables[other, others])),
        values=np.concatenate((speedup[own], -worth[others])),
        lower=constant,
    )


def _most_violated(speedups: Speedups, per_weight: Matrix, bounds: LinearBounds | None) -> list[Pair]:
    """The constraints that each tenant's envy violates most, at most `_ADDED_PER_TENANT` of each."""
    if bounds is None:
        efficiency = speedups.matrix @ per_weight.T
        envy = efficiency - np.diag(efficiency)[:, None]
    else:
        own = (speedups.matrix * per_weight).sum(axis=1)
        envy = bounds.of_all(speedups.matrix, per_weight) - own[:, None]
    most = np.argsort(-envy, axis=1, kind="stable")[:, :_ADDED_PER_TENANT]
    tolerance = ENVY_TOLERANCE * max(1.0, float(speedups.capacity.max()))
    return [
        (tenant, int(other))
        for tenant, others in enumerate(most)
        for other in others
        if envy[tenant, other] > tolerance
    ]
