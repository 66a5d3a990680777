"""Profiling runs of the policy `oef`: an app that is long enough shares once one of its jobs ran on every device type.

One of the app's jobs is the representative. A run is a lease of that job's smallest gang on one type,
granted ahead of all shares. All runs are for the same job, because the app master's profiler compares types within one
job. A run lasts the time of a start and 10 s, whatever the app states. When it ends, the speed that the app reports for
the job is the measurement, if the profiler timed the job there (`GangDemand.measured`). Otherwise the job runs there
again, four times as long. After `MAX_RUNS` runs the speed counts that the app reports, and is marked as assumed. An app
of one job that ran on the type anyway, on GPUs that no tenant was owed, needs no run of its own there.

If the representative ends before it ran on every type, what was measured counts, the type on which it ended is assumed,
and another job goes on with the others. So each type costs an app at most `MAX_RUNS` runs.

An app for which runs on all types would take too large a part of its time has none: it shares by the speeds that it
reports. Its time follows from the work that it states and the GPU time that it had, so a wrong statement spares it the
runs for as long as they would be spared to an honest app.

A profile fails if its GPUs are lost or no device of a type is left. Then the speeds that the app reports count.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from msgspec import UNSET
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
    Unmeasured,
    advance,
    in_unit_of,
    requested,
)
from rm_plugin.policies.oef_gangs import Gangs, of_one_type
from rm_plugin.policies.oef_tenants import counts_by_type, startable
from themis.bids import GangDemand
from themis.cluster import Allocation, Cluster

MARGIN = 2.0
"""A run with work to do may take this many times as long as that takes by the stated speed; our choice."""

SHORTEST_S = 10.0
"""The first run on a type lasts this long after its start, or longer if it has work to do; our choice."""

TIME_PER_RUN = 10.0
"""OEF profiles an app only if its time is this many times that of one run on each type; our choice."""

GROWTH = 4.0
"""Each further run on a type lasts this many times as long as the one before; our choice."""


def present_types(snapshot: RoundSnapshot, types: Sequence[str]) -> tuple[str, ...]:
    """The device types of which an app holds a device, or one is on offer."""
    held = [snapshot.free, *(app.kept for app in snapshot.apps)]
    counts = counts_by_type(snapshot.cluster, types, Allocation.sum_of(held))
    return tuple(name for name, count in zip(types, counts, strict=True) if count)


def updated_profiles(
    snapshot: RoundSnapshot,
    former: Profiles,
    present: Sequence[str],
    last_runs: Collection[str] = (),
    short_apps: bool = True,
) -> dict[str, Profile]:
    """The profiles when a round begins: apps that are new request one, and runs that ended are measured.

    Args:
        snapshot: The round, with reports.
        former: After the last round. Apps that are gone are left out, silent ones keep theirs.
        present: From `present_types`, for all apps of the round.
        last_runs: Apps whose run is the last one on its type, whether it measures anything or not.
        short_apps: Whether apps are profiled for which that takes too large a part of their time.
    """
    profiles = {}
    for app in snapshot.apps:
        profile = former.get(app.app_id)
        demands = snapshot.answered[app.app_id].demands if app.app_id in snapshot.answered else ()
        if demands:
            gpus = _gpus_at_once(app, demands, profile)
            most = math.inf if short_apps else _runs_paid(snapshot, app, demands, present, gpus)
            profile = _updated(profile, app, demands, snapshot.cluster, present, app.app_id in last_runs, gpus, most)
        if profile is not None:
            profiles[app.app_id] = profile
    return profiles


def _gpus_at_once(app: AppStanding, demands: Sequence[GangDemand], profile: Profile | None) -> int:
    """The most GPUs that an app had or wanted at once, with the smallest gangs of its jobs."""
    present = app.kept.gpus + sum(demand.min_gpus for demand in demands)
    return max(present, 0 if profile is None or profile.gpus is UNSET else profile.gpus)


def _runs_paid(
    snapshot: RoundSnapshot, app: AppStanding, demands: Sequence[GangDemand], present: Sequence[str], gpus: int
) -> float:
    """How many runs an app's time pays for: its time on so many GPUs, by its GPU time so far and the work it states.

    The work counts as the time that it takes on the fastest type that its job can use. So the unit of work is
    irrelevant, and no app is profiled that could end before its runs pay. An app that states too little work is
    profiled once it had as much GPU time as an honest one that is profiled.
    """
    left_gpu_s = math.fsum(
        demand.work_left_gpu_s / fastest
        for demand in demands
        if (fastest := max(demand.speeds.on(name) for name in present)) > 0.0
    )
    run_s = snapshot.answered[app.app_id].restart_s + SHORTEST_S
    return (app.attained_gpu_s(snapshot.now_s) + left_gpu_s) / gpus / (TIME_PER_RUN * run_s)


def _updated(
    profile: Profile | None,
    app: AppStanding,
    demands: Sequence[GangDemand],
    cluster: Cluster,
    present: Sequence[str],
    last_run: bool,
    gpus: int,
    most_runs: float,
) -> Profile:
    # Of several jobs any one may have run on the GPUs that the app held.
    sole_job = demands[0].job_id if len(demands) == 1 else ""
    if profile is not None and profile.job_id:
        own = tuple(demand for demand in demands if demand.job_id == profile.job_id)
        if not own and profile.is_open and not app.kept:
            # It holds nothing and wants nothing: it ended.
            profile = _without_job(profile, demands)
        elif not own:
            # It runs, or ended when its profile was done.
            return profile
        else:
            demands = own
    rates = _mean_rates(profile, demands, present)
    smallest = min(demand.min_gpus for demand in demands)
    usable = tuple(name for name in present if rates[name] > 0.0 and cluster.gpus_by_device[name] >= smallest)
    if profile is None or profile.is_stated:
        reported = tuple(rates[name] for name in usable)
        if len(usable) < 2:
            # There is nothing to compare.
            return Profile(state=ProfileState.DONE, types=usable, rates=reported)
        if len(usable) > most_runs:
            return Profile(state=ProfileState.DONE, types=usable, rates=reported, assumed=usable, gpus=gpus)
        profile = requested(usable)
    for event in _events(profile, app, demands, rates, usable, cluster, sole_job, last_run):
        profile = advance(profile, event)
    if profile.is_open:
        return profile
    if profile.state is ProfileState.STALE or not set(usable) <= set(profile.types):
        return advance(profile, Requested(types=usable))
    return profile


def _without_job(profile: Profile, others: Sequence[GangDemand]) -> Profile:
    """The profile after its job ended. On the type that it ran on, the speed counts that the other jobs report."""
    if profile.state is ProfileState.RUNNING:
        rate = _mean_rates(profile, others, profile.types)[profile.next_type or ""]
        profile = advance(profile, Unmeasured(rate=rate, final=True))
    return replace(profile, job_id="", attempts=0) if profile.is_open else profile


def _mean_rates(profile: Profile | None, demands: Sequence[GangDemand], types: Sequence[str]) -> dict[str, float]:
    """The mean of the speeds that demands report on each type, in the unit of the profile."""
    reported = [in_unit_of(profile, {name: demand.speeds.on(name) for name in types}) for demand in demands]
    return {name: math.fsum(rates[name] for rates in reported) / len(reported) for name in types}


def _events(
    profile: Profile,
    app: AppStanding,
    demands: Sequence[GangDemand],
    rates: Mapping[str, float],
    usable: Sequence[str],
    cluster: Cluster,
    sole_job: str,
    last_run: bool,
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
            if _is_timed(profile, demands, target):
                return [Started(job_id=sole_job), Measured(rate=rates[target])]
            return [Unmeasured(rate=rates[target], final=last_run)]
        if _has(app.kept, target, cluster):
            return [Started(job_id=sole_job)]
    return [Failed(reason=f"it lost its GPUs of the type {target}")] if running else []


def _is_timed(profile: Profile, demands: Sequence[GangDemand], target: str) -> bool:
    """Whether its job was timed on a type, and on one of the others before, if there are any, to compare it with."""
    timed = {device for demand in demands for device in demand.measured}
    before = {name for name in profile.measured if name != target}
    sampled = {sample.device for demand in demands for sample in demand.samples}
    return target in sampled or (target in timed and (not before or not before.isdisjoint(timed)))


def _has(gpus: Allocation, device: str, cluster: Cluster) -> bool:
    return any(cluster.machine(machine_id).device == device for machine_id, _ in gpus)


def start_runs(
    snapshot: RoundSnapshot,
    app_demands: Sequence[AppDemand],
    profiles: Profiles,
    types: Sequence[str],
    work_share: float = 0.0,
) -> tuple[Gangs, dict[str, Profile]]:
    """Place the runs that are requested, in the order of `app_demands`. Returns their gangs, and the profiles after it.

    Runs that find no free GPUs of their type wait. The lease of a run is bound to its job.

    Args:
        snapshot: The round, with reports.
        app_demands: Of the apps that may start a run.
        profiles: From `updated_profiles`.
        types: The names of all types.
        work_share: The share of its job's work that a run should do. With 0 no statement of the app decides how long
            it lasts.
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
    allocator = GangAllocator(snapshot.machines, with_demand, snapshot.lease_s)
    started = dict(profiles)
    for app_demand in with_demand:
        proposal = allocator.propose(app_demand.app_id, 0)
        if proposal is not None:
            # The app would run another job there.
            run, profile = app_demand.demands[0], profiles[app_demand.app_id]
            at_most_s = _run_s(snapshot, app_demand.app_id, run, profile, work_share)
            gang = replace(proposal.gang, job_id=run.job_id, at_most_s=at_most_s)
            allocator.take(app_demand.app_id, 0, gang)
            started[app_demand.app_id] = advance(
                profiles[app_demand.app_id], Started(job_id=app_demand.demands[0].job_id)
            )
    return allocator.gangs(), started


def _run_s(snapshot: RoundSnapshot, app_id: str, run: GangDemand, profile: Profile, work_share: float) -> float:
    """How long a run may last; 0 for a whole lease."""
    work_gpu_s = work_share * run.work_left_gpu_s * run.slowdown.slot
    needed_s = max(SHORTEST_S, MARGIN * work_gpu_s / (run.min_gpus * run.speeds.on(profile.next_type or "")))
    at_most_s = snapshot.reports[app_id].restart_s + needed_s * GROWTH**profile.attempts
    return at_most_s if at_most_s < snapshot.lease_s else 0.0


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
