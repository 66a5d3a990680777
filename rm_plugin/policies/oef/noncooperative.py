"""Non-cooperative OEF: all tenants get the same efficiency, as much as possible (Middleware'24, equation 9).

    maximise   t
    subject to W_l . x_l = pi_l t         for every tenant l
               sum over l of x_l^j <= m_j for every type j
               x >= 0

With weights pi = 1 this is equation 9: all terms of its objective are equal, so their sum is n t. `t` is unique, X need
not be. Because all efficiencies are tied to each other, a tenant that inflates its speedups gains nothing
(theorem 5.4). One that understates them may gain; docs/explanation/oef.md shows it.

Example: one K80 and one V100; tenants (1, 2) and (1, 5). Then t = 15/7: the first gets the K80 and 4/7 of the V100, the
second 3/7 of the V100.
"""

from __future__ import annotations

import numpy as np

from rm_plugin.policies.oef.fair_share import FairShare
from rm_plugin.policies.oef.programme import capacity_constraints, fair_share, share_variables
from rm_plugin.policies.oef.speedup import Speedups
from rm_plugin.solvers.linear import Constraint, MakeModel


def noncooperative(speedups: Speedups, make_model: MakeModel) -> FairShare:
    """Solve equation 9 with weights. If the solver fails, the result is the equal split."""
    tenants, types = speedups.matrix.shape
    x = share_variables(speedups)
    t = int(x.max(initial=-1)) + 1
    objective = np.zeros(t + 1)
    objective[t] = 1.0
    model = make_model(objective)
    equalities = []
    for tenant in range(tenants):
        used = x[tenant] >= 0
        columns = np.append(x[tenant, used], t).astype(np.int32)
        values = np.append(speedups.matrix[tenant, used], -speedups.weights[tenant])
        equalities.append(Constraint(columns=columns, values=values, lower=0.0, upper=0.0))
    model.add_constraints([*equalities, *capacity_constraints(speedups, x)])
    optimum = model.maximise()
    return fair_share(speedups, x, model, optimum, capacity_at=tenants, constraints=tenants + types)
