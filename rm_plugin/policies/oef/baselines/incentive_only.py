"""Sharing incentive only: the largest total in which no tenant gets less than its part of an equal split.

The paper uses it to show that efficiency and strategy-proofness conflict (section 3.1.1).
"""

from __future__ import annotations

from rm_plugin.policies.oef.baselines.linear_rule import most_efficient
from rm_plugin.policies.oef.fair_share import FairShare, equal_split
from rm_plugin.policies.oef.programme import Variables
from rm_plugin.policies.oef.speedup import Speedups
from rm_plugin.solvers.linear import Constraint, MakeModel


def incentive_only(speedups: Speedups, make_model: MakeModel) -> FairShare:
    """Maximise the total subject to W_l . x_l >= W_l . m pi_l / (sum of pi)."""
    return most_efficient(speedups, make_model, _incentive_constraints)


def _incentive_constraints(speedups: Speedups, variables: Variables) -> list[Constraint]:
    least = (speedups.matrix * equal_split(speedups)).sum(axis=1)
    used = variables >= 0
    return [
        Constraint(
            columns=variables[tenant, used[tenant]],
            values=speedups.matrix[tenant, used[tenant]],
            lower=float(least[tenant]),
        )
        for tenant in range(len(least))
    ]
