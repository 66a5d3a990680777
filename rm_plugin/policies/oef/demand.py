"""What tenants can use of GPUs if they cannot use any number of them: few jobs, small gangs.

A tenant of demand d that may choose among GPUs z uses at most d of them, the fastest first:

    use(z) = max { W . y : 0 <= y <= z, sum of y <= d }

Envy and sharing incentive count what a tenant can use: use(z) in place of W . z. As a bound from above, use(z) is
linear in z for each *level* v >= 0, and the least of these bounds is use(z) itself:

    use(z) <= v d + sum over j of max(W^j - v, 0) z^j

It is reached at the speedup of the slowest GPU that the tenant uses of z, or at 0 if z has fewer GPUs than d.

Example: speedups (1, 3), a demand of 2, and z = (4, 1). It uses the fast GPU and one slow one, so use(z) = 4. The level
is 1: the bound is 1 * 2 + 0 * 4 + 2 * 1 = 4. With level 0 it is 7, as without a demand.
"""

from __future__ import annotations

import numpy as np

from rm_plugin.policies.oef.speedup import Matrix, Speedups
from rm_plugin.solvers.linear import Vector
from themis.errors import InvariantError
from themis.values import Value

_ROUNDING = 1e-12


class LinearBounds(Value, frozen=True, kw_only=True):
    """What tenants can use of each other's shares per weight, bounded by linear functions; rows are tenants.

    Attributes:
        matrix: The speedup vectors of all tenants.
        levels: v by (tenant, other).
        constants: v d by (tenant, other); on the diagonal what the tenant can use of its part of the equal split.
        split_slopes: How much this part grows per further device, by (tenant, type).
    """

    matrix: Matrix
    levels: Matrix
    constants: Matrix
    split_slopes: Matrix

    def of(self, pair: tuple[int, int]) -> tuple[Vector, float]:
        """The slopes and the constant of one bound.

        A tenant's own part of the equal split depends on no share: its slopes are 0.
        """
        tenant, other = pair
        speedup = self.matrix[tenant]
        slopes = np.zeros(len(speedup)) if tenant == other else np.maximum(speedup - self.levels[pair], 0.0)
        return slopes, float(self.constants[pair])

    def envy(self, per_weight: Matrix) -> Matrix:
        """All bounds at these shares, minus the efficiency of the tenant's own."""
        slopes = np.maximum(self.matrix[:, None, :] - self.levels[:, :, None], 0.0)
        linear = (slopes * per_weight[None, :, :]).sum(axis=2)
        np.fill_diagonal(linear, 0.0)
        own = (self.matrix * per_weight).sum(axis=1)
        return np.asarray(linear + self.constants - own[:, None])


def linear_bounds(speedups: Speedups, per_weight: Matrix) -> LinearBounds:
    """The bounds that are exact at these shares."""
    if speedups.demand is None:
        raise InvariantError("only bounded demand has bounds", value=speedups.tenant_ids)
    demand = speedups.demand / speedups.weights
    rows = list(zip(speedups.matrix, demand, strict=True))
    chosen = np.array([levels(speedup, per_weight, most) for speedup, most in rows])
    # Without a bound the level is 0, and nothing times infinity is no number.
    constants = chosen * np.where(np.isfinite(demand), demand, 0.0)[:, None]
    split = speedups.capacity[None] / speedups.weights.sum()
    np.fill_diagonal(constants, [float((usable(speedup, split, most) @ speedup)[0]) for speedup, most in rows])
    of_split = np.array([levels(speedup, split, most)[0] for speedup, most in rows])
    slopes = np.maximum(speedups.matrix - of_split[:, None], 0.0) / speedups.weights.sum()
    return LinearBounds(matrix=speedups.matrix, levels=chosen, constants=constants, split_slopes=slopes)


def usable(speedup: Vector, bundles: Matrix, demand: float) -> Matrix:
    """The GPUs that a tenant uses of each bundle.

    >>> usable(np.array([1.0, 3.0]), np.array([[4.0, 1.0]]), 2.0).tolist()
    [[1.0, 1.0]]

    Args:
        speedup: The tenant's speedups by type.
        bundles: GPUs of shape (bundles, types).
        demand: GPUs that it can use at most.
    """
    fastest_first = np.argsort(-speedup, kind="stable")
    gpus = np.where(speedup > 0.0, bundles, 0.0)[:, fastest_first]
    faster = np.cumsum(gpus, axis=1) - gpus
    used = np.empty_like(gpus)
    used[:, fastest_first] = np.minimum(gpus, np.maximum(demand - faster, 0.0))
    return used


def levels(speedup: Vector, bundles: Matrix, demand: float) -> Vector:
    """For each bundle the level at which the linear bound is what the tenant can use.

    >>> levels(np.array([1.0, 3.0]), np.array([[4.0, 1.0], [0.0, 5.0], [1.0, 0.5]]), 2.0).tolist()
    [1.0, 3.0, 0.0]

    Args:
        speedup: As in `usable`.
        bundles: As in `usable`.
        demand: As in `usable`.
    """
    fastest_first = np.argsort(-speedup, kind="stable")
    gpus = np.where(speedup > 0.0, bundles, 0.0)[:, fastest_first]
    enough = np.cumsum(gpus, axis=1) >= demand * (1.0 - _ROUNDING)
    return np.where(enough.any(axis=1), speedup[fastest_first][enough.argmax(axis=1)], 0.0)


def usable_shares(speedups: Speedups, matrix: Matrix) -> Matrix:
    """The GPUs that each tenant uses of its own share."""
    if speedups.demand is None:
        return matrix
    rows = zip(speedups.matrix, matrix, speedups.demand, strict=True)
    return np.array([usable(speedup, own[None], demand)[0] for speedup, own, demand in rows]).reshape(matrix.shape)


def worth_of_shares(speedups: Speedups, per_weight: Matrix) -> Matrix:
    """By (tenant, other): the efficiency that the tenant would have with the other's GPUs, per weight.

    Args:
        speedups: The instance in normal form.
        per_weight: Shares, each divided by its tenant's weight.
    """
    if speedups.demand is None:
        return np.asarray(speedups.matrix @ per_weight.T)
    rows = zip(speedups.matrix, speedups.demand / speedups.weights, strict=True)
    return np.array([usable(speedup, per_weight, demand) @ speedup for speedup, demand in rows])
