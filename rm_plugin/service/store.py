"""The StateStore port: the state that survives the death of the ResourceManager at any instruction."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import field

from themis.errors import ThemisError
from themis.leases import Lease
from themis.lifecycle import AppState
from themis.values import Value, repr_without


class StoreError(ThemisError, OSError):
    """The store cannot be opened, read or written: it is locked, damaged, no store, or its disk fails."""

    exit_code = 2


class StoredEvent(Value, frozen=True, kw_only=True):
    """One event of the log, see docs/reference/events.md.

    `sequence` counts 1, 2, .. without gaps, except for events that were archived.
    """

    sequence: int
    time_s: float
    kind: str
    app_id: str = ""
    detail: Mapping[str, object] = field(default_factory=dict)


class StoredApp(Value, frozen=True, kw_only=True):
    """The current state of an app.

    Attributes:
        attempt: Number of the newest attempt, 0 before the first.
        token: Hash of the token by which its newest app master proves itself (`themis.attempt_proof`).
        spec: The specification, as the wire encodes it.
        pid: Process id of the newest app master, 0 when there is none.
        started_at_s: When it first held a GPU, in seconds since the epoch; None before.
        final: What its app master reported at the end; a JSON object.
        name: Of the specification.
        archive: Name of the file with its events if these were archived, which happens to ended apps only; `none` if
            they were dropped.
    """

    app_id: str
    name: str = ""
    archive: str = ""
    state: AppState
    attempt: int = 0
    token: str = ""
    spec: bytes = b""
    pid: int = 0
    submitted_at_s: float
    started_at_s: float | None = None
    finished_at_s: float | None = None
    diagnostics: str = ""
    final: Mapping[str, object] = field(default_factory=dict)

    __repr__ = repr_without("token", "spec")


def app_number(app_id: str) -> int:
    """Return the number at the end of an app's id, 0 if it has none. Apps are numbered in order of submission.

    >>> app_number("app-0012")
    12
    """
    digits = app_id[len(app_id.rstrip("0123456789")) :]
    return int(digits or 0)


class DamagedRow(Value, frozen=True, kw_only=True):
    """The id of an app or lease in the store that cannot be read, and the reason."""

    table: str
    key: str
    problem: str


class StoreTransaction(Protocol):
    """Changes that take effect together or not at all."""

    def append_event(
        self, kind: str, time_s: float, *, app_id: str = "", detail: Mapping[str, object] | None = None
    ) -> StoredEvent:
        """Add an event to the log. `detail` must fit JSON; NaN and infinities become text (`to_json`)."""
        ...

    def put_app(self, app: StoredApp) -> None:
        """Write an app's state, new or not."""
        ...

    def put_lease(self, lease: Lease) -> None:
        """Write a lease, new or not.

        Raises InvariantError when it is GRANTED or EXPIRING and another such lease is on its GPU already: the end of
        one lease is to be written before the next is granted.
        """
        ...

    def put_meta(self, key: str, value: str) -> None:
        """Write a value of the whole store."""
        ...

    def archive_apps(self, app_ids: Iterable[str], archive: str, *, through: int) -> None:
        """Remove ended apps' leases and events up to a sequence number, and note the file `archive` with the events."""
        ...

    def remove_events(self, app_id: str, through: int, kinds: Sequence[str] = ()) -> None:
        """Remove the events of an app, or of none, up to and including a sequence number: all, or those of some kinds.

        The newest event of the log must stay: the next one counts on from it.
        """
        ...


class StateStore(Protocol):
    """The log and the current state, changed together. One thread may write while another reads.

    Every method raises StoreError when the store cannot be written or read.
    """

    def transaction(self) -> AbstractContextManager[StoreTransaction]:
        """Open a transaction, written at the end of the `with` block or dropped if that raises. They cannot nest."""
        ...

    def events(self, *, after: int = 0, app_id: str = "", limit: int | None = None) -> tuple[StoredEvent, ...]:
        """Return events of sequence greater than `after`, in order; if `app_id` is given, of this app only.

        An event that cannot be read is there as one of kind `unreadable`: the sequence has no gaps.
        """
        ...

    def service_events(self, *, through: int, limit: int) -> tuple[StoredEvent, ...]:
        """Return the oldest events of no app, in order, up to and including a sequence number."""
        ...

    def apps(self) -> tuple[StoredApp, ...]:
        """Return all readable apps that are not archived, by time of submission, then id."""
        ...

    def apps_and_damage(self) -> tuple[tuple[StoredApp, ...], tuple[DamagedRow, ...]]:
        """Return `apps`, and the unreadable rows of apps that are not archived."""
        ...

    def archived_apps(
        self, *, below: float = math.inf, states: Collection[AppState] = (), limit: int
    ) -> tuple[StoredApp, ...]:
        """Return readable archived apps by falling number, of numbers below `below` and of some states or all."""
        ...

    def archived_app(self, reference: str) -> StoredApp | None:
        """Return the archived app of an id, else the newest of a name, or None."""
        ...

    def counts(self, *, archived: bool) -> Mapping[AppState, int]:
        """Count the apps by state: those that are archived, or those that are not."""
        ...

    def last_app_number(self) -> int:
        """Return the largest number of all apps, archived and unreadable ones included; 0 without apps."""
        ...

    def last_lease_id(self) -> int:
        """Return the largest id of all leases in the store; 0 without leases."""
        ...

    def leases(self, *, held_only: bool = True) -> tuple[Lease, ...]:
        """Return readable leases by id: those that have not ended if `held_only`, else all."""
        ...

    def damaged_leases(self) -> tuple[DamagedRow, ...]:
        """Return the unreadable rows of leases that have not ended."""
        ...

    def meta(self, key: str) -> str | None:
        """Return a value of the whole store, or None if it was never written."""
        ...

    def close(self) -> None:
        """Close the store; its content stays."""
        ...
