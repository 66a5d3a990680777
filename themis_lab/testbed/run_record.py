"""The record of a run, read from its folder: the input of the audit and the report."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from themis.cluster import Cluster
from themis.config.cluster_file import load_cluster
from themis.config.queues_file import load_queues
from themis.config.rm_settings import RmSettings, load_rm_settings
from themis.queues import ONE_QUEUE
from themis.speeds import speed_on
from themis.values import Value
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_from_message
from themis_lab.testbed.audit_values import AuditedJob, AuditInput, AuditLimits, HistoryLine, JobKey
from themis_lab.testbed.events import Event, read_events
from themis_lab.testbed.facts import RunFacts, read_facts
from themis_lab.testbed.histories import read_histories
from themis_lab.testbed.run_folder import RunFolder
from themis_lab.testbed.statuses import read_statuses

ROUND_SLACK_S = 3.5
"""Extra seconds that a round may take: an auction ends at most 2 s past its limit, and a busy machine delays processes.
"""


class RunRecord(Value, frozen=True, kw_only=True):
    """A run: its events by sequence, the final apps in order of submission, and its settings."""

    events: tuple[Event, ...]
    apps: tuple[pb.AppStatus, ...]
    settings: RmSettings
    cluster: Cluster
    facts: RunFacts
    histories: Mapping[JobKey, tuple[HistoryLine, ...]] = field(default_factory=dict)


def read_run(folder: RunFolder) -> RunRecord:
    """Read a run's folder. Raises InputError for a missing or invalid file."""
    apps = read_statuses(folder.apps)
    return RunRecord(
        events=read_events(folder.events),
        apps=apps,
        settings=load_rm_settings(folder.settings),
        cluster=load_cluster(folder.cluster),
        facts=read_facts(folder.facts),
        histories=read_histories(folder, [(app.app_id, job.job_id) for app in apps for job in app.jobs]),
    )


def audit_input(record: RunRecord) -> AuditInput:
    """The audit's input for a run."""
    return AuditInput(
        events=record.events,
        gpus=tuple(str(gpu) for gpu in record.cluster.gpu_ids()),
        limits=audit_limits(record.settings, len(record.apps)),
        jobs={key: job for app in record.apps for key, job in _audited(app, record.cluster).items()},
        histories=record.histories,
        device_of=device_of(record.cluster),
        rho={app.app_id: dict(app.final_rho) for app in record.apps if app.final_rho},
        queues=ONE_QUEUE if record.settings.queues is None else load_queues(record.settings.queues),
    )


def device_of(cluster: Cluster) -> dict[str, str]:
    """The device type of each machine; empty if the cluster has one type."""
    return {machine.machine_id: machine.device for machine in cluster.machines} if cluster.has_types else {}


def audit_limits(settings: RmSettings, apps: int) -> AuditLimits:
    """The bounds for a ResourceManager with these settings and at most this many apps."""
    round_s = (
        settings.coalesce_s
        + settings.answer_time_s(settings.report_deadline_s, apps)
        + settings.answer_time_s(settings.bid_deadline_s, apps)
        + settings.auction.time_limit_s
        + ROUND_SLACK_S
    )
    return AuditLimits(
        lease_s=settings.lease.duration_s,
        grace_s=settings.lease.grace_s,
        round_s=round_s,
        policy=settings.policy,
        f=settings.auction.f,
        bidders=settings.auction.bidders,
    )


def _audited(app: pb.AppStatus, cluster: Cluster) -> dict[JobKey, AuditedJob]:
    specs = {job.job_id: job for job in app_from_message(app.spec).jobs} if app.HasField("spec") else {}
    jobs = {}
    for job in app.jobs:
        spec = specs.get(job.job_id)
        able = [device.name for device in cluster.present_devices if spec is not None and speed_on(spec, device) > 0.0]
        jobs[app.app_id, job.job_id] = AuditedJob(
            state=job.state,
            target_iteration=job.target_iteration,
            min_tasks=spec.shape.min_tasks if spec else 1,
            gpus_per_task=spec.shape.gpus_per_task if spec else 1,
            devices=tuple(able),
        )
    return jobs
