"""A SQLite store whose every transaction is in a shared log before it is committed.

The store's file lies on this machine and is only a copy: a start restores it from the log. So a standby on another
machine goes on with the state of the last transaction that took effect.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from rm_plugin.service.shared_log import SNAPSHOT_EVERY, LoadedLog, SharedLog
from rm_plugin.service.store import StoredApp, StoredEvent, StoreError, StoreTransaction
from rm_plugin.service.store_json import from_json, to_json
from rm_plugin.service.store_sqlite import SqliteStore
from themis.errors import ThemisError
from themis.leases import Lease

LOG = logging.getLogger("themis.rm.store")

_POSITION = "shared_position"
"""The key of the position of the last record that the file includes."""


class SharedStore(SqliteStore):
    """The store in the file `path`, restored from a shared log and written to it.

    A former file is kept as `rm.sqlite.former` if the log replaces it. If the log is empty, the file becomes its first
    snapshot.

    Args:
        path: The local file.
        log: Not claimed yet.
        check: Raises StoreError if this process may not write now. Called before each transaction.

    Raises:
        StoreError: Another ResourceManager has the file, or the state cannot be restored.
        UnreachableError: The shared folder is unavailable.
    """

    def __init__(self, path: Path, log: SharedLog, check: Callable[[], None] = lambda: None) -> None:
        self._log = log
        self._check = check
        loaded = LoadedLog(snapshot=None, contents=())

        def restore() -> None:
            nonlocal loaded
            loaded = log.claim()
            if loaded.snapshot is not None:
                _replace(path, loaded.snapshot)

        super().__init__(path, before_open=restore)
        self._snapshots = ThreadPoolExecutor(1, thread_name_prefix="store-snapshot")
        self._since_snapshot = len(loaded.contents)
        self._taking = False
        try:
            with super().transaction() as transaction:
                for position, content in loaded.contents:
                    _replay(content, transaction)
                    transaction.put_meta(_POSITION, str(position))
                if loaded.snapshot is None:
                    transaction.put_meta(_POSITION, str(log.end))
            if loaded.snapshot is None:
                LOG.info("the shared state in %s begins with %s", log.place, path)
                self._put_snapshot()
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def transaction(self) -> Iterator[StoreTransaction]:
        """Open a transaction. At the end of the `with` block it is written to the log, then to the file."""
        self._check()
        position = 0
        try:
            with super().transaction() as transaction:
                noted = _Noted(transaction)
                yield noted
                position = self._log.append(msgspec.msgpack.encode(noted.steps))
                transaction.put_meta(_POSITION, str(position))
        except BaseException:
            if position:
                self._log.forgo(position)
            raise
        self._since_snapshot += 1
        if self._since_snapshot >= SNAPSHOT_EVERY and not self._taking:
            self._since_snapshot, self._taking = 0, True
            self._snapshots.submit(self._take_snapshot)

    def close(self) -> None:
        """Close the store and release its lock."""
        self._snapshots.shutdown()
        super().close()

    # ---- inside ----

    def _take_snapshot(self) -> None:
        try:
            self._put_snapshot()
        except (ThemisError, sqlite3.Error) as error:
            LOG.warning("no snapshot of the store was written, and the next one is due later: %s", error)
        except Exception:
            LOG.exception("no snapshot of the store was written")
        finally:
            self._taking = False

    def _put_snapshot(self) -> None:
        with contextlib.closing(sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("BEGIN")
            row = connection.execute("SELECT value FROM meta WHERE key = ?", (_POSITION,)).fetchone()
            content = connection.serialize()
        self._log.put_snapshot(content, int(row[0]))


class _Noted:
    """A transaction that also notes its steps, each as the name of a method and its arguments."""

    def __init__(self, inner: StoreTransaction) -> None:
        self.steps: list[tuple[str, Any]] = []
        self._inner = inner

    def append_event(
        self, kind: str, time_s: float, *, app_id: str = "", detail: Mapping[str, object] | None = None
    ) -> StoredEvent:
        event = self._inner.append_event(kind, time_s, app_id=app_id, detail=detail)
        self.steps.append(("event", event))
        return event

    def put_app(self, app: StoredApp) -> None:
        self._inner.put_app(app)
        self.steps.append(("app", msgspec.structs.replace(app, final=from_json(to_json(app.final)))))

    def put_lease(self, lease: Lease) -> None:
        self._inner.put_lease(lease)
        self.steps.append(("lease", lease))

    def put_meta(self, key: str, value: str) -> None:
        self._inner.put_meta(key, value)
        self.steps.append(("meta", (key, value)))

    def archive_apps(self, app_ids: Iterable[str], archive: str, *, through: int) -> None:
        app_ids = tuple(app_ids)
        self._inner.archive_apps(app_ids, archive, through=through)
        self.steps.append(("archive", (app_ids, archive, through)))

    def remove_events(self, app_id: str, through: int, kinds: Sequence[str] = ()) -> None:
        self._inner.remove_events(app_id, through, kinds)
        # Without kinds, earlier versions can read the step.
        self.steps.append(("remove", (app_id, through, kinds) if kinds else (app_id, through)))


def _replay(content: bytes, transaction: StoreTransaction) -> None:
    """Write the steps of a record again.

    Raises:
        StoreError: The record does not fit the state.
    """
    try:
        for step, value in msgspec.msgpack.decode(content, type=list[tuple[str, Any]]):
            if step == "event":
                event = msgspec.convert(value, StoredEvent)
                written = transaction.append_event(event.kind, event.time_s, app_id=event.app_id, detail=event.detail)
                if written.sequence != event.sequence:
                    raise ValueError(f"event {event.sequence} would be number {written.sequence}")
            elif step == "app":
                transaction.put_app(msgspec.convert(value, StoredApp))
            elif step == "lease":
                transaction.put_lease(msgspec.convert(value, Lease))
            elif step == "meta":
                transaction.put_meta(*value)
            elif step == "archive":
                app_ids, archive, through = value
                transaction.archive_apps(app_ids, archive, through=through)
            elif step == "remove":
                transaction.remove_events(*value)
            else:
                raise ValueError(f"unknown step {step!r}")
    except (ValueError, TypeError) as error:
        remedy = "use the version of Themis that wrote it"
        raise StoreError(f"a record of the shared state cannot be applied ({error})", remedy=remedy) from error


def _replace(path: Path, content: bytes) -> None:
    """Put a snapshot in place of the store's file, which is kept as the former one."""
    try:
        half = path.with_name(path.name + ".half")
        half.write_bytes(content)
        if path.exists():
            path.replace(path.with_name(path.name + ".former"))
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        half.replace(path)
    except OSError as error:
        raise StoreError(f"the store cannot be restored ({error.strerror})", value=str(path)) from error
