"""Sharing incentive only: the largest total in which no tenant gets less than its part of an equal split.

The paper uses it to show that efficiency and strategy-proofness conflict (section 3.1.1).
"""

from __future__ import annotations

from rm_plugin.policies.oef.baselines.linear_rule import most_efficient
from rm_plugin.policies.oef.fair_share import FairShare, equal_split
from rm_plugin.policies.oef.programme import Variables
from rm_plugin.policies.oef.speedup import Speedups
from rm_plugin.solvers.linear import MakeModel, Row


def incentive_only(speedups: Speedups, make_model: MakeModel) -> FairShare:
    """Maximise the total subject to W_l . x_l >= W_l . m pi_l / (sum of pi)."""
    return most_efficient(speedups, make_model, _incentive_rows)


def _incentive_rows(speedups: Speedups, variables: Variables) -> list[Row]:
    least = (speedups.matrix * equal_split(speedups)).sum(axis=1)
    used = variables >= 0
    return [
        Row(columns=variables[row, used[row]], values=speedups.matrix[row, used[row]], lower=float(least[row]))
        for row in range(len(least))
    ]
