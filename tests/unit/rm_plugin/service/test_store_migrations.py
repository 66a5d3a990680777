"""Stores of every older version are migrated: stored copies, which the code of that version made."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace
from service_cases import ServiceCase, registration

from rm_plugin.service import store_migrations
from rm_plugin.service.app_pages import app_page
from rm_plugin.service.log_summary import read_summary
from rm_plugin.service.store import StoreError
from rm_plugin.service.store_migrations import VERSION
from rm_plugin.service.store_sqlite import SqliteReader, SqliteStore
from themis.lifecycle import AppState

COPIES = Path(__file__).parent / "stores"
OLDER = range(1, VERSION)


def copy_of(version: int, path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript((COPIES / f"version-{version}.sql").read_text(encoding="utf-8"))
    connection.close()
    return path


def schema(path: Path) -> dict[str, object]:
    connection = sqlite3.connect(path)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in tables}
    indexes = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    connection.close()
    return {**columns, "indexes": indexes}


@pytest.mark.parametrize("version", OLDER)
def test_migrated_store_has_schema_of_new_one(tmp_path, version):
    SqliteStore(copy_of(version, tmp_path / "old.sqlite")).close()
    SqliteStore(tmp_path / "new.sqlite").close()
    assert schema(tmp_path / "old.sqlite") == schema(tmp_path / "new.sqlite")


@pytest.mark.parametrize("version", OLDER)
def test_migration_keeps_apps_leases_and_events(tmp_path, version):
    path = copy_of(version, tmp_path / "rm.sqlite")
    reader = SqliteReader(path)
    before = reader.apps(), reader.leases(held_only=False), reader.events(), reader.meta("clock")
    assert reader.counts(archived=True) == {} and reader.archived_apps(limit=5) == ()
    assert reader.archived_app("one") is None
    reader.close()
    store = SqliteStore(path)
    assert (store.leases(held_only=False), store.events(), store.meta("clock")) == before[1:]
    assert [app.app_id for app in store.apps()] == [app.app_id for app in before[0]]
    assert {app.app_id: app.name for app in store.apps()} == {"app-0001": "one", "app-0002": "two", "app-0003": "three"}
    assert (store.last_app_number(), store.last_lease_id(), len(store.leases())) == (3, 6, 3)
    bound = replace(store.leases()[0], job_id="job-0")
    with store.transaction() as changes:
        changes.put_lease(bound)
    assert store.leases()[0] == bound
    store.close()


@pytest.mark.parametrize("version", OLDER)
def test_service_continues_on_store_of_older_version(tmp_path, version):
    async def scenario():
        store = SqliteStore(copy_of(version, tmp_path / "rm.sqlite"))
        summary = read_summary(store)
        assert (summary.last_round, summary.open_rounds, summary.last_lease) == (2, {2}, 6)
        case = ServiceCase(store, folder=tmp_path)
        case.check()
        states = {entry.spec.name: (entry.state, entry.kill_reason) for entry in case.entries}
        assert states == {
            "one": (AppState.FINISHED, ""),
            "two": (AppState.RUNNING, "no longer wanted"),
            "three": (AppState.RUNNING, ""),
        }
        assert case.arbiter.attained_gpu_s("app-0003", case.clock.now_s()) > 0
        await case.manager.sessions.register(registration(case.entries.get("three")))
        entry, _ = await case.started("four")
        assert entry.app_id == "app-0004"
        await case.round()
        case.check()
        assert max(lease.lease_id for lease in store.leases(held_only=False)) >= 6
        store.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.mark.parametrize("version", OLDER)
def test_failed_migration_leaves_store_as_it_was(tmp_path, version, monkeypatch):
    path = copy_of(version, tmp_path / "rm.sqlite")
    before = schema(path)
    step = store_migrations._STEPS[version]

    def broken(connection):
        step(connection)
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(store_migrations, "_STEPS", {version: broken})
    with pytest.raises(StoreError, match=r"cannot be migrated \(disk full\)"):
        SqliteStore(path)
    assert schema(path) == before
    monkeypatch.undo()
    SqliteStore(path).close()


def test_app_whose_specification_cannot_be_read_survives_migration(tmp_path, caplog):
    path = copy_of(1, tmp_path / "rm.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE apps SET spec = ? WHERE app_id = 'app-0001'", (b"\xff\xff",))
    connection.commit()
    connection.close()
    store = SqliteStore(path)
    case = ServiceCase(store, folder=tmp_path)
    assert [entry.app_id for entry in app_page(case.entries.newest_first()).entries] == ["app-0003", "app-0002"]
    assert case.entries.lost == {"app-0001"}
    store.close()
