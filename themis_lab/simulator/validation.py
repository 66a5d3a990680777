"""Check a workload and settings before a run: every job can run, and every outage can happen."""

from __future__ import annotations

from collections.abc import Sequence

from rm_plugin.policies.gang_check import check_gang
from themis.choices import TenantOf
from themis.cluster import Cluster
from themis.errors import InputError, UnknownNameError
from themis.speeds import speed_on
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload


def check_fits(workload: Workload, settings: Settings) -> None:
    """Raise InputError: outages that overlap, the weight of an unknown tenant, or a job that never ends.

    No machine or no policy can give it what it needs, or it saves itself for too long.
    """
    cluster = settings.cluster
    away_until_s: dict[str, float] = {}
    for outage in sorted(settings.outages, key=lambda outage: outage.lost_at_s):
        machine_id = cluster.machine(outage.machine_id).machine_id
        if outage.lost_at_s < away_until_s.get(machine_id, 0.0):
            value = f"{machine_id}:{outage.lost_at_s:.15g}:{outage.back_at_s:.15g}"
            raise InputError(
                "a machine cannot be lost while it is unavailable", value=value, remedy="make one outage of both"
            )
        away_until_s[machine_id] = outage.back_at_s
    _check_weights(workload, settings)
    rooms = [_Room(cluster.of_type(device)) for device in cluster.gpus_by_device]
    for app in workload.apps:
        _check_costs(app, settings)
        for job in app.jobs:
            _check_job(app, job, rooms, cluster)
            check_gang(settings.policy, app.name, job.job_id, job.shape)


def refusal(workload: Workload, settings: Settings) -> InputError | None:
    """Return why these settings cannot run the workload under their policy, or None if they can."""
    try:
        check_fits(workload, settings)
    except InputError as error:
        return error
    return None


def _check_weights(workload: Workload, settings: Settings) -> None:
    """Raise UnknownNameError for the weight of a tenant that no app belongs to."""
    by = settings.rounds.tenant_of
    names = {
        TenantOf.USER: {app.owner.user or app.name for app in workload.apps},
        TenantOf.QUEUE: {app.owner.queue for app in workload.apps},
        TenantOf.APP: {app.name for app in workload.apps},
    }[by]
    for tenant in settings.rounds.tenant_weights:
        if tenant not in names:
            raise UnknownNameError(f"tenant ({by.value})", tenant, sorted(names))


class _Room:
    """How many GPUs the machines of one device type have in tasks of each size."""

    def __init__(self, cluster: Cluster) -> None:
        self.device = cluster.present_devices[0]
        self._cluster = cluster
        self._gpus: dict[int, int] = {}

    def gpus(self, unit: int) -> int:
        """GPUs in tasks of `unit` GPUs."""
        if unit not in self._gpus:
            self._gpus[unit] = sum(machine.gpus // unit * unit for machine in self._cluster.machines)
        return self._gpus[unit]


def _check_job(app: AppTrace, job: JobTrace, rooms: Sequence[_Room], cluster: Cluster) -> None:
    """Raise InputError if the job can run on no device type, or none has enough GPUs for its smallest gang."""
    spec = job.spec
    able = [room for room in rooms if speed_on(spec, room.device) > 0.0]
    if not able:
        raise InputError(
            f"job {job.job_id} of app {app.name} can run on no device type of cluster {cluster.name}",
            remedy=f"give its speed on one of them: {', '.join(cluster.gpus_by_device)}",
        )
    least, unit = job.shape.demand_min_gpus, job.shape.gpus_per_task
    if max([room.gpus(unit) for room in able]) < least:
        raise InputError(
            f"job {job.job_id} of app {app.name} can never run on cluster {cluster.name}",
            value=f"at least {least} GPUs in tasks of {unit}",
            remedy=f"the cluster has {cluster.gpus} GPUs, its largest machine {cluster.largest_machine_gpus}",
        )


def _check_costs(app: AppTrace, settings: Settings) -> None:
    """Raise InputError if saving takes longer than lead and grace: taking GPUs by force is not simulated."""
    costs, leases = app.costs or settings.costs, settings.leases
    most_s = leases.checkpoint_lead_s + leases.grace_s
    if costs.checkpoint_s > most_s:
        raise InputError(
            "writing a checkpoint takes longer than a lease that ends allows",
            value=f"{costs.checkpoint_s:g} s",
            remedy=f"at most the lead and the grace together, here {most_s:g} s: raise the lead (--lead-s)",
        )
