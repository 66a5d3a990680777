"""Rules that maximise the total efficiency within capacity and further constraints."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rm_plugin.policies.oef.fair_share import FairShare
from rm_plugin.policies.oef.programme import Variables, capacity_constraints, fair_share, share_variables
from rm_plugin.policies.oef.speedup import Speedups
from rm_plugin.solvers.linear import Constraint, MakeModel

MakeConstraints = Callable[[Speedups, Variables], Sequence[Constraint]]


def most_efficient(
    speedups: Speedups, make_model: MakeModel, make_constraints: MakeConstraints | None = None
) -> FairShare:
    """Maximise the sum of W_l . x_l subject to capacity and the constraints of `make_constraints`."""
    variables = share_variables(speedups)
    model = make_model(speedups.matrix[variables >= 0])
    constraints = capacity_constraints(speedups, variables)
    if make_constraints is not None:
        constraints += make_constraints(speedups, variables)
    model.add_constraints(constraints)
    optimum = model.maximise()
    return fair_share(
        speedups, variables, model, optimum, capacity_at=None if make_constraints else 0, constraints=len(constraints)
    )
