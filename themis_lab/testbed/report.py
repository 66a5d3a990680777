"""The report of a run for programs: one JSON object."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from themis_lab.testbed.app_report import RHO_DEFINITIONS, app_report
from themis_lab.testbed.audit_values import AuditResult
from themis_lab.testbed.events import Event
from themis_lab.testbed.measures import empty_bids, machine_of, overheads, share_by_leftovers
from themis_lab.testbed.run_record import RunRecord
from themis_lab.testbed.spans import LeaseSpan, TaskSpan, lease_spans, task_spans
from themis_lab.testbed.tenant_shares import tenant_shares

Report = dict[str, Any]


def build_report(record: RunRecord, audited: AuditResult) -> Report:
    """Return the report. Times are real seconds, whatever the time scale of replayed jobs."""
    facts, apps = record.facts, _apps(record)
    return {
        "mix": facts.mix,
        "policy": facts.policy,
        "engine": facts.engine,
        "seed": facts.seed,
        "time_scale": facts.time_scale,
        "lease_s": record.settings.lease.duration_s,
        "ending": facts.ending,
        "trouble": facts.trouble,
        "wall_s": facts.wall_s,
        "environment": dict(facts.environment),
        "cluster": _cluster(record),
        "apps": apps,
        "expected_apps": facts.expected_apps,
        "max_rho": {name: _largest(app["rho"][name] for app in apps) for name in RHO_DEFINITIONS},
        "rounds": sum(event.kind == "round_ended" for event in record.events),
        "overheads": overheads(record.events),
        "share_of_gpus_by_leftovers": share_by_leftovers(record.events),
        "empty_bids": empty_bids(record.events),
        "utilisation": _utilisation(record),
        "tenants": _tenants(record),
        "invariants": {
            "checks": dict(audited.checks),
            "violations": list(audited.violations),
            "measured": dict(audited.measured),
        },
        "processes": {
            "peak_count": facts.processes.count,
            "peak_rss_bytes": facts.processes.rss_bytes,
            "peak_pss_bytes": facts.processes.pss_bytes,
            "samples": facts.processes.samples,
            "left_over": list(facts.left_over),
        },
    }


def write_report(path: Path, report: Report) -> None:
    """Write the report. A number that JSON cannot express is an error and raises ValueError."""
    # Written in one step: the report's existence shows that the run is over, so a kill must not leave half of it.
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(report, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    unfinished.replace(path)


def _apps(record: RunRecord) -> list[dict[str, Any]]:
    events: dict[str, list[Event]] = defaultdict(list)
    leases: dict[str, list[LeaseSpan]] = defaultdict(list)
    tasks: dict[str, list[TaskSpan]] = defaultdict(list)
    for event in record.events:
        events[event.app_id].append(event)
    for lease in lease_spans(record.events):
        leases[lease.app_id].append(lease)
    for span in task_spans(record.events):
        tasks[span.app_id].append(span)
    end_s = max((event.time_s for event in record.events), default=0.0)
    device_of = {machine.machine_id: machine.device for machine in record.cluster.machines}
    return [
        app_report(app, events[app.app_id], leases[app.app_id], tasks[app.app_id], end_s, device_of)
        for app in record.apps
    ]


def _cluster(record: RunRecord) -> dict[str, Any]:
    cluster = record.cluster
    return {
        "name": cluster.name,
        "gpus": cluster.gpus,
        "machines": len(cluster.machines),
        "racks": len(cluster.racks),
        "emulated": all(device.emulated for device in cluster.present_devices),
        "devices": {
            device.name: {
                "kind": device.kind.value,
                "count": cluster.gpus_by_device[device.name],
                "speed": device.speed,
                "emulated": device.emulated,
            }
            for device in cluster.present_devices
        },
    }


def _utilisation(record: RunRecord) -> dict[str, Any]:
    """Shares of the cluster's GPU time from the first submission to the last end of an app, in all and by type."""
    submitted = [event.time_s for event in record.events if event.kind == "app_submitted"]
    ended = [app.finished_at_s for app in record.apps if app.finished_at_s > 0]
    if not submitted or not ended:
        return {"leased": None, "running": None, "by_device": {}}
    start_s, end_s = min(submitted), max(ended)
    device_of = {machine.machine_id: machine.device for machine in record.cluster.machines}
    leased: dict[str, float] = defaultdict(float)
    ran: dict[str, float] = defaultdict(float)
    for lease in lease_spans(record.events):
        leased[device_of[machine_of(lease.gpu)]] += max(0.0, min(lease.end_s, end_s) - lease.start_s)
    for span in task_spans(record.events):
        for gpu in span.gpus:
            ran[device_of[machine_of(gpu)]] += max(0.0, min(span.end_s, end_s) - span.start_s)
    each_s = max(end_s - start_s, 1e-9)
    counts = record.cluster.gpus_by_device
    return {
        "leased": sum(leased.values()) / record.cluster.gpus / each_s,
        "running": sum(ran.values()) / record.cluster.gpus / each_s,
        "by_device": {
            name: {"leased": leased[name] / count / each_s, "running": ran[name] / count / each_s}
            for name, count in counts.items()
        },
    }


def _tenants(record: RunRecord) -> dict[str, Any]:
    """Fair shares and leases by tenant; empty for policies without shares."""
    end_s = max((app.finished_at_s for app in record.apps), default=0.0)
    device_of = {machine.machine_id: machine.device for machine in record.cluster.machines}
    return tenant_shares(record.events, lease_spans(record.events), end_s, device_of)


def _largest(values: Any) -> float | None:
    return max((value for value in values if value is not None), default=None)
