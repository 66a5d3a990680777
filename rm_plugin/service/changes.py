"""Change the state that outlives the ResourceManager: decide, write, then take effect, one change at a time.

Nothing takes effect before it is written. A change that cannot be written leaves the state as it was.

Example: a user kills an app. Decide: the event `app_kill_wanted`, and the app's reason to end. Write: both together.
Effect: the app master is asked to shut down. If the store's disk is full, the app runs on and the user gets an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from rm_plugin.arbiter.core import Arbiter
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.recorder import Batch, Recorder, Removed
from rm_plugin.service.store import StoreError
from themis.cluster import Cluster
from themis.leases import LeaseChange

LOG = logging.getLogger("themis.rm.store")

PROBE_EVERY_S = 1.0
"""Seconds between two test writes to a store that could not be written."""

T = TypeVar("T")
Decide = Callable[["Change"], T]
Effect = Callable[[], object]


class Change:
    """One change while it is decided: what to write, and the effects that follow the write.

    The arbiter's leases change at once, and `Changes` undoes them if the write fails. All other state changes after
    the write, by `set`, `put` and `then`. `now_s` is the time of the decision, in seconds since the epoch.

    Example: `put(entry, kill_reason="no longer wanted")` writes the app with this reason. The entry itself has the
    reason only once the write succeeded.
    """

    def __init__(self, batch: Batch, cluster: Cluster) -> None:
        self.now_s = batch.now_s
        self._cluster = cluster
        self._batch = batch
        self._fields: dict[str, tuple[AppEntry, dict[str, Any]]] = {}
        self._stored: list[AppEntry] = []
        self._effects: list[Effect] = []

    def event(
        self, kind: str, *, app_id: str = "", detail: Mapping[str, object] | None = None, time_s: float | None = None
    ) -> None:
        """Write an event."""
        self._batch.event(kind, app_id=app_id, detail=detail, time_s=time_s)

    def set(self, entry: AppEntry, **fields: object) -> None:
        """Set attributes of an app after the write, without writing the app."""
        self._fields.setdefault(entry.app_id, (entry, {}))[1].update(fields)

    def put(self, entry: AppEntry, **fields: object) -> None:
        """Set attributes of an app after the write, and write the app with all that this change sets of it."""
        self.set(entry, **fields)
        self._stored.append(entry)

    def leases(self, changes: Iterable[LeaseChange]) -> None:
        """Write lease changes that the arbiter made within this change."""
        self._batch.lease_changes(changes, self._cluster)

    def cluster(self, cluster: Cluster) -> None:
        """Write the machines."""
        self._batch.cluster(cluster)

    def keep(self, key: str, text: str) -> None:
        """Write a value of the service, which `StateStore.meta` reads."""
        self._batch.meta[key] = text

    def remove(self, removed: Removed) -> None:
        """Remove events that are archived."""
        self._batch.removed = removed

    def then(self, effect: Effect) -> None:
        """Run an effect after the write: send a message, reply, ask for a round. It must not fail."""
        self._effects.append(effect)

    def written(self) -> Batch:
        """Return the batch to write."""
        for entry in self._stored:
            self._batch.apps[entry.app_id] = replace(entry, **self._fields[entry.app_id][1]).stored()
        return self._batch

    def take_effect(self) -> None:
        """Set the attributes, then run the effects. A defect in one effect does not prevent the others."""
        for entry, fields in self._fields.values():
            entry.update(**fields)
        for effect in self._effects:
            try:
                effect()
            except Exception:
                LOG.exception("an effect of a change failed")


class Changes:
    """Makes all changes of one ResourceManager. `decide` runs without waiting, and may run more than once.

    While the store cannot be written, `make` raises StoreError at once and `make_surely` waits. A test write every
    second finds out when the store is back.

    Args:
        arbiter: Holds the leases that are undone if a write fails.
        recorder: Writes the batches.
        validate: Whether to assert the arbiter's invariants before each write.
    """

    def __init__(self, arbiter: Arbiter, recorder: Recorder, *, validate: bool = False) -> None:
        self.trouble = ""
        """Why the store cannot be written; empty while it can."""
        self._arbiter = arbiter
        self._recorder = recorder
        self._validate = validate
        self._one_at_a_time = asyncio.Lock()
        self._usable = asyncio.Event()
        self._usable.set()
        self._stopping = False
        self._running: set[asyncio.Task[Any]] = set()
        self._probe: asyncio.Task[None] | None = None
        self._on_recovery: list[Effect] = []

    def on_recovery(self, effect: Effect) -> None:
        """Run this whenever the store can be written again, before any other change."""
        self._on_recovery.append(effect)

    async def make(self, decide: Decide[T]) -> T:
        """Make a change, or raise StoreError and leave everything as it was. Returns what `decide` returns."""
        task = asyncio.get_running_loop().create_task(self._make(decide))
        self._running.add(task)
        task.add_done_callback(self._ended)
        # The caller may be cancelled during the write. The change must still take effect or be undone.
        return await asyncio.shield(task)

    async def make_surely(self, decide: Decide[T]) -> T:
        """Make a change as soon as the store can be written; each try decides again.

        Raises:
            StoreError: The service stops while the store cannot be written.
        """
        while True:
            await self.usable()
            try:
                return await self.make(decide)
            except StoreError:
                if self._stopping:
                    raise

    async def usable(self) -> None:
        """Return once the store can be written, or the service stops."""
        await self._usable.wait()

    def stop_waiting(self) -> None:
        """Let no change wait for the store any more: from now on `make_surely` raises StoreError as `make` does."""
        self._stopping = True
        self._usable.set()

    async def close(self) -> None:
        """Wait until the current write has ended, and write no more."""
        self.stop_waiting()
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.gather(self._probe, return_exceptions=True)
        if self._running:
            await asyncio.wait(self._running)
        await asyncio.to_thread(self._recorder.close)

    # ---- inside ----

    async def _make(self, decide: Decide[T]) -> T:
        async with self._one_at_a_time:
            if self.trouble:
                raise StoreError(
                    "the ResourceManager cannot write its store now",
                    value=self.trouble,
                    remedy="nothing was changed; try again once its healthz says ok",
                )
            change = Change(self._recorder.batch(), self._arbiter.cluster)
            self._arbiter.begin()
            try:
                result = decide(change)
                if self._validate:
                    self._arbiter.validate()
                if batch := change.written():
                    await self._recorder.commit(batch)
            except BaseException as error:
                self._arbiter.undo()
                if isinstance(error, StoreError):
                    self._failed(error)
                raise
            self._arbiter.keep()
            change.take_effect()
            return result

    def _failed(self, error: StoreError) -> None:
        LOG.error("%s; what runs goes on, and nothing new is taken until the store can be written", error)
        self.trouble = str(error)
        if self._stopping:
            return
        self._usable.clear()
        self._probe = asyncio.get_running_loop().create_task(self._wait_for_store())

    async def _wait_for_store(self) -> None:
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            try:
                await self._recorder.probe()
                break
            except StoreError as error:
                self.trouble = str(error)
            except Exception:
                # A defect in a test write must not leave the service unusable for good.
                LOG.exception("a test write failed")
        LOG.warning("the store can be written again")
        self.trouble = ""
        for effect in self._on_recovery:
            effect()
        self._usable.set()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        # Retrieve the error even if the caller is gone; asyncio would log it as lost.
        if not task.cancelled():
            task.exception()
