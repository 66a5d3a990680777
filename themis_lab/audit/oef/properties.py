"""What must hold on every instance with speedups above 0, and what the paper claims although it does not.

A check returns what is wrong, in sentences. Random choices of a check come from its `rng`, so they are the same each
time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType

import numpy as np
from msgspec.structs import replace

from rm_plugin.policies.oef.audit import envy_matrix, gain_from_lie, pareto_gap, sharing_incentive
from rm_plugin.policies.oef.cooperative import cooperative
from rm_plugin.policies.oef.fair_share import FairShare
from rm_plugin.policies.oef.registry import rule_named
from rm_plugin.policies.oef.rounding import GangLimits, Shares, round_shares
from rm_plugin.policies.oef.speedup import Instance, normalise
from rm_plugin.solvers.highs_linear import HighsModel

TOLERANCE = 1e-6
"""Relative to the total efficiency."""

_ROUNDS = 60

Check = Callable[[Instance, Random], list[str]]


def _solve(rule: str, instance: Instance) -> FairShare:
    return rule_named(rule, HighsModel)(normalise(instance))


def _inflation(instance: Instance, rng: Random) -> list[str]:
    """Theorem 5.4: no tenant gains by claiming larger speedups, under non-cooperative OEF."""
    return _lies(instance, rng, lambda: rng.uniform(1.0, 2.0))


def _understatement(instance: Instance, rng: Random) -> list[str]:
    """The same of smaller speedups, which the theorem leaves out and the paper's text does not."""
    return _lies(instance, rng, lambda: rng.uniform(0.5, 1.0))


def _lies(instance: Instance, rng: Random, draw_factor: Callable[[], float]) -> list[str]:
    tenant = rng.choice(instance.tenants)
    claim = (tenant.speedup[0], *(value * draw_factor() for value in tenant.speedup[1:]))
    gain = gain_from_lie(instance, rule_named("noncooperative", HighsModel), tenant.tenant_id, claim)
    honest = _solve("noncooperative", instance).efficiency[tenant.tenant_id]
    shown = ", ".join(f"{value:.4g}" for value in claim)
    if gain <= TOLERANCE * honest:
        return []
    return [f"{tenant.tenant_id} gains {gain:.4g} of {honest:.4g} by claiming ({shown})"]


def _equal(instance: Instance, _: Random) -> list[str]:
    """Equation 9c: efficiencies are equal by weight."""
    fair = _solve("noncooperative", instance)
    by_weight = fair.efficiencies / fair.speedups.weights
    return [f"efficiencies by weight are {by_weight}"] if np.ptp(by_weight) > TOLERANCE * fair.total else []


def _envy(instance: Instance, _: Random) -> list[str]:
    """Theorem 5.1: no envy under cooperative OEF."""
    fair = _solve("cooperative", instance)
    largest = float(envy_matrix(fair).max())
    return [f"an envy of {largest:.4g}"] if largest > TOLERANCE * max(fair.total, 1.0) * 10 else []


def _incentive(instance: Instance, _: Random) -> list[str]:
    """Theorem 5.1: each tenant has at least its part of an equal split."""
    ratios = sharing_incentive(_solve("cooperative", instance))
    return [f"{tenant} has {ratio:.6f} of it" for tenant, ratio in ratios.items() if ratio < 1 - TOLERANCE]


def _optimal(instance: Instance, _: Random) -> list[str]:
    """Row generation ends at the optimum of the full programme."""
    fair, full = _solve("cooperative", instance), cooperative(normalise(instance), HighsModel, generate_rows=False)
    wrong = abs(fair.total - full.total) > TOLERANCE * full.total
    return [f"a total of {fair.total:.9g} instead of {full.total:.9g}"] if wrong else []


def _pareto(instance: Instance, _: Random) -> list[str]:
    """Theorem 5.3, for non-cooperative OEF."""
    return _gap(_solve("noncooperative", instance))


def _cooperative_pareto(instance: Instance, _: Random) -> list[str]:
    """Theorem 5.3, for cooperative OEF."""
    return _gap(_solve("cooperative", instance))


def _gap(fair: FairShare) -> list[str]:
    gap = pareto_gap(fair, HighsModel)
    if gap <= 1e-5 * fair.total:
        return []
    return [f"the total {fair.total:.6g} could grow by {gap:.4g}, and no tenant would lose"]


def _capacity(instance: Instance, rng: Random) -> list[str]:
    """One more device lowers neither optimum."""
    place = rng.randrange(len(instance.capacity))
    devices = (*instance.capacity[:place], instance.capacity[place] + 1, *instance.capacity[place + 1 :])
    wrong = []
    for rule in ("cooperative", "noncooperative"):
        before, after = (_solve(rule, each).total for each in (instance, replace(instance, capacity=devices)))
        if after < before - TOLERANCE * before:
            wrong.append(f"{rule}: the total falls from {before:.9g} to {after:.9g}")
    return wrong


def _weights(instance: Instance, _: Random) -> list[str]:
    """Section 4.2.3: a whole weight equals that many tenants."""
    copies = tuple(
        replace(each, tenant_id=f"{each.tenant_id}-{copy}", weight=1.0)
        for each in instance.tenants
        for copy in range(int(each.weight))
    )
    wrong = []
    for rule in ("cooperative", "noncooperative"):
        one, other = (_solve(rule, each).total for each in (instance, replace(instance, tenants=copies)))
        if abs(one - other) > TOLERANCE * one:
            wrong.append(f"{rule}: a total of {one:.9g}, and {other:.9g} with replicated tenants")
    return wrong


def _demand(instance: Instance, rng: Random) -> list[str]:
    """Bounded demand: no GPUs that a tenant cannot use, no envy, and no loss by sharing, by what tenants can use."""
    demands = [float(rng.randint(1, sum(instance.capacity))) for _ in instance.tenants]
    tenants = tuple(replace(each, demand=most) for each, most in zip(instance.tenants, demands, strict=True))
    fair = _solve("cooperative", replace(instance, tenants=tenants))
    slack = TOLERANCE * max(fair.total, 1.0) * 10
    gpus = {each.tenant_id: math.fsum(fair.share[each.tenant_id]) for each in tenants}
    wrong = [
        f"{tenant} gets {gpus[tenant]:.6g} GPUs"
        for tenant, most in zip(gpus, demands, strict=True)
        if gpus[tenant] > most + slack
    ]
    largest = float(envy_matrix(fair).max())
    wrong += [f"an envy of {largest:.4g}"] if largest > slack else []
    below = {tenant: ratio for tenant, ratio in sharing_incentive(fair).items() if ratio < 1 - TOLERANCE}
    wrong += [f"{tenant} has {ratio:.6f} of an equal split" for tenant, ratio in below.items()]
    return [f"{each}, by demands of {demands}" for each in wrong]


def _order(instance: Instance, _: Random) -> list[str]:
    """Neither the order of tenants nor the scale of weights matters."""
    turned = tuple(replace(each, weight=7 * each.weight) for each in reversed(instance.tenants))
    wrong = []
    for rule in ("cooperative", "noncooperative"):
        one, other = (_solve(rule, each).efficiency for each in (instance, replace(instance, tenants=turned)))
        if any(abs(one[tenant] - other[tenant]) > TOLERANCE * sum(one.values()) for tenant in one):
            wrong.append(f"{rule}: efficiencies {dict(one)} become {dict(other)}")
    return wrong


def _vertex(instance: Instance, _: Random) -> list[str]:
    """Section 4.4: at most n + k - 1 shares are not 0, under non-cooperative OEF."""
    return _many_shares(_solve("noncooperative", instance))


def _cooperative_vertex(instance: Instance, _: Random) -> list[str]:
    """The same under cooperative OEF."""
    return _many_shares(_solve("cooperative", instance))


def _many_shares(fair: FairShare) -> list[str]:
    tenants, types = fair.matrix.shape
    shares = int((fair.matrix > 0).sum())
    return [f"{shares} shares of {tenants} tenants and {types} types"] if shares > tenants + types - 1 else []


def _neighbours(instance: Instance, _: Random) -> list[str]:
    """Theorem 5.2: a tenant's types are neighbours, under either mode. Tenants of equal speedups do not count.

    Whatever such tenants exchange, the shares remain optimal, so the solver may end at shares with a gap.
    """
    rows = {
        tuple(each / tenant.speedup[0] for each in tenant.speedup) for tenant in instance.tenants if tenant.speedup[0]
    }
    if len(rows) < len(instance.tenants):
        return []
    wrong = []
    for rule in ("cooperative", "noncooperative"):
        for tenant, share in _solve(rule, instance).share.items():
            held = [place for place, gpus in enumerate(share) if gpus > 0]
            if held and held[-1] - held[0] >= len(held):
                wrong.append(f"{rule}: {tenant} has types {[instance.types[place] for place in held]}")
    return wrong


def _rounding(instance: Instance, rng: Random) -> list[str]:
    """Rounds keep the capacity, gangs and their promise of service: within 5 max(1, gang / ideal) rounds."""
    ideal = _solve("cooperative", instance).share
    gpus = sum(instance.capacity)
    speedups = {tenant.tenant_id: tenant.speedup for tenant in instance.tenants}
    limits = {
        tenant: GangLimits(
            smallest=rng.randint(1, max(1, min(8, gpus))), most=rng.choice((gpus, 1000)), speedup=speedups[tenant]
        )
        for tenant in ideal
    }
    patience = 5 * max(1.0, *(limits[tenant].smallest / math.fsum(share) for tenant, share in ideal.items()))
    idle = dict.fromkeys(ideal, 0)
    deviation: Shares = {}
    for _ in range(_ROUNDS):
        rounded = round_shares(instance.capacity, ideal, deviation, limits)
        deviation = rounded.deviation
        used = np.array(list(rounded.granted.values())).sum(axis=0)
        if (used > np.array(instance.capacity)).any():
            return [f"grants {used} of {instance.capacity}"]
        for tenant, granted in rounded.granted.items():
            if 0 < sum(granted) < limits[tenant].smallest:
                return [f"{tenant} gets {granted}, fewer than its smallest gang of {limits[tenant].smallest}"]
            idle[tenant] = 0 if any(granted) else idle[tenant] + 1
            if idle[tenant] > patience:
                return [f"{tenant} waits for more than {patience:.0f} rounds with gangs of {limits[tenant].smallest}"]
    return []


PROPERTIES: Mapping[str, Check] = MappingProxyType(
    {
        "inflation": _inflation,
        "equal": _equal,
        "pareto": _pareto,
        "vertex": _vertex,
        "envy": _envy,
        "incentive": _incentive,
        "optimal": _optimal,
        "capacity": _capacity,
        "weights": _weights,
        "order": _order,
        "demand": _demand,
        "rounding": _rounding,
    }
)
"""What must hold."""

CLAIMS: Mapping[str, Check] = MappingProxyType(
    {
        "understatement": _understatement,
        "cooperative_pareto": _cooperative_pareto,
        "cooperative_vertex": _cooperative_vertex,
        "neighbours": _neighbours,
    }
)
"""What the paper claims and is false; counted with a small counterexample, and no violation."""
