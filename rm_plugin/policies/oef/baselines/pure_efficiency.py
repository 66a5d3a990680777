"""Pure efficiency: the largest total, however unequal (Middleware'24, equation 4). An upper bound for every rule."""

from __future__ import annotations

from rm_plugin.policies.oef.baselines.linear_rule import most_efficient
from rm_plugin.policies.oef.fair_share import FairShare
from rm_plugin.policies.oef.speedup import Speedups
from rm_plugin.solvers.linear import MakeModel


def pure_efficiency(speedups: Speedups, make_model: MakeModel) -> FairShare:
    """Maximise the total within capacity. Weights have no effect."""
    return most_efficient(speedups, make_model)
