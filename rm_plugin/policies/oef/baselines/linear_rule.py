"""Rules that maximise the total efficiency within capacity and further constraints."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rm_plugin.policies.oef.fair_share import FairShare, ShareStatus, clean, equal_split
from rm_plugin.policies.oef.programme import Variables, capacity_constraints, share_matrix, share_variables
from rm_plugin.policies.oef.speedup import Speedups
from rm_plugin.solvers.linear import Constraint, LinearStatus, MakeModel

MakeConstraints = Callable[[Speedups, Variables], Sequence[Constraint]]


def most_efficient(
    speedups: Speedups, make_model: MakeModel, make_constraints: MakeConstraints = lambda *_: ()
) -> FairShare:
    """Maximise the sum of W_l . x_l subject to capacity and the constraints of `make_constraints`."""
    variables = share_variables(speedups)
    model = make_model(speedups.matrix[variables >= 0])
    constraints = [*capacity_constraints(speedups, variables), *make_constraints(speedups, variables)]
    model.add_constraints(constraints)
    optimum = model.maximise()
    if optimum.status is not LinearStatus.OPTIMAL:
        return FairShare(status=ShareStatus.EQUAL_SPLIT, speedups=speedups, matrix=equal_split(speedups))
    return FairShare(
        status=ShareStatus.OPTIMAL,
        speedups=speedups,
        matrix=clean(share_matrix(optimum, variables), speedups.capacity),
        prices=tuple(map(float, optimum.duals[: len(speedups.capacity)])),
        constraints=len(constraints),
        solves=1,
    )
