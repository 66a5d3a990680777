"""Change a store of an older version into one of the present version, in one transaction.

| version | since | what is new |
|---|---|---|
| 1 | 0.1.0 | |
| 2 | between 0.1.0 and the next version | leases may be bound to a job |
| 3 | the version after 0.1.0 | apps know their name, their number, and the file with their archived events |
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from google.protobuf.message import DecodeError

from rm_plugin.service.store import StoreError, app_number
from themis.wire import themis_pb2 as pb

LOG = logging.getLogger("themis.rm.store")

VERSION = 3
"""The version of stores that this program writes."""


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring a store to the present version. If that fails, the store stays as it was.

    Raises:
        StoreError: The store cannot be migrated, or is of a newer version.
    """
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == VERSION:
            return
        LOG.warning("%s is migrated from version %s to %s", path, version, VERSION)
        connection.execute("BEGIN IMMEDIATE")
        try:
            for step in range(version, VERSION):
                _STEPS[step](connection)
            connection.execute(f"PRAGMA user_version={VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    except (sqlite3.Error, KeyError) as error:
        remedy = "restore the backup that was made before the upgrade, or use the former version"
        raise StoreError(f"the store cannot be migrated ({error})", value=str(path), remedy=remedy) from error


def _from_1(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE leases ADD COLUMN job_id TEXT NOT NULL DEFAULT ''")


def _from_2(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE apps ADD COLUMN name TEXT NOT NULL DEFAULT ''")
    connection.execute("ALTER TABLE apps ADD COLUMN number INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE apps ADD COLUMN archive TEXT NOT NULL DEFAULT ''")
    rows = connection.execute("SELECT rowid, CAST(app_id AS BLOB), CAST(spec AS BLOB) FROM apps")
    named = [(_name(spec), app_number(app_id.decode(errors="replace")), rowid) for rowid, app_id, spec in rows]
    connection.executemany("UPDATE apps SET name = ?, number = ? WHERE rowid = ?", named)
    connection.execute("CREATE INDEX kept_apps ON apps (submitted_at_s, app_id) WHERE archive = ''")
    connection.execute("CREATE INDEX archived_apps ON apps (number) WHERE archive != ''")
    connection.execute("CREATE INDEX apps_by_name ON apps (name, number)")
    connection.execute("CREATE INDEX leases_by_app ON leases (app_id)")
    connection.execute("CREATE INDEX open_leases ON leases (lease_id) WHERE state NOT IN ('RELEASED', 'REVOKED')")


def _name(spec: bytes | None) -> str:
    """The name in a specification; empty if that cannot be read, which the start of the service reports."""
    try:
        return str(pb.AppSpec.FromString(spec or b"").name)
    except DecodeError:
        return ""


_STEPS: Mapping[int, Callable[[sqlite3.Connection], None]] = {1: _from_1, 2: _from_2}
"""For each older version, the step to the next one."""
