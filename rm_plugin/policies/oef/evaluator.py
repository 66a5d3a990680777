"""The fair share evaluator: the programme of each mode, and what to do if the solver fails (Middleware'24, 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

import numpy as np

from rm_plugin.policies.oef.bounded_demand import cooperative_with_demand
from rm_plugin.policies.oef.fair_share import FairShare, ShareStatus
from rm_plugin.policies.oef.noncooperative import noncooperative
from rm_plugin.policies.oef.speedup import Instance, Speedups, normalise
from rm_plugin.solvers.linear import MakeModel

Rule = Callable[[Speedups], FairShare]
"""An allocation rule: one of the two modes, or a baseline."""


class Mode(StrEnum):
    """The fairness that the administrator selects."""

    COOPERATIVE = "cooperative"
    NONCOOPERATIVE = "noncooperative"


def rule_of(mode: Mode, make_model: MakeModel) -> Rule:
    """The rule of a mode."""
    programme = cooperative_with_demand if mode is Mode.COOPERATIVE else noncooperative
    return lambda speedups: programme(speedups, make_model)


def evaluate(instance: Instance, rule: Rule, previous: Mapping[str, tuple[float, ...]] | None = None) -> FairShare:
    """Compute the fair shares of an instance.

    Args:
        instance: The present types, capacity and tenants.
        rule: From `rule_of`, or a baseline.
        previous: The shares of the last round. If the solver fails and the tenants are the same, they continue, scaled
            down to the present capacity. Otherwise a failure means the equal split.

    Raises:
        InputError: The instance cannot be used; the message names the field.
    """
    speedups = normalise(instance)
    if not speedups.tenant_ids:
        nothing = np.zeros((0, len(instance.types)))
        return FairShare(status=ShareStatus.OPTIMAL, speedups=speedups, matrix=nothing)
    fair = rule(speedups)
    if fair.status is ShareStatus.OPTIMAL or previous is None or set(previous) != set(fair.share):
        return fair
    matrix = np.array([previous[tenant] for tenant in speedups.tenant_ids])
    scale = np.minimum(1.0, speedups.capacity / np.maximum(matrix.sum(axis=0), 1e-12))
    return FairShare(status=ShareStatus.PREVIOUS, speedups=speedups, matrix=matrix * scale)
