"""Read rows of the store; one that cannot be read is reported, and the others still count."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from rm_plugin.service.store import DamagedRow, StoredApp, StoredEvent
from rm_plugin.service.store_json import from_json
from themis.cluster import GpuId
from themis.events import UNREADABLE
from themis.leases import Lease
from themis.lifecycle import AppState, LeaseState

R = TypeVar("R")


def read_event(sequence: int, time_s: Any, kind: Any, app_id: Any, detail: Any) -> StoredEvent:
    """Return an event; one that cannot be read is of kind `unreadable`."""
    try:
        if not (isinstance(kind, str) and isinstance(app_id, str) and math.isfinite(time_s)):
            raise ValueError("a column of another type")
        return StoredEvent(sequence=sequence, time_s=time_s, kind=kind, app_id=app_id, detail=from_json(detail))
    except (ValueError, TypeError) as error:
        return StoredEvent(sequence=sequence, time_s=0.0, kind=UNREADABLE, detail={"problem": str(error)})


def read_app(columns: Sequence[str], *row: Any) -> StoredApp:
    """Return an app from a row of these columns. Raises ValueError or TypeError if it cannot be read."""
    values = {"name": "", "archive": "", **dict(zip(columns, row, strict=True))}
    times = [values[name] for name in ("submitted_at_s", "started_at_s", "finished_at_s")]
    texts = (values[name] for name in ("app_id", "token", "diagnostics", "name", "archive"))
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


def read_lease(
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
    """Return a lease. Raises ValueError or TypeError if it cannot be read."""
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


def readable(
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


def select(connection: sqlite3.Connection, query: str, parameters: Sequence[object] = ()) -> list[Sequence[Any]]:
    """Return all rows of a query. Texts that are no UTF-8 come as bytes."""
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
