"""An app's status for clients, from its entry, its last heartbeat, the lease table and the estimates."""

from __future__ import annotations

from rm_plugin.arbiter.estimates import Interval
from rm_plugin.service.app_estimates import Waiting
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.manager import ResourceManager
from themis.config.tuner_settings import gpus_at_once
from themis.lifecycle import LeaseState
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message, lease_to_message


def app_status(manager: ResourceManager, entry: AppEntry, *, whole: bool) -> pb.AppStatus:
    """Return the status of an app; `whole` adds leases, folder, specification, explanation and estimates."""
    leases = [] if entry.ended else manager.arbiter.table.of_app(entry.app_id)
    held = [lease for lease in leases if lease.state is not LeaseState.RESERVED]
    status = pb.AppStatus(
        app_id=entry.app_id,
        name=entry.spec.name,
        user=entry.spec.user,
        queue=manager.app_masters.launches.queue(entry),
        state=entry.state.value,
        tuner=entry.spec.tuner.name,
        program=entry.spec.program.name or "command",
        replay=entry.spec.replay,
        submitted_at_s=entry.submitted_at_s,
        started_at_s=entry.started_at_s or 0.0,
        finished_at_s=entry.finished_at_s or 0.0,
        progress=entry.progress,
        rho=manager.estimates.rho(entry),
        gpus=len(held),
        gpu_time_s=_gpu_time_s(manager, entry),
        attempts=entry.attempt,
        diagnostics=entry.diagnostics,
        best=entry.best_job,
        best_checkpoint=entry.finish.best_checkpoint,
        final_rho=manager.final_rho(entry),
        phase=entry.heartbeat.phase,
        phases=entry.heartbeat.phases,
        page_url=entry.page_url,
        engine_id=entry.engine_id,
        archive=manager.archive_path(entry),
        checkpoint_uri=entry.spec.checkpoint_uri or entry.heartbeat.checkpoint_uri,
        waits_for=manager.waits_for(entry),
        jobs=entry.jobs,
        device_noun=manager.arbiter.cluster.device_noun,
        hosted=entry.app_id in manager.hosted,
        gpus_unmet=0 if entry.ended else entry.heartbeat.unmet_gpus,
        app_page_url=manager.page_of(entry.app_id),
        jobs_total=len(entry.spec.jobs),
    )
    if whole:
        status.spec.CopyFrom(app_to_message(entry.spec))
        status.folder = str(manager.folder(entry.app_id))
        status.demand_max_gpus = gpus_at_once(entry.spec)
        lines = manager.rounds.explanation(entry.app_id) if entry.is_active else ()
        status.explanation.extend(pb.ExplanationLine(label=label, text=text) for label, text in lines)
        status.leases.extend(lease_to_message(lease) for lease in leases)
        _add_estimates(manager, entry, status)
    return status


def _add_estimates(manager: ResourceManager, entry: AppEntry, status: pb.AppStatus) -> None:
    waiting, estimate = manager.estimates.waiting(entry), manager.estimates.estimate(entry)
    if waiting is not None:
        status.waiting.CopyFrom(waiting_message(waiting))
    if estimate is not None:
        first_gpu, end = _seconds(estimate.first_gpu_s), _seconds(estimate.end_s)
        status.estimate.CopyFrom(pb.AppEstimate(first_gpu_s=first_gpu, end_s=end))


def waiting_message(waiting: Waiting) -> pb.AppWaiting:
    """Why an app has no more GPUs, on the wire."""
    return pb.AppWaiting(reason=waiting.reason, rank=waiting.rank or 0, of=waiting.of, ahead=waiting.ahead)


def _seconds(interval: Interval) -> pb.Seconds:
    return pb.Seconds(median=interval.median, low=interval.low, high=interval.high)


def _gpu_time_s(manager: ResourceManager, entry: AppEntry) -> float:
    if not entry.is_admitted:
        return entry.gpu_time_s
    return manager.arbiter.attained_gpu_s(entry.app_id, manager.clock.now_s())
