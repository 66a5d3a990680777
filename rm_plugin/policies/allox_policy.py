"""The policy `allox` and those it is compared with: jobs over interchangeable CPUs and GPUs (Le et al., EuroSys 2020).

A machine of the paper is one device here: a GPU, or a CPU node. A grant binds a device to one job until that job ends
(`Lease.job_id`): starts are not preempted, and at the end of the job the app gives the device back.

    1. which jobs still run: the bound leases and the memory
    2. with profiling runs: apps whose speeds were not measured yet get a lease on the next type (allox_samples.py)
    3. devices, and jobs that wait with their times by type (allox_jobs.py)
    4. which of these start now, and on which device (allox/decision.py; the other policies: allox_rules.py)
    5. a gang of one device for each, bound to the job; the other jobs wait, even beside an idle device
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from rm_plugin.arbiter.leftovers import AppDemand
from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction, Wait
from rm_plugin.policies.allox import values
from rm_plugin.policies.allox.decision import AlloxDecision
from rm_plugin.policies.allox.explain import explain
from rm_plugin.policies.allox.progress import ProgressLedger
from rm_plugin.policies.allox_explanation import explain_app
from rm_plugin.policies.allox_figures import RoundCounts, counted, figures_of
from rm_plugin.policies.allox_jobs import (
    Devices,
    Samples,
    WaitingJobs,
    Wanted,
    devices_of,
    running_jobs,
    too_wide_waits,
    waiting_demands,
    waiting_jobs,
)
from rm_plugin.policies.allox_rules import Rule
from rm_plugin.policies.allox_samples import (
    SampleLimits,
    after_runs,
    cut_runs,
    samples_of,
    sampling_runs,
    sampling_waits,
)
from rm_plugin.policies.demands import capacity_after, gangs_of
from rm_plugin.policies.oef.profiling import Profiles
from rm_plugin.policies.oef_tenants import tenant_of_app
from rm_plugin.policies.port import Explanation, Figure, PolicyTraits
from themis.bids import PlacedGang, RhoOf
from themis.placement.free_capacity import FreeCapacity
from themis.values import Value


class RunningJob(Value, frozen=True, kw_only=True):
    """A job on a device.

    Attributes:
        user: The tenant of its app.
        value: What it adds to the progress of its user, fixed at its start.
        started_at_s: When it was granted its device.
        time_s: Its estimated length, the start included.
        device_id: The device that it started on.
    """

    user: str
    value: float
    started_at_s: float
    time_s: float
    device_id: str = ""

    def end_s(self, now_s: float) -> float:
        """When it is expected to end, now at the earliest.

        If it takes much longer than estimated, its length counts twice, then four times. Otherwise it would always be
        about to end, and jobs would wait for its device although others are idle. So it is with a job that goes on with
        its next phase. For example, a job of 100 s ends at 100 s; after 115 s it is expected at 200 s.
        """
        length_s = self.time_s
        while self.started_at_s + _OVERRUN * length_s < now_s:
            length_s *= 2.0
        return max(now_s, self.started_at_s + length_s)


_OVERRUN = 1.1
"""A job may take this many times as long as estimated before the estimate doubles."""


class AlloxMemory(Value, frozen=True, kw_only=True):
    """What AlloX remembers between rounds: its progress ledger, and when jobs arrived.

    Attributes:
        running: Jobs on devices, by job by app.
        last_start_s: The time of the last start by user.
        arrived_s: When each unfinished job was first seen, by job by app. A job that lost its machine keeps its time.
        profiles: Profiles by app, with profiling runs.
        samples: Samples of the job that was measured for its app, by app, if its log gives them.
        sample_limits: How long samples took, and what the cut ones prove.
        last_sample_s: When the last sampling run of each user began.
        bindings: The device whose queue each waiting job has joined, by job by app, under policies with queues.
        tenants: The tenant of each app, to explain decisions.
        times_s: The estimated length by device type of the app's first job that waits or waited, by app, to explain
            decisions.
        counts: Counts of the newest round, and totals, for operators.
    """

    running: Mapping[str, Mapping[str, RunningJob]] = msgspec.field(default_factory=dict)
    last_start_s: Mapping[str, float] = msgspec.field(default_factory=dict)
    arrived_s: Mapping[str, Mapping[str, float]] = msgspec.field(default_factory=dict)
    profiles: Profiles = msgspec.field(default_factory=dict)
    samples: Samples = msgspec.field(default_factory=dict)
    sample_limits: SampleLimits = msgspec.field(default_factory=SampleLimits)
    last_sample_s: Mapping[str, float] = msgspec.field(default_factory=dict)
    bindings: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    tenants: Mapping[str, str] = msgspec.field(default_factory=dict)
    times_s: Mapping[str, Mapping[str, float]] = msgspec.field(default_factory=dict)
    counts: RoundCounts = msgspec.field(default_factory=RoundCounts)

    @property
    def runs(self) -> Mapping[str, str]:
        """The job by app whose bound leases are sampling runs: they end with their time."""
        return {
            app_id: profile.job_id
            for app_id, profile in self.profiles.items()
            if profile.job_id and profile.job_id not in self.running.get(app_id, {})
        }


class AlloxPolicy:
    """AlloX, or one of its baselines. They differ only in the rule.

    Args:
        name: The name of the policy.
        rule: Decides which jobs start.
    """

    rho_of = RhoOf.NO_APP
    memory_type = AlloxMemory
    traits = PolicyTraits(work_conserving=False, gangs=False)

    def __init__(self, name: str, rule: Rule) -> None:
        self.name = name
        self._rule = rule

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Decide a round, in the steps of this module."""
        if not snapshot.apps:
            return Decision()
        owners = {app.app_id: tenant_of_app(app, snapshot.settings)[0] for app in snapshot.apps}
        wanted = waiting_demands(snapshot)
        memory = _memory_of(snapshot, wanted, owners)
        ends_at_s = {
            app_id: {job_id: job.end_s(snapshot.now_s) for job_id, job in jobs.items()}
            for app_id, jobs in memory.running.items()
        }
        for app_id, job_id in memory.runs.items():
            ends_at_s.setdefault(app_id, {})[job_id] = snapshot.now_s + snapshot.lease_s
        runs, profiles = sampling_runs(snapshot, memory.profiles, memory.last_sample_s, memory.sample_limits)
        samples = samples_of(snapshot, memory.samples, memory.profiles, profiles)
        limits = after_runs(snapshot, memory.sample_limits, memory.samples, samples, profiles)
        runs, limits = cut_runs(snapshot, runs, profiles, limits)
        memory = replace(
            memory,
            profiles=profiles,
            samples=samples,
            sample_limits=limits,
            last_sample_s={**memory.last_sample_s, **{owners[app_id]: snapshot.now_s for app_id in sorted(runs)}},
        )
        sampled = {app_id: profile for app_id, profile in profiles.items() if profile.is_open}
        rest = (
            replace(snapshot, machines=capacity_after(snapshot.machines, gangs_of(runs)).machines())
            if runs
            else snapshot
        )
        device_ids = {
            app_id: {job_id: job.device_id for job_id, job in jobs.items()} for app_id, jobs in memory.running.items()
        }
        devices = devices_of(rest, ends_at_s, device_ids)
        waiting = waiting_jobs(rest, wanted, owners, memory.arrived_s, profiles, samples, limits.bounds)
        frame = values.Snapshot(
            now_s=snapshot.now_s,
            machines=devices.machines,
            waiting=waiting.jobs,
            capacity=devices.capacity,
            users=_users(memory),
            running=running_jobs(rest, owners, memory.runs),
            bindings={
                f"{app_id}/{job_id}": device_id
                for app_id, jobs in memory.bindings.items()
                for job_id, device_id in jobs.items()
            },
        )
        decided = self._rule(frame, snapshot)
        counts = counted(
            memory.counts,
            frame,
            decided,
            sampling_runs=len(runs),
            short_sampling_runs=sum(gang.at_most_s > 0.0 for gangs in runs.values() for gang in gangs.values()),
        )
        started = {waiting.keys[start.job.job_id] for start in decided.starts}
        return Decision(
            auction={**gangs_of(runs), **_gangs(rest, decided.starts, waiting, devices)},
            unserved=_unserved(wanted, started),
            memory=_after(snapshot, replace(memory, counts=counts), decided, waiting),
            waits={
                **_waits(decided, frame, waiting, devices),
                **sampling_waits(rest, sampled),
                **too_wide_waits(snapshot, wanted, self.name),
            },
        )

    def explain(self, memory: Value, app_id: str) -> Explanation:
        """Return an app's tenant with its progress, its times by type, and its running jobs."""
        if not isinstance(memory, AlloxMemory):
            return ()
        running = sorted(memory.running.get(app_id, {}).items(), key=lambda each: each[1].started_at_s + each[1].time_s)
        return explain_app(
            app_id,
            tenants=memory.tenants,
            times_s=memory.times_s,
            progress=_users(memory) if self.name == "allox" else None,
            running={job_id: (job.device_id, job.time_s) for job_id, job in running},
            at_least=memory.sample_limits.bounds.get(app_id, ()),
            memory_mb={sample.device: sample.memory_mb for sample in memory.samples.get(app_id, ())},
        )

    def figures(self, memory: Value) -> tuple[Figure, ...]:
        """Return queues, progress, sampling runs, and the size of the newest matching."""
        if not isinstance(memory, AlloxMemory):
            return ()
        return figures_of(memory.counts, _users(memory), memory.tenants.values(), memory.profiles)


def _memory_of(snapshot: RoundSnapshot, wanted: Wanted, owners: Mapping[str, str]) -> AlloxMemory:
    """The memory as this round begins: without jobs and apps that ended, with the jobs that arrived."""
    memory = snapshot.memory if isinstance(snapshot.memory, AlloxMemory) else AlloxMemory()
    running: dict[str, dict[str, RunningJob]] = {}
    for app in snapshot.apps:
        known = memory.running.get(app.app_id, {})
        if mine := {job_id: known[job_id] for job_id, _ in app.bound if job_id in known}:
            running[app.app_id] = mine
    arrived_s: dict[str, Mapping[str, float]] = {}
    for app in snapshot.apps:
        seen = memory.arrived_s.get(app.app_id)
        if app.app_id not in wanted:
            # Its app master is unavailable.
            arrived_s |= {app.app_id: seen} if seen else {}
            continue
        # The first jobs of an app arrive with it, jobs of later phases when they are first seen.
        new_s = snapshot.now_s if seen is not None else app.submitted_at_s
        jobs = {*(demand.job_id for demand in wanted[app.app_id]), *(job_id for job_id, _ in app.bound)}
        if seen and app.app_id in memory.profiles and memory.profiles[app.app_id].is_open:
            # A job on a sampling run has no demand.
            jobs |= seen.keys()
        arrived_s[app.app_id] = {job_id: (seen or {}).get(job_id, new_s) for job_id in sorted(jobs)}
    users = set(owners.values())
    last_start_s = {user: at_s for user, at_s in memory.last_start_s.items() if user in users}
    last_sample_s = {user: at_s for user, at_s in memory.last_sample_s.items() if user in users}
    bindings: dict[str, Mapping[str, str]] = {}
    for app in snapshot.apps:
        bound = memory.bindings.get(app.app_id, {})
        if app.app_id in wanted:
            bound = {demand.job_id: bound[demand.job_id] for demand in wanted[app.app_id] if demand.job_id in bound}
        if bound:
            bindings[app.app_id] = bound
    return replace(
        memory,
        running=running,
        last_start_s=last_start_s,
        last_sample_s=last_sample_s,
        arrived_s=arrived_s,
        bindings=bindings,
        tenants=dict(sorted(owners.items())),
        times_s={app_id: times for app_id, times in memory.times_s.items() if app_id in owners},
    )


def _users(memory: AlloxMemory) -> dict[str, values.UserState]:
    jobs = [(f"{app_id}/{name}", job) for app_id, mine in memory.running.items() for name, job in mine.items()]
    return ProgressLedger({name: (job.user, job.value) for name, job in jobs}, memory.last_start_s).users(
        job.user for _, job in jobs
    )


def _gangs(
    snapshot: RoundSnapshot, starts: tuple[values.Start, ...], waiting: WaitingJobs, devices: Devices
) -> dict[str, tuple[PlacedGang, ...]]:
    """A gang of one device for each start, by app."""
    capacity = FreeCapacity(snapshot.machines)
    gangs: dict[str, tuple[PlacedGang, ...]] = {}
    for start in starts:
        app_id, job_id = waiting.keys[start.job.job_id]
        gang = capacity.place({devices.machine_of[start.machine_id]: 1})
        device = start.type_name if snapshot.cluster.has_types else ""
        gangs[app_id] = (*gangs.get(app_id, ()), replace(gang, device=device, job_id=job_id))
    return dict(sorted(gangs.items()))


def _after(snapshot: RoundSnapshot, memory: AlloxMemory, decided: values.Decision, waiting: WaitingJobs) -> AlloxMemory:
    """Return the memory after a round. It records the jobs that start and removes them from their queues."""
    running = {app_id: dict(jobs) for app_id, jobs in memory.running.items()}
    last_start_s = dict(memory.last_start_s)
    bindings = {app_id: dict(jobs) for app_id, jobs in memory.bindings.items()}
    times_s: dict[str, dict[str, float]] = {}
    for job in waiting.jobs:
        times = {name: configuration.time_s for name, configuration in job.configurations.items()}
        times_s.setdefault(waiting.keys[job.job_id][0], times)
    for name, device_id in decided.bindings.items():
        app_id, job_id = waiting.keys[name]
        bindings.setdefault(app_id, {})[job_id] = device_id
    for start in decided.starts:
        app_id, job_id = waiting.keys[start.job.job_id]
        bindings.get(app_id, {}).pop(job_id, None)
        running.setdefault(app_id, {})[job_id] = RunningJob(
            user=start.job.user,
            value=start.value,
            started_at_s=snapshot.now_s,
            time_s=snapshot.reports[app_id].restart_s + start.job.time_s(start.type_name),
            device_id=start.machine_id,
        )
        last_start_s[start.job.user] = snapshot.now_s
    return replace(
        memory,
        running={app_id: dict(sorted(jobs.items())) for app_id, jobs in sorted(running.items())},
        last_start_s=dict(sorted(last_start_s.items())),
        bindings={app_id: dict(sorted(jobs.items())) for app_id, jobs in sorted(bindings.items()) if jobs},
        times_s=dict(sorted({**memory.times_s, **times_s}.items())),
    )


def _unserved(wanted: Wanted, started: set[tuple[str, str]]) -> tuple[AppDemand, ...]:
    """What jobs could still use: one device for each that waits."""
    app_demands = []
    for app_id, demands in wanted.items():
        left = [replace(demand, max_gpus=1) for demand in demands if (app_id, demand.job_id) not in started]
        if left:
            app_demands.append(AppDemand(app_id=app_id, demands=tuple(left)))
    return tuple(app_demands)


def _waits(decided: values.Decision, frame: values.Snapshot, waiting: WaitingJobs, devices: Devices) -> dict[str, Wait]:
    """Why apps wait: for each the job that starts first by the last matching, or else its oldest job."""
    if not isinstance(decided, AlloxDecision):
        return _queue_waits(decided, frame, waiting, devices)
    places = decided.solves[-1].places if decided.solves else {}
    started = {start.job.job_id for start in decided.starts}
    first: dict[str, tuple[float, float, str]] = {}
    for job in frame.waiting:
        if job.job_id not in started:
            place = places.get(job.job_id)
            key = math.inf if place is None else place.start_s, job.arrival_s, job.job_id
            app_id, _ = waiting.keys[job.job_id]
            first[app_id] = min(first.get(app_id, key), key)
    waits = {}
    for app_id, (start_s, _, name) in sorted(first.items()):
        place = places.get(name)
        waits[app_id] = Wait(
            job_id=waiting.keys[name][1],
            reason=explain(decided, frame, name, devices.machine_of).text,
            machine_id="" if place is None else devices.machine_of[place.machine_id],
            until_s=None if place is None else start_s,
        )
    return waits


def _queue_waits(
    decided: values.Decision, frame: values.Snapshot, waiting: WaitingJobs, devices: Devices
) -> dict[str, Wait]:
    """Why apps wait whose jobs have joined queues: for each its oldest job that waits in one."""
    queues = {**frame.bindings, **decided.bindings}
    started = {start.job.job_id for start in decided.starts}
    waits: dict[str, Wait] = {}
    for job in sorted(frame.waiting, key=values.arrival_order):
        app_id, job_id = waiting.keys[job.job_id]
        if job.job_id in queues and job.job_id not in started and app_id not in waits:
            machine_id = devices.machine_of[queues[job.job_id]]
            reason = f"{job.job_id} waits in the queue of {machine_id}, and does not change to another"
            waits[app_id] = Wait(job_id=job_id, reason=reason, machine_id=machine_id)
    return dict(sorted(waits.items()))
