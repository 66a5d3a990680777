"""From fractional shares to whole GPUs, round by round, without losing or inventing any (Middleware'24, section 4.3).

Every tenant carries a *deviation* for each GPU type: GPUs it should have had so far, minus those it had. Its *claim*
in a round is its ideal share plus its deviation. So a third of a GPU becomes a whole GPU in every third round.

The paper rounds each claim to the nearest number, which exceeds the capacity in most instances. Here the largest
remainders win, GPU type by GPU type. A tenant that holds less than its smallest gang could start nothing, so it gives
its GPUs back, and they are offered again. A round has these steps:

    1. claim = ideal + deviation
    2. by type: the floors of all claims. While they exceed the capacity, the smallest claim gives one back. While GPUs
       are left, one each by descending remainder; ties by claim, then by tenant id.
    3. A tenant releases what exceeds its demand, of the type that it claims least; ties: its own slowest type. It
       releases everything if it has less than its smallest gang.
    4. A tenant without GPUs whose claims add up to its smallest gang, and to one GPU more for every further type, gets
       that gang: of free GPUs, then of those of tenants that are owed less, the least first. (The paper has no such
       step. Without it a tenant whose gang needs GPUs of a type to which it has no claim may wait for ever. The margin
       is what claims below one GPU of each type may add up to; they are rounded up in their turn.)
    5. Other released GPUs are offered by descending backlog, the sum of (claim - granted). A tenant that holds GPUs
       takes up to its backlog, at least one. One without needs its smallest gang at once.
    6. deviation = claim - granted, settled so that it stays bounded: see `_settle`.

Example: three tenants with a third of one GPU each are served in turn: 1, 2, 3, 1, 2, 3, .. In the first round all
claims are 1/3, and tenant 1 gets the GPU. Then the deviations are -2/3, 1/3, 1/3, so the claims are -1/3, 2/3, 2/3, and
tenant 2 gets it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from themis.values import Value

Shares = Mapping[str, tuple[float, ...]]
"""Numbers by tenant and GPU type: ideal shares, or deviations."""

Whole = Mapping[str, tuple[int, ...]]
"""Whole GPUs by tenant and type."""

_NEGLIGIBLE = 1e-9

Claims = NDArray[np.float64]
Granted = NDArray[np.int64]
Usable = NDArray[np.bool_]


class GangLimits(Value, frozen=True, kw_only=True):
    """What a tenant can use in a round.

    Attributes:
        smallest: Workers of the smallest gang of its jobs.
        most: Workers of the largest gangs of all its jobs together.
        speedup: Its speedup by GPU type, 0 where its jobs cannot run: it is granted none of these. Without entries it
            runs on all types, equally fast.
    """

    smallest: int
    most: int
    speedup: tuple[float, ...] = ()

    def on(self, number: int) -> float:
        """The speedup on a type."""
        return self.speedup[number] if self.speedup else 1.0


class Rounded(Value, frozen=True, kw_only=True):
    """The decision of a round, and the state that the next round needs. Both hold the tenants of the ideal shares."""

    granted: Whole
    deviation: Shares


def round_shares(
    capacity: tuple[int, ...], ideal: Shares, deviation: Shares, limits: Mapping[str, GangLimits]
) -> Rounded:
    """Round the shares of one round.

    For example, two tenants that are due half a GPU each take turns on one:

        >>> ideal = {"a": (0.5,), "b": (0.5,)}
        >>> limits = dict.fromkeys(ideal, GangLimits(smallest=1, most=1))
        >>> first = round_shares((1,), ideal, {}, limits)
        >>> first.granted, first.deviation
        ({'a': (1,), 'b': (0,)}, {'a': (-0.5,), 'b': (0.5,)})
        >>> round_shares((1,), ideal, first.deviation, limits).granted
        {'a': (0,), 'b': (1,)}

    Args:
        capacity: Devices by type.
        ideal: The fair shares.
        deviation: From the last round. Tenants that joined begin at 0, those that left are dropped.
        limits: By tenant; every tenant of `ideal` has limits.

    Returns:
        GPUs by tenant, at most the capacity; none, or at least the tenant's smallest gang.
    """
    nothing = (0.0,) * len(capacity)
    claims = {
        tenant_id: tuple(map(float, np.add(share, deviation.get(tenant_id, nothing))))
        for tenant_id, share in ideal.items()
    }
    granted = grant_claims(capacity, claims, limits)
    return Rounded(granted=granted, deviation=settle_claims(claims, granted, limits))


def grant_claims(capacity: tuple[int, ...], claims: Shares, limits: Mapping[str, GangLimits]) -> Whole:
    """Steps 2 to 5: whole GPUs by tenant and type.

    Args:
        capacity: Devices that are on offer, by type.
        claims: Step 1. They may add up to more or less than the capacity.
        limits: By tenant.
    """
    tenant_ids = sorted(claims)
    if not tenant_ids:
        return {}
    owed = np.array([claims[tenant_id] for tenant_id in tenant_ids])
    bounds = [limits[tenant_id] for tenant_id in tenant_ids]
    usable = np.array([[limit.on(number) > 0.0 for number in range(len(capacity))] for limit in bounds])
    granted = np.column_stack(
        [_largest_remainder(owed[:, number], usable[:, number], have) for number, have in enumerate(capacity)]
    )
    _release(granted, owed, bounds)
    _serve_owed_gangs(granted, owed, usable, capacity, bounds)
    _offer_again(granted, owed, usable, capacity, bounds)
    return {tenant_id: tuple(map(int, granted[tenant])) for tenant, tenant_id in enumerate(tenant_ids)}


def settle_claims(claims: Shares, used: Whole, limits: Mapping[str, GangLimits]) -> Shares:
    """Step 6: the deviations after a round.

    Args:
        claims: What each tenant should have had.
        used: What it had.
        limits: By tenant.
    """
    tenant_ids = sorted(claims)
    if not tenant_ids:
        return {}
    had = np.array([used[tenant_id] for tenant_id in tenant_ids])
    owed = np.array([claims[tenant_id] for tenant_id in tenant_ids])
    after = _settle(owed - had, had, [limits[tenant_id] for tenant_id in tenant_ids])
    return {tenant_id: tuple(map(float, after[tenant])) for tenant, tenant_id in enumerate(tenant_ids)}


def _largest_remainder(claims: Claims, usable: Usable, devices: int) -> Granted:
    """Step 2 for one type: whole GPUs that add up to the devices, if any tenant can use them."""
    positive = np.where(usable, np.maximum(claims, 0.0), 0.0)
    granted: Granted = np.floor(positive + _NEGLIGIBLE).astype(np.int64)
    while granted.sum() > devices:
        holders = np.flatnonzero(granted > 0)
        granted[holders[claims[holders].argmin()]] -= 1
    remainders = positive - granted
    # Rounded, so that noise of the solver does not decide ties.
    order = np.lexsort((-np.round(claims, 9), -np.round(remainders, 9)))
    order = order[usable[order]]
    while len(order) and granted.sum() < devices:
        for tenant in order[: devices - int(granted.sum())]:
            granted[tenant] += 1
    return granted


def _release(granted: Granted, claims: Claims, limits: list[GangLimits]) -> None:
    """Do step 3 in place. The least claimed type is released first; of equal claims, the tenant's slowest type."""
    for tenant, limit in enumerate(limits):
        # Rounded, so that noise of the solver does not decide ties.
        least = [(round(claim, 9), limit.on(number), number) for number, claim in enumerate(claims[tenant])]
        for _, _, number in sorted(least):
            excess = int(granted[tenant].sum()) - limit.most
            granted[tenant, number] -= min(max(excess, 0), granted[tenant, number])
        if granted[tenant].sum() < limit.smallest:
            granted[tenant] = 0


def _serve_owed_gangs(
    granted: Granted, claims: Claims, usable: Usable, capacity: tuple[int, ...], limits: list[GangLimits]
) -> None:
    """Step 4, in place. A tenant that loses GPUs here and falls below its own smallest gang releases the rest."""
    owed = claims.sum(axis=1)
    served: set[int] = set()
    for tenant in sorted(range(len(limits)), key=lambda tenant: (-round(owed[tenant], 9), tenant)):
        gang = limits[tenant].smallest
        enough = gang + len(capacity) - 1
        if granted[tenant].any() or owed[tenant] < enough - _NEGLIGIBLE or limits[tenant].most < gang:
            continue
        backlog = (claims - granted).sum(axis=1)
        givers = [
            other
            for other in sorted(range(len(limits)), key=lambda other: (round(backlog[other], 9), other))
            if other not in served and granted[other].any() and backlog[other] < owed[tenant] - _NEGLIGIBLE
        ]
        # Neither what is free nor what others hold counts if this tenant cannot use its type.
        can_use, devices = usable[tenant], np.array(capacity)
        free = devices - granted.sum(axis=0)
        if int((free + granted[givers].sum(axis=0))[can_use].sum()) < gang:
            continue
        for giver in givers:
            lacking = gang - int((devices - granted.sum(axis=0))[can_use].sum())
            if lacking <= 0:
                break
            keeps = max(0, int(granted[giver].sum()) - lacking)
            _release(granted[giver : giver + 1], claims[giver : giver + 1], [_at_most(limits[giver], keeps)])
        free = devices - granted.sum(axis=0)
        if int(free[can_use].sum()) >= gang:
            _take(granted, claims, can_use, tenant, gang, free)
            served.add(tenant)


def _at_most(limit: GangLimits, gpus: int) -> GangLimits:
    return replace(limit, most=gpus)


def _offer_again(
    granted: Granted, claims: Claims, usable: Usable, capacity: tuple[int, ...], limits: list[GangLimits]
) -> None:
    """Step 5, in place: all tenants get an offer, again and again while a tenant takes something."""
    free = np.array(capacity) - granted.sum(axis=0)
    took = True
    while took and free.sum() > 0:
        took = False
        backlog = (claims - granted).sum(axis=1)
        for tenant in sorted(range(len(limits)), key=lambda tenant: (-round(backlog[tenant], 9), tenant)):
            held = int(granted[tenant].sum())
            limit = limits[tenant]
            wanted = max(1, round(backlog[tenant])) if held else max(limit.smallest, math.floor(backlog[tenant]))
            takes = min(wanted, limit.most - held, int(free[usable[tenant]].sum()))
            if takes <= 0 or held + takes < limit.smallest:
                continue
            took = True
            _take(granted, claims, usable[tenant], tenant, takes, free)


def _take(granted: Granted, claims: Claims, can_use: Usable, tenant: int, gpus: int, free: Granted) -> None:
    """Give a tenant free GPUs, in place: first of the types that it is owed most."""
    owed = claims[tenant] - granted[tenant]
    for number in np.argsort(-owed, kind="stable"):
        part = min(gpus, int(free[number])) if can_use[number] else 0
        granted[tenant, number] += part
        free[number] -= part
        gpus -= part


def _settle(deviation: Claims, granted: Granted, limits: list[GangLimits]) -> Claims:
    """Step 6: the deviations that the next round begins with.

    - A tenant whose whole demand was met has no claim to more later: its deviations add up to at most 0.
    - A gang over several types has GPUs of one type too many and of another too few, in every round. Of such opposite
      deviations a tenant keeps at most its smallest gang, and one GPU for each type.
    - Negative deviations shrink in proportion until they equal the positive ones of the type: who used GPUs that no
      other tenant wanted owes them to no other tenant.
    """
    after = deviation.copy()
    for tenant, limit in enumerate(limits):
        positive, negative = np.maximum(after[tenant], 0.0), np.maximum(-after[tenant], 0.0)
        more, less = float(positive.sum()), float(negative.sum())
        met = granted[tenant].sum() >= limit.most
        cancelled = max(0.0, min(more, less) - limit.smallest - after.shape[1])
        keep_more = min(more, less) if met else more
        keep_more, keep_less = max(0.0, keep_more - cancelled), less - cancelled
        after[tenant] = positive * (keep_more / more if more else 0.0) - negative * (keep_less / less if less else 0.0)
    owed, debts = np.maximum(after, 0.0).sum(axis=0), np.maximum(-after, 0.0).sum(axis=0)
    return np.where(after < 0, after * np.minimum(1.0, owed / np.maximum(debts, _NEGLIGIBLE)), after)
