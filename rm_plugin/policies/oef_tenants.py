"""The tenants of a round: from the apps of a snapshot to virtual tenants with speedups, weights and demands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rm_plugin.arbiter.round_values import AppStanding, RoundSettings, RoundSnapshot
from rm_plugin.policies.oef.job_types import job_types, mean_vector
from rm_plugin.policies.oef.profiling import Profiles, profiled_speeds
from rm_plugin.policies.oef.rounding import GangLimits, Shares, Whole
from rm_plugin.policies.oef.speedup import MAX_RATIO, Instance, Tenant, virtual_tenants
from themis.bids import GangDemand
from themis.choices import Placer, TenantOf
from themis.cluster import Allocation, Cluster
from themis.values import Value

_DIGITS = 3
"""Significant digits of a speedup. So shares are not computed again for each small change of a measured speed."""


class TenantsOfRound(Value, frozen=True, kw_only=True):
    """Who shares the cluster in a round.

    A tenant's apps with nearly the same speedup vector are one job type (`oef.job_types`), and each job type is a
    virtual tenant (Middleware'24, section 4.2.4), whose vector is the mean of its apps that take part in the round. It
    takes part if one of its apps wants GPUs or keeps some.

    Attributes:
        instance: The virtual tenants that take part, and the healthy devices by type; None if there are none.
            GPUs that an app keeps whose speedups are unknown are not among them.
        by_app: The virtual tenant of every app whose speedups are known, silent ones included.
        speedups: The own speedup vector of each of these apps.
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
    snapshot: RoundSnapshot,
    remembered: Mapping[str, tuple[float, ...]],
    profiles: Profiles | None = None,
    former: Mapping[str, str] | None = None,
) -> TenantsOfRound:
    """Return the tenants of a round.

    Args:
        snapshot: The round, with reports.
        remembered: Speedup vectors by app from earlier rounds, for apps that report no demand now.
        profiles: Profiles by app, if apps share by these: an app without one waits. None if they share by what they
            report.
        former: The virtual tenant of each app in the last round.
    """
    cluster, types = snapshot.cluster, types_of(snapshot.cluster)
    demands = {app_id: startable(report.demands) for app_id, report in snapshot.answered.items()}
    speedups: dict[str, tuple[float, ...]] = {}
    owners: dict[str, list[AppStanding]] = {}
    for app in snapshot.apps:
        wanted = demands.get(app.app_id, ())
        # A remembered vector is relative to a type that may have left.
        speedup = _speedup(wanted, cluster, types) if wanted else _relative(remembered.get(app.app_id, ()))
        if speedup and profiles is not None:
            speedup = _relative(profiled_speeds(profiles.get(app.app_id), speedup, types))
        if speedup and any(speedup):
            speedups[app.app_id] = speedup
            owners.setdefault(tenant_of_app(app, snapshot.settings)[0], []).append(app)
    by_app, apps_of, tenants = _by_job_type(snapshot, owners, speedups, demands, former or {}, remembered)
    vectors = {tenant.tenant_id: tenant.speedup for tenant in tenants}
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
            vectors[tenant],
            snapshot.settings.placer,
        )
        for tenant, apps in apps_of.items()
    }
    instance = None
    if tenants and any(capacity):
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


def _by_job_type(
    snapshot: RoundSnapshot,
    owners: Mapping[str, Sequence[AppStanding]],
    speedups: Mapping[str, tuple[float, ...]],
    demands: Mapping[str, Sequence[GangDemand]],
    former: Mapping[str, str],
    remembered: Mapping[str, tuple[float, ...]],
) -> tuple[dict[str, str], dict[str, list[AppStanding]], list[Tenant]]:
    """Divide the apps of each owner into job types.

    Returns the virtual tenant of each app, and the virtual tenants that take part in the round with their apps.
    """
    by_app: dict[str, str] = {}
    apps_of: dict[str, list[AppStanding]] = {}
    tenants: list[Tenant] = []
    for owner, apps in owners.items():
        # An app that was another tenant's in the last round had no job type here.
        own = f"{owner}/"
        names = {app_id: name.removeprefix(own) for app_id, name in former.items() if name.startswith(own)}
        mine = job_types({app.app_id: speedups[app.app_id] for app in apps}, names, remembered)
        by_app |= {app_id: own + job_type for app_id, job_type in mine.items()}
        members: dict[str, list[AppStanding]] = {}
        for app in apps:
            if demands.get(app.app_id) or app.kept:
                members.setdefault(mine[app.app_id], []).append(app)
        if members:
            weight = tenant_of_app(apps[0], snapshot.settings)[1]
            means = {
                job_type: _relative(mean_vector([speedups[app.app_id] for app in these]))
                for job_type, these in members.items()
            }
            tenants += virtual_tenants(owner, weight, means)
            apps_of |= {own + job_type: these for job_type, these in members.items()}
    return by_app, apps_of, tenants


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
