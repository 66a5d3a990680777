"""The state store in the memory of one process, for tests and for the simulator."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from rm_plugin.service.store import DamagedRow, StoredApp, StoredEvent, StoreTransaction, app_number
from rm_plugin.service.store_json import from_json, to_json
from themis.errors import InvariantError
from themis.leases import Lease
from themis.lifecycle import LEASE_LIFECYCLE, AppState, LeaseState


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
        begin = bisect.bisect_right(self._state.events, after, key=lambda event: event.sequence)
        later = itertools.islice(self._state.events, begin, None)
        return tuple(itertools.islice((event for event in later if not app_id or event.app_id == app_id), limit))

    def service_events(self, *, through: int, limit: int) -> tuple[StoredEvent, ...]:
        """Return the oldest events of no app, in order, up to and including a sequence number."""
        found = (event for event in self._state.events if not event.app_id and event.sequence <= through)
        return tuple(itertools.islice(found, limit))

    def apps(self) -> tuple[StoredApp, ...]:
        """Return all apps that are not archived, by time of submission, then id."""
        kept = (app for app in self._state.apps.values() if not app.archive)
        return tuple(sorted(kept, key=lambda app: (app.submitted_at_s, app.app_id)))

    def apps_and_damage(self) -> tuple[tuple[StoredApp, ...], tuple[DamagedRow, ...]]:
        """Return `apps`, and nothing else: memory does not get damaged."""
        return self.apps(), ()

    def archived_apps(
        self, *, below: float = math.inf, states: Collection[AppState] = (), limit: int
    ) -> tuple[StoredApp, ...]:
        """Return archived apps by falling number."""
        found = [app for app in self._archived() if app_number(app.app_id) < below]
        return tuple([app for app in found if not states or app.state in states][:limit])

    def archived_app(self, reference: str) -> StoredApp | None:
        """Return the archived app of an id, else the newest of a name, or None."""
        archived = self._archived()
        by_id = [app for app in archived if app.app_id == reference]
        return next(iter([*by_id, *[app for app in archived if app.name == reference]]), None)

    def counts(self, *, archived: bool) -> Mapping[AppState, int]:
        """Count the apps by state: those that are archived, or those that are not."""
        return Counter(app.state for app in self._state.apps.values() if bool(app.archive) is archived)

    def last_app_number(self) -> int:
        """Return the largest number of all apps; 0 without apps."""
        return max(map(app_number, self._state.apps), default=0)

    def last_lease_id(self) -> int:
        """Return the largest id of all leases; 0 without leases."""
        return max(self._state.leases, default=0)

    def _archived(self) -> list[StoredApp]:
        archived = [app for app in self._state.apps.values() if app.archive]
        return sorted(archived, key=lambda app: app_number(app.app_id), reverse=True)

    def leases(self, *, held_only: bool = True) -> tuple[Lease, ...]:
        """Return leases by id."""
        by_id = (lease for _, lease in sorted(self._state.leases.items()))
        return tuple(lease for lease in by_id if not (held_only and LEASE_LIFECYCLE.is_final(lease.state)))

    def damaged_leases(self) -> tuple[DamagedRow, ...]:
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
        self.last_sequence = 0
        self.gone: list[Callable[[StoredEvent], bool]] = []
        """Which events the transaction removes."""
        self.apps_gone: set[str] = set()
        """The apps whose leases the transaction removes."""

    def merge(self, later: _State) -> None:
        self.events.extend(later.events)
        if later.gone:
            self.events = [event for event in self.events if not any(gone(event) for gone in later.gone)]
            leases = self.leases.items()
            self.leases = {key: lease for key, lease in leases if lease.app_id not in later.apps_gone}
        self.last_sequence = later.last_sequence
        self.apps.update(later.apps)
        self.leases.update(later.leases)
        self.meta.update(later.meta)


class _MemoryTransaction(_State):
    def __init__(self, before: _State) -> None:
        super().__init__()
        self._before = before
        self.last_sequence = before.last_sequence

    def append_event(
        self, kind: str, time_s: float, *, app_id: str = "", detail: Mapping[str, object] | None = None
    ) -> StoredEvent:
        self.last_sequence += 1
        # Through JSON and back, so that readers get the same values as from the SQLite store.
        kept = from_json(to_json(detail or {}))
        event = StoredEvent(sequence=self.last_sequence, time_s=time_s, kind=kind, app_id=app_id, detail=kept)
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

    def archive_apps(self, app_ids: Iterable[str], archive: str, *, through: int) -> None:
        ids = set(app_ids)
        for app_id in ids:
            self.apps[app_id] = replace(self.apps.get(app_id) or self._before.apps[app_id], archive=archive)
        self.gone.append(lambda event: event.app_id in ids and event.sequence <= through)
        self.apps_gone |= ids

    def remove_events(self, app_id: str, through: int, kinds: Sequence[str] = ()) -> None:
        self.gone.append(
            lambda event: event.app_id == app_id and event.sequence <= through and (not kinds or event.kind in kinds)
        )


def _held(lease: Lease) -> bool:
    return lease.state in (LeaseState.GRANTED, LeaseState.EXPIRING)
