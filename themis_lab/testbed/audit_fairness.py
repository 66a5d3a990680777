"""Rho by the fluid fair cluster, computed again from the events alone, is what the ResourceManager reported."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from themis.fluid_cluster import Declaration, FluidCluster, FluidLife, fluid_ideals_s
from themis.lifecycle import AppState
from themis.queues import AppOwner
from themis.values import Value
from themis_lab.testbed.audit_values import AuditInput, Findings
from themis_lab.testbed.events import Event
from themis_lab.testbed.spans import is_final

FLUID_RHO = "rho by the fluid fair cluster follows from the events"

_ROUNDING = 1e-6
"""Relative difference of two sums of the same times in another order."""


class _Stay(Value, frozen=True, kw_only=True):
    """An app that ended, by its last event. `declared` is None for one that ended before it declared itself."""

    state: str
    ended_at_s: float
    arrived_at_s: float
    owner: AppOwner
    declared: Declaration | None


def check_fluid_rho(run: AuditInput, findings: Findings) -> None:
    """Play all apps on the fluid fair cluster, and compare rho of those that finished with what was reported.

    An app that has not ended shares the cluster by a declaration that no event has yet. So there is nothing to compare
    before all have ended. Nor is there after a machine was lost: whether it counted at the end, the events do not say.
    """
    findings.announce(FLUID_RHO)
    submitted = {event.app_id: event for event in run.events if event.kind == "app_submitted"}
    ends = {event.app_id: event for event in run.events if is_final(event)}
    lost = any(event.kind == "machine_lost" for event in run.events)
    if lost or submitted.keys() != ends.keys():
        return
    stays = {app_id: _stay(submitted[app_id], event) for app_id, event in ends.items()}
    if any(stay.declared is None and stay.state == AppState.FINISHED for stay in stays.values()):
        # It ended before an upgrade of the service: its event has no declaration, so the others' shares are unknown.
        return
    lives = _lives(stays, float(len(run.gpus)), run)
    for app_id, stay in stays.items():
        if stay.declared is None or stay.state != AppState.FINISHED or app_id not in run.rho:
            continue
        took_s = stay.ended_at_s - stay.arrived_at_s
        for definition, ideal_s in fluid_ideals_s(stay.declared, lives[app_id]).items():
            reported = run.rho[app_id].get(definition, math.nan)
            rho = took_s / ideal_s if ideal_s > 0.0 else math.nan
            # An app without work has no rho.
            same = math.isclose(rho, reported, rel_tol=_ROUNDING) or (math.isnan(rho) and math.isnan(reported))
            text = f"{app_id} has rho {rho:g} by {definition}, and {reported:g} was reported"
            findings.look(FLUID_RHO, same, text)


def _stay(submitted: Event, ended: Event) -> _Stay:
    detail = ended.detail
    declared = detail.get("declaration")
    return _Stay(
        state=str(detail["state"]),
        ended_at_s=ended.time_s,
        arrived_at_s=float(detail.get("arrived_at_s", submitted.time_s)),
        owner=AppOwner(user=str(submitted.detail.get("user", "")), queue=str(submitted.detail.get("queue", "default"))),
        declared=None if declared is None else msgspec.convert(declared, Declaration),
    )


def _lives(stays: Mapping[str, _Stay], gpus: float, run: AuditInput) -> dict[str, FluidLife]:
    """The lives of all apps that declared themselves. Those that did not finish leave when they ended."""
    changes: list[tuple[float, bool, str]] = []
    for app_id, stay in stays.items():
        if stay.declared is not None:
            changes.append((stay.arrived_at_s, False, app_id))
            if stay.state != AppState.FINISHED:
                changes.append((max(stay.arrived_at_s, stay.ended_at_s), True, app_id))
    changes.sort()
    cluster = FluidCluster(gpus, changes[0][0] if changes else 0.0, run.queues)
    for at_s, leaves, app_id in changes:
        declared = stays[app_id].declared
        if leaves:
            cluster.leave(app_id, at_s)
        elif declared is not None:
            cluster.arrive(app_id, declared.phases, at_s, owner=stays[app_id].owner)
    return cluster.run_out()
