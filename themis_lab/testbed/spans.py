"""Time spans that events begin and end: leases of GPUs, and the tasks on them.

Each span has its times, in seconds since the epoch, and the sequence numbers of the events that began and ended it.
Times of tasks use their app master's clock, which may differ by some tens of milliseconds. Sequence numbers give the
order in which the ResourceManager received the events, and depend on no clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from themis.lifecycle import APP_LIFECYCLE, AppState
from themis_lab.testbed.events import Event

NEVER = 2**63
"""Sequence number of an end that has not happened."""
LEASE_ENDS = ("lease_released", "lease_revoked")


@dataclass(slots=True, kw_only=True)
class LeaseSpan:
    """A lease from its grant to its end.

    `end_s` is infinite while it lasts; `expiries` are pairs (reported at, expires at). `job_id` is the job that it is
    bound to, if any, and `bound_sequence` the event that bound it.
    """

    lease_id: int
    app_id: str
    gpu: str
    start_s: float
    start_sequence: int
    end_s: float = math.inf
    end_sequence: int = NEVER
    expiries: list[tuple[float, float]] = field(default_factory=list)
    end_kind: str = ""
    job_id: str = ""
    bound_sequence: int = NEVER


@dataclass(slots=True, kw_only=True)
class TaskSpan:
    """One incarnation of a job on its GPUs. `end_s` is infinite while it runs.

    Attributes:
        from_iteration: Iterations done when it began.
        to_iteration: Iteration of the newest checkpoint when it ended; -1 if it was not reported.
        requested: Whether its app master had asked it to stop.
        end_kind: The kind of the event that ended it: `tasks_ended` unless its app master was lost.
    """

    app_id: str
    job_id: str
    incarnation: int
    gpus: tuple[str, ...]
    level: str
    from_iteration: int
    start_s: float
    start_sequence: int
    end_s: float = math.inf
    end_sequence: int = NEVER
    to_iteration: int = -1
    requested: bool = False
    exit_codes: tuple[int | None, ...] = ()
    end_kind: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Its job: app id and job id."""
        return self.app_id, self.job_id


def lease_spans(events: Iterable[Event]) -> list[LeaseSpan]:
    """All granted leases, in order of their grant. Inconsistent events are left to the audit."""
    spans: dict[int, LeaseSpan] = {}
    for event in events:
        if not event.kind.startswith("lease_"):
            continue
        lease_id = int(event.detail["lease_id"])
        span = spans.get(lease_id)
        if event.kind == "lease_granted" and span is None:
            gpu = str(event.detail["gpu"])
            span = spans[lease_id] = LeaseSpan(
                lease_id=lease_id, app_id=event.app_id, gpu=gpu, start_s=event.time_s, start_sequence=event.sequence
            )
        if span is not None:
            _lease_changed(span, event)
    return list(spans.values())


def _lease_changed(span: LeaseSpan, event: Event) -> None:
    if event.kind in ("lease_granted", "lease_renewed"):
        span.expiries.append((event.time_s, float(event.detail["expires_at_s"])))
        job_id = str(event.detail.get("job_id", ""))
        if job_id != span.job_id:
            span.job_id, span.bound_sequence = job_id, event.sequence
    elif event.kind in LEASE_ENDS and span.end_s == math.inf:
        span.end_s, span.end_sequence, span.end_kind = event.time_s, event.sequence, event.kind


def task_spans(events: Iterable[Event]) -> list[TaskSpan]:
    """All incarnations of all jobs, in order of their start.

    If an app master is lost or its app has ended, its running tasks have ended too, because tasks die with their app
    master. No event reports their end.
    """
    spans: list[TaskSpan] = []
    running: dict[str, dict[tuple[str, int], TaskSpan]] = {}
    for event in events:
        mine = running.setdefault(event.app_id, {})
        if event.kind == "tasks_started":
            span = _started(event)
            spans.append(span)
            mine[span.job_id, span.incarnation] = span
        elif event.kind == "tasks_ended":
            _ended(mine.get((str(event.detail["job_id"]), int(event.detail["incarnation"]))), event)
        elif event.kind == "am_lost" or is_final(event):
            for span in mine.values():
                if span.end_s == math.inf:
                    span.end_s, span.end_sequence, span.end_kind = event.time_s, event.sequence, event.kind
    return spans


def is_final(event: Event) -> bool:
    """Whether the event reports the end of its app."""
    return event.kind == "app_state" and is_final_state(str(event.detail.get("state", "")))


def is_final_state(state: str) -> bool:
    """Whether this state of an app is final."""
    return state in AppState.__members__ and APP_LIFECYCLE.is_final(AppState(state))


def _started(event: Event) -> TaskSpan:
    detail = event.detail
    return TaskSpan(
        app_id=event.app_id,
        job_id=str(detail["job_id"]),
        incarnation=int(detail["incarnation"]),
        gpus=tuple(str(gpu) for gpu in detail["gpus"]),
        level=str(detail.get("level", "slot")),
        from_iteration=int(detail["iteration"]),
        start_s=event.time_s,
        start_sequence=event.sequence,
    )


def _ended(span: TaskSpan | None, event: Event) -> None:
    if span is None:
        return
    detail: Mapping[str, Any] = event.detail
    span.end_s, span.end_sequence, span.end_kind = event.time_s, event.sequence, event.kind
    span.to_iteration = int(detail.get("iteration", -1))
    span.requested = bool(detail.get("requested", False))
    codes = detail.get("exit_codes", [])
    span.exit_codes = tuple(codes.values() if isinstance(codes, Mapping) else codes)
