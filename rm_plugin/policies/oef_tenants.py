"""The tenants of a round: from the apps of a snapshot to virtual tenants with speedups, weights and demands."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from rm_plugin.arbiter.round_values import AppStanding, RoundSnapshot
from rm_plugin.policies.oef.rounding import GangLimits, Shares, Whole
from rm_plugin.policies.oef.speedup import MAX_RATIO, Instance, Tenant
from themis.bids import GangDemand
from themis.choices import TenantOf
from themis.cluster import Allocation, Cluster
from themis.values import Value

_DIGITS = 3
"""Significant digits of a speedup. So apps of one program are one job type although their speeds were measured."""


class TenantsOfRound(Value, frozen=True, kw_only=True):
    """Who shares the cluster in a round.

    A tenant's apps with the same speedup vector are one job type, and each job type is a virtual tenant (Middleware'24,
    section 4.2.4). It takes part in a round if one of its apps wants GPUs or keeps some.

    Attributes:
        instance: The virtual tenants that take part, and the healthy devices by type; None if there are none.
        by_app: The virtual tenant of every app whose speedups are known, silent ones included.
        speedups: The speedup vector of these apps.
        kept: GPUs that the virtual tenants keep beyond this round, by type.
        offered: GPUs on offer, by type.
        limits: What each virtual tenant can use of them.
    """

    instance: Instance | None
    by_app: Mapping[str, str]
    speedups: Mapping[str, tuple[float, ...]]
    kept: Whole
    offered: tuple[int, ...]
    limits: Mapping[str, GangLimits]

    def claims(self, share: Shares, deviation: Shares) -> Shares:
        """What each virtual tenant should get of the GPUs on offer: share + deviation - kept."""
        nothing = (0.0,) * len(self.offered)
        return {
            tenant: tuple(
                map(lambda own, owed, kept: own + owed - kept, fair, deviation.get(tenant, nothing), self.kept[tenant])
            )
            for tenant, fair in share.items()
        }


def types_of(cluster: Cluster) -> tuple[str, ...]:
    """The device types of a cluster, the slowest first."""
    return tuple(device.name for device in sorted(cluster.present_devices, key=lambda each: (each.speed, each.name)))


def counts_by_type(cluster: Cluster, types: Sequence[str], gpus: Allocation) -> tuple[int, ...]:
    """The GPUs of an allocation by type."""
    counts = dict.fromkeys(types, 0)
    for machine_id, count in gpus:
        counts[cluster.machine(machine_id).device] += count
    return tuple(counts.values())


def startable(demands: Sequence[GangDemand]) -> tuple[GangDemand, ...]:
    """Demands of jobs without GPUs. The others extend a gang, which no tenant has a claim to before its leases end."""
    return tuple(demand for demand in demands if not demand.held)


def tenants_of(snapshot: RoundSnapshot, remembered: Mapping[str, tuple[float, ...]]) -> TenantsOfRound:
    """Return the tenants of a round.

    Args:
        snapshot: The round, with reports.
        remembered: Speedup vectors by app from earlier rounds, for apps that report no demand now.
    """
    cluster, types = snapshot.cluster, types_of(snapshot.cluster)
    demands = {app_id: startable(report.demands) for app_id, report in snapshot.answered.items()}
    speedups: dict[str, tuple[float, ...]] = {}
    by_app: dict[str, str] = {}
    apps_of: dict[str, list[AppStanding]] = {}
    owner_of: dict[str, str] = {}
    for app in snapshot.apps:
        wanted = demands.get(app.app_id, ())
        speedup = _speedup(wanted, cluster, types) if wanted else remembered.get(app.app_id)
        if speedup is None or not any(speedup):
            continue
        owner = tenant_of_app(app, snapshot.settings.tenant_of)
        tenant = f"{owner}/{':'.join(f'{value:g}' for value in speedup)}"
        speedups[app.app_id], by_app[app.app_id] = speedup, tenant
        if wanted or app.kept:
            apps_of.setdefault(tenant, []).append(app)
            owner_of[tenant] = owner
    offered = counts_by_type(cluster, types, snapshot.free)
    kept = [counts_by_type(cluster, types, app.kept) for app in snapshot.apps if app.kept]
    capacity = tuple(map(sum, zip(offered, *kept, strict=True)))
    instance = None
    if apps_of and any(capacity):
        rows = {tenant: speedups[apps[0].app_id] for tenant, apps in apps_of.items()}
        instance = Instance(types=types, capacity=capacity, tenants=_tenants(rows, _weights(apps_of, owner_of)))
    return TenantsOfRound(
        instance=instance,
        by_app=by_app,
        speedups=speedups,
        kept={
            tenant: counts_by_type(cluster, types, sum((app.kept for app in apps), Allocation()))
            for tenant, apps in apps_of.items()
        },
        offered=offered,
        limits={
            tenant: _limits(
                [demand for app in apps for demand in demands.get(app.app_id, ())], speedups[apps[0].app_id]
            )
            for tenant, apps in apps_of.items()
        },
    )


def tenant_of_app(app: AppStanding, rule: TenantOf) -> str:
    """The tenant of an app. An app without a user is a tenant of its own."""
    if rule is TenantOf.QUEUE:
        return f"queue {app.owner.queue}"
    if rule is TenantOf.USER and app.owner.user:
        return f"user {app.owner.user}"
    return f"app {app.app_id}"


def _speedup(demands: Sequence[GangDemand], cluster: Cluster, types: Sequence[str]) -> tuple[float, ...]:
    """The speedup vector of an app: the mean over its jobs, in units of its slowest type; all 0 if it can run nowhere.

    It is 0 on types that have fewer devices than the smallest gang, since a gang has one type.
    """
    smallest = min(demand.min_gpus for demand in demands)
    means = [
        math.fsum(demand.speeds.on(name) for demand in demands) if cluster.gpus_by_device[name] >= smallest else 0.0
        for name in types
    ]
    usable = [mean for mean in means if mean > max(means) / MAX_RATIO]
    return tuple(float(f"{mean / usable[0]:.{_DIGITS}g}") if mean in usable else 0.0 for mean in means)


def _weights(apps_of: Mapping[str, Sequence[AppStanding]], owner_of: Mapping[str, str]) -> dict[str, float]:
    """The weight of each virtual tenant: the largest one of its tenant's apps, divided equally among the job types."""
    largest: dict[str, float] = {}
    for tenant, apps in apps_of.items():
        owner = owner_of[tenant]
        largest[owner] = max([largest.get(owner, 0.0), *(app.owner.weight for app in apps)])
    job_types = Counter(owner_of.values())
    return {tenant: largest[owner] / job_types[owner] for tenant, owner in owner_of.items()}


def _tenants(rows: Mapping[str, tuple[float, ...]], weights: Mapping[str, float]) -> tuple[Tenant, ...]:
    least = max(weights.values()) / MAX_RATIO
    return tuple(
        Tenant(tenant_id=tenant, speedup=rows[tenant], weight=max(weights[tenant], least)) for tenant in sorted(rows)
    )


def _limits(demands: Sequence[GangDemand], speedup: tuple[float, ...]) -> GangLimits:
    return GangLimits(
        smallest=min((demand.min_gpus for demand in demands), default=1),
        most=sum(demand.max_gpus for demand in demands),
        unusable=frozenset(number for number, value in enumerate(speedup) if value <= 0),
    )
