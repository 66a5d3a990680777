"""Cooperative OEF for tenants that cannot use any number of GPUs: the option `cap_demand`, which is not in the paper.

A tenant that can use at most d_l GPUs gets no more, and neither prefers another's GPUs nor its part of an equal split
by what it can use of them. Equation 10 (`cooperative.py`) has these constraints then, with y_l = x_l / pi_l:

    sum over j of x_l^j <= d_l
    W_l . y_l >= use_l(y_i)     for all i, and for the equal split in place of y_i

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

from rm_plugin.policies.oef.cooperative import cooperative, neighbours, without_envy
from rm_plugin.policies.oef.demand import LinearBounds, linear_bounds
from rm_plugin.policies.oef.fair_share import FairShare, ShareStatus
from rm_plugin.policies.oef.programme import demand_constraints, share_variables
from rm_plugin.policies.oef.speedup import Speedups
from rm_plugin.solvers.linear import MakeModel

_GROWTH = 1e-6
"""Relative growth of the total below which new levels end."""

_MOST_LEVELS = 10
"""How often levels are chosen at most; each time costs a programme."""


def cooperative_with_demand(speedups: Speedups, make_model: MakeModel) -> FairShare:
    """Solve equation 10 with weights and demands. If the solver fails: what tenants can use of the equal split."""
    if speedups.demand is None:
        return cooperative(speedups, make_model)
    split = np.tile(speedups.capacity / speedups.weights.sum(), (len(speedups.matrix), 1))
    fair = _within(linear_bounds(speedups, split), speedups, make_model)
    for _ in range(_MOST_LEVELS - 1):
        if fair.status is not ShareStatus.OPTIMAL:
            break
        bounds = linear_bounds(speedups, fair.matrix / speedups.weights[:, None])
        again = _within(bounds, speedups, make_model)
        if again.status is not ShareStatus.OPTIMAL or again.total <= fair.total * (1.0 + _GROWTH):
            break
        fair = replace(again, solves=fair.solves + again.solves)
    return fair


def _within(bounds: LinearBounds, speedups: Speedups, make_model: MakeModel) -> FairShare:
    """Solve the programme that these bounds make linear. A pair (l, l) stands for l's part of the equal split."""
    pairs = neighbours(len(speedups.matrix))
    limits = demand_constraints(speedups, share_variables(speedups), speedups.weights)
    # What a tenant can use of the equal split grows with the capacity.
    grows = {(tenant, tenant): slopes for tenant, slopes in enumerate(bounds.split_slopes)}
    return without_envy(speedups, make_model, pairs, bounds.of, bounds.envy, limits, grows)
