"""A small hand-made run that passes every check, and ways to damage it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from themis_lab.testbed.audit import audit
from themis_lab.testbed.audit_values import AuditedJob, AuditInput, AuditLimits, AuditResult, HistoryLine
from themis_lab.testbed.events import Event

LIMITS = AuditLimits(lease_s=10.0, grace_s=2.0, round_s=3.0, f=0.5)
Row = tuple[float, str, str, dict[str, Any]]


def rows() -> list[Row]:
    """Return events: `a` runs on two GPUs, releases them, resumes on one, and finishes; `b` waits, then runs.

    The lease of `b` is bound to its job.
    """
    return [
        (0.0, "rm_started", "", {"cluster": "tiny"}),
        (0.0, "app_submitted", "a", {"name": "first"}),
        (0.4, "am_registered", "a", {"attempt": 1, "pid": 1}),
        (0.5, "tuner", "a", {"phase": 0, "phases": 1, "running": ["j"], "stopped": [], "best": None}),
        *a_round(1, 1.0, free={"m0": 2}, demand={"a": 2}, auction={"a": {"m0": 2}}),
        lease(1.1, "lease_granted", "a", 1, "m0/0", 11.0, 1),
        lease(1.1, "lease_granted", "a", 2, "m0/1", 11.0, 1),
        started(1.3, "a", 1, ["m0/0", "m0/1"], 0),
        (2.0, "app_submitted", "b", {"name": "second"}),
        (2.5, "am_registered", "b", {"attempt": 1, "pid": 1}),
        (3.0, "tuner", "b", {"phase": 0, "phases": 1, "running": ["j"], "stopped": [], "best": None}),
        (5.0, "checkpoint", "a", {"job_id": "j", "iteration": 50, "seconds": 0.1, "bytes": 10}),
        (8.0, "job_progress", "a", {"job_id": "j", "iteration": 80, "loss": 1.0}),
        *a_round(
            2,
            9.0,
            free={"m0": 2},
            demand={"a": 2, "b": 1},
            auction={"b": {"m0": 1}},
            leftovers={"a": {"m0": 1}},
            rho={"a": 1.0, "b": 3.0},
            offered=["b"],
        ),
        lease(9.1, "lease_renewed", "a", 1, "m0/0", 21.0, 2),
        lease(9.1, "lease_expiring", "a", 2, "m0/1", 11.0, 2),
        lease(9.1, "lease_reserved", "b", 3, "m0/1", 21.0, 2, job="j"),
        ended(10.0, "a", 1, ["m0/0", "m0/1"], 85, [75, 75], requested=True),
        (10.1, "lease_released", "a", {"lease_id": 2, "gpu": "m0/1", "reason": "given back"}),
        lease(10.1, "lease_granted", "b", 3, "m0/1", 21.0, 0, job="j"),
        started(10.2, "a", 2, ["m0/0"], 85),
        started(10.3, "b", 1, ["m0/1"], 0),
        ended(15.0, "a", 2, ["m0/0"], 200, [0], requested=False),
        (15.0, "tuner", "a", {"phase": 0, "phases": 1, "running": [], "stopped": [], "best": "j"}),
        (15.1, "lease_released", "a", {"lease_id": 1, "gpu": "m0/0", "reason": "done"}),
        (15.2, "app_state", "a", {"state": "FINISHED", "diagnostics": "", **declared(0.0, 10.0, 2.0)}),
        ended(16.0, "b", 1, ["m0/1"], 40, [1], requested=False),
        (16.0, "checkpoint", "b", {"job_id": "j", "iteration": 40, "seconds": 0.1, "bytes": 10}),
        started(16.5, "b", 2, ["m0/1"], 40),
        ended(19.0, "b", 2, ["m0/1"], 100, [0], requested=False),
        (19.1, "lease_released", "b", {"lease_id": 3, "gpu": "m0/1", "job_id": "j", "reason": "done"}),
        (19.2, "app_state", "b", {"state": "FINISHED", "diagnostics": "", **declared(2.0, 4.0, 1.0)}),
    ]


RHO = {
    "a": {"fluid": 15.2 / 12.0, "isolated_fluid": 15.2 / (10.0 * 4 / 3), "themis_fluid": 15.2 / (10.0 * 4 / 3)},
    "b": {"fluid": 17.2 / 4.0, "isolated_fluid": 17.2 / 4.0, "themis_fluid": 17.2 / (4.0 * 2.0)},
}
"""By hand. On the fluid cluster `a` has both GPUs until 2 s, then one. `b` has the other one, and ends at 6 s. `a` has
8 of its 20 GPU seconds by then, and both GPUs: it ends at 12 s. Its N is (2 + 8 + 6) / 12 = 4 / 3, that of `b` 2."""


def declared(arrived_at_s: float, time_s: float, gpus: float) -> dict[str, Any]:
    """What an app of one phase declared, as the event of its end has it: it can use this many of the two GPUs."""
    phases = [{"time_s": time_s, "gpus": gpus}]
    declaration = {"phases": phases, "cluster_time_s": time_s, "share_demand": gpus / 2.0}
    return {"arrived_at_s": arrived_at_s, "declaration": declaration}


def a_round(
    number: int,
    at_s: float,
    *,
    free: dict[str, int],
    demand: dict[str, int],
    auction: dict[str, dict[str, int]],
    leftovers: dict[str, dict[str, int]] | None = None,
    rho: dict[str, float] | None = None,
    offered: list[str] | None = None,
) -> list[Row]:
    reported = rho or dict.fromkeys(demand, 2.0)
    asked = list(demand) if offered is None else offered
    details: list[tuple[str, dict[str, Any]]] = [
        ("round_started", {"reasons": ["test"], "free": free, "renewable": {}, "active": list(demand)}),
        ("round_reported", {"rho": reported, "absent": [], "demand_gpus": demand}),
        ("round_offered", {"apps": asked}),
        ("round_bids", {"bids": {app: {"rows": 1, "prepare_ms": 1.0} for app in asked}, "absent": {}}),
        ("round_auctioned", {"proportional_fair": auction, "payments": dict.fromkeys(auction, 1.0), "solve_ms": 1.0}),
        ("round_granted", {"auction": auction, "leftovers": leftovers or {}, "usable_left": 0}),
        ("round_ended", {"duration_ms": 10.0, "outcome": "granted"}),
    ]
    return [(at_s, kind, "", {"round_id": number, **detail}) for kind, detail in details]


def lease(
    at_s: float, kind: str, app: str, lease_id: int, gpu: str, expires_s: float, round_id: int, job: str = ""
) -> Row:
    detail: dict[str, Any] = {"lease_id": lease_id, "gpu": gpu, "expires_at_s": expires_s}
    if job:
        detail["job_id"] = job
    return (at_s, kind, app, {**detail, "round_id": round_id} if round_id else detail)


def started(at_s: float, app: str, incarnation: int, gpus: list[str], iteration: int) -> Row:
    detail = {"job_id": "j", "incarnation": incarnation, "gpus": gpus, "tasks": len(gpus), "level": "slot"}
    return (at_s, "tasks_started", app, {**detail, "iteration": iteration, "pids": []})


def ended(
    at_s: float, app: str, incarnation: int, gpus: list[str], iteration: int, codes: list[int], *, requested: bool
) -> Row:
    detail = {"job_id": "j", "incarnation": incarnation, "gpus": gpus, "exit_codes": codes}
    return (at_s, "tasks_ended", app, {**detail, "requested": requested, "iteration": iteration})


def run_of(
    some: list[Row],
    *,
    limits: AuditLimits = LIMITS,
    gpus: tuple[str, ...] = ("m0/0", "m0/1"),
    histories: dict[tuple[str, str], tuple[HistoryLine, ...]] | None = None,
    targets: dict[str, int] | None = None,
    rho: dict[str, dict[str, float]] | None = None,
) -> AuditInput:
    """Return the rows as events, in order of time."""
    ordered = sorted(some, key=lambda row: row[0])
    events = tuple(
        Event(sequence=number, time_s=time_s, kind=kind, app_id=app, detail=detail)
        for number, (time_s, kind, app, detail) in enumerate(ordered, 1)
    )
    jobs = {
        (app, "j"): AuditedJob(state="FINISHED", target_iteration=target)
        for app, target in ({"a": 200, "b": 100} if targets is None else targets).items()
    }
    return AuditInput(events=events, gpus=gpus, limits=limits, jobs=jobs, histories=histories or {}, rho=rho or {})


def found(some: list[Row], check: str, **settings: Any) -> AuditResult:
    """Audit some rows. There must be a violation, and all must be of this check."""
    result = audit(run_of(some, **settings))
    assert result.violations, "nothing was found"
    assert {text.split(": ")[0] for text in result.violations} == {check}, result.violations
    return result


def changed(
    kind: str, change: dict[str, Any], *, app: str = "", place: int = 0, at_s: float | None = None
) -> list[Row]:
    """Return the rows with one event changed: the `place`-th of its kind (and app)."""

    def apply(row: Row) -> list[Row]:
        return [(row[0] if at_s is None else at_s, row[1], row[2], {**row[3], **change})]

    return _at(kind, app, place, apply)


def dropped(kind: str, *, app: str = "", place: int = 0) -> list[Row]:
    """Return the rows without one event."""
    return _at(kind, app, place, lambda row: [])


def _at(kind: str, app: str, place: int, apply: Callable[[Row], list[Row]]) -> list[Row]:
    result: list[Row] = []
    seen = 0
    for row in rows():
        if row[1] == kind and app in ("", row[2]):
            result += apply(row) if seen == place else [row]
            seen += 1
        else:
            result.append(row)
    assert seen > place, f"no {kind} number {place}"
    return result


def with_limits(**changes: Any) -> AuditLimits:
    return replace(LIMITS, **changes)
