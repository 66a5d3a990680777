"""What its shares mean to each tenant: sharing incentive, envy, Pareto gap, gain from a lie, one more device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace
from numpy.typing import NDArray

from rm_plugin.policies.oef.demand import usable, usable_shares, worth_of_shares
from rm_plugin.policies.oef.evaluator import Rule
from rm_plugin.policies.oef.fair_share import FairShare, equal_split
from rm_plugin.policies.oef.programme import capacity_constraints, demand_constraints, share_variables
from rm_plugin.policies.oef.speedup import Instance, Tenant, normalise
from rm_plugin.solvers.linear import Constraint, LinearStatus, MakeModel
from themis.values import Value


class Envy(Value, frozen=True, kw_only=True):
    """A tenant that prefers another's GPUs.

    Attributes:
        of: The tenant whose GPUs it prefers most, after scaling them to its own weight.
        by: How much larger its efficiency would be, in GPUs of the reference type.
    """

    of: str
    by: float


def sharing_incentive(fair: FairShare) -> Mapping[str, float]:
    """Each tenant's efficiency, divided by that of its part of an equal split; 1 or more is an incentive to share.

    Both count only GPUs that the tenant can use.

    A tenant that is left out has 1: its part of an equal split is worth nothing to it either. Example: one K80 and one
    V100; tenants (1, 2) and (1, 5). With the K80 and 1/4 of the V100 the first has 1.5, as with half of each GPU: its
    ratio is 1. The second has 3/4 * 5 = 3.75 instead of 3: its ratio is 1.25.
    """
    speedups = fair.speedups
    if speedups.demand is None:
        parts = speedups.weights / max(speedups.weights.sum(), 1e-12)
        split = parts * (speedups.matrix @ speedups.capacity)
    else:
        split = (speedups.matrix * usable_shares(speedups, equal_split(speedups))).sum(axis=1)
    ratios = fair.efficiencies / split
    by_tenant = dict(zip(speedups.tenant_ids, map(float, ratios), strict=True))
    return dict(sorted({**dict.fromkeys(speedups.left_out, 1.0), **by_tenant}.items()))


def envy_matrix(fair: FairShare) -> NDArray[np.float64]:
    """By (tenant, other) in the instance's order: the other's GPUs, scaled to the tenant's weight, minus its own.

    Both count only GPUs that the tenant can use.
    """
    weights = fair.speedups.weights
    worth = worth_of_shares(fair.speedups, fair.matrix / weights[:, None]) * weights[:, None]
    return np.asarray(worth - np.diag(worth)[:, None])


def largest_envy(fair: FairShare, least: float = 1e-6) -> Mapping[str, Envy]:
    """The tenants that envy another by more than `least`, each with the one it envies most.

    Example: one K80 and one V100; tenants (1, 2) and (1, 5). If the first has the V100 and the second the K80, the
    second envies the first by 5 - 1 = 4. The first would lose: 1 - 2 = -1.
    """
    found = {}
    for tenant_id, envies in zip(fair.speedups.tenant_ids, envy_matrix(fair), strict=True):
        other = int(envies.argmax())
        if envies[other] > least:
            found[tenant_id] = Envy(of=fair.speedups.tenant_ids[other], by=float(envies[other]))
    return dict(sorted(found.items()))


def pareto_gap(fair: FairShare, make_model: MakeModel) -> float:
    """How much the total could grow without a loss for any tenant; 0 is Pareto efficient. NaN if the solver fails."""
    speedups, variables = fair.speedups, share_variables(fair.speedups)
    used = variables >= 0
    model = make_model(speedups.matrix[used])
    keep = [
        Constraint(
            columns=variables[tenant, used[tenant]],
            values=speedups.matrix[tenant, used[tenant]],
            lower=float(efficiency),
        )
        for tenant, efficiency in enumerate(fair.efficiencies * (1 - 1e-9))
    ]
    within = [*capacity_constraints(speedups, variables), *demand_constraints(speedups, variables)]
    model.add_constraints([*keep, *within])
    optimum = model.maximise()
    return max(0.0, optimum.objective - fair.total) if optimum.status is LinearStatus.OPTIMAL else float("nan")


def true_efficiency(fair: FairShare, tenant: Tenant, reference: int) -> float:
    """The efficiency of a tenant's GPUs by its true speedups, whatever it claimed."""
    share = np.array(fair.share[tenant.tenant_id])
    if tenant.demand is not UNSET:
        share = usable(np.array(tenant.speedup), share[None], tenant.demand)[0]
    return float(np.dot(tenant.speedup, share)) / tenant.speedup[reference]


def gain_from_lie(instance: Instance, rule: Rule, tenant_id: str, claim: tuple[float, ...]) -> float:
    """How much a tenant's true efficiency grows if it claims another speedup vector; negative if it loses.

    Raises:
        InputError: The claim is no speedup vector.
        StopIteration: No such tenant.
    """
    tenant = next(each for each in instance.tenants if each.tenant_id == tenant_id)
    honest = normalise(instance)
    claims = (replace(each, speedup=claim) if each is tenant else each for each in instance.tenants)
    lied = normalise(Instance(types=instance.types, capacity=instance.capacity, tenants=tuple(claims)))
    after = true_efficiency(rule(lied), tenant, honest.reference)
    return after - true_efficiency(rule(honest), tenant, honest.reference)


def one_more(instance: Instance, rule: Rule, fair: FairShare, gpu_type: str) -> Mapping[str, float]:
    """What one more device of a type would be worth to each tenant: the change of its efficiency.

    It follows from the last basis of the programme (`FairShare.marginals`). A policy explains its shares by the same
    numbers. They add up to the price of the type. So the tenants together gain at most this from a whole device, and
    less if the optimal basis changes on the way. A rule without prices is computed again with one more device, and
    so is every rule for a type without devices, which has no variables.

    Example: one K80 and one V100; tenants (1, 2) and (1, 5). With another V100 the cooperative total grows by 3.5: by 1
    for the first, which then has the K80 and 3/4 of a V100, and by 2.5 for the second.

    Args:
        instance: What the shares were computed from.
        rule: The rule that computed them.
        fair: Its result.
        gpu_type: The type.

    Raises:
        ValueError: No such type.
    """
    number = instance.types.index(gpu_type)
    if fair.marginal and instance.capacity[number]:
        return {tenant: row[number] for tenant, row in fair.marginal.items()}
    capacity = tuple(devices + (place == number) for place, devices in enumerate(instance.capacity))
    larger = rule(normalise(Instance(types=instance.types, capacity=capacity, tenants=instance.tenants))).efficiency
    return {tenant: larger[tenant] - before for tenant, before in fair.efficiency.items()}
