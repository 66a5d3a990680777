"""What a start needs to know of the event log, kept up to date event by event, so that no start reads the whole log.

The store keeps a snapshot of the summary. A start reads the snapshot and the events after it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec

from rm_plugin.arbiter.core import MASTER_UNAVAILABLE
from rm_plugin.service.policy_memory import memory_after
from rm_plugin.service.store import StateStore, StoredEvent
from rm_plugin.service.store_json import to_json
from themis.events import UNREADABLE
from themis.leases import LeaseChangeKind
from themis.lifecycle import APP_LIFECYCLE, AppState
from themis.values import Value

LOG = logging.getLogger("themis.rm")

SNAPSHOT = "snapshot"
"""The store's key of the snapshot."""
_EVENTS_A_READ = 5_000
_LEASE_CHANGES = frozenset(LeaseChangeKind)
"""The kinds whose `lease_id` counts. App masters write the details of their own events, and may name any id there."""
_LEASE_ENDS = (LeaseChangeKind.RELEASED, LeaseChangeKind.REVOKED)
_FORMAT_WITHOUT_USAGE, _FORMAT = 1, 2


UsageKey = tuple[str, str, str, str]
"""Month (`2026-11`, UTC), user, queue and device type. What a store of an earlier version did not know is empty."""

_SEPARATOR = "\t"
# A label has characters that can be shown only, so no tab.


class OpenLease(Value, frozen=True, kw_only=True):
    """A lease that was granted and has not ended: its app, and the time of the grant in seconds since the epoch."""

    app_id: str
    granted_at_s: float
    device: str = ""


@dataclass(slots=True, kw_only=True)
class LogSummary:
    """A fold of the event log.

    Attributes:
        sequence: The newest event that it covers.
        last_round: The newest round.
        open_rounds: Rounds that have not ended.
        last_lease: The largest id of a lease.
        open_leases: Leases that have not ended, by id.
        attained_gpu_s: GPU time in ended leases by app, in GPU seconds; of apps that have not ended.
        owners: The user and the queue of these apps.
        usage: GPU time in ended leases by `UsageKey` as text. It stays when events are archived.
        prolonged: Leases that were prolonged because the app master was unavailable, and whose app has not answered a
            round since; with the app of each.
        policy: The policy of the newest start of a ResourceManager; empty if unknown.
        memory: What the policy remembered in the newest round that was granted, `memory_round`, as JSON; None if
            nothing.
        memory_policy: The policy that wrote it; empty if unknown.
        waits: Why jobs wait by the newest round that was granted, as JSON (`Decision.waits`).
        unreadable: Events that cannot be read, and what is wrong with the first.
    """

    format: int = _FORMAT
    sequence: int = 0
    last_round: int = 0
    open_rounds: set[int] = field(default_factory=set)
    last_lease: int = 0
    open_leases: dict[int, OpenLease] = field(default_factory=dict)
    attained_gpu_s: dict[str, float] = field(default_factory=dict)
    owners: dict[str, tuple[str, str]] = field(default_factory=dict)
    usage: dict[str, float] = field(default_factory=dict)
    prolonged: dict[int, str] = field(default_factory=dict)
    policy: str = ""
    memory: object = None
    memory_round: int | None = None
    memory_policy: str = ""
    waits: object = None
    unreadable: int = 0
    first_unreadable: str = ""

    def take(self, events: Iterable[StoredEvent]) -> None:
        """Add the next events of the log."""
        for event in events:
            self.sequence = event.sequence
            if event.kind == UNREADABLE:
                self.unreadable += 1
                self.first_unreadable = self.first_unreadable or f"{event.sequence}: {event.detail.get('problem')}"
            elif event.kind == "app_state":
                self._take_app_state(event)
            elif event.kind == "app_submitted":
                detail = event.detail
                self.owners[event.app_id] = str(detail.get("user", "")), str(detail.get("queue", "default"))
            elif event.kind == "rm_started":
                self.policy = str(event.detail.get("policy", ""))
            elif not event.app_id:
                self._take_round(event)
            elif event.kind in _LEASE_CHANGES:
                self._take_lease(event)

    def to_text(self) -> str:
        """Return the snapshot as strict JSON."""
        return to_json(msgspec.to_builtins(self, str_keys=True))

    def _take_round(self, event: StoredEvent) -> None:
        round_id = event.detail.get("round_id")
        if not isinstance(round_id, int):
            return
        if event.kind == "round_started":
            self.last_round = max(self.last_round, round_id)
            self.open_rounds.add(round_id)
        elif event.kind == "round_reported":
            rho, others = event.detail.get("rho"), [event.detail.get(key) for key in ("kept", "not_asked")]
            answered = set(rho if isinstance(rho, dict) else ())
            answered.difference_update(*(apps for apps in others if isinstance(apps, list)))
            self.prolonged = {lease_id: app for lease_id, app in self.prolonged.items() if app not in answered}
        elif event.kind == "round_granted":
            self.memory = memory_after(self.memory, self.memory_round, event.detail)
            self.memory_round = round_id
            self.memory_policy = self.policy
            self.waits = event.detail.get("waits")
        elif event.kind == "round_ended":
            self.open_rounds.discard(round_id)

    def _take_lease(self, event: StoredEvent) -> None:
        lease_id = event.detail.get("lease_id")
        if not isinstance(lease_id, int):
            return
        self.last_lease = max(self.last_lease, lease_id)
        if event.kind == LeaseChangeKind.GRANTED:
            device = str(event.detail.get("device", ""))
            self.open_leases[lease_id] = OpenLease(app_id=event.app_id, granted_at_s=event.time_s, device=device)
        elif event.kind == LeaseChangeKind.RENEWED and event.detail.get("reason") == MASTER_UNAVAILABLE:
            self.prolonged[lease_id] = event.app_id
        elif event.kind in _LEASE_ENDS and lease_id in self.open_leases:
            self.prolonged.pop(lease_id, None)
            lease = self.open_leases.pop(lease_id)
            held_s = max(0.0, event.time_s - lease.granted_at_s)
            self.attained_gpu_s[event.app_id] = self.attained_gpu_s.get(event.app_id, 0.0) + held_s
            self._meter(self.usage, lease, event.time_s)

    def _take_app_state(self, event: StoredEvent) -> None:
        state = str(event.detail.get("state"))
        if state in AppState.__members__ and APP_LIFECYCLE.is_final(AppState(state)):
            # Its leases end in the same transaction, and its GPU time in the log is no longer needed.
            self.attained_gpu_s.pop(event.app_id, None)
            of_app = [lease_id for lease_id, lease in self.open_leases.items() if lease.app_id == event.app_id]
            for lease_id in of_app:
                self._meter(self.usage, self.open_leases.pop(lease_id), event.time_s)
                self.prolonged.pop(lease_id, None)
            self.owners.pop(event.app_id, None)

    def usage_at(self, now_s: float) -> dict[UsageKey, float]:
        """GPU seconds by month, user, queue and device type, open leases until now included."""
        usage = dict(self.usage)
        # A copy: another thread takes events meanwhile.
        for lease in list(self.open_leases.values()):
            self._meter(usage, lease, now_s)
        return {usage_key(text): gpu_s for text, gpu_s in sorted(usage.items())}

    def _meter(self, usage: dict[str, float], lease: OpenLease, end_s: float) -> None:
        user, queue = self.owners.get(lease.app_id, ("", ""))
        for month, time_s in by_month(lease.granted_at_s, end_s):
            key = _SEPARATOR.join((month, user, queue, lease.device))
            usage[key] = usage.get(key, 0.0) + time_s


def usage_key(text: str) -> UsageKey:
    """The key that a text of `LogSummary.usage` stands for."""
    month, user, queue, device = text.split(_SEPARATOR)
    return month, user, queue, device


def by_month(begin_s: float, end_s: float) -> Iterator[tuple[str, float]]:
    """Yield the months of a span and its seconds in each, in UTC.

    >>> list(by_month(1793491200.0 - 60.0, 1793491200.0 + 30.0))
    [('2026-10', 60.0), ('2026-11', 30.0)]
    """
    while begin_s < end_s:
        month = datetime.fromtimestamp(begin_s, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        until_s = min(end_s, (month + timedelta(days=32)).replace(day=1).timestamp())
        yield f"{month:%Y-%m}", until_s - begin_s
        begin_s = until_s


def read_summary(store: StateStore) -> LogSummary:
    """Return the summary of the whole log, from the snapshot and the events after it."""
    summary = _snapshot(store.meta(SNAPSHOT))
    while events := store.events(after=summary.sequence, limit=_EVENTS_A_READ):
        summary.take(events)
    return summary


def _snapshot(text: str | None) -> LogSummary:
    if not text:
        return LogSummary()
    try:
        summary = msgspec.json.decode(text, type=LogSummary, strict=False)
    except (msgspec.DecodeError, ValueError) as error:
        LOG.error("the snapshot of the log cannot be read, so the whole log is read: %.300s", error)
        return LogSummary()
    if summary.format not in (_FORMAT_WITHOUT_USAGE, _FORMAT):
        return LogSummary()
    summary.format = _FORMAT
    return summary


def report_unreadable(summary: LogSummary) -> None:
    """Log the number of unreadable events and the first one."""
    if summary.unreadable:
        LOG.error("%d events cannot be read, the first is %.300s", summary.unreadable, summary.first_unreadable)
