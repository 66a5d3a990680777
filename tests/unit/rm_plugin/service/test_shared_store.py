"""A store with a shared log: another machine restores it, and a process that lost the log changes nothing."""

import contextlib
import sqlite3

import pytest
from msgspec.structs import replace
from shared_folder_cases import MemoryFolder

from rm_plugin.service import shared_store
from rm_plugin.service.shared_log import LogLostError, SharedLog
from rm_plugin.service.shared_store import SharedStore
from rm_plugin.service.store import StoredApp, StoreError
from rm_plugin.service.store_sqlite import SqliteStore
from themis.cluster import GpuId
from themis.leases import Lease
from themis.lifecycle import AppState, LeaseState


@pytest.fixture
def folder():
    return MemoryFolder()


@pytest.fixture
def opened(tmp_path, folder):
    """Opens the store of a host by name."""
    stores = []

    def open_store(host, **options):
        stores.append(SharedStore(tmp_path / host / "rm.sqlite", SharedLog(folder), **options))
        return stores[-1]

    yield open_store
    for store in stores:
        with contextlib.suppress(OSError):
            store.close()


NAN = float("nan")
APP = StoredApp(app_id="app-1", state=AppState.RUNNING, spec=b"\x00spec", submitted_at_s=1.0, final={"loss": NAN})
LEASE = Lease(lease_id=1, gpu=GpuId("m0", 0), app_id="app-1", granted_at_s=1.0, expires_at_s=9.0)


def write(store, name="first"):
    with store.transaction() as transaction:
        transaction.append_event("app_submitted", 1.0, app_id="app-1", detail={"name": name, "loss": NAN})
        transaction.put_app(APP)
        transaction.put_lease(LEASE)
        transaction.put_meta("name", name)


def state(store):
    return store.events(), store.apps(), store.leases(held_only=False), store.meta("name")


def test_another_host_restores_every_kind_of_write(opened):
    first = opened("a")
    write(first)
    with first.transaction() as transaction:
        transaction.append_event("round_started", 2.0)
        transaction.put_lease(replace(LEASE, state=LeaseState.RELEASED))
    with first.transaction() as transaction:
        transaction.append_event("events_archived", 3.0)
        transaction.archive_apps(["app-1"], "file", through=1)
        transaction.remove_events("", 2)
    with first.transaction() as transaction:
        transaction.append_event("job_progress", 4.0, app_id="app-2")
        transaction.append_event("tuner", 4.0, app_id="app-2")
    with first.transaction() as transaction:
        transaction.remove_events("app-2", 5, ("job_progress", "checkpoint"))
    second = opened("b")
    assert state(second) == state(first)
    assert second.archived_app("app-1") == first.archived_app("app-1")
    assert [event.kind for event in second.events()] == ["events_archived", "tuner"]


def test_a_host_that_lost_the_log_changes_nothing(opened):
    first = opened("a")
    write(first)
    before = state(first)
    second = opened("b")
    with pytest.raises(LogLostError):
        write(first, "late")
    assert state(first) == before == state(second)
    write(second, "next")
    assert second.meta("name") == "next"


def test_hosts_take_turns(opened):
    for number, host in enumerate("abab"):
        store = opened(host)
        assert len(store.events()) == number
        write(store, f"turn {number}")
        store.close()
    assert opened("c").meta("name") == "turn 3"


def test_a_write_fails_as_a_whole_while_the_shared_folder_is_unavailable(opened, folder):
    store = opened("a")
    write(store)
    before = state(store)
    folder.away = True
    with pytest.raises(StoreError, match="unavailable"):
        write(store, "undone")
    assert state(store) == before
    folder.away = False
    write(store, "done")
    assert opened("b").meta("name") == "done"


def test_a_write_that_the_local_file_refuses_is_not_restored(opened, tmp_path):
    store = opened("a")
    write(store)
    inner = store._connection

    class FullDisk:
        in_transaction = True

        def execute(self, text, *values):
            if text == "COMMIT":
                raise sqlite3.OperationalError("disk full")
            return inner.execute(text, *values)

    store._connection = FullDisk()
    with pytest.raises(StoreError, match="disk full"):
        write(store, "undone")
    store._connection = inner
    with store.transaction() as transaction:
        transaction.append_event("done", 3.0)
    assert state(opened("b")) == state(store)
    assert store.meta("name") == "first"


def test_a_store_without_a_shared_log_becomes_its_begin(opened, tmp_path):
    alone = SqliteStore(tmp_path / "a" / "rm.sqlite")
    write(alone, "alone")
    alone.close()
    opened("a").close()
    assert opened("b").meta("name") == "alone"


def test_the_former_file_of_a_host_is_kept(opened, tmp_path):
    opened("a")
    alone = SqliteStore(tmp_path / "b" / "rm.sqlite")
    write(alone, "other")
    alone.close()
    assert opened("b").meta("name") is None
    kept = SqliteStore(tmp_path / "b" / "rm.sqlite.former")
    assert kept.meta("name") == "other"
    kept.close()


def test_restored_file_has_no_log_of_the_former_one(opened, tmp_path):
    """SQLite would apply a log that a killed process left to the file that took its place."""
    write(opened("a"))
    path = tmp_path / "b" / "rm.sqlite"
    alone = SqliteStore(path)
    write(alone, "other")
    left = {name: (path.parent / name).read_bytes() for name in ("rm.sqlite-wal", "rm.sqlite-shm")}
    alone.close()
    for name, content in left.items():
        (path.parent / name).write_bytes(content)
    assert opened("b").meta("name") == "first"


def test_snapshots_are_written_by_and_by(opened, folder, monkeypatch):
    monkeypatch.setattr(shared_store, "SNAPSHOT_EVERY", 10)
    store = opened("a")
    for number in range(35):
        write(store, str(number))
        if number % 10 == 9:
            store._snapshots.submit(lambda: None).result()
    records = [file for file in folder.list() if file.name.startswith("record")]
    assert len(records) < 10
    assert state(opened("b")) == state(store)


def test_nothing_is_written_if_the_process_must_not(opened, folder):
    def refuse():
        raise StoreError("the lock is old")

    store = opened("a")
    store._check = refuse
    files = folder.list()
    with pytest.raises(StoreError, match="the lock is old"):
        write(store)
    assert folder.list() == files and store.events() == ()
