"""Sampling runs of AlloX: an app's jobs wait until one of them ran on every device type (EuroSys 2020, section 4.1).

The paper samples each job. Here the jobs of an app are one program, so one of them stands for all, as in OEF's
profiling runs. Each run is a lease of that job on one type, which ends with its time. A run that has done 2 % of its
job has done 1 % before, so one lease has both samples of the paper: the profiler of the app master reads them from the
log. The time of every job of the app is then on the line through both (`allox.estimator.extrapolate`). If the log has
no times of steps, the speed counts that the profiler measured. Sampling runs go before jobs, on at most half of the
devices of each type, and users take turns. They do not count as progress.

A run lasts the time of a start and twice as long as 2 % of the job take by the stated speed, 10 s at least. The module
`oef_profiles` says how it is repeated if nothing was measured. A run much longer than others is cut, as in
`allox.estimator`: its lease is shorter, and there is no other run on the type. If nothing was measured in the last run
on a type, the job takes there at least as long as if it had done its 2 % at the end of that run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from msgspec import field
from msgspec.structs import replace

from rm_plugin.arbiter.leftovers import AppDemand
from rm_plugin.arbiter.round_values import RoundSnapshot, Wait
from rm_plugin.policies.allox.estimator import MIN_SAMPLE_S, cut_after_s
from rm_plugin.policies.allox_jobs import Bounds, Samples
from rm_plugin.policies.demands import app_demands_of
from rm_plugin.policies.oef.profiling import Profile, Profiles, ProfileState
from rm_plugin.policies.oef_gangs import Gangs
from rm_plugin.policies.oef_profiles import present_types, start_runs, updated_profiles
from rm_plugin.policies.oef_tenants import startable, tenant_of_app, types_of
from themis.bids import SAMPLE_FRACTIONS, AppReport, PlacedGang
from themis.values import Value

_FINISHED_KEPT = 21
"""Finished samples of a type whose median counts: the newest."""


def sampling_runs(
    snapshot: RoundSnapshot, former: Profiles, last_sample_s: Mapping[str, float], limits: SampleLimits
) -> tuple[Gangs, dict[str, Profile]]:
    """Start sampling runs. Returns their gangs, and the profiles after the round; nothing without `profiling_runs`.

    An app is sampled once.

    Args:
        snapshot: The round, with reports.
        former: The profiles after the last round.
        last_sample_s: When the last run of each tenant began.
        limits: Those of the last round.
    """
    if not snapshot.settings.profiling_runs:
        return {}, {}
    types = types_of(snapshot.cluster)
    closed = {app.app_id: former[app.app_id] for app in snapshot.apps if _is_closed(former, app.app_id)}
    others = replace(snapshot, apps=tuple(app for app in snapshot.apps if app.app_id not in closed))
    # Closed apps may hold all devices of a type.
    cut = {app_id for app_id, run in limits.runs.items() if run.is_cut}
    profiles = updated_profiles(others, former, present_types(snapshot, types), cut)
    app_demands = _within_limits(others, app_demands_of(others, {}), profiles, last_sample_s)
    runs, profiles = start_runs(others, app_demands, profiles, types, SAMPLE_FRACTIONS[1])
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
            # Another job may have sampled the first types.
            newest = {sample.device for sample in reported.samples}
            found = (*(sample for sample in found if sample.device not in newest), *reported.samples)
        if found:
            samples[app_id] = found
    return samples


class SampleRun(Value, frozen=True, kw_only=True):
    """A sampling run.

    Attributes:
        device: The type that it measures.
        started_at_s: When its job was expected to begin, after the time of a start.
        work_gpu_s: The work of the longer sample, in seconds of the reference GPU.
        left_gpu_s: The work left of the job when it began, in the same.
        is_cut: Whether its lease was shortened to what others of the type needed. There is no other run then.
    """

    device: str
    started_at_s: float
    work_gpu_s: float
    left_gpu_s: float
    is_cut: bool = False


class SampleLimits(Value, frozen=True, kw_only=True):
    """How long samples took, and what the cut ones prove.

    Attributes:
        finished_s: Seconds of the newest finished samples by device type, the longer one of each pair.
        runs: The run by app.
        bounds: What cut runs prove.
    """

    finished_s: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    runs: Mapping[str, SampleRun] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=dict)


def after_runs(
    snapshot: RoundSnapshot, limits: SampleLimits, former: Samples, samples: Samples, profiles: Profiles
) -> SampleLimits:
    """Note the samples that finished since the last round, and what types prove on which nothing was measured.

    Args:
        snapshot: The round.
        limits: Those of the last round.
        former: Samples after the last round.
        samples: Samples by app now.
        profiles: The profiles after this round.
    """
    finished_s = dict(limits.finished_s)
    for app_id, pairs in samples.items():
        known = {pair.device for pair in former.get(app_id, ())}
        for pair in pairs:
            if pair.device not in known:
                newest = (*finished_s.get(pair.device, ()), max(MIN_SAMPLE_S, pair.seconds[1]))
                finished_s[pair.device] = newest[-_FINISHED_KEPT:]
    present = {app.app_id for app in snapshot.apps}
    runs, bounds = {}, {app_id: known for app_id, known in limits.bounds.items() if app_id in present}
    for app_id, run in limits.runs.items():
        profile = profiles.get(app_id)
        if profile is None:
            continue
        if profile.next_type == run.device and profile.is_open:
            # It lasts, or the job runs there again.
            runs[app_id] = run
        elif (
            (run.is_cut or run.device in profile.assumed)
            and all(pair.device != run.device for pair in samples.get(app_id, ()))
            and not _reached_end(run, snapshot.answered.get(app_id), profile.job_id)
        ):
            least = max(0.0, snapshot.now_s - run.started_at_s) / run.work_gpu_s
            bounds[app_id] = {**bounds.get(app_id, {}), run.device: least}
    return SampleLimits(finished_s=finished_s, runs=runs, bounds=bounds)


def _reached_end(run: SampleRun, report: AppReport | None, job_id: str) -> bool:
    """Whether a run without samples may have done their work all the same: its log has no times, or the job ended."""
    demands = report.demands if report is not None else ()
    left_gpu_s = next((demand.work_left_gpu_s for demand in demands if demand.job_id == job_id), 0.0)
    return run.left_gpu_s - left_gpu_s >= SAMPLE_FRACTIONS[1] * run.left_gpu_s


def cut_runs(
    snapshot: RoundSnapshot, runs: Gangs, profiles: Profiles, limits: SampleLimits
) -> tuple[Gangs, SampleLimits]:
    """Shorten the leases of runs on types with enough finished samples.

    Start-up comes in addition, since a sample's time begins with the first line of the log. Returns the gangs, and the
    limits with the runs.

    Args:
        snapshot: The round.
        runs: The runs that start, by app.
        profiles: The profiles after this round.
        limits: From `after_runs`.
    """
    cut: dict[str, Mapping[str, PlacedGang]] = {}
    known = dict(limits.runs)
    for app_id, gangs in runs.items():
        device, report = profiles[app_id].next_type or "", snapshot.reports[app_id]
        demand = next(each for each in report.demands if each.job_id in gangs)
        work_gpu_s = SAMPLE_FRACTIONS[1] * demand.work_left_gpu_s * demand.slowdown.slot
        finished_s = cut_after_s(sorted(limits.finished_s.get(device, ())))
        cut_s = math.inf if finished_s is None else report.restart_s + finished_s
        is_cut = all(cut_s < (gang.at_most_s or snapshot.lease_s) for gang in gangs.values())
        cut[app_id] = {job: replace(gang, at_most_s=cut_s) if is_cut else gang for job, gang in gangs.items()}
        if work_gpu_s:
            known[app_id] = SampleRun(
                device=device,
                started_at_s=snapshot.now_s + report.restart_s,
                work_gpu_s=work_gpu_s,
                left_gpu_s=demand.work_left_gpu_s,
                is_cut=is_cut,
            )
    return cut, replace(limits, runs=known)


def _is_closed(profiles: Profiles, app_id: str) -> bool:
    return app_id in profiles and not profiles[app_id].is_open


def _within_limits(
    snapshot: RoundSnapshot, app_demands: list[AppDemand], profiles: Profiles, last_sample_s: Mapping[str, float]
) -> list[AppDemand]:
    """The demands of the apps whose runs find room on half of the devices of their next type, in their order.

    Tenants take turns, the one whose last run began longest ago first, so that one with many early apps does not block
    the samples of others. A tenant's earliest app goes first.
    """
    room = {name: max(1, count // 2) for name, count in snapshot.cluster.gpus_by_device.items()}
    for profile in profiles.values():
        if profile.state is ProfileState.RUNNING and profile.next_type in room:
            room[profile.next_type] -= 1
    turns: Counter[str] = Counter()
    ranked: list[tuple[int, float, float, str]] = []
    with_demand: dict[str, tuple[AppDemand, str]] = {}
    for app_demand in sorted(
        app_demands, key=lambda each: (snapshot.standing(each.app_id).submitted_at_s, each.app_id)
    ):
        wanted = profiles.get(app_demand.app_id)
        if wanted is None or wanted.state is not ProfileState.REQUESTED or wanted.next_type is None:
            continue
        app = snapshot.standing(app_demand.app_id)
        tenant, _ = tenant_of_app(app, snapshot.settings)
        ranked.append((turns[tenant], last_sample_s.get(tenant, -math.inf), app.submitted_at_s, app.app_id))
        with_demand[app.app_id] = app_demand, wanted.next_type
        turns[tenant] += 1
    chosen = []
    for *_, app_id in sorted(ranked):
        app_demand, target = with_demand[app_id]
        if room[target] > 0:
            room[target] -= 1
            chosen.append(app_demand)
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
