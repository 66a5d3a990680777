"""The tenants of a round: from the apps of a snapshot to virtual tenants with speedups, weights and demands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rm_plugin.arbiter.round_values import AppStanding, RoundSettings, RoundSnapshot
from rm_plugin.policies.oef.profiling import Profiles, profiled_speeds
from rm_plugin.policies.oef.rounding import GangLimits, Shares, Whole
from rm_plugin.policies.oef.speedup import MAX_RATIO, Instance, Tenant, virtual_tenants
from themis.bids import GangDemand
from themis.choices import Placer, TenantOf
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
            GPUs that an app keeps whose speedups are unknown are not among them.
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


def tenants_of(
    snapshot: RoundSnapshot, remembered: Mapping[str, tuple[float, ...]], profiles: Profiles | None = None
) -> TenantsOfRound:
    """Return the tenants of a round.

    Args:
        snapshot: The round, with reports.
        remembered: Speedup vectors by app from earlier rounds, for apps that report no demand now.
        profiles: Profiles by app, if apps share by these: an app without one waits. None if they share by what they
            report.
    """
    cluster, types = snapshot.cluster, types_of(snapshot.cluster)
    demands = {app_id: startable(report.demands) for app_id, report in snapshot.answered.items()}
    speedups: dict[str, tuple[float, ...]] = {}
    by_app: dict[str, str] = {}
    apps_of: dict[str, list[AppStanding]] = {}
    job_types: dict[str, dict[str, tuple[float, ...]]] = {}
    weights: dict[str, float] = {}
    for app in snapshot.apps:
        wanted = demands.get(app.app_id, ())
        speedup = _speedup(wanted, cluster, types) if wanted else remembered.get(app.app_id)
        if speedup is not None and profiles is not None:
            speedup = _relative(profiled_speeds(profiles.get(app.app_id), speedup, types))
        if not speedup or not any(speedup):
            continue
        owner, weight = tenant_of_app(app, snapshot.settings)
        job_type = ":".join(f"{value:g}" for value in speedup)
        tenant = f"{owner}/{job_type}"
        speedups[app.app_id], by_app[app.app_id] = speedup, tenant
        if wanted or app.kept:
            apps_of.setdefault(tenant, []).append(app)
            job_types.setdefault(owner, {})[job_type] = speedup
            weights[owner] = weight
    offered = counts_by_type(cluster, types, snapshot.free)
    # GPUs of an app without a tenant belong to no share: the app is profiled, or it got them under another policy.
    shared = [counts_by_type(cluster, types, app.kept) for app in snapshot.apps if app.kept and app.app_id in by_app]
    capacity = tuple(map(sum, zip(offered, *shared, strict=True)))
    kept = {
        tenant: counts_by_type(cluster, types, Allocation.sum_of(app.kept for app in apps))
        for tenant, apps in apps_of.items()
    }
    limits = {
        tenant: _limits(
            [demand for app in apps for demand in demands.get(app.app_id, ())],
            speedups[apps[0].app_id],
            snapshot.settings.placer,
        )
        for tenant, apps in apps_of.items()
    }
    instance = None
    if apps_of and any(capacity):
        tenants = [each for owner, mine in job_types.items() for each in virtual_tenants(owner, weights[owner], mine)]
        if snapshot.settings.cap_demand:
            most = {tenant: float(sum(kept[tenant]) + limits[tenant].most) for tenant in limits}
            tenants = [replace(each, demand=most[each.tenant_id]) for each in tenants]
        instance = Instance(types=types, capacity=capacity, tenants=_bounded(tenants))
    return TenantsOfRound(
        instance=instance,
        by_app=by_app,
        speedups=speedups,
        kept=kept,
        offered=offered,
        limits=limits,
    )


def tenant_of_app(app: AppStanding, settings: RoundSettings) -> tuple[str, float]:
    """The tenant of an app, and its weight. An app without a user is a tenant of its own."""
    kind, name = "app", app.app_id
    if settings.tenant_of is TenantOf.QUEUE:
        kind, name = "queue", app.owner.queue
    elif settings.tenant_of is TenantOf.USER and app.owner.user:
        kind, name = "user", app.owner.user
    return f"{kind} {name}", settings.tenant_weights.get(name, 1.0)


def _speedup(demands: Sequence[GangDemand], cluster: Cluster, types: Sequence[str]) -> tuple[float, ...]:
    """The speedup vector of an app: the mean over its jobs, in units of its slowest type; all 0 if it can run nowhere.

    It is 0 on types that have fewer devices than the smallest gang, since a gang has one type.
    """
    smallest = min(demand.min_gpus for demand in demands)
    means = [
        math.fsum(demand.speeds.on(name) for demand in demands) if cluster.gpus_by_device[name] >= smallest else 0.0
        for name in types
    ]
    return _relative(means)


def _relative(speeds: Sequence[float]) -> tuple[float, ...]:
    """Speeds in units of the slowest usable type; all 0 if none is usable."""
    usable = [speed for speed in speeds if speed > max(speeds) / MAX_RATIO]
    return tuple(float(f"{speed / usable[0]:.{_DIGITS}g}") if speed in usable else 0.0 for speed in speeds)


def _bounded(tenants: Sequence[Tenant]) -> tuple[Tenant, ...]:
    """The tenants by id. Weights are raised to a ratio that the programmes can solve."""
    least = max(tenant.weight for tenant in tenants) / MAX_RATIO
    return tuple(
        replace(tenant, weight=max(tenant.weight, least)) for tenant in sorted(tenants, key=lambda each: each.tenant_id)
    )


def _limits(demands: Sequence[GangDemand], speedup: tuple[float, ...], placer: Placer) -> GangLimits:
    smallest = min((demand.min_gpus for demand in demands), default=1)
    return GangLimits(
        # With the plain placer a tenant keeps GPUs that are too few for its smallest gang.
        smallest=smallest if placer is Placer.COMPACT else 1,
        most=sum(demand.max_gpus for demand in demands),
        speedup=speedup,
    )
