"""The phases of a resize: computes seconds by phase from the events of a run (docs/reference/events.md)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from themis.values import Value
from themis_lab.testbed.events import Event

RESERVE_STEPS = ("ask", "grant", "start", "connect")
"""Of `tasks_started`: YARN has the request, has granted it, the container is launched, its task host is connected."""
START_STEPS = ("process", "import", "restore")
"""Of `first_step`: from the task's process to its imports, the imports, reading the checkpoint."""
FREE_PHASES = ("plan", "checkpoint", "stop", "release")
STEP_PHASES = ("plan", "checkpoint", "stop", *RESERVE_STEPS, *START_STEPS, "first step")
STARTUP_PHASES = STEP_PHASES[3:]
"""The phases of a start after the former tasks are gone."""


class Change(Value, frozen=True, kw_only=True):
    """One lease change of a job's app, from its cause to its effect.

    Attributes:
        kind: `free`, from the warning to the free GPU; `step`, from the grant to the first step after it.
        seconds: By phase; their sum is the whole time.
        tasks: The job's tasks, during the change (`free`) or after it (`step`).
    """

    kind: str
    seconds: Mapping[str, float]
    tasks: int

    @property
    def total_s(self) -> float:
        """All phases together, in seconds."""
        return sum(self.seconds.values())

    @property
    def startup_s(self) -> float:
        """The part from the request for containers to the first step, in seconds."""
        return sum(self.seconds.get(phase, 0.0) for phase in STARTUP_PHASES)


def changes(events: Sequence[Event], app_id: str) -> list[Change]:
    """Return every lease change that a single-job app followed. Several leases of one change count once.

    The first start of the job restores nothing, so it is no resize and left out. Events of jobs use their app master's
    view of the ResourceManager's clock, which may differ by some milliseconds.
    """
    mine = [event for event in events if event.app_id == app_id]
    return [*_frees(mine), *_steps(mine)]


def _frees(events: Sequence[Event]) -> Iterator[Change]:
    warnings: dict[int, Event] = {}
    stop: _Stop | None = None
    for event in events:
        if event.kind == "lease_expiring":
            warnings[int(event.detail["lease_id"])] = event
        elif event.kind == "tasks_ended" and warnings:
            stop = _stop_before(events, event)
        elif event.kind == "lease_released":
            warned = warnings.pop(int(event.detail["lease_id"]), None)
            if warned is not None and stop is not None and stop.asked_s >= warned.time_s - _CLOCKS_S:
                yield _free(warned, stop, event)
                # Leases that were announced together are returned together: one stop, one change.
                stop = None


def _steps(events: Sequence[Event]) -> Iterator[Change]:
    granted: Event | None = None
    for event in events:
        if event.kind == "lease_granted":
            granted = granted or event
        elif event.kind in ("lease_expiring", "lease_revoked"):
            # What follows is the answer to that.
            granted = None
        elif event.kind == "first_step" and granted is not None:
            started = _started(events, event)
            if started is not None and started.sequence > granted.sequence:
                if started.detail["incarnation"] > 1:
                    yield _step(granted, started, event, events)
                granted = None


# ---- one change ----

_CLOCKS_S = 0.1


class _Stop(Value, frozen=True, kw_only=True):
    """An incarnation that was asked to stop, took `checkpoint_s` to save itself, and ended."""

    asked_s: float
    checkpoint_s: float
    ended_s: float
    tasks: int

    def phases(self) -> dict[str, float]:
        lasted_s = max(0.0, self.ended_s - self.asked_s)
        checkpoint_s = min(self.checkpoint_s, lasted_s)
        return {"checkpoint": checkpoint_s, "stop": lasted_s - checkpoint_s}


def _free(warned: Event, stop: _Stop, released: Event) -> Change:
    seconds = {
        "plan": max(0.0, stop.asked_s - warned.time_s),
        **stop.phases(),
        "release": max(0.0, released.time_s - stop.ended_s),
    }
    return Change(kind="free", seconds=seconds, tasks=stop.tasks)


def _step(granted: Event, started: Event, first: Event, events: Sequence[Event]) -> Change:
    begun_s = first.time_s - float(first.detail["since_start_s"])
    stop = _stop_between(events, granted, started)
    waited_s = max(0.0, begun_s - granted.time_s)
    stopping = {"checkpoint": 0.0, "stop": 0.0} if stop is None else stop.phases()
    seconds = {"plan": max(0.0, waited_s - sum(stopping.values())), **stopping}
    reserve = {step: float(started.detail["seconds"].get(step, 0.0)) for step in RESERVE_STEPS}
    # Between the last step of reserving and the event is the launch, which is part of starting the process.
    launch_s = max(0.0, started.time_s - begun_s - sum(reserve.values()))
    steps_s = {step: float(first.detail["seconds"].get(step, 0.0)) for step in START_STEPS}
    seconds |= reserve | steps_s | {"process": steps_s["process"] + launch_s}
    seconds["first step"] = max(0.0, first.time_s - started.time_s - sum(steps_s.values()))
    return Change(kind="step", seconds=seconds, tasks=int(started.detail["tasks"]))


def _started(events: Sequence[Event], first: Event) -> Event | None:
    incarnation = first.detail["incarnation"]
    found = [
        event
        for event in events
        if event.kind == "tasks_started"
        and event.detail["incarnation"] == incarnation
        and event.sequence < first.sequence
    ]
    return found[-1] if found else None


def _stop_between(events: Sequence[Event], granted: Event, started: Event) -> _Stop | None:
    """The stop that freed the GPUs for these tasks, if it was requested after the grant."""
    ended = [
        event
        for event in events
        if event.kind == "tasks_ended" and granted.sequence < event.sequence < started.sequence
    ]
    return _stop_before(events, ended[-1]) if ended else None


def _stop_before(events: Sequence[Event], ended: Event) -> _Stop | None:
    """The stop before this end of tasks. Returns None if they ended by themselves."""
    asked_s, checkpoint_s = math.nan, 0.0
    for event in events:
        if event.sequence >= ended.sequence:
            break
        if event.kind == "job_state":
            # A job that is already stopping is not asked again, so the newest request counts.
            asked_s = event.time_s if event.detail["state"] == "CHECKPOINTING" else math.nan
            checkpoint_s = 0.0
        elif event.kind == "checkpoint":
            checkpoint_s = float(event.detail["seconds"])
    if math.isnan(asked_s):
        return None
    return _Stop(
        asked_s=asked_s, checkpoint_s=checkpoint_s, ended_s=ended.time_s, tasks=len(ended.detail["exit_codes"])
    )
