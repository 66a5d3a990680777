"""The recorder: events and the state that they change go into the store together, and watchers are woken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from google.protobuf.message import DecodeError

from rm_plugin.service.entries import AppEntry
from rm_plugin.service.store import StateStore, StoredEvent, StoreTransaction
from themis.clock import Clock
from themis.cluster import Cluster
from themis.errors import ThemisError
from themis.leases import LeaseChange
from themis.wire import themis_pb2 as pb
from themis.wire.values import cluster_from_message, cluster_to_message

LOG = logging.getLogger("themis.rm")


class Recorder:
    """Writes before anything takes effect. One a ResourceManager; belongs to its loop."""

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._news = asyncio.Event()

    def record(
        self,
        kind: str,
        *,
        app_id: str = "",
        detail: Mapping[str, object] | None = None,
        app: AppEntry | None = None,
        leases: Sequence[LeaseChange] = (),
        time_s: float | None = None,
    ) -> None:
        """Write an event, the app's new state if given, and lease changes with an event each, all or nothing."""
        now_s = self._clock.now_s()
        with self.store.transaction() as transaction:
            if app is not None:
                transaction.put_app(app.stored())
            transaction.append_event(kind, now_s if time_s is None else time_s, app_id=app_id, detail=detail)
            _write_leases(transaction, leases, now_s)
        self._wake()

    def record_leases(self, leases: Iterable[LeaseChange]) -> None:
        """Write lease changes with an event each."""
        changes = list(leases)
        if not changes:
            return
        with self.store.transaction() as transaction:
            _write_leases(transaction, changes, self._clock.now_s())
        self._wake()

    def keep_cluster(self, cluster: Cluster) -> None:
        """Remember the machines, so that leases on them can be read again while a machine is away."""
        text = cluster_to_message(cluster).SerializeToString(deterministic=True).hex()
        with self.store.transaction() as transaction:
            transaction.put_meta("cluster", text)

    def kept_cluster(self) -> Cluster | None:
        """The machines as `keep_cluster` was told them last; None before, and where that cannot be read."""
        text = self.store.meta("cluster")
        try:
            return cluster_from_message(pb.Cluster.FromString(bytes.fromhex(text))) if text else None
        except (ThemisError, ValueError, DecodeError) as error:
            LOG.error("the machines that the store remembers cannot be read: %.300s", error)
            return None

    def events(self, after: int, app_id: str, limit: int) -> tuple[StoredEvent, ...]:
        """Events after a sequence number."""
        return self.store.events(after=after, app_id=app_id, limit=limit)

    async def news(self) -> None:
        """Return at the next event."""
        await self._news.wait()

    def _wake(self) -> None:
        # Whoever waits holds the old event; those who wait from now on get a fresh one.
        self._news.set()
        self._news = asyncio.Event()


def _write_leases(transaction: StoreTransaction, changes: Iterable[LeaseChange], now_s: float) -> None:
    for change in changes:
        lease = change.lease
        transaction.put_lease(lease)
        detail: dict[str, object] = {
            "lease_id": lease.lease_id,
            "gpu": str(lease.gpu),
            "expires_at_s": lease.expires_at_s,
        }
        if change.reason:
            detail["reason"] = change.reason
        if change.round_id:
            detail["round_id"] = change.round_id
        if change.reserved:
            detail["reserved"] = True
        transaction.append_event(change.kind.value, now_s, app_id=lease.app_id, detail=detail)
