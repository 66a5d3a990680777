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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rm_plugin.service.store import DamagedRow, StoredApp, StoredEvent, StoreError, StoreTransaction
from rm_plugin.service.store_json import from_json, to_json
from themis.cluster import GpuId
from themis.errors import InvariantError
from themis.events import UNREADABLE
from themis.leases import Lease
from themis.lifecycle import AppState, LeaseState

R = TypeVar("R")

_VERSION = 2
_WITHOUT_JOBS = 1
"""The version before leases had a job. A ResourceManager upgrades such a store when it opens it; readers read it."""
_SCHEMA = """
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY, time_s REAL NOT NULL, kind TEXT NOT NULL, app_id TEXT NOT NULL, detail TEXT NOT NULL);
CREATE INDEX events_by_app ON events (app_id, sequence);
CREATE TABLE apps (
    app_id TEXT PRIMARY KEY, state TEXT NOT NULL, attempt INTEGER NOT NULL, token TEXT NOT NULL, spec BLOB NOT NULL,
    pid INTEGER NOT NULL, submitted_at_s REAL NOT NULL, started_at_s REAL, finished_at_s REAL,
    diagnostics TEXT NOT NULL, final TEXT NOT NULL);
CREATE TABLE leases (
    lease_id INTEGER PRIMARY KEY, machine_id TEXT NOT NULL, gpu_index INTEGER NOT NULL, app_id TEXT NOT NULL,
    granted_at_s REAL NOT NULL, expires_at_s REAL NOT NULL, state TEXT NOT NULL, renewals INTEGER NOT NULL,
    job_id TEXT NOT NULL DEFAULT '');
CREATE UNIQUE INDEX one_holder_a_gpu ON leases (machine_id, gpu_index) WHERE state IN ('GRANTED', 'EXPIRING');
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_APP_COLUMNS = (
    *("app_id", "state", "attempt", "token", "spec", "pid", "submitted_at_s", "started_at_s", "finished_at_s"),
    *("diagnostics", "final"),
)
_TABLES = {"events", "apps", "leases", "meta"}
_REMEDY = "move the file away, or name another state_dir"
BUSY_S = 2.0
"""Seconds that a write waits for another program that holds SQLite's lock."""

T = TypeVar("T")

_DEFECTS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.InterfaceError)
"""Errors of SQLite about the values to write, not about the file."""

_NOT_ENDED = "state NOT IN ('RELEASED', 'REVOKED')"


class SqliteStore:
    """The state store in the file `path`. Creates the folder if it is missing.

    Raises:
        StoreError: Another ResourceManager holds the store, or the file is damaged or no store of this version.
    """

    def __init__(self, path: Path) -> None:
        _make_folder(path.parent)
        with contextlib.ExitStack() as opened:
            self._lock = _locked(path)
            opened.callback(os.close, self._lock)
            self._connection = _connect(f"{path.absolute().as_uri()}?mode=rwc", path)
            opened.callback(self._connection.close)
            _prepare(self._connection, path)
            self._reader = _Reader(path)
            opened.pop_all()
        self._path = path
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

    def events(self, *, after: int = 0, app_id: str = "", limit: int | None = None) -> tuple[StoredEvent, ...]:
        """Return events of sequence greater than `after`, in order."""
        return self._reader.events(after=after, app_id=app_id, limit=limit)

    def apps(self) -> tuple[StoredApp, ...]:
        """Return all apps by time of submission, then id."""
        return self._reader.apps()

    def leases(self, *, held_only: bool = True) -> tuple[Lease, ...]:
        """Return leases by id."""
        return self._reader.leases(held_only=held_only)

    def damaged_rows(self) -> tuple[DamagedRow, ...]:
        """Return the apps and leases that cannot be read."""
        return self._reader.damaged_rows()

    def meta(self, key: str) -> str | None:
        """Return a value of the whole store, or None if it was never written."""
        return self._reader.meta(key)

    def close(self) -> None:
        """Close the store and release its lock."""
        self._reader.close()
        self._connection.close()
        os.close(self._lock)


class _Reader:
    """Reads through a connection of its own, one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = _connect(f"{path.absolute().as_uri()}?mode=ro", path)
        self._one_at_a_time = threading.Lock()

    def events(self, *, after: int = 0, app_id: str = "", limit: int | None = None) -> tuple[StoredEvent, ...]:
        """Return events of sequence greater than `after`, in order."""
        return self._read(lambda connection: _events(connection, after, app_id, limit))

    def apps(self) -> tuple[StoredApp, ...]:
        """Return all apps by time of submission, then id."""
        return self._read(_read_apps)[0]

    def leases(self, *, held_only: bool = True) -> tuple[Lease, ...]:
        """Return leases by id."""
        return self._read(lambda connection: _read_leases(connection, held_only))[0]

    def damaged_rows(self) -> tuple[DamagedRow, ...]:
        """Return the apps and leases that cannot be read."""
        apps, leases = self._read(_read_apps), self._read(lambda connection: _read_leases(connection, held_only=False))
        return (*apps[1], *leases[1])

    def meta(self, key: str) -> str | None:
        """Return a value of the whole store, or None if it was never written."""
        return self._read(lambda connection: _meta(connection, key))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        with self._one_at_a_time:
            try:
                return read(self._connection)
            except sqlite3.Error as error:
                raise _unusable("read", self._path, error) from error


class SqliteReader(_Reader):
    """Reads the store from another process, while its ResourceManager runs or afterwards.

    Each call returns one committed state. While the ResourceManager runs, two calls may return different states.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise StoreError("no such store", value=str(path), remedy="name the file state.db of a ResourceManager")
        super().__init__(path)
        try:
            _check_version(self._connection, path)
        except StoreError:
            self.close()
            raise


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
        self._connection.execute("INSERT OR REPLACE INTO apps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, *rest))

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
            connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={_VERSION}; COMMIT;")
        # Report damage at the start. Later, each read of a broken page would end the ResourceManager.
        flaw = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        raise StoreError(f"the file is no store ({error})", value=str(path), remedy=_REMEDY) from error
    if flaw != "ok":
        raise StoreError(f"the store is damaged ({' '.join(flaw.split())})", value=str(path), remedy=_REMEDY)
    _check_version(connection, path)
    if _version(connection) == _WITHOUT_JOBS:
        column = "ALTER TABLE leases ADD COLUMN job_id TEXT NOT NULL DEFAULT ''"
        try:
            connection.executescript(f"BEGIN; {column}; PRAGMA user_version={_VERSION}; COMMIT;")
        except sqlite3.Error as error:
            raise _unusable("upgraded", path, error) from error


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    try:
        version = _version(connection)
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error as error:
        raise StoreError(f"the file is no store ({error})", value=str(path), remedy=_REMEDY) from error
    if not tables >= _TABLES:
        raise StoreError("the file is another program's database", value=str(path), remedy=_REMEDY)
    if version not in (_WITHOUT_JOBS, _VERSION):
        remedy = f"needed: {_VERSION}; {_REMEDY}"
        raise StoreError(f"the store {path} is of another version", value=version, remedy=remedy)


def _events(connection: sqlite3.Connection, after: int, app_id: str, limit: int | None) -> tuple[StoredEvent, ...]:
    of_app, parameters = ("AND app_id = ?", (app_id,)) if app_id else ("", ())
    rows = _rows(
        connection,
        f"SELECT sequence, time_s, kind, app_id, detail FROM events WHERE sequence > ? {of_app}"
        " ORDER BY sequence LIMIT ?",
        (after, *parameters, -1 if limit is None else limit),
    )
    return tuple([_event(*row) for row in rows])


def _event(sequence: int, time_s: Any, kind: Any, app_id: Any, detail: Any) -> StoredEvent:
    try:
        if not (isinstance(kind, str) and isinstance(app_id, str) and math.isfinite(time_s)):
            raise ValueError("a column of another type")
        return StoredEvent(sequence=sequence, time_s=time_s, kind=kind, app_id=app_id, detail=from_json(detail))
    except (ValueError, TypeError) as error:
        return StoredEvent(sequence=sequence, time_s=0.0, kind=UNREADABLE, detail={"problem": str(error)})


def _read_apps(connection: sqlite3.Connection) -> tuple[tuple[StoredApp, ...], tuple[DamagedRow, ...]]:
    rows = _rows(connection, f"SELECT {', '.join(_APP_COLUMNS)} FROM apps ORDER BY submitted_at_s, app_id")
    return _readable("apps", rows, _app)


def _app(*row: Any) -> StoredApp:
    values = dict(zip(_APP_COLUMNS, row, strict=True))
    times = [values[name] for name in ("submitted_at_s", "started_at_s", "finished_at_s")]
    texts = (values[name] for name in ("app_id", "token", "diagnostics"))
    numbers = (values["attempt"], values["pid"])
    if not (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(number, int) for number in numbers)
        and all(time_s is None or math.isfinite(time_s) for time_s in times)
        and isinstance(values["spec"], bytes)
        and times[0] is not None
    ):
        raise ValueError("a column of another type")
    return StoredApp(**{**values, "state": AppState(values["state"]), "final": from_json(values["final"])})


def _read_leases(connection: sqlite3.Connection, held_only: bool) -> tuple[tuple[Lease, ...], tuple[DamagedRow, ...]]:
    job = "''" if _version(connection) == _WITHOUT_JOBS else "job_id"
    rows = _rows(
        connection,
        f"SELECT lease_id, machine_id, gpu_index, app_id, granted_at_s, expires_at_s, state, renewals, {job}"
        f" FROM leases WHERE {_NOT_ENDED if held_only else '1'} ORDER BY lease_id",
    )
    return _readable("leases", rows, _lease)


def _lease(
    lease_id: int,
    machine_id: Any,
    index: Any,
    app_id: Any,
    granted_at_s: Any,
    expires_at_s: Any,
    state: str,
    times: Any,
    job_id: Any,
) -> Lease:
    if not (
        isinstance(machine_id, str)
        and isinstance(job_id, str)
        and isinstance(app_id, str)
        and isinstance(index, int)
        and isinstance(times, int)
        and math.isfinite(granted_at_s)
        and math.isfinite(expires_at_s)
    ):
        raise ValueError("a column of another type")
    return Lease(
        lease_id=lease_id,
        gpu=GpuId(machine_id, index),
        app_id=app_id,
        granted_at_s=granted_at_s,
        expires_at_s=expires_at_s,
        state=LeaseState(state),
        renewals=times,
        job_id=job_id,
    )


def _readable(
    table: str, rows: Iterable[Sequence[Any]], read: Callable[..., R]
) -> tuple[tuple[R, ...], tuple[DamagedRow, ...]]:
    """Rows that can be read, and those that cannot; the first column is the key."""
    found: list[R] = []
    damaged: list[DamagedRow] = []
    for row in rows:
        try:
            found.append(read(*row))
        except (ValueError, TypeError) as error:
            damaged.append(DamagedRow(table=table, key=str(row[0]), problem=str(error)))
    return tuple(found), tuple(damaged)


def _rows(connection: sqlite3.Connection, query: str, parameters: Sequence[object] = ()) -> list[Sequence[Any]]:
    try:
        return connection.execute(query, parameters).fetchall()
    except sqlite3.OperationalError:
        # A text that is no UTF-8 refuses all rows; read so, only its own is damaged.
        connection.text_factory = _text
        try:
            return connection.execute(query, parameters).fetchall()
        finally:
            connection.text_factory = str


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _meta(connection: sqlite3.Connection, key: str) -> str | None:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])
