"""Metrics in the text format that Prometheus reads (exposition format, version 0.0.4)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from rm_plugin.service.web.event_index import Total
from rm_plugin.service.web.page_state import GpuState, MachineState, PageState
from themis.lifecycle import LEASE_LIFECYCLE, AppState, LeaseState
from themis.rho import HEADLINE

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_QUANTILES = (0.5, 0.95, 0.99)

_TAIL = 0.01

S = TypeVar("S", bound=StrEnum)

Sample = tuple[str, Mapping[str, str], float]
"""What follows the metric's name, the labels, the value."""


def metrics_text(page_state: PageState) -> str:
    """All metrics."""
    parts = (_state, _completion, _newest_round, _sums, _policy)
    return "".join(text for part in parts for text in part(page_state))


def _state(page_state: PageState) -> Iterable[str]:
    manager = page_state.manager
    arbiter, table = manager.arbiter, manager.arbiter.table
    yield _gauge(
        "themis_info",
        "Always 1; what is served under which policy.",
        [("", {"cluster": arbiter.cluster.name, "policy": page_state.policy}, 1)],
    )
    apps = {state: manager.entries.count([state]) for state in AppState}
    yield _gauge("themis_apps", "Apps by state, those that ended included.", _by_state(apps))
    yield _gauge("themis_gpus", "GPUs by state.", _by_state(page_state.gpus_by_state()))
    devices = Counter(
        (machine.device, page_state.gpu_state(gpu))
        for machine in arbiter.cluster.machines
        for gpu in arbiter.cluster.gpus_of(machine.machine_id)
    )
    yield _gauge(
        "themis_devices",
        "Devices by type and state: GPUs and CPU nodes.",
        [
            ("", {"type": device, "state": str(state)}, devices[device, state])
            for device in arbiter.cluster.gpus_by_device
            for state in GpuState
        ],
    )
    machines = _counts(MachineState, (page_state.machine_state(machine) for machine in arbiter.cluster.machines))
    yield _gauge("themis_machines", "Machines by state.", _by_state(machines))
    held = [state for state in LeaseState if not LEASE_LIFECYCLE.is_final(state)]
    leases = _counts(held, (lease.state for lease in (*table.live.values(), *table.reserved.values())))
    yield _gauge("themis_leases", "Leases that have not ended, by state.", _by_state(leases))
    max_rho = page_state.max_rho()
    if max_rho is not None:
        what = f"Largest rho of the active apps, by the definition {HEADLINE}."
        yield _gauge("themis_rho_max", what, [("", {}, max_rho)])
    writable, available = not manager.changes.trouble, not manager.app_masters.watch.is_engine_away
    yield _gauge("themis_store_writable", "1 if the store can be written, else 0.", [("", {}, int(writable))])
    yield _gauge("themis_engine_available", "1 if the engine answers, else 0.", [("", {}, int(available))])
    unmet = sum(entry.heartbeat.unmet_gpus for entry in manager.entries.active())
    yield _gauge("themis_unmet_gpus", "GPUs that active apps could use beyond their leases.", [("", {}, unmet)])
    end_s = manager.certificate_expires_at_s
    what = "End of the certificate, seconds since the epoch; 0 without TLS."
    yield _gauge("themis_certificate_end_seconds", what, [("", {}, end_s)])


def _completion(page_state: PageState) -> Iterable[str]:
    """How long finished apps took. Archived ones are not known any more."""
    taken_s = sorted(
        entry.finished_at_s - entry.submitted_at_s
        for entry in page_state.manager.entries.newest_first([AppState.FINISHED])
        if entry.finished_at_s is not None
    )
    if not taken_s:
        return
    quantiles: list[Sample] = [
        ("", {"quantile": str(share)}, taken_s[math.ceil(share * len(taken_s)) - 1]) for share in _QUANTILES
    ]
    sums: list[Sample] = [("_sum", {}, math.fsum(taken_s)), ("_count", {}, len(taken_s))]
    what = "From submission to end, of finished apps that are not archived."
    yield _metric("themis_app_completion_seconds", "summary", what, [*quantiles, *sums])
    longest_s = taken_s[-max(1, round(_TAIL * len(taken_s))) :]
    yield _gauge(
        "themis_app_completion_tail_seconds",
        "Mean of the longest 1 % of these, of at least one.",
        [("", {}, math.fsum(longest_s) / len(longest_s))],
    )


def _newest_round(page_state: PageState) -> Iterable[str]:
    ended = next((record for record in page_state.event_index.rounds() if record.duration_s is not None), None)
    if ended is None:
        return
    parts = {
        "whole": ended.duration_s,
        "bids": ended.bids_s,
        "auction": ended.solve_s,
        "decide": ended.decide_s,
    }
    samples = [("", {"part": part}, seconds) for part, seconds in parts.items() if seconds is not None]
    yield _gauge("themis_newest_round_seconds", "How long the newest round that ended took, by part.", samples)


def _sums(page_state: PageState) -> Iterable[str]:
    totals = page_state.event_index.totals
    rounds = [("", {"outcome": outcome}, count) for outcome, count in sorted(totals.rounds.items())]
    yield _metric("themis_rounds_total", "counter", "Rounds that ended.", rounds)
    yield _metric("themis_events_total", "counter", "Events in the log.", [("", {}, totals.events)])
    yield _metric(
        "themis_job_restarts_total", "counter", "Restarts of jobs after a fault.", [("", {}, totals.job_restarts)]
    )
    yield _metric(
        "themis_leases_revoked_total", "counter", "Leases that were taken by force.", [("", {}, totals.leases_revoked)]
    )
    refused = page_state.manager.entries.refused_messages
    yield _metric(
        "themis_messages_refused_total", "counter", "Messages of app masters that were refused.", [("", {}, refused)]
    )
    yield _summary("themis_round_seconds", "Whole rounds.", totals.round)
    yield _summary("themis_bids_seconds", "From the offer to the last bid or the deadline.", totals.bids)
    yield _summary("themis_auction_seconds", "Winner determination and payments.", totals.auction)
    yield _summary("themis_decide_seconds", "The policy's own computation, without bids and auction.", totals.decide)
    yield _summary("themis_checkpoint_seconds", "Writing one checkpoint.", totals.checkpoint)
    yield _summary("themis_resize_seconds", "Moving a job to other GPUs, without waiting for them.", totals.resize)


def _policy(page_state: PageState) -> Iterable[str]:
    """The figures that the policy publishes, whichever policy it is."""
    for figure in page_state.manager.rounds.figures():
        kind = "counter" if figure.is_total else "gauge"
        samples: list[Sample] = [("", labels, float(value)) for labels, value in figure.values]
        yield _metric(f"themis_policy_{figure.name}", kind, figure.what, samples)


def _counts(states: Iterable[S], found: Iterable[S]) -> dict[S, int]:
    counts = Counter(found)
    return {state: counts[state] for state in states}


def _by_state(counts: Mapping[S, int]) -> list[Sample]:
    return [("", {"state": str(state)}, count) for state, count in counts.items()]


def _gauge(name: str, what: str, samples: Iterable[Sample]) -> str:
    return _metric(name, "gauge", what, samples)


def _summary(name: str, what: str, total: Total) -> str:
    return _metric(name, "summary", what, [("_sum", {}, total.sum_s), ("_count", {}, total.count)])


def _metric(name: str, kind: str, what: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{suffix}{_labels(labels)} {value!r}" for suffix, labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    written = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{written}}}" if written else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
