"""Gandiva_fair (EuroSys'20): begin with max-min fairness, then trade slow GPUs for fast ones at second prices.

For a slow type s and a fast type f, a tenant's ratio is w^f / w^s: how many slow GPUs a fast one is worth to it. The
buyer has the greatest ratio of the holders of s, the seller the least of the holders of f. The pair of types with the
greatest quotient of buyer's and seller's ratio trades first. The price, in slow GPUs for one fast GPU, is the greatest
ratio of the other holders of s, if it exceeds the seller's. Otherwise it is the mean of buyer's and seller's ratio. A
trade ends when the buyer has no slow GPU left, or the seller no fast one.

Example: one GPU of each of two types; tenants (1, 2), (1, 3), (1, 4). The third buys from the first at 3, then the
second buys from the first at 2.5.
"""

from __future__ import annotations

import numpy as np

from rm_plugin.policies.oef.fair_share import FairShare, ShareStatus, clean, equal_split
from rm_plugin.policies.oef.speedup import Matrix, Speedups
from rm_plugin.solvers.linear import Vector
from themis.values import Value

_HOLDS = 1e-12
"""GPUs; a tenant with less of a type does not hold it."""


class Trade(Value, frozen=True, kw_only=True):
    """One trade: the buyer gives `price * gpus` of the slow type for `gpus` of the fast one."""

    buyer: str
    seller: str
    slow: int
    fast: int
    price: float
    gpus: float


def gandiva_fair(speedups: Speedups) -> FairShare:
    """The shares after all trades."""
    matrix, _ = trades_of(speedups)
    return FairShare(status=ShareStatus.OPTIMAL, speedups=speedups, matrix=clean(matrix, speedups.capacity))


def trades_of(speedups: Speedups) -> tuple[Matrix, list[Trade]]:
    """The shares, and the trades in order. Tenants that tie come in the order of the instance."""
    shares = equal_split(speedups)
    trades: list[Trade] = []
    while (best := _best_pair(speedups.matrix, shares)) is not None:
        slow, fast, buyer, seller = best
        ratios = _ratios(speedups.matrix, slow, fast)
        others = [
            ratios[tenant]
            for tenant in np.flatnonzero(shares[:, slow] > _HOLDS)
            if tenant != buyer and ratios[tenant] > ratios[seller] * (1 + _HOLDS)
        ]
        price = float(max(others)) if others else float(ratios[buyer] + ratios[seller]) / 2
        all_slow, all_fast = shares[buyer, slow] / price, shares[seller, fast]
        gpus = float(min(all_slow, all_fast))
        shares[seller, slow] += gpus * price
        shares[buyer, fast] += gpus
        # The tenant that runs out keeps exactly 0, so that rounding errors are not traded.
        shares[buyer, slow] = 0.0 if all_slow <= all_fast else shares[buyer, slow] - gpus * price
        shares[seller, fast] = 0.0 if all_fast <= all_slow else shares[seller, fast] - gpus
        names = speedups.tenant_ids
        trades.append(Trade(buyer=names[buyer], seller=names[seller], slow=slow, fast=fast, price=price, gpus=gpus))
    return shares, trades


def _best_pair(matrix: Matrix, shares: Matrix) -> tuple[int, int, int, int] | None:
    """The (slow type, fast type, buyer, seller) of the greatest quotient of ratios above 1; None ends the trading."""
    best, found = 1.0 + 1e-9, None
    types = matrix.shape[1]
    for slow in range(types):
        for fast in range(slow + 1, types):
            ratios = _ratios(matrix, slow, fast)
            buyers = np.flatnonzero((shares[:, slow] > _HOLDS) & (ratios > 0))
            sellers = np.flatnonzero((shares[:, fast] > _HOLDS) & (ratios > 0))
            if not (len(buyers) and len(sellers)):
                continue
            buyer = int(buyers[ratios[buyers].argmax()])
            seller = int(sellers[ratios[sellers].argmin()])
            if ratios[buyer] / ratios[seller] > best:
                best, found = float(ratios[buyer] / ratios[seller]), (slow, fast, buyer, seller)
    return found


def _ratios(matrix: Matrix, slow: int, fast: int) -> Vector:
    """By tenant, how many slow GPUs a fast one is worth; 0 for tenants that cannot use both types and do not trade."""
    usable = (matrix[:, slow] > 0) & (matrix[:, fast] > 0)
    return np.where(usable, matrix[:, fast] / np.where(usable, matrix[:, slow], 1.0), 0.0)
