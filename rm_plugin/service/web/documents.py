"""The answers of the REST interface: plain values that JSON can hold, as docs/reference/web.md lists them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rm_plugin.policies.port import Explanation
from rm_plugin.service.app_pages import AppPage
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.log_summary import UsageKey
from rm_plugin.service.status import app_status
from rm_plugin.service.store import StoredEvent
from rm_plugin.service.visibility import visible_status
from rm_plugin.service.web.page_state import PageState
from rm_plugin.service.web.round_words import round_in_words
from themis.cluster import Machine
from themis.leases import Lease
from themis.lifecycle import AppState
from themis.web.formatting import finite
from themis.wire import themis_pb2 as pb
from themis.wire.app_document import app_document as wire_document
from themis.wire.app_document import summary_document

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
        "apps": [summary(page_state, entry) for entry in page.entries],
    }


def summary(page_state: PageState, entry: AppEntry) -> Document:
    """One app without its jobs, as the reader may see it."""
    return summary_document(_status(page_state, entry, whole=False))


def app_document(page_state: PageState, entry: AppEntry) -> Document:
    """One app as `--json` of the commands shows it, as the reader may see it, and what the newest round did for it."""
    document = wire_document(_status(page_state, entry, whole=True))
    waiting = document["waiting"]
    if isinstance(waiting, dict):
        waiting["newest_round"] = newest_round(page_state, entry)
    return document


def _status(page_state: PageState, entry: AppEntry, *, whole: bool) -> pb.AppStatus:
    return visible_status(app_status(page_state.manager, entry, whole=whole), entry.owner, page_state.reader)


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
