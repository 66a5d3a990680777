"""Sampling runs of AlloX: an app's jobs wait until one of them ran on every device type (EuroSys 2020, section 4.1).

The paper samples each job. Here the jobs of an app are one program, so one of them stands for all, as in OEF's
profiling runs. Each run is a lease of that job on one type, which ends with its time. A run that has done 2 % of its
job has done 1 % before, so one lease has both samples of the paper: the profiler of the app master reads them from the
log. The time of every job of the app is then on the line through both (`allox.estimator.extrapolate`). If the run was
too short for that, or the log has no times of steps, the speed counts that the profiler measured. Sampling runs go
before jobs, on at most half of the devices of each type, and users take turns. They do not count as progress.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from msgspec.structs import replace

from rm_plugin.arbiter.leftovers import Claim
from rm_plugin.arbiter.round_values import RoundSnapshot, Wait
from rm_plugin.policies.allox_jobs import Samples
from rm_plugin.policies.demands import claims_of
from rm_plugin.policies.oef.profiling import Profile, Profiles, ProfileState
from rm_plugin.policies.oef_gangs import Gangs
from rm_plugin.policies.oef_profiles import present_types, start_runs, updated_profiles
from rm_plugin.policies.oef_tenants import startable, tenant_of_app, types_of


def sampling_runs(
    snapshot: RoundSnapshot, former: Profiles, last_sample_s: Mapping[str, float]
) -> tuple[Gangs, dict[str, Profile]]:
    """Start sampling runs. Returns their gangs, and the profiles after the round; nothing without `profiling_runs`.

    An app is sampled once.

    Args:
        snapshot: The round, with reports.
        former: The profiles after the last round.
        last_sample_s: When the last run of each tenant began.
    """
    if not snapshot.settings.profiling_runs:
        return {}, {}
    types = types_of(snapshot.cluster)
    closed = {app.app_id: former[app.app_id] for app in snapshot.apps if _is_closed(former, app.app_id)}
    others = replace(snapshot, apps=tuple(app for app in snapshot.apps if app.app_id not in closed))
    # Closed apps may hold all devices of a type.
    profiles = updated_profiles(others, former, present_types(snapshot, types))
    claims = _within_limits(others, claims_of(others, {}), profiles, last_sample_s)
    runs, profiles = start_runs(others, claims, profiles, types)
    return runs, {**closed, **profiles}


def samples_of(snapshot: RoundSnapshot, former: Samples, before: Profiles, profiles: Profiles) -> Samples:
    """The samples by app after a round. Those of an app are final in the round that closes its profile.

    Args:
        snapshot: The round, with reports.
        former: Samples after the last round.
        before: The profiles after the last round.
        profiles: The profiles after this round.
    """
    samples = {}
    for app_id, profile in profiles.items():
        report = snapshot.answered.get(app_id)
        reported = next((each for each in report.demands if each.job_id == profile.job_id), None) if report else None
        found = former.get(app_id, ())
        if reported is not None and not _is_closed(before, app_id):
            found = reported.samples
        if found:
            samples[app_id] = found
    return samples


def _is_closed(profiles: Profiles, app_id: str) -> bool:
    return app_id in profiles and not profiles[app_id].is_open


def _within_limits(
    snapshot: RoundSnapshot, claims: list[Claim], profiles: Profiles, last_sample_s: Mapping[str, float]
) -> list[Claim]:
    """The claims of the apps whose runs find room on half of the devices of their next type, in their order.

    Tenants take turns, the one whose last run began longest ago first, so that one with many early apps does not block
    the samples of others. A tenant's earliest app goes first.
    """
    room = {name: max(1, count // 2) for name, count in snapshot.cluster.gpus_by_device.items()}
    for profile in profiles.values():
        if profile.state is ProfileState.RUNNING and profile.next_type in room:
            room[profile.next_type] -= 1
    turns: Counter[str] = Counter()
    ranked: list[tuple[int, float, float, str]] = []
    wanting: dict[str, tuple[Claim, str]] = {}
    for claim in sorted(claims, key=lambda each: (snapshot.standing(each.app_id).submitted_at_s, each.app_id)):
        wanted = profiles.get(claim.app_id)
        if wanted is None or wanted.state is not ProfileState.REQUESTED or wanted.next_type is None:
            continue
        app = snapshot.standing(claim.app_id)
        tenant, _ = tenant_of_app(app, snapshot.settings)
        ranked.append((turns[tenant], last_sample_s.get(tenant, -math.inf), app.submitted_at_s, app.app_id))
        wanting[app.app_id] = claim, wanted.next_type
        turns[tenant] += 1
    chosen = []
    for *_, app_id in sorted(ranked):
        claim, target = wanting[app_id]
        if room[target] > 0:
            room[target] -= 1
            chosen.append(claim)
    return chosen


def sampling_waits(snapshot: RoundSnapshot, sampled: Mapping[str, Profile]) -> dict[str, Wait]:
    """Why the jobs of apps wait that are sampled."""
    waits = {}
    for app_id, profile in sorted(sampled.items()):
        report = snapshot.answered.get(app_id)
        demands = startable(report.demands) if report is not None else ()
        if demands:
            step = "is being measured" if profile.state is ProfileState.RUNNING else "is next"
            reason = f"{app_id} runs on every device type before its jobs start; type {profile.next_type} {step}"
            waits[app_id] = Wait(job_id=demands[0].job_id, reason=reason)
    return waits
