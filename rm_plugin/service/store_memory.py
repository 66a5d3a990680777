"""The state store in the memory of one process, for tests and for the simulator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from rm_plugin.service.store import DamagedRow, StoredApp, StoredEvent, StoreTransaction
from rm_plugin.service.store_json import from_json, to_json
from themis.errors import InvariantError
from themis.leases import Lease
from themis.lifecycle import LEASE_LIFECYCLE, LeaseState


class MemoryStore:
    """Behaves like the SQLite store, but keeps everything in dictionaries and loses it with the process."""

    def __init__(self) -> None:
        self._state = _State()
        self._open = False

    @contextlib.contextmanager
    def transaction(self) -> Iterator[StoreTransaction]:
        """Open a transaction. It is kept at the end of the `with` block, or dropped if the block raises."""
        if self._open:
            raise InvariantError("a transaction inside another")
        self._open = True
        changed = _MemoryTransaction(self._state)
        try:
            yield changed
            self._state.merge(changed)
        finally:
            self._open = False

    def events(self, *, after: int = 0, app_id: str = "", limit: int | None = None) -> tuple[StoredEvent, ...]:
        """Return events of sequence greater than `after`, in order."""
        later = self._state.events[max(after, 0) :]
        return tuple(event for event in later if not app_id or event.app_id == app_id)[:limit]

    def apps(self) -> tuple[StoredApp, ...]:
        """Return all apps by time of submission, then id."""
        return tuple(sorted(self._state.apps.values(), key=lambda app: (app.submitted_at_s, app.app_id)))

    def leases(self, *, held_only: bool = True) -> tuple[Lease, ...]:
        """Return leases by id."""
        by_id = (lease for _, lease in sorted(self._state.leases.items()))
        return tuple(lease for lease in by_id if not (held_only and LEASE_LIFECYCLE.is_final(lease.state)))

    def damaged_rows(self) -> tuple[DamagedRow, ...]:
        """Return an empty tuple: memory does not get damaged."""
        return ()

    def meta(self, key: str) -> str | None:
        """Return a value of the whole store, or None if it was never written."""
        return self._state.meta.get(key)

    def close(self) -> None:
        """Do nothing: there is no file to close."""


class _State:
    """The content of the store; also the changes of one transaction."""

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []
        self.apps: dict[str, StoredApp] = {}
        self.leases: dict[int, Lease] = {}
        self.meta: dict[str, str] = {}

    def merge(self, later: _State) -> None:
        self.events.extend(later.events)
        self.apps.update(later.apps)
        self.leases.update(later.leases)
        self.meta.update(later.meta)


class _MemoryTransaction(_State):
    def __init__(self, before: _State) -> None:
        super().__init__()
        self._before = before

    def append_event(
        self, kind: str, time_s: float, *, app_id: str = "", detail: Mapping[str, object] | None = None
    ) -> StoredEvent:
        sequence = len(self._before.events) + len(self.events) + 1
        # Through JSON and back, so that readers get the same values as from the SQLite store.
        kept = from_json(to_json(detail or {}))
        event = StoredEvent(sequence=sequence, time_s=time_s, kind=kind, app_id=app_id, detail=kept)
        self.events.append(event)
        return event

    def put_app(self, app: StoredApp) -> None:
        self.apps[app.app_id] = app

    def put_lease(self, lease: Lease) -> None:
        known = {**self._before.leases, **self.leases}
        rivals = (other for other in known.values() if other.gpu == lease.gpu and other.lease_id != lease.lease_id)
        if _held(lease) and any(_held(other) for other in rivals):
            raise InvariantError("a GPU would have two leases", value=(lease.lease_id, str(lease.gpu)))
        self.leases[lease.lease_id] = lease

    def put_meta(self, key: str, value: str) -> None:
        self.meta[key] = value


def _held(lease: Lease) -> bool:
    return lease.state in (LeaseState.GRANTED, LeaseState.EXPIRING)
