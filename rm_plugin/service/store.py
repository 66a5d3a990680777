"""The StateStore port: what the ResourceManager must still know after it was killed at any instruction."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import field

from themis.errors import ThemisError
from themis.leases import Lease
from themis.lifecycle import AppState
from themis.values import Value, repr_without


class StoreError(ThemisError, OSError):
    """The store cannot be opened (it is another's, damaged, or none), or cannot be written or read now."""

    exit_code = 2


class StoredEvent(Value, frozen=True, kw_only=True):
    """One line of the log, see docs/reference/events.md. `sequence` counts 1, 2, .. without gaps."""

    sequence: int
    time_s: float
    kind: str
    app_id: str = ""
    detail: Mapping[str, object] = field(default_factory=dict)


class StoredApp(Value, frozen=True, kw_only=True):
    """The current state of an app.

    Attributes:
        attempt: Number of the newest attempt, 0 before the first.
        token: Secret with which its app master proves itself.
        spec: The specification, as the wire encodes it.
        pid: Process id of the newest app master, 0 when there is none.
        started_at_s: When it first held a GPU, in seconds since the epoch; None before.
        final: What its app master reported at the end; a JSON object.
    """

    app_id: str
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


class DamagedRow(Value, frozen=True, kw_only=True):
    """An app or lease in the store that cannot be read, by its id, and why."""

    table: str
    key: str
    problem: str


class StoreTransaction(Protocol):
    """Changes that take effect together or not at all."""

    def append_event(
        self, kind: str, time_s: float, *, app_id: str = "", detail: Mapping[str, object] | None = None
    ) -> StoredEvent:
        """Add an event to the log. `detail` is what JSON can hold; NaN and infinities become text (`to_json`)."""
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


class StateStore(Protocol):
    """The log and the current state, changed together. One thread may write while another reads.

    Every method raises StoreError when the store cannot be written or read.
    """

    def transaction(self) -> AbstractContextManager[StoreTransaction]:
        """Open a transaction: written at the end of the `with`, dropped when it raises. They do not nest."""
        ...

    def events(self, *, after: int = 0, app_id: str = "", limit: int | None = None) -> tuple[StoredEvent, ...]:
        """Events of sequence greater than `after`, in order; of one app when `app_id` is given.

        An event that cannot be read is there as one of kind `unreadable`: the sequence has no gaps.
        """
        ...

    def apps(self) -> tuple[StoredApp, ...]:
        """All apps that can be read, by time of submission, then id."""
        ...

    def leases(self, *, held_only: bool = True) -> tuple[Lease, ...]:
        """Leases that can be read, by id: those that have not ended, or all that ever were."""
        ...

    def damaged_rows(self) -> tuple[DamagedRow, ...]:
        """Apps and leases that `apps` and `leases` pass over, as they cannot be read."""
        ...

    def meta(self, key: str) -> str | None:
        """A value of the whole store, None when it was never written."""
        ...

    def close(self) -> None:
        """Give up the store; what was written stays."""
        ...
