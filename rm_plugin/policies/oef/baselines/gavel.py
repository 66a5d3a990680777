"""Gavel's max-min fairness over types (OSDI'20), with and without its limit on a tenant's share.

    maximise   r
    subject to W_l . x_l >= r W_l . m pi_l / (sum of pi)   for every tenant l
               sum over j of x_l^j <= limit_l              a job cannot use more than all of its time
               sum over l of x_l^j <= m_j                  for every type j

The limit comes from Gavel's time shares: x is the part of its time that a job spends on a type. The OEF paper's numbers
need a limit of one GPU for each tenant, as in Gavel's public code. It leaves GPUs idle if there are fewer tenants than
GPUs.
"""

from __future__ import annotations

import numpy as np

from rm_plugin.policies.oef.fair_share import FairShare, equal_split
from rm_plugin.policies.oef.programme import capacity_constraints, fair_share, share_variables
from rm_plugin.policies.oef.speedup import Speedups
from rm_plugin.solvers.linear import Constraint, MakeModel


def gavel(speedups: Speedups, make_model: MakeModel, limit: float | None = 1.0) -> FairShare:
    """Solve the programme above.

    Args:
        speedups: The instance in normal form.
        make_model: Begins a linear programme.
        limit: GPUs that a tenant of mean weight can use at most; others in proportion. None for no limit.
    """
    tenants = len(speedups.tenant_ids)
    x = share_variables(speedups)
    r = int(x.max(initial=-1)) + 1
    objective = np.zeros(r + 1)
    objective[r] = 1.0
    model = make_model(objective)
    part = (speedups.matrix * equal_split(speedups)).sum(axis=1)
    constraints = capacity_constraints(speedups, x)
    for tenant in range(tenants):
        columns = x[tenant, x[tenant] >= 0]
        speedup = speedups.matrix[tenant, x[tenant] >= 0]
        ratio = Constraint(
            columns=np.append(columns, r).astype(np.int32), values=np.append(speedup, -part[tenant]), lower=0.0
        )
        constraints.append(ratio)
        if limit is not None:
            upper = limit * float(speedups.weights[tenant])
            constraints.append(Constraint(columns=columns, values=np.ones(len(columns)), upper=upper))
    model.add_constraints(constraints)
    optimum = model.maximise()
    return fair_share(speedups, x, model, optimum, capacity_at=None, constraints=len(constraints))
