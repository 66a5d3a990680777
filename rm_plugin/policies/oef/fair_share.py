"""The result of every allocation rule: fractional GPUs by tenant and type, and how the rule arrived at them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rm_plugin.policies.oef.demand import usable_shares
from rm_plugin.policies.oef.speedup import Matrix, Speedups
from themis.values import Value

T = TypeVar("T")

SMALLEST_SHARE = 1e-9
"""GPUs. Smaller shares are noise of the solver and become 0."""


class ShareStatus(StrEnum):
    """Where shares come from: a proven optimum, or one of the two fallbacks if the LP solver fails."""

    OPTIMAL = "optimal"
    PREVIOUS = "previous"
    EQUAL_SPLIT = "equal_split"


class FairShare(Value, frozen=True, kw_only=True):
    """Shares X: GPUs by tenant and type.

    For example, two types of one GPU each and tenants (1, 2) and (1, 5): X = ((1, 1/4), (0, 3/4)) has the efficiencies
    1 + 2/4 = 1.5 and 5 * 3/4 = 3.75, and the total 5.25.

    Attributes:
        status: Where it comes from.
        speedups: The instance in normal form.
        matrix: X, GPUs of shape (tenants, types), tenants in the order of `speedups`.
        prices: By type, how much the programme's objective grows per further device: the duals of the capacity
            constraints. None if the rule is no LP, or its other constraints depend on the capacity too. A type without
            devices has no variables, and so no price.
        marginals: dE_l / dm_j: how much the efficiency of each tenant grows per further device of a type, of shape
            (tenants, types). None without prices. It holds for a small part of a device. For a whole one it
            promises too much if the optimal basis changes on the way.
        constraints: Those of the programme when it was solved; 0 if the rule is no LP.
        solves: How often the programme was solved; more than 1 by row generation.
    """

    status: ShareStatus
    speedups: Speedups
    matrix: Matrix
    prices: tuple[float | None, ...] | None = None
    marginals: Matrix | None = None
    constraints: int = 0
    solves: int = 0

    @property
    def efficiencies(self) -> NDArray[np.float64]:
        """E by tenant, in the order of `speedups`: W_l . x_l, in GPUs of the reference type.

        GPUs that a tenant cannot use count nothing.
        """
        return np.asarray((self.speedups.matrix * usable_shares(self.speedups, self.matrix)).sum(axis=1))

    @property
    def total(self) -> float:
        """The sum of all efficiencies."""
        return float(self.efficiencies.sum())

    @property
    def share(self) -> Mapping[str, tuple[float, ...]]:
        """GPUs by tenant and type, tenants by id, those that were left out included."""
        return self._by_tenant(self.matrix)

    @property
    def marginal(self) -> Mapping[str, tuple[float, ...]]:
        """`marginals` by tenant, tenants by id, those that were left out included. Empty without prices."""
        return MappingProxyType({}) if self.marginals is None else self._by_tenant(self.marginals)

    @property
    def efficiency(self) -> Mapping[str, float]:
        """E by tenant, tenants by id, those that were left out included."""
        efficiency = dict(zip(self.speedups.tenant_ids, map(float, self.efficiencies), strict=True))
        return _by_id({**dict.fromkeys(self.speedups.left_out, 0.0), **efficiency})

    def _by_tenant(self, matrix: Matrix) -> Mapping[str, tuple[float, ...]]:
        rows = {
            tenant_id: tuple(map(float, row)) for tenant_id, row in zip(self.speedups.tenant_ids, matrix, strict=True)
        }
        return _by_id({**dict.fromkeys(self.speedups.left_out, (0.0,) * matrix.shape[1]), **rows})


def clean(matrix: Matrix, capacity: NDArray[np.float64]) -> Matrix:
    """Return shares without the solver's noise, and never more than the capacity."""
    shares = np.where(matrix < SMALLEST_SHARE, 0.0, matrix)
    return np.asarray(shares * np.minimum(1.0, capacity / np.maximum(shares.sum(axis=0), SMALLEST_SHARE)))


def equal_split(speedups: Speedups) -> Matrix:
    """Each tenant's part of every type in proportion to its weight: max-min fairness that ignores speedups."""
    return np.outer(speedups.weights / max(speedups.weights.sum(), SMALLEST_SHARE), speedups.capacity)


def _by_id(values: Mapping[str, T]) -> Mapping[str, T]:
    return MappingProxyType(dict(sorted(values.items())))
