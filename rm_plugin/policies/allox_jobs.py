"""What AlloX decides on in a round: devices as its machines, and the waiting jobs of the apps with times by type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import field

from rm_plugin.arbiter.round_values import RoundSnapshot, Wait
from rm_plugin.policies.allox.estimator import extrapolate
from rm_plugin.policies.allox.values import Capacity, Configuration, Job, Machine, RunningJob
from rm_plugin.policies.oef.profiling import Profile, Profiles, ProfileState
from rm_plugin.policies.oef_tenants import startable
from themis.apps import TaskResources
from themis.bids import GangDemand, SampleTimes
from themis.cluster import Cluster
from themis.cluster import Machine as ClusterMachine
from themis.values import Value

_MB_PER_GB = 1024.0

_MIN_WORK_GPU_S = 1e-6
"""Work of a job that reports none, since values divide by its time."""

TextByJob = Mapping[str, Mapping[str, str]]
"""A text for each job, by app id and job id. Example: the job's device."""

JobsByApp = Mapping[str, Mapping[str, float]]
"""A time in seconds for each job, by app id and job id."""

Samples = Mapping[str, tuple[SampleTimes, ...]]
"""Samples by app id. One job of the app is measured on behalf of all."""

Bounds = Mapping[str, Mapping[str, float]]
"""What cut samples prove, by app id and device type: that a second of work on the reference GPU takes longer there."""

Wanted = Mapping[str, tuple[GangDemand, ...]]
"""The demands of jobs that have no device, by app."""


class Devices(Value, frozen=True, kw_only=True):
    """The devices that are there: idle ones, and those of running jobs.

    Attributes:
        machines: A machine of AlloX for each device. A cluster machine with one device lends it its id; the devices of
            others are numbered, such as `gpu-0:1`.
        machine_of: The cluster machine of each.
        capacity: Devices by type, and the memory and cores of their machines (`_declared`).
    """

    machines: tuple[Machine, ...]
    machine_of: Mapping[str, str]
    capacity: Capacity


class WaitingJobs(Value, frozen=True, kw_only=True):
    """Jobs that may start, and the (app, job) of each by its id in AlloX, which is `app/job`."""

    jobs: tuple[Job, ...] = ()
    keys: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def devices_of(snapshot: RoundSnapshot, ends_at_s: JobsByApp, device_ids: TextByJob) -> Devices:
    """Return the devices that jobs may get, now or when the present job ends.

    Devices of lost machines are not among them. Devices of leases that are not bound to a job count as busy for the
    length of a lease.

    Args:
        snapshot: The round.
        ends_at_s: When running jobs end by their estimate, or sampling runs. A job without one counts as overdue.
        device_ids: The devices that running jobs started on. They keep their ids, so that jobs can wait for a device.
    """
    busy: dict[str, list[tuple[float, str]]] = {}
    for app in snapshot.apps:
        unbound = app.kept.by_machine()
        for job_id, machine_id in app.bound:
            end_s = ends_at_s.get(app.app_id, {}).get(job_id, snapshot.now_s)
            busy.setdefault(machine_id, []).append((end_s, device_ids.get(app.app_id, {}).get(job_id, "")))
            unbound[machine_id] -= 1
        for machine_id, count in unbound.items():
            busy.setdefault(machine_id, []).extend([(snapshot.now_s + snapshot.lease_s, "")] * count)
    machines: list[Machine] = []
    machine_of: dict[str, str] = {}
    units: dict[str, float] = {}
    for machine in snapshot.machines:
        taken = busy.get(machine.machine_id, [])
        single = snapshot.cluster.machine(machine.machine_id).gpus == 1
        numbers = range(len(taken) + machine.free)
        names = [machine.machine_id if single else f"{machine.machine_id}:{number}" for number in numbers]
        ends_s = _ends_by_device(taken, names)
        for device_id in names:
            idle = device_id not in ends_s
            available_s = ends_s.get(device_id, snapshot.now_s)
            machines.append(
                Machine(machine_id=device_id, type_name=machine.device, available_s=available_s, is_idle=idle)
            )
            machine_of[device_id] = machine.machine_id
            units[machine.device] = units.get(machine.device, 0.0) + 1.0
    present = [snapshot.cluster.machine(machine_id) for machine_id in dict.fromkeys(machine_of.values())]
    return Devices(machines=tuple(machines), machine_of=machine_of, capacity=_declared(units, present))


def _declared(units: Mapping[str, float], machines: Sequence[ClusterMachine]) -> Capacity:
    """The capacity of machines. Memory and cores are limited only if every machine declares them.

    A cluster file that says nothing of cores gives each machine one. So fewer cores than GPUs count as not declared.
    """
    memory_mb = [machine.memory_mb for machine in machines]
    has_cores = all(machine.cpus >= machine.gpus for machine in machines)
    return Capacity(
        units=units,
        memory_gb=sum(memory_mb) / _MB_PER_GB if all(memory_mb) else 0.0,
        cores=float(sum(machine.cpus for machine in machines)) if has_cores else 0.0,
    )


def _ends_by_device(taken: list[tuple[float, str]], names: list[str]) -> dict[str, float]:
    """When a machine's busy devices become free. An end without a device here counts for the first one left."""
    ends_s: dict[str, float] = {}
    others = []
    for end_s, device_id in sorted(taken):
        if device_id in names and device_id not in ends_s:
            ends_s[device_id] = end_s
        else:
            others.append(end_s)
    left = [name for name in names if name not in ends_s]
    return {**ends_s, **dict(zip(left, others, strict=False))}


def running_jobs(
    snapshot: RoundSnapshot, owners: Mapping[str, str], samples: Mapping[str, str]
) -> tuple[RunningJob, ...]:
    """Return the jobs on devices, without sampling runs, which count for no share. Lengths are 0: no caller needs them.

    Args:
        snapshot: The round.
        owners: The tenant of each app.
        samples: The job by app that is on a sampling run.
    """
    running = []
    for app in snapshot.apps:
        for job_id, machine_id in app.bound:
            if samples.get(app.app_id) == job_id:
                continue
            device = snapshot.cluster.machine(machine_id).device
            job = Job(
                job_id=f"{app.app_id}/{job_id}",
                user=owners[app.app_id],
                arrival_s=app.submitted_at_s,
                configurations={device: _configuration(0.0, device, snapshot.cluster, app.resources)},
            )
            running.append(RunningJob(job=job, machine_id=machine_id, type_name=device))
    return tuple(running)


def waiting_demands(snapshot: RoundSnapshot) -> Wanted:
    """The demands of jobs that have no device, by app. A job whose bound GPU its app has not used yet has one."""
    waiting = {}
    for app_id, report in snapshot.answered.items():
        bound = {job_id for job_id, _ in snapshot.standing(app_id).bound}
        demands = [demand for demand in startable(report.demands) if demand.job_id not in bound]
        # Of an app that was accepted under another policy, some jobs may need more: see `too_wide_waits`.
        waiting[app_id] = tuple(demand for demand in demands if demand.min_gpus == 1)
    return waiting


def too_wide_waits(snapshot: RoundSnapshot, wanted: Wanted, policy: str) -> dict[str, Wait]:
    """Why apps wait all of whose waiting jobs need several devices.

    Such apps are refused when they are submitted (`gang_check`), but they may have been accepted under another policy.
    """
    waits = {}
    for app_id, report in snapshot.answered.items():
        demand = next(iter(startable(report.demands)), None)
        if demand is not None and not wanted[app_id] and demand.min_gpus > 1:
            reason = (
                f"{app_id}/{demand.job_id} needs at least {demand.min_gpus} GPUs, and policy {policy} gives each job "
                "one device: it waits until the service runs with another policy"
            )
            waits[app_id] = Wait(job_id=demand.job_id, reason=reason)
    return waits


def waiting_jobs(
    snapshot: RoundSnapshot,
    wanted: Wanted,
    owners: Mapping[str, str],
    arrived_s: JobsByApp,
    profiles: Profiles,
    samples: Samples,
    bounds: Bounds,
) -> WaitingJobs:
    """Return the jobs that may start.

    Args:
        snapshot: The round.
        wanted: From `waiting_demands`.
        owners: The tenant of each app: AlloX' user.
        arrived_s: When each of these jobs arrived.
        profiles: Profiles by app, with sampling runs. The jobs of an app wait while its profile is open, and count with
            the speeds that it measured.
        samples: Samples by app. On their types they count instead of speeds, and their memory instead of what the app
            requests.
        bounds: From cut samples. A job takes as long at least.
    """
    jobs, keys = [], {}
    for app_id, demands in wanted.items():
        profile = profiles.get(app_id)
        if profile is not None and profile.is_open:
            continue
        for demand in demands:
            name = f"{app_id}/{demand.job_id}"
            jobs.append(
                Job(
                    job_id=name,
                    user=owners[app_id],
                    arrival_s=arrived_s[app_id][demand.job_id],
                    configurations=_configurations(
                        demand,
                        snapshot.cluster,
                        snapshot.standing(app_id).resources,
                        profile,
                        {sample.device: sample for sample in samples.get(app_id, ())},
                        bounds.get(app_id, {}),
                    ),
                )
            )
            keys[name] = app_id, demand.job_id
    return WaitingJobs(jobs=tuple(jobs), keys=keys)


def _configurations(
    demand: GangDemand,
    cluster: Cluster,
    resources: TaskResources,
    profile: Profile | None,
    samples: Mapping[str, SampleTimes],
    bounds: Mapping[str, float],
) -> dict[str, Configuration]:
    """The job's time by type, and what it occupies there.

    The time is on the line through the samples of its app, if there are some. Otherwise it is the work at S of one
    device, divided by its speed: measured for its app, else its own. Where a sample was cut, it is as long at least as
    that proves.
    """
    work_s = max(demand.work_left_gpu_s, _MIN_WORK_GPU_S) * demand.slowdown.slot
    speeds = {name: demand.speeds.on(name) for name in cluster.gpus_by_device}
    if profile is not None and profile.state is ProfileState.DONE and profile.job_id:
        measured = profile.measured
        speeds = {name: measured.get(name, speed) if speed > 0.0 else 0.0 for name, speed in speeds.items()}
    times_s = {name: work_s / speed for name, speed in speeds.items() if speed > 0.0}
    for name, time_s in times_s.items():
        if name in samples:
            first, second = zip(samples[name].work_gpu_s, samples[name].seconds, strict=True)
            times_s[name] = extrapolate(first, second, work_s)
        elif name in bounds:
            times_s[name] = max(time_s, bounds[name] * work_s)
    return {
        name: _configuration(time_s, name, cluster, resources, samples[name].memory_mb if name in samples else 0.0)
        for name, time_s in times_s.items()
    }


def _configuration(
    time_s: float, device: str, cluster: Cluster, resources: TaskResources, measured_mb: float = 0.0
) -> Configuration:
    """A job's time on a device type, with what its app requests for each task: here a job is one task.

    The memory that a sample was seen to use counts instead of the request, if there is one.
    """
    kind = cluster.devices.get(device)
    cores = float(resources.vcores) if kind is None or kind.is_gpu else 0.0
    return Configuration(time_s=time_s, memory_gb=(measured_mb or resources.memory_mb) / _MB_PER_GB, cores=cores)
