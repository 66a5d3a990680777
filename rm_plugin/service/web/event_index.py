"""An index of the event log for the pages, updated as the log grows, so that no request has to read the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from rm_plugin.service.recorder import Recorder
from rm_plugin.service.store import StoredEvent, StoreError
from rm_plugin.service.web.round_record import RoundRecord

LOG = logging.getLogger("themis.rm.pages")

ROUNDS_KEPT = 100
REPORTS_KEPT = 200_000
"""Reports in the rounds that are kept: of thousands of apps fewer rounds are, since each names every app."""
EVENTS_KEPT = 50
APPS_KEPT = 500
"""How many apps' events are kept: those of the apps with the newest events."""

_CHUNK = 200
_PAUSE_S = 0.2
_RETRY_S = 5.0
# Most events of the log, and of little use on the app's page: the row of a job shows its progress.
_FREQUENT = frozenset({"job_progress"})


@dataclass(slots=True)
class Total:
    """How often something was done, and the seconds that it took in total."""

    count: int = 0
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one more."""
        self.count += 1
        self.sum_s += seconds


@dataclass(slots=True)
class Totals:
    """Sums over the whole log."""

    events: int = 0
    rounds: dict[str, int] = field(default_factory=dict)
    round: Total = field(default_factory=Total)
    auction: Total = field(default_factory=Total)
    bids: Total = field(default_factory=Total)
    decide: Total = field(default_factory=Total)
    checkpoint: Total = field(default_factory=Total)
    resize: Total = field(default_factory=Total)
    job_restarts: int = 0
    leases_revoked: int = 0


class EventIndex:
    """The newest rounds, the newest events of each app, and sums. Belongs to the ResourceManager's loop."""

    def __init__(self, recorder: Recorder) -> None:
        self.totals = Totals()
        self._recorder = recorder
        self._rounds: OrderedDict[int, RoundRecord] = OrderedDict()
        self._events: OrderedDict[str, deque[StoredEvent]] = OrderedDict()
        self._after = 0
        self._caught_up = asyncio.Event()

    async def follow(self) -> None:
        """Read the log from its beginning, then every event added to it; runs for ever."""
        while True:
            try:
                events = await self._recorder.read_events(self._after, "", _CHUNK)
            except StoreError as error:
                LOG.warning("the pages cannot read new events: %s", error)
                await asyncio.sleep(_RETRY_S)
                continue
            for event in events:
                self.take(event)
            if len(events) == _CHUNK:
                # Read a long log in parts: the loop has other work too.
                continue
            self._caught_up.set()
            await self._recorder.news()
            await asyncio.sleep(_PAUSE_S)

    async def ready(self) -> None:
        """Return once the log has been read to its end for the first time."""
        await self._caught_up.wait()

    def rounds(self, limit: int = ROUNDS_KEPT) -> list[RoundRecord]:
        """Return the newest rounds, at most `limit`, newest first."""
        newest = reversed(self._rounds.values())
        return [record for record, _ in zip(newest, range(limit), strict=False)]

    def events_of(self, app_id: str) -> list[StoredEvent]:
        """Return an app's newest events by time, newest first, without its jobs' progress.

        App masters report what happened a moment ago, so the log is not quite in this order. Leases that change
        together are one event, whose `gpu` lists their GPUs.

        Returns an empty list for an app that is not among the last `APPS_KEPT` with events.
        """
        return sorted(self._events.get(app_id, ()), key=lambda event: (event.time_s, event.sequence), reverse=True)

    def take(self, event: StoredEvent) -> None:
        """Add the next event of the log."""
        self._after = event.sequence
        self.totals.events += 1
        if event.app_id and event.kind not in _FREQUENT:
            self._keep(event)
        if event.kind.startswith("round_") and not event.app_id:
            # Skip a round that cannot be read: another version wrote it, or the store was damaged.
            with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
                self._take_round(event)
        elif event.kind in _COUNTED:
            # App masters write the details of job events. Skip one without a valid number.
            with contextlib.suppress(KeyError, TypeError, ValueError):
                _COUNTED[event.kind](self.totals, event.detail)

    def _keep(self, event: StoredEvent) -> None:
        events = self._events.setdefault(event.app_id, deque(maxlen=EVENTS_KEPT))
        if events and _lease_change(events[-1]) == _lease_change(event) is not None:
            gpus = events.pop().detail["gpu"]
            gpus = [*(gpus if isinstance(gpus, list) else [gpus]), event.detail["gpu"]]
            event = replace(event, detail={**event.detail, "gpu": gpus})
        events.append(event)
        self._events.move_to_end(event.app_id)
        if len(self._events) > APPS_KEPT:
            self._events.popitem(last=False)

    def _forget_rounds(self) -> None:
        reports = sum(len(record.rho) for record in self._rounds.values())
        while len(self._rounds) > ROUNDS_KEPT or (reports > REPORTS_KEPT and len(self._rounds) > 2):
            _, oldest = self._rounds.popitem(last=False)
            reports -= len(oldest.rho)

    def _take_round(self, event: StoredEvent) -> None:
        round_id = int(str(event.detail["round_id"]))
        if event.kind == "round_started":
            self._rounds[round_id] = RoundRecord(round_id=round_id, started_at_s=event.time_s)
            self._forget_rounds()
        record = self._rounds.get(round_id)
        if record is None:
            return
        record.take(event)
        totals = self.totals
        if event.kind == "round_bids" and record.bids_s is not None:
            totals.bids.add(record.bids_s)
        elif event.kind == "round_auctioned" and record.solve_s is not None:
            totals.auction.add(record.solve_s)
        elif event.kind == "round_granted" and record.decide_s is not None:
            totals.decide.add(record.decide_s)
        elif event.kind == "round_ended":
            totals.rounds[record.outcome] = totals.rounds.get(record.outcome, 0) + 1
            totals.round.add(record.duration_s or 0.0)


def _lease_change(event: StoredEvent) -> tuple[object, ...] | None:
    """What events of leases have in common that change together, one a GPU. None for other events."""
    if not event.kind.startswith("lease_") or "gpu" not in event.detail:
        return None
    common = {name: value for name, value in event.detail.items() if name not in ("lease_id", "gpu")}
    return event.kind, event.time_s, common


def _restarted(totals: Totals, _detail: Mapping[str, object]) -> None:
    totals.job_restarts += 1


def _revoked(totals: Totals, _detail: Mapping[str, object]) -> None:
    totals.leases_revoked += 1


def _seconds(detail: Mapping[str, object]) -> float:
    seconds = float(str(detail["seconds"]))
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"no duration: {seconds}")
    return seconds


_COUNTED: Mapping[str, Callable[[Totals, Mapping[str, object]], None]] = {
    "checkpoint": lambda totals, detail: totals.checkpoint.add(_seconds(detail)),
    "resize": lambda totals, detail: totals.resize.add(_seconds(detail)),
    "job_restarted": _restarted,
    "lease_revoked": _revoked,
}
