"""From fractional shares to whole GPUs, round by round, without losing or inventing any (Middleware'24, section 4.3).

Every tenant carries a *deviation* for each GPU type: the GPUs it should have had so far, minus those it had. Its
*claim* in a round is its ideal share plus its deviation. So a third of a GPU becomes a whole GPU in every third round.

The paper rounds each claim to the nearest number, which exceeds the capacity in most instances. Here the largest
remainders win, GPU type by GPU type. A tenant that holds less than its smallest gang could start nothing, so it gives
its GPUs back, and they are offered again. A round has these steps:

    1. claim = ideal + deviation
    2. by type: the floors of all claims. While they exceed the capacity, the smallest claim gives one back. While GPUs
    are
       left, one each by descending remainder; ties by claim, then by tenant id.
    3. A tenant releases what exceeds its demand, and everything if it has less than its smallest gang.
    4. Released GPUs are offered again by descending backlog, the sum of (claim - granted). A tenant that holds GPUs
    takes up
       to its backlog, at least one. One without needs its smallest gang at once.
    5. deviation = claim - granted. A tenant whose whole demand was met keeps no positive deviation. Negative deviations
       shrink in proportion until they equal the positive ones of the type: who used GPUs that no other tenant wanted
       owes them to nobody. Without this, such debts grow for ever.

Example: three tenants with a third of one GPU each are served in turn: 1, 2, 3, 1, 2, 3, ..
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from themis.values import Value

Shares = Mapping[str, tuple[float, ...]]
"""Numbers by tenant and GPU type: ideal shares, or deviations."""

Whole = Mapping[str, tuple[int, ...]]
"""Whole GPUs by tenant and type."""

_NEGLIGIBLE = 1e-9

Claims = NDArray[np.float64]
Granted = NDArray[np.int64]


class GangLimits(Value, frozen=True, kw_only=True):
    """What a tenant can use in a round: the smallest gang of its jobs, and all their largest gangs together."""

    smallest: int
    most: int


class Rounded(Value, frozen=True, kw_only=True):
    """The decision of a round, and the state that the next round needs. Both hold the tenants of the ideal shares."""

    granted: Whole
    deviation: Shares


def round_shares(
    capacity: tuple[int, ...], ideal: Shares, deviation: Shares, limits: Mapping[str, GangLimits]
) -> Rounded:
    """Round the shares of one round.

    Args:
        capacity: Devices by type.
        ideal: The fair shares.
        deviation: From the last round. Tenants that joined begin at 0, those that left are dropped.
        limits: By tenant; every tenant of `ideal` has limits.

    Returns:
        GPUs by tenant, at most the capacity; none, or at least the tenant's smallest gang.
    """
    tenants = sorted(ideal)
    if not tenants:
        return Rounded(granted={}, deviation={})
    nothing = (0.0,) * len(capacity)
    claims = np.array([np.add(ideal[tenant], deviation.get(tenant, nothing)) for tenant in tenants])
    granted = np.column_stack([_largest_remainder(claims[:, number], have) for number, have in enumerate(capacity)])
    _release(granted, claims, [limits[tenant] for tenant in tenants])
    _offer_again(granted, claims, capacity, [limits[tenant] for tenant in tenants])
    after = claims - granted
    for row, tenant in enumerate(tenants):
        if granted[row].sum() >= limits[tenant].most:
            after[row] = np.minimum(after[row], 0.0)
    owed, debts = np.maximum(after, 0.0).sum(axis=0), np.maximum(-after, 0.0).sum(axis=0)
    after = np.where(after < 0, after * np.minimum(1.0, owed / np.maximum(debts, _NEGLIGIBLE)), after)
    return Rounded(
        granted={tenant: tuple(map(int, granted[row])) for row, tenant in enumerate(tenants)},
        deviation={tenant: tuple(map(float, after[row])) for row, tenant in enumerate(tenants)},
    )


def _largest_remainder(claims: Claims, devices: int) -> Granted:
    """Step 2 for one type: whole GPUs that add up to the devices."""
    positive = np.maximum(claims, 0.0)
    granted: Granted = np.floor(positive + _NEGLIGIBLE).astype(np.int64)
    while granted.sum() > devices:
        holders = np.flatnonzero(granted > 0)
        granted[holders[claims[holders].argmin()]] -= 1
    remainders = positive - granted
    # Rounded, so that noise of the solver does not decide ties.
    order = np.lexsort((-np.round(claims, 9), -np.round(remainders, 9)))
    while granted.sum() < devices:
        for row in order[: devices - int(granted.sum())]:
            granted[row] += 1
    return granted


def _release(granted: Granted, claims: Claims, limits: list[GangLimits]) -> None:
    """Step 3, in place: the least claimed type is released first."""
    for row, limit in enumerate(limits):
        for number in np.argsort(claims[row], kind="stable"):
            excess = int(granted[row].sum()) - limit.most
            granted[row, number] -= min(max(excess, 0), granted[row, number])
        if granted[row].sum() < limit.smallest:
            granted[row] = 0


def _offer_again(granted: Granted, claims: Claims, capacity: tuple[int, ...], limits: list[GangLimits]) -> None:
    """Step 4, in place: every tenant is asked once, then again while anyone takes something."""
    free = np.array(capacity) - granted.sum(axis=0)
    took = True
    while took and free.sum() > 0:
        took = False
        backlog = (claims - granted).sum(axis=1)
        for row in sorted(range(len(limits)), key=lambda row: (-round(backlog[row], 9), row)):
            held = int(granted[row].sum())
            wanted = max(1, round(backlog[row])) if held else max(limits[row].smallest, math.floor(backlog[row]))
            takes = min(wanted, limits[row].most - held, int(free.sum()))
            if takes <= 0 or held + takes < limits[row].smallest:
                continue
            took = True
            for number in sorted(
                range(len(capacity)), key=lambda number: (granted[row, number] - claims[row, number], number)
            ):
                part = min(takes, int(free[number]))
                granted[row, number] += part
                free[number] -= part
                takes -= part
