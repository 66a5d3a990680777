"""Write events and the state they change into the store together, off the event loop, and wake watchers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import DecodeError

from rm_plugin.service.entries import AppEntry
from rm_plugin.service.log_summary import SNAPSHOT, read_summary
from rm_plugin.service.store import StateStore, StoredApp, StoredEvent, StoreTransaction, app_number
from themis.clock import Clock, ClockMark, boot_id
from themis.cluster import Cluster
from themis.errors import ThemisError
from themis.leases import Lease, LeaseChange, LeaseChangeKind
from themis.lifecycle import AppState
from themis.values import Value
from themis.wire import themis_pb2 as pb
from themis.wire.values import cluster_from_message, cluster_to_message

LOG = logging.getLogger("themis.rm")

T = TypeVar("T")

SNAPSHOT_EVERY = 2_000
"""After how many events a snapshot of the log's summary is written."""
_SEARCHED_ROWS = 1_000
"""How many archived apps a search reads at a time."""
_PROBE_BYTES = 64 * 1024
"""The size of a test write. A disk with less free space would refuse the next round."""


class Removed(Value, frozen=True, kw_only=True):
    """Events that leave the store, because an archive file has them or they are dropped.

    Attributes:
        app_ids: Ended apps, of which all events up to the sequence number `through` leave.
        archive: Name of the file.
        pieces: Apps of which events up to a sequence number leave; an empty id stands for events of no app.
        kinds: The kinds of events that leave of the pieces; all if empty.
    """

    app_ids: tuple[str, ...]
    archive: str
    through: int
    pieces: tuple[tuple[str, int], ...]
    kinds: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Batch:
    """The content of one transaction. Times are seconds since the epoch; events without a time get `now_s`."""

    now_s: float
    events: list[StoredEvent] = field(default_factory=list)
    apps: dict[str, StoredApp] = field(default_factory=dict)
    leases: list[Lease] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)
    removed: Removed | None = None

    def event(
        self, kind: str, *, app_id: str = "", detail: Mapping[str, object] | None = None, time_s: float | None = None
    ) -> None:
        """Add an event."""
        at_s = self.now_s if time_s is None else time_s
        # The store assigns the sequence number.
        self.events.append(StoredEvent(sequence=0, time_s=at_s, kind=kind, app_id=app_id, detail=detail or {}))

    def lease_changes(self, changes: Iterable[LeaseChange], cluster: Cluster | None = None) -> None:
        """Add lease changes with an event each. That of a grant names the device type, if the cluster is given."""
        for change in changes:
            self.leases.append(change.lease)
            detail = _lease_detail(change)
            if change.kind is LeaseChangeKind.GRANTED and cluster is not None:
                detail["device"] = cluster.machine(change.lease.gpu.machine_id).device
            self.event(change.kind.value, app_id=change.lease.app_id, detail=detail)

    def cluster(self, cluster: Cluster) -> None:
        """Write the machines, so that a later start can read leases on a machine that is unavailable then."""
        self.meta["cluster"] = cluster_to_message(cluster).SerializeToString(deterministic=True).hex()

    def write_to(self, transaction: StoreTransaction) -> list[StoredEvent]:
        """Write the batch in a transaction. Returns the events as the store has them."""
        for app in self.apps.values():
            transaction.put_app(app)
        for lease in self.leases:
            transaction.put_lease(lease)
        written = [
            transaction.append_event(event.kind, event.time_s, app_id=event.app_id, detail=event.detail)
            for event in self.events
        ]
        for key, value in self.meta.items():
            transaction.put_meta(key, value)
        if self.removed is not None:
            transaction.archive_apps(self.removed.app_ids, self.removed.archive, through=self.removed.through)
            for app_id, through in self.removed.pieces:
                transaction.remove_events(app_id, through, self.removed.kinds)
        return written

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.events or self.apps or self.leases or self.meta or self.removed)


class Recorder:
    """Writes and reads the store in one thread each, so that the event loop waits for neither.

    Belongs to the ResourceManager's loop; each ResourceManager has one.
    """

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self.store = store
        self.summary = read_summary(store)
        """Of all that is written. Only the thread that writes may change it."""
        self._snapshot_at = 0
        self._clock = clock
        self._boot_id = boot_id()
        self._news = asyncio.Event()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store-writer")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="store-reader")

    def batch(self) -> Batch:
        """Return an empty batch with the present time."""
        return Batch(now_s=self._clock.now_s())

    # ---- writing ----

    async def commit(self, batch: Batch) -> None:
        """Write a batch, all or nothing. Raises StoreError if the store cannot be written."""
        self._put_clock(batch)
        await asyncio.get_running_loop().run_in_executor(self._writer, self._write, batch)
        self._wake()

    async def probe(self) -> None:
        """Write a test value and remove it. Raises StoreError if the store cannot be written."""
        for text in ("0" * _PROBE_BYTES, ""):
            batch = self.batch()
            batch.meta["probe"] = text
            await self.commit(batch)

    def record(
        self,
        kind: str,
        *,
        app_id: str = "",
        detail: Mapping[str, object] | None = None,
        app: AppEntry | None = None,
    ) -> None:
        """Write an event and an app on the loop. Use it only at start, before anything is served."""
        batch = self.batch()
        if app is not None:
            batch.apps[app.app_id] = app.stored()
        batch.event(kind, app_id=app_id, detail=detail)
        self.write_now(batch)

    def write_now(self, batch: Batch) -> None:
        """Write a batch on the loop, only at start, as `record` does."""
        self._put_clock(batch)
        self._write(batch)
        self._wake()

    # ---- reading ----

    def kept_cluster(self) -> Cluster | None:
        """Return the machines that `Batch.cluster` wrote last. Returns None if none are readable."""
        text = self.store.meta("cluster")
        try:
            return cluster_from_message(pb.Cluster.FromString(bytes.fromhex(text))) if text else None
        except (ThemisError, ValueError, DecodeError) as error:
            LOG.error("the machines that the store remembers cannot be read: %.300s", error)
            return None

    def events(self, after: int, app_id: str, limit: int) -> tuple[StoredEvent, ...]:
        """Return events after a sequence number, read on the loop."""
        return self.store.events(after=after, app_id=app_id, limit=limit)

    async def read_events(self, after: int, app_id: str, limit: int) -> tuple[StoredEvent, ...]:
        """Return events after a sequence number. Raises StoreError if the store cannot be read."""
        return await self._read(lambda: self.events(after, app_id, limit))

    async def news(self) -> None:
        """Wait for the next write."""
        await self._news.wait()

    async def archived_apps(
        self, below: float, states: Collection[AppState], words: Sequence[str], limit: int
    ) -> tuple[AppEntry, ...]:
        """Return archived apps by falling number, of numbers below `below`, which have each of these words."""
        return await self._read(lambda: self._archived_apps(below, states, words, limit))

    def _archived_apps(
        self, below: float, states: Collection[AppState], words: Sequence[str], limit: int
    ) -> tuple[AppEntry, ...]:
        found: list[AppEntry] = []
        part_size = _SEARCHED_ROWS if words else limit
        while len(found) < limit and (part := self.store.archived_apps(below=below, states=states, limit=part_size)):
            found += _restored(app for app in part if _has_words(app, words))
            below = app_number(part[-1].app_id)
        return tuple(found[:limit])

    async def archived_app(self, reference: str) -> AppEntry | None:
        """Return the archived app of an id or name, or None if there is none that can be read."""
        return await self._read(lambda: next(iter(_restored(filter(None, [self.store.archived_app(reference)]))), None))

    async def read(self, read: Callable[[StateStore], T]) -> T:
        """Read the store in the thread that reads. Raises StoreError if the store cannot be read."""
        return await self._read(lambda: read(self.store))

    def close(self) -> None:
        """Finish pending work and end the threads; the store stays open."""
        self._writer.shutdown()
        self._reader.shutdown()

    # ---- inside ----

    async def _read(self, read: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reader, read)

    def _write(self, batch: Batch) -> None:
        # A removal of events needs a snapshot that covers them.
        is_due = batch.removed is not None or self.summary.sequence - self._snapshot_at >= SNAPSHOT_EVERY
        with self.store.transaction() as transaction:
            if is_due:
                transaction.put_meta(SNAPSHOT, self.summary.to_text())
            written: Sequence[StoredEvent] = batch.write_to(transaction)
        if is_due:
            self._snapshot_at = self.summary.sequence
        if written and written[0].sequence != self.summary.sequence + 1:
            # At the start, events are also written past this recorder.
            written = self.store.events(after=self.summary.sequence)
        self.summary.take(written)

    def _put_clock(self, batch: Batch) -> None:
        """Add the present time to every write; a later start continues from it."""
        mark = ClockMark(time_s=self._clock.now_s(), boot_id=self._boot_id, monotonic_s=time.monotonic())
        batch.meta["clock"] = mark.to_text()

    def _wake(self) -> None:
        # Current waiters hold the old event; later ones get a fresh one.
        self._news.set()
        self._news = asyncio.Event()


def search_text(app_id: str, name: str, user: str, queue: str, state: str) -> str:
    """Return the text of an app in which a search looks for words."""
    return f"{app_id} {name} {user} {queue} {state}".lower()


def _has_words(app: StoredApp, words: Sequence[str]) -> bool:
    """Whether a search finds an app that has ended. Only those found are restored, which takes most of the time."""
    if not words:
        return True
    try:
        spec = pb.AppSpec.FromString(app.spec)
    except DecodeError:
        return False
    text = search_text(app.app_id, app.name, spec.user, spec.queue, app.state.value)
    return all(word in text for word in words)


def _restored(stored: Iterable[StoredApp]) -> tuple[AppEntry, ...]:
    """Return the apps that can be read."""
    entries = []
    for app in stored:
        try:
            entries.append(AppEntry.restored(app))
        except (ThemisError, ValueError, TypeError, DecodeError) as error:
            LOG.error("%s cannot be read and is skipped: %.300s", app.app_id, error)
    return tuple(entries)


def _lease_detail(change: LeaseChange) -> dict[str, object]:
    lease = change.lease
    detail: dict[str, object] = {
        "lease_id": lease.lease_id,
        "gpu": str(lease.gpu),
        "expires_at_s": lease.expires_at_s,
    }
    if lease.job_id:
        detail["job_id"] = lease.job_id
    if change.reason:
        detail["reason"] = change.reason
    if change.round_id:
        detail["round_id"] = change.round_id
    if change.reserved:
        detail["reserved"] = True
    return detail
