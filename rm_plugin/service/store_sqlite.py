"""The state store in one SQLite file.

It uses a write-ahead log with `synchronous=NORMAL`. A committed transaction survives the death of the process at any
instruction. A power cut may lose the last transactions, but never half of one. One connection writes and another reads,
so that a reader never waits for a writer. A lock file excludes a second ResourceManager. Readers in other processes
(`SqliteReader`) need no lock and see every committed state.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from rm_plugin.service.store import DamagedRow, StoredApp, StoredEvent, StoreError, StoreTransaction, app_number
from rm_plugin.service.store_json import from_json, to_json
from rm_plugin.service.store_migrations import VERSION, migrate
from rm_plugin.service.store_rows import read_app, read_event, read_lease, readable, select
from themis.errors import InvariantError
from themis.leases import Lease
from themis.lifecycle import AppState

_SCHEMA = """
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY, time_s REAL NOT NULL, kind TEXT NOT NULL, app_id TEXT NOT NULL, detail TEXT NOT NULL);
CREATE INDEX events_by_app ON events (app_id, sequence);
CREATE TABLE apps (
    app_id TEXT PRIMARY KEY, state TEXT NOT NULL, attempt INTEGER NOT NULL, token TEXT NOT NULL, spec BLOB NOT NULL,
    pid INTEGER NOT NULL, submitted_at_s REAL NOT NULL, started_at_s REAL, finished_at_s REAL,
    diagnostics TEXT NOT NULL, final TEXT NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL,
    archive TEXT NOT NULL DEFAULT '');
CREATE TABLE leases (
    lease_id INTEGER PRIMARY KEY, machine_id TEXT NOT NULL, gpu_index INTEGER NOT NULL, app_id TEXT NOT NULL,
    granted_at_s REAL NOT NULL, expires_at_s REAL NOT NULL, state TEXT NOT NULL, renewals INTEGER NOT NULL,
    job_id TEXT NOT NULL DEFAULT '');
CREATE UNIQUE INDEX one_holder_a_gpu ON leases (machine_id, gpu_index) WHERE state IN ('GRANTED', 'EXPIRING');
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE INDEX kept_apps ON apps (submitted_at_s, app_id) WHERE archive = '';
CREATE INDEX archived_apps ON apps (number) WHERE archive != '';
CREATE INDEX apps_by_name ON apps (name, number);
CREATE INDEX leases_by_app ON leases (app_id);
CREATE INDEX open_leases ON leases (lease_id) WHERE state NOT IN ('RELEASED', 'REVOKED');
"""
_APP_COLUMNS = (
    *("app_id", "state", "attempt", "token", "spec", "pid", "submitted_at_s", "started_at_s", "finished_at_s"),
    *("diagnostics", "final"),
)
_ARCHIVE_COLUMNS = ("name", "archive")
_FIRST_WITH_ARCHIVE = 3
"""Stores of older versions lack these columns of apps."""
_FIRST_WITH_JOBS = 2
"""Leases of older versions have no job."""
_TABLES = {"events", "apps", "leases", "meta"}
_REMEDY = "move the file away, or name another state_dir"
BUSY_S = 2.0
"""Seconds that a write waits for another program that holds SQLite's lock."""

T = TypeVar("T")

_DEFECTS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.InterfaceError)
"""Errors of SQLite about the values to write, not about the file."""

_NOT_ENDED = "state NOT IN ('RELEASED', 'REVOKED')"


class _Reader:
    """Reads through a connection of its own, one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reading = _connect(f"{path.absolute().as_uri()}?mode=ro", path)
        self._one_at_a_time = threading.Lock()
        try:
            self._version = self._read(lambda connection: _check_version(connection, path))
        except StoreError:
            self.close()
            raise

    def events(self, *, after: int = 0, app_id: str = "", limit: int | None = None) -> tuple[StoredEvent, ...]:
        """Return events of sequence greater than `after`, in order."""
        return self._read(lambda connection: _events(connection, after, app_id, limit))

    def apps(self) -> tuple[StoredApp, ...]:
        """Return all apps by time of submission, then id."""
        return self._read_apps()[0]

    def apps_and_damage(self) -> tuple[tuple[StoredApp, ...], tuple[DamagedRow, ...]]:
        """Return all apps, and those that cannot be read."""
        return self._read_apps()

    def service_events(self, *, through: int, limit: int) -> tuple[StoredEvent, ...]:
        """Return the oldest events of no app, in order, up to and including a sequence number."""
        where = "app_id = '' AND sequence <= ? ORDER BY sequence LIMIT ?"
        return self._read(lambda connection: _select_events(connection, where, (through, limit)))

    def archived_apps(
        self, *, below: float = math.inf, states: Collection[AppState] = (), limit: int
    ) -> tuple[StoredApp, ...]:
        """Return archived apps by falling number."""
        if self._version < _FIRST_WITH_ARCHIVE:
            return ()
        of_states = f"AND state IN ({', '.join('?' * len(states))})" if states else ""
        where = f"archive != '' AND number < ? {of_states} ORDER BY number DESC LIMIT ?"
        return self._read_apps(where, (below, *[state.value for state in states], limit))[0]

    def archived_app(self, reference: str) -> StoredApp | None:
        """Return the archived app of an id, else the newest of a name, or None."""
        for column in ("app_id", "name") if self._version >= _FIRST_WITH_ARCHIVE else ():
            where = f"archive != '' AND {column} = ? ORDER BY number DESC LIMIT 1"
            if found := self._read_apps(where, (reference,))[0]:
                return found[0]
        return None

    def counts(self, *, archived: bool) -> Mapping[AppState, int]:
        """Count the apps by state: those that are archived, or those that are not."""
        archive = "''" if self._version < _FIRST_WITH_ARCHIVE else "archive"
        query = f"SELECT state, count(*) FROM apps WHERE {archive} {'!=' if archived else '='} '' GROUP BY state"
        counts = self._read(lambda connection: select(connection, query))
        return {AppState(state): count for state, count in counts if state in AppState.__members__}

    def last_lease_id(self) -> int:
        """Return the largest id of all leases; 0 without leases."""
        rows = self._read(lambda connection: select(connection, "SELECT max(lease_id) FROM leases"))
        return rows[0][0] or 0

    def leases(self, *, held_only: bool = True) -> tuple[Lease, ...]:
        """Return leases by id."""
        return self._read_leases(held_only=held_only)[0]

    def damaged_leases(self) -> tuple[DamagedRow, ...]:
        """Return the leases that cannot be read."""
        return self._read_leases(held_only=True)[1]

    def meta(self, key: str) -> str | None:
        """Return a value of the whole store, or None if it was never written."""
        return self._read(lambda connection: _meta(connection, key))

    def close(self) -> None:
        """Close the connection."""
        self._reading.close()

    def _read_apps(
        self, where: str = "", parameters: Sequence[object] = ()
    ) -> tuple[tuple[StoredApp, ...], tuple[DamagedRow, ...]]:
        """Return the readable and the unreadable apps; without `where`, those that are not archived."""
        columns = _APP_COLUMNS if self._version < _FIRST_WITH_ARCHIVE else (*_APP_COLUMNS, *_ARCHIVE_COLUMNS)
        kept = "1" if self._version < _FIRST_WITH_ARCHIVE else "archive = ''"
        where = where or f"{kept} ORDER BY submitted_at_s, app_id"
        query = f"SELECT {', '.join(columns)} FROM apps WHERE {where}"
        rows = self._read(lambda connection: select(connection, query, parameters))
        return readable("apps", rows, partial(read_app, columns))

    def _read_leases(self, *, held_only: bool) -> tuple[tuple[Lease, ...], tuple[DamagedRow, ...]]:
        job = "''" if self._version < _FIRST_WITH_JOBS else "job_id"
        query = (
            f"SELECT lease_id, machine_id, gpu_index, app_id, granted_at_s, expires_at_s, state, renewals, {job}"
            f" FROM leases WHERE {_NOT_ENDED if held_only else '1'} ORDER BY lease_id"
        )
        return readable("leases", self._read(lambda connection: select(connection, query)), read_lease)

    def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        with self._one_at_a_time:
            try:
                return read(self._reading)
            except sqlite3.Error as error:
                raise _unusable("read", self._path, error) from error


class SqliteStore(_Reader):
    """The state store in the file `path`. Creates the folder if it is missing, and migrates an older store.

    Args:
        path: The file.
        before_open: Called once no other process can have the store, before the file is opened.

    Raises:
        StoreError: Another ResourceManager holds the store, or the file is damaged, no store, or of a newer version.
    """

    def __init__(self, path: Path, before_open: Callable[[], None] = lambda: None) -> None:
        _make_folder(path.parent)
        with contextlib.ExitStack() as opened:
            self._lock = _locked(path)
            opened.callback(os.close, self._lock)
            before_open()
            self._connection = _connect(f"{path.absolute().as_uri()}?mode=rwc", path)
            opened.callback(self._connection.close)
            _prepare(self._connection, path)
            _check_version(self._connection, path)
            migrate(self._connection, path)
            super().__init__(path)
            opened.pop_all()
        self._open = False

    @contextlib.contextmanager
    def transaction(self) -> Iterator[StoreTransaction]:
        """Open a transaction. It is written at the end of the `with` block, or dropped if the block raises."""
        if self._open:
            raise InvariantError("a transaction within another")
        self._open = True
        try:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield _SqliteTransaction(self._connection)
                self._connection.execute("COMMIT")
            except BaseException as error:
                self._roll_back()
                if isinstance(error, _DEFECTS):
                    # Trying again would not help: the same write would fail each time.
                    raise InvariantError(f"a row to write does not fit the schema of the store ({error})") from error
                if isinstance(error, sqlite3.Error):
                    raise _unusable("written", self._path, error) from error
                raise
        finally:
            self._open = False

    def _roll_back(self) -> None:
        # After some failures SQLite has rolled back by itself.
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise _unusable("written", self._path, error) from error

    def last_app_number(self) -> int:
        """Return the largest number of all apps; 0 without apps."""
        rows = self._read(lambda connection: select(connection, "SELECT max(number) FROM apps"))
        return rows[0][0] or 0

    def close(self) -> None:
        """Close the store and release its lock."""
        super().close()
        self._connection.close()
        os.close(self._lock)


class SqliteReader(_Reader):
    """Reads the store from another process, while its ResourceManager runs or afterwards.

    Each call returns one committed state. While the ResourceManager runs, two calls may return different states.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise StoreError("no such store", value=str(path), remedy="name the file state.db of a ResourceManager")
        super().__init__(path)


class _SqliteTransaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def append_event(
        self, kind: str, time_s: float, *, app_id: str = "", detail: Mapping[str, object] | None = None
    ) -> StoredEvent:
        text = to_json(detail or {})
        cursor = self._connection.execute(
            "INSERT INTO events (time_s, kind, app_id, detail) VALUES (?, ?, ?, ?)", (time_s, kind, app_id, text)
        )
        sequence = cursor.lastrowid or 0
        return StoredEvent(sequence=sequence, time_s=time_s, kind=kind, app_id=app_id, detail=from_json(text))

    def put_app(self, app: StoredApp) -> None:
        row = (app.app_id, app.state.value, app.attempt, app.token, app.spec, app.pid, app.submitted_at_s)
        rest = (app.started_at_s, app.finished_at_s, app.diagnostics, to_json(app.final))
        found = (app.name, app_number(app.app_id), app.archive)
        places = ", ".join("?" * 14)
        self._connection.execute(f"INSERT OR REPLACE INTO apps VALUES ({places})", (*row, *rest, *found))

    def put_lease(self, lease: Lease) -> None:
        row = (lease.lease_id, lease.gpu.machine_id, lease.gpu.index, lease.app_id)
        rest = (lease.granted_at_s, lease.expires_at_s, lease.state.value, lease.renewals, lease.job_id)
        try:
            # Not INSERT OR REPLACE, which would silently delete the lease of another app on this GPU.
            self._connection.execute(
                "INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (lease_id) DO UPDATE SET machine_id"
                " = excluded.machine_id, gpu_index = excluded.gpu_index, app_id = excluded.app_id, granted_at_s ="
                " excluded.granted_at_s, expires_at_s = excluded.expires_at_s, state = excluded.state, renewals ="
                " excluded.renewals, job_id = excluded.job_id",
                (*row, *rest),
            )
        except sqlite3.IntegrityError as error:
            raise InvariantError("a GPU would have two leases", value=(lease.lease_id, str(lease.gpu))) from error

    def put_meta(self, key: str, value: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def archive_apps(self, app_ids: Iterable[str], archive: str, *, through: int) -> None:
        ids = [(app_id,) for app_id in app_ids]
        self._connection.executemany("UPDATE apps SET archive = ? WHERE app_id = ?", [(archive, *key) for key in ids])
        events = [(app_id, through) for (app_id,) in ids]
        self._connection.executemany("DELETE FROM events WHERE app_id = ? AND sequence <= ?", events)
        self._connection.executemany("DELETE FROM leases WHERE app_id = ?", ids)

    def remove_events(self, app_id: str, through: int, kinds: Sequence[str] = ()) -> None:
        of_kinds = f"AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
        delete = f"DELETE FROM events WHERE app_id = ? AND sequence <= ? {of_kinds}"
        self._connection.execute(delete, (app_id, through, *kinds))


def _unusable(done: str, path: Path, error: sqlite3.Error) -> StoreError:
    remedy = "free its disk, or end the program that holds its lock"
    return StoreError(f"the store cannot be {done} ({error})", value=str(path), remedy=remedy)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot make the folder of the store ({error.strerror})"
        raise StoreError(message, value=str(folder), remedy=_REMEDY) from error


def _locked(path: Path) -> int:
    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StoreError(
            "another ResourceManager holds the store", value=str(path), remedy="stop it, or name another state_dir"
        ) from error
    return descriptor


def _connect(uri: str, path: Path) -> sqlite3.Connection:
    try:
        # Transactions begin and end explicitly. The owner of a connection lets one thread at a time use it.
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_S, check_same_thread=False)
    except sqlite3.Error as error:
        raise StoreError(f"cannot open the store ({error})", value=str(path), remedy=_REMEDY) from error


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Set up a new store, or check the version of one that exists."""
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={VERSION}; COMMIT;")
        # Report damage at the start. Later, each read of a broken page would end the ResourceManager.
        flaw = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        raise StoreError(f"the file is no store ({error})", value=str(path), remedy=_REMEDY) from error
    if flaw != "ok":
        raise StoreError(f"the store is damaged ({' '.join(flaw.split())})", value=str(path), remedy=_REMEDY)


def _check_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of a store that this program can read."""
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error as error:
        raise StoreError(f"the file is no store ({error})", value=str(path), remedy=_REMEDY) from error
    if not tables >= _TABLES:
        raise StoreError("the file is another program's database", value=str(path), remedy=_REMEDY)
    if not 1 <= version <= VERSION:
        remedy = f"this program reads versions 1 to {VERSION}; {_REMEDY}"
        raise StoreError(f"the store {path} is of another version", value=version, remedy=remedy)
    return int(version)


def _meta(connection: sqlite3.Connection, key: str) -> str | None:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def _events(connection: sqlite3.Connection, after: int, app_id: str, limit: int | None) -> tuple[StoredEvent, ...]:
    of_app, parameters = ("AND app_id = ?", (app_id,)) if app_id else ("", ())
    where = f"sequence > ? {of_app} ORDER BY sequence LIMIT ?"
    return _select_events(connection, where, (after, *parameters, -1 if limit is None else limit))


def _select_events(connection: sqlite3.Connection, where: str, parameters: Sequence[object]) -> tuple[StoredEvent, ...]:
    query = f"SELECT sequence, time_s, kind, app_id, detail FROM events WHERE {where}"
    return tuple([read_event(*row) for row in select(connection, query, parameters)])
