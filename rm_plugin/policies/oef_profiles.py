"""Profiling runs of the policy `oef`: an app shares the cluster once one of its jobs ran on every device type.

An app is a job type, and one of its jobs the representative. A run is a lease of that job's smallest gang on one type,
granted ahead of all shares. All runs are for the same job, because the app master's profiler compares types within one
job. When a run ends, the speed that the app reports for the job is the measurement. An app of one job that ran on the
type anyway, on GPUs that no tenant was owed, needs no run of its own there.

A profile fails if its GPUs are lost or no device of a type is left. Then the speeds that the app reports count. If the
representative ends before it ran on every type, another job begins again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rm_plugin.arbiter.leftovers import AppDemand
from rm_plugin.arbiter.round_values import AppStanding, RoundSnapshot
from rm_plugin.policies.gang_allocator import GangAllocator
from rm_plugin.policies.oef.profiling import (
    Event,
    Failed,
    Measured,
    Observed,
    Profile,
    Profiles,
    ProfileState,
    Requested,
    Started,
    advance,
    requested,
)
from rm_plugin.policies.oef_gangs import Gangs, of_one_type
from rm_plugin.policies.oef_tenants import counts_by_type, startable
from themis.bids import GangDemand
from themis.cluster import Allocation, Cluster


def present_types(snapshot: RoundSnapshot, types: Sequence[str]) -> tuple[str, ...]:
    """The device types of which an app holds a device, or one is on offer."""
    held = [snapshot.free, *(app.kept for app in snapshot.apps)]
    counts = counts_by_type(snapshot.cluster, types, sum(held, Allocation()))
    return tuple(name for name, count in zip(types, counts, strict=True) if count)


def updated_profiles(snapshot: RoundSnapshot, former: Profiles, present: Sequence[str]) -> dict[str, Profile]:
    """The profiles when a round begins: apps that are new request one, and runs that ended are measured.

    Args:
        snapshot: The round, with reports.
        former: After the last round. Apps that are gone are left out, silent ones keep theirs.
        present: From `present_types`, for all apps of the round.
    """
    profiles = {}
    for app in snapshot.apps:
        profile = former.get(app.app_id)
        demands = snapshot.answered[app.app_id].demands if app.app_id in snapshot.answered else ()
        if demands:
            profile = _updated(profile, app, demands, snapshot.cluster, present)
        if profile is not None:
            profiles[app.app_id] = profile
    return profiles


def _updated(
    profile: Profile | None, app: AppStanding, demands: Sequence[GangDemand], cluster: Cluster, present: Sequence[str]
) -> Profile:
    # Of several jobs any one may have run on the GPUs that the app held.
    sole_job = demands[0].job_id if len(demands) == 1 else ""
    if profile is not None and profile.job_id:
        own = tuple(demand for demand in demands if demand.job_id == profile.job_id)
        if not own and profile.is_open and not app.kept:
            # It holds nothing and wants nothing: it ended.
            profile = requested(profile.types)
        elif not own:
            # It runs, or ended when its profile was done.
            return profile
        else:
            demands = own
    rates = {name: math.fsum(demand.speeds.on(name) for demand in demands) / len(demands) for name in present}
    smallest = min(demand.min_gpus for demand in demands)
    usable = tuple(name for name in present if rates[name] > 0.0 and cluster.gpus_by_device[name] >= smallest)
    if profile is None:
        profile = requested(usable)
        if len(usable) < 2:
            # There is nothing to compare.
            return Profile(state=ProfileState.DONE, types=usable, rates=tuple(rates[name] for name in usable))
    for event in _events(profile, app, rates, usable, cluster, sole_job):
        profile = advance(profile, event)
    if profile.is_open:
        return profile
    if profile.state is ProfileState.STALE or not set(usable) <= set(profile.types):
        return advance(profile, Requested(types=usable))
    return profile


def _events(
    profile: Profile,
    app: AppStanding,
    rates: Mapping[str, float],
    usable: Sequence[str],
    cluster: Cluster,
    sole_job: str,
) -> list[Event]:
    """What happened to a profile since the last round."""
    if profile.state is ProfileState.DONE:
        return [Observed(gpu_type=name, rate=rates[name]) for name in usable]
    target = profile.next_type
    if not profile.is_open or target is None:
        return []
    if target not in usable:
        return [Failed(reason=f"no device of the type {target} is left for it")]
    running = profile.state is ProfileState.RUNNING
    if running or sole_job:
        if _has(app.renewable, target, cluster):
            return [Started(job_id=sole_job), Measured(rate=rates[target])]
        if _has(app.kept, target, cluster):
            return [Started(job_id=sole_job)]
    return [Failed(reason=f"it lost its GPUs of the type {target}")] if running else []


def _has(gpus: Allocation, device: str, cluster: Cluster) -> bool:
    return any(cluster.machine(machine_id).device == device for machine_id, _ in gpus)


def start_runs(
    snapshot: RoundSnapshot, app_demands: Sequence[AppDemand], profiles: Profiles, types: Sequence[str]
) -> tuple[Gangs, dict[str, Profile]]:
    """Place the runs that are requested, in the order of `app_demands`. Returns their gangs, and the profiles after it.

    Runs that find no free GPUs of their type wait. The lease of a run is bound to its job.
    """
    with_demand = []
    for app_demand in app_demands:
        profile = profiles.get(app_demand.app_id)
        target = profile.next_type if profile is not None and profile.state is ProfileState.REQUESTED else None
        job = (
            _representative(app_demand, profile, snapshot.cluster)
            if profile is not None and target is not None
            else None
        )
        if job is not None and target is not None:
            run = of_one_type(job, target, job.min_gpus, len(types))
            with_demand.append(replace(app_demand, demands=(run,)))
    allocator = GangAllocator(snapshot.machines, with_demand)
    started = dict(profiles)
    for app_demand in with_demand:
        proposal = allocator.propose(app_demand.app_id, 0)
        if proposal is not None:
            # The app would run another job there.
            gang = replace(proposal.gang, job_id=app_demand.demands[0].job_id)
            allocator.take(app_demand.app_id, 0, gang)
            started[app_demand.app_id] = advance(
                profiles[app_demand.app_id], Started(job_id=app_demand.demands[0].job_id)
            )
    return allocator.gangs(), started


def _representative(app_demand: AppDemand, profile: Profile, cluster: Cluster) -> GangDemand | None:
    """The job that ran on the types before, else the first of those that can run on most types; None if it cannot run.

    A job that runs elsewhere at present has no demand without GPUs.
    """

    def usable(job: GangDemand) -> list[str]:
        return [
            name
            for name in profile.types
            if job.speeds.on(name) > 0.0 and cluster.gpus_by_device.get(name, 0) >= job.min_gpus
        ]

    jobs = [
        job
        for job in startable(app_demand.demands)
        if job.job_id == (profile.job_id or job.job_id) and profile.next_type in usable(job)
    ]
    return max(jobs, key=lambda job: len(usable(job)), default=None)
