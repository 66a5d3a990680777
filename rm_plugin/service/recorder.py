"""Write events and the state they change into the store together, off the event loop, and wake watchers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import DecodeError

from rm_plugin.service.entries import AppEntry
from rm_plugin.service.store import StateStore, StoredApp, StoredEvent, StoreTransaction
from themis.clock import Clock, ClockMark, boot_id
from themis.cluster import Cluster
from themis.errors import ThemisError
from themis.leases import Lease, LeaseChange
from themis.wire import themis_pb2 as pb
from themis.wire.values import cluster_from_message, cluster_to_message

LOG = logging.getLogger("themis.rm")

T = TypeVar("T")

_PROBE_BYTES = 64 * 1024
"""The size of a test write. A disk with less free space would refuse the next round."""


@dataclass(slots=True, kw_only=True)
class Batch:
    """The content of one transaction. Times are seconds since the epoch; events without a time get `now_s`."""

    now_s: float
    events: list[StoredEvent] = field(default_factory=list)
    apps: dict[str, StoredApp] = field(default_factory=dict)
    leases: list[Lease] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)

    def event(
        self, kind: str, *, app_id: str = "", detail: Mapping[str, object] | None = None, time_s: float | None = None
    ) -> None:
        """Add an event."""
        at_s = self.now_s if time_s is None else time_s
        # The store assigns the sequence number.
        self.events.append(StoredEvent(sequence=0, time_s=at_s, kind=kind, app_id=app_id, detail=detail or {}))

    def lease_changes(self, changes: Iterable[LeaseChange]) -> None:
        """Add lease changes with an event each."""
        for change in changes:
            self.leases.append(change.lease)
            self.event(change.kind.value, app_id=change.lease.app_id, detail=_lease_detail(change))

    def cluster(self, cluster: Cluster) -> None:
        """Write the machines, so that a later start can read leases on a machine that is unavailable then."""
        self.meta["cluster"] = cluster_to_message(cluster).SerializeToString(deterministic=True).hex()

    def write_to(self, transaction: StoreTransaction) -> None:
        """Write the batch in a transaction."""
        for app in self.apps.values():
            transaction.put_app(app)
        for lease in self.leases:
            transaction.put_lease(lease)
        for event in self.events:
            transaction.append_event(event.kind, event.time_s, app_id=event.app_id, detail=event.detail)
        for key, value in self.meta.items():
            transaction.put_meta(key, value)

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.events or self.apps or self.leases or self.meta)


class Recorder:
    """Writes and reads the store in one thread each, so that the event loop waits for neither.

    Belongs to the ResourceManager's loop; each ResourceManager has one.
    """

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self.store = store
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
        leases: Sequence[LeaseChange] = (),
    ) -> None:
        """Write an event, an app and lease changes on the loop. Use it only at start, before anything is served."""
        batch = self.batch()
        if app is not None:
            batch.apps[app.app_id] = app.stored()
        batch.event(kind, app_id=app_id, detail=detail)
        batch.lease_changes(leases)
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

    def close(self) -> None:
        """Finish pending work and end the threads; the store stays open."""
        self._writer.shutdown()
        self._reader.shutdown()

    # ---- inside ----

    async def _read(self, read: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reader, read)

    def _write(self, batch: Batch) -> None:
        with self.store.transaction() as transaction:
            batch.write_to(transaction)

    def _put_clock(self, batch: Batch) -> None:
        """Add the present time to every write; a later start continues from it."""
        mark = ClockMark(time_s=self._clock.now_s(), boot_id=self._boot_id, monotonic_s=time.monotonic())
        batch.meta["clock"] = mark.to_text()

    def _wake(self) -> None:
        # Current waiters hold the old event; later ones get a fresh one.
        self._news.set()
        self._news = asyncio.Event()


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
