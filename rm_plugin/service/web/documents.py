"""The answers of the REST interface: plain values that JSON can hold, as docs/reference/web.md lists them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rm_plugin.arbiter.estimates import Estimate, Interval
from rm_plugin.policies.port import Explanation
from rm_plugin.service.app_estimates import Waiting
from rm_plugin.service.app_pages import AppPage
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.log_summary import UsageKey
from rm_plugin.service.store import StoredEvent
from rm_plugin.service.web.page_state import PageState, jobs_of
from rm_plugin.service.web.round_words import round_in_words
from themis.apps import HyperParameter
from themis.cluster import Machine
from themis.config.tuner_settings import gpus_at_once
from themis.leases import Lease
from themis.lifecycle import AppState
from themis.web.formatting import finite
from themis.wire import themis_pb2 as pb
from themis.wire.values import scalars_from_messages

Document = dict[str, object]


def gpu_usage_document(usage: Mapping[UsageKey, float]) -> Document:
    """GPU seconds by month, user, queue and device type."""
    rows = [
        {"month": month, "user": user, "queue": queue, "device": device, "gpu_s": gpu_s}
        for (month, user, queue, device), gpu_s in usage.items()
    ]
    return {"usage": rows}


# ---- the cluster ----------------------------------------------------------------------------------------------------


def cluster_document(page_state: PageState) -> Document:
    """The cluster, its machines and who holds what of them."""
    manager, cluster = page_state.manager, page_state.manager.arbiter.cluster
    gpus = page_state.gpus_by_state()
    return {
        "name": cluster.name,
        "policy": page_state.policy,
        "now_s": page_state.now_s,
        "lease_s": manager.settings.lease.duration_s,
        "time_scale": manager.settings.time_scale,
        "active_apps": manager.arbiter.active_count,
        "rounds": manager.rounds.rounds,
        "gpus": cluster.gpus,
        **{f"gpus_{state}": count for state, count in gpus.items()},
        "devices": {
            device.name: {
                "kind": device.kind.value,
                "memory_mb": device.memory_mb,
                "speed": device.speed,
                "emulated": device.emulated,
            }
            for device in cluster.devices.values()
        },
        "racks": [
            {"rack_id": rack, "machines": [_machine_document(page_state, machine) for machine in machines]}
            for rack, machines in cluster.racks.items()
        ],
    }


def _machine_document(page_state: PageState, machine: Machine) -> Document:
    table = page_state.manager.arbiter.table
    live, reserved, closed = table.live, table.reserved, table.closed
    here = page_state.manager.arbiter.cluster.gpus_of(machine.machine_id)
    leases = [lease for gpu in here for lease in (live.get(gpu), reserved.get(gpu)) if lease is not None]
    return {
        "machine_id": machine.machine_id,
        "state": page_state.machine_state(machine).value,
        "device": machine.device,
        "emulated": page_state.is_emulated(machine),
        "slots": list(machine.slots),
        "gpus": machine.gpus,
        "gpus_closed": [gpu.index for gpu in here if gpu in closed],
        "leases": [{"app_id": lease.app_id, **_lease_document(lease)} for lease in leases],
    }


def _lease_document(lease: Lease) -> Document:
    return {
        "lease_id": lease.lease_id,
        "gpu": str(lease.gpu),
        "state": lease.state.value,
        "granted_at_s": lease.granted_at_s,
        "expires_at_s": lease.expires_at_s,
        "job_id": lease.job_id or None,
    }


def usage_document(page_state: PageState) -> Document:
    """The use of the cluster and its largest rho over time."""
    samples = page_state.usage.samples
    return {
        "device_noun": page_state.device_noun,
        "time_s": [sample.time_s for sample in samples],
        "leased": [sample.leased for sample in samples],
        "available": [sample.available for sample in samples],
        "max_rho": [finite(sample.max_rho) for sample in samples],
    }


# ---- apps -----------------------------------------------------------------------------------------------------------


def apps_document(
    page_state: PageState, page: AppPage, states: Collection[AppState], *, searched: bool = False
) -> Document:
    """A page of the apps of some states, or of all when none is named. What a search finds is not counted."""
    return {
        "total": None if searched else page_state.manager.entries.count(states),
        "next_after": page.next_mark or None,
        "apps": [summary(page_state, page_state.seen(entry, whole=False)) for entry in page.entries],
    }


def summary(page_state: PageState, entry: AppEntry) -> Document:
    """One app without its jobs."""
    rho = page_state.rho(entry)
    return {
        "app_id": entry.app_id,
        "name": entry.spec.name,
        "user": entry.spec.user,
        "queue": page_state.manager.app_masters.queue(entry),
        "state": entry.state.value,
        "shown_state": page_state.manager.shown_state(entry),
        "tuner": entry.spec.tuner.name,
        "program": entry.spec.program.name or "command",
        "replay": entry.spec.replay,
        "submitted_at_s": entry.submitted_at_s,
        "started_at_s": entry.started_at_s,
        "finished_at_s": entry.finished_at_s,
        "progress": finite(entry.progress),
        "rho": finite(rho),
        "gpus": page_state.gpus_held(entry),
        "gpus_unmet": 0 if entry.ended else entry.heartbeat.unmet_gpus,
        "gpu_time_s": page_state.gpu_time_s(entry),
        "attempts": entry.attempt,
        "phase": min(entry.heartbeat.phase + 1, entry.heartbeat.phases) or None,
        "phases": entry.heartbeat.phases or None,
        "jobs_total": len(entry.spec.jobs),
        "best_job": (page_state.controls(entry) and entry.best_job) or None,
        "page_url": entry.page_url or None,
        "engine_id": entry.engine_id or None,
        "diagnostics": entry.diagnostics,
    }


def app_document(page_state: PageState, entry: AppEntry) -> Document:
    """One app with its jobs, its leases, why it has no more of them, and when it will.

    Readers who do not control the app see what `visible_status` shows of it.
    """
    estimates, is_private = page_state.manager.estimates, not page_state.controls(entry)
    waiting = None if is_private else estimates.waiting(entry)
    estimate = None if is_private else estimates.estimate(entry)
    explanation = () if is_private else explanation_of(page_state, entry)
    submitted = {job.job_id: job.hyper_parameters for job in entry.spec.jobs}
    return {
        **summary(page_state, entry),
        "demand_max_gpus": gpus_at_once(entry.spec),
        "final_rho": {name: finite(value) for name, value in page_state.manager.final_rho(entry).items()},
        "best_checkpoint": entry.finish.best_checkpoint or None,
        "archive": page_state.manager.archive_path(entry) or None,
        "folder": None if is_private else str(page_state.manager.folder(entry.app_id)),
        "metric": None if is_private else _metric_document(entry),
        "jobs": [_job_document(job, submitted.get(job.job_id, {})) for job in jobs_of(entry)],
        "leases": [_lease_document(lease) for lease in page_state.leases_of(entry)],
        "waiting": None if waiting is None else _waiting_document(page_state, entry, waiting),
        "estimate": None if estimate is None else _estimate_document(estimate),
        "explanation": [{"label": label, "text": text} for label, text in explanation],
    }


def _metric_document(entry: AppEntry) -> Document | None:
    """The metric of the search: its name, and how many lines of all logs were seen, and had it."""
    if not entry.spec.metric.wanted:
        return None
    return {
        "name": entry.spec.metric.title,
        "lines_seen": sum(job.lines_seen for job in entry.jobs),
        "lines_read": sum(job.lines_read for job in entry.jobs),
    }


def losses_document(entry: AppEntry) -> Document:
    """The losses of an app's jobs over their iterations, or the metric that it declares, thinned.

    Jobs without any are left out.
    """
    jobs = [
        {"job_id": curve.job_id, "iterations": list(curve.iterations), "losses": list(curve.losses)}
        for curve in sorted(entry.loss_curves, key=lambda curve: curve.job_id)
    ]
    metric = entry.spec.metric.title
    return {"app_id": entry.app_id, "best_job": entry.best_job or None, "metric": metric, "jobs": jobs}


def explanation_of(page_state: PageState, entry: AppEntry) -> Explanation:
    """Why the app has its GPUs, in the words of its policy. Empty if it has ended or is paused."""
    return page_state.manager.rounds.explanation(entry.app_id) if entry.is_active else ()


def newest_round(page_state: PageState, entry: AppEntry) -> str:
    """What the newest round did for an app, as a clause."""
    rounds, noun = page_state.event_index.rounds(), page_state.device_noun
    return round_in_words(entry.app_id, rounds, page_state.policy, noun)


def _waiting_document(page_state: PageState, entry: AppEntry, waiting: Waiting) -> Document:
    return {
        "reason": waiting.reason,
        "rank": waiting.rank,
        "of": waiting.of,
        "ahead": list(waiting.ahead),
        "newest_round": newest_round(page_state, entry),
    }


def _estimate_document(estimate: Estimate) -> Document:
    return {"first_gpu_s": _interval_document(estimate.first_gpu_s), "end_s": _interval_document(estimate.end_s)}


def _interval_document(interval: Interval) -> Document:
    return {"median": finite(interval.median), "low": finite(interval.low), "high": finite(interval.high)}


def _job_document(job: pb.JobStatus, submitted: Mapping[str, HyperParameter]) -> Document:
    values = scalars_from_messages(job.hyper_parameters) or submitted
    return {
        "job_id": job.job_id,
        "state": job.state or None,
        "iteration": job.iteration,
        "target_iteration": job.target_iteration,
        "loss": finite(job.loss) if job.has_loss else None,
        "accuracy": finite(job.accuracy) if job.has_accuracy else None,
        "gpus": job.gpus,
        "iteration_s": finite(job.iteration_s) or None,
        "pace_known": job.pace_known,
        "device": job.device or None,
        "speeds": {each.device: {"speed": finite(each.speed), "measured": each.measured} for each in job.speeds},
        "restarts": job.restarts,
        "hyper_parameters": {
            name: finite(value) if isinstance(value, float) else value for name, value in values.items()
        },
        "health": job.health or None,
        "tracked_run": job.tracked_run or None,
    }


# ---- events ---------------------------------------------------------------------------------------------------------


def events_document(events: Sequence[StoredEvent], next_after: int) -> Document:
    """Events, and the sequence number to ask on from."""
    return {
        "next_after": next_after,
        "events": [
            {
                "sequence": event.sequence,
                "time_s": event.time_s,
                "kind": event.kind,
                "app_id": event.app_id,
                "detail": event.detail,
            }
            for event in events
        ],
    }
