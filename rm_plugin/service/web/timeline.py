"""The time line of an app: when each job ran on how many GPUs, when each GPU was leased, when the app was paused."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rm_plugin.service.recorder import Recorder
from rm_plugin.service.store import StoredEvent
from themis.lifecycle import AppState

MAX_SPANS = 1_000
"""Spans kept of each kind, the newest ones: a chart shows no more."""
APPS_KEPT = 50
"""Time lines kept in memory. Another one is made again from the log."""
_EVENTS_A_READ = 2_000

_LEASE_BEGINS, _LEASE_ENDS = ("lease_granted",), ("lease_released", "lease_revoked")


@dataclass(slots=True)
class Span:
    """A time in seconds since the epoch; `to_s` is None while it lasts. `gpus` is the number of GPUs."""

    name: str
    from_s: float
    to_s: float | None = None
    gpus: int = 1


@dataclass(slots=True)
class Timeline:
    """A fold of an app's events."""

    sequence: int = 0
    jobs: list[Span] = field(default_factory=list)
    leases: list[Span] = field(default_factory=list)
    pauses: list[Span] = field(default_factory=list)
    _running: dict[str, Span] = field(default_factory=dict)
    _leased: dict[object, Span] = field(default_factory=dict)

    def take(self, events: Iterable[StoredEvent]) -> None:
        """Add the next events of the app."""
        for event in events:
            self.sequence = event.sequence
            if event.kind in ("tasks_started", "tasks_ended"):
                self._take_job(event)
            elif event.kind.startswith("lease_"):
                self._take_lease(event)
            elif event.kind == "am_lost":
                self._end_all(event.time_s)
            elif event.kind == "app_state":
                self._take_state(event)
            elif event.kind == "app_resumed" and self.pauses:
                self.pauses[-1].to_s = event.time_s

    def _take_job(self, event: StoredEvent) -> None:
        job_id, gpus = str(event.detail.get("job_id", "")), event.detail.get("gpus")
        if job_id in self._running:
            self._running.pop(job_id).to_s = event.time_s
        if event.kind == "tasks_started":
            count = len(gpus) if isinstance(gpus, list) else 1
            self._running[job_id] = _added(self.jobs, Span(job_id, event.time_s, gpus=count))

    def _take_lease(self, event: StoredEvent) -> None:
        lease_id = event.detail.get("lease_id")
        if event.kind in _LEASE_BEGINS and lease_id not in self._leased:
            self._leased[lease_id] = _added(self.leases, Span(str(event.detail.get("gpu", "")), event.time_s))
        elif event.kind in _LEASE_ENDS and lease_id in self._leased:
            self._leased.pop(lease_id).to_s = event.time_s

    def _take_state(self, event: StoredEvent) -> None:
        self._end_all(event.time_s)
        if event.detail.get("state") == AppState.PAUSED:
            _added(self.pauses, Span("", event.time_s))
        elif self.pauses and self.pauses[-1].to_s is None:
            self.pauses[-1].to_s = event.time_s

    def _end_all(self, time_s: float) -> None:
        """End the spans of all jobs: nothing of the app's attempt runs any more."""
        for span in self._running.values():
            span.to_s = time_s
        self._running.clear()


def _added(spans: list[Span], span: Span) -> Span:
    spans.append(span)
    if len(spans) > MAX_SPANS:
        del spans[0]
    return span


class Timelines:
    """The time lines of the apps whose pages were looked at last, each kept up to date from where it was read last."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._kept: OrderedDict[str, Timeline] = OrderedDict()

    async def of(self, app_id: str) -> Timeline:
        """Return the time line of an app until now.

        Raises:
            StoreError: The store cannot be read.
        """
        line = self._kept.setdefault(app_id, Timeline())
        self._kept.move_to_end(app_id)
        if len(self._kept) > APPS_KEPT:
            self._kept.popitem(last=False)
        while True:
            events = await self._recorder.read_events(line.sequence, app_id, _EVENTS_A_READ)
            # Another request may have read the same events meanwhile.
            line.take(event for event in events if event.sequence > line.sequence)
            if len(events) < _EVENTS_A_READ:
                return line


def timeline_document(line: Timeline, now_s: float) -> Mapping[str, object]:
    """The time line as a document."""
    return {
        "now_s": now_s,
        "jobs": [
            {"job_id": span.name, "from_s": span.from_s, "to_s": span.to_s, "gpus": span.gpus} for span in line.jobs
        ],
        "leases": [{"gpu": span.name, "from_s": span.from_s, "to_s": span.to_s} for span in line.leases],
        "pauses": [{"from_s": span.from_s, "to_s": span.to_s} for span in line.pauses],
    }
