"""All state stores behave the same: log and state change together or not at all."""

import math
import sqlite3

import pytest
from msgspec.structs import replace
from shared_folder_cases import MemoryFolder

from rm_plugin.service.shared_log import SharedLog
from rm_plugin.service.shared_store import SharedStore
from rm_plugin.service.store import StoredApp, StoreError
from rm_plugin.service.store_json import from_json, to_json
from rm_plugin.service.store_memory import MemoryStore
from rm_plugin.service.store_sqlite import SqliteReader, SqliteStore
from themis.cluster import GpuId
from themis.errors import InvariantError
from themis.leases import Lease
from themis.lifecycle import AppState, LeaseState

APP = StoredApp(app_id="app-1", state=AppState.SUBMITTED, token="t", spec=b"\x00\xff", submitted_at_s=10.0)
LEASE = Lease(lease_id=1, gpu=GpuId("m0", 2), app_id="app-1", granted_at_s=1.0, expires_at_s=601.0)


@pytest.fixture(params=["memory", "sqlite", "shared"])
def store(request, tmp_path):
    if request.param != "shared":
        opened = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "deep" / "state.db")
        yield opened
        opened.close()
        return
    folder = MemoryFolder()
    opened = SharedStore(tmp_path / "deep" / "state.db", SharedLog(folder))
    yield opened
    restored = SharedStore(tmp_path / "other" / "state.db", SharedLog(folder))
    assert state_of(restored) == state_of(opened)
    opened.close()
    restored.close()


def state_of(store):
    # Texts, as a NaN is not equal to itself.
    return repr((store.events(), store.apps(), store.leases(held_only=False), store.archived_apps(limit=100)))


def test_new_store_is_empty(store):
    assert store.events() == ()
    assert store.apps() == ()
    assert store.leases() == ()
    assert store.meta("anything") is None


def test_events_are_numbered_without_gaps_and_selected(store):
    with store.transaction() as changes:
        one = changes.append_event("rm_started", 1.5, detail={"gpus": 8, "policy": "themis"})
        two = changes.append_event(
            "app_submitted", 2.0, app_id="app-1", detail={"jobs": ["j0", "j1"], "deep": {"a": None}}
        )
    with store.transaction() as changes:
        three = changes.append_event("app_state", 3.0, app_id="app-1")
    assert (one.sequence, two.sequence, three.sequence) == (1, 2, 3)
    assert store.events() == (one, two, three)
    assert two.detail == {"jobs": ["j0", "j1"], "deep": {"a": None}}
    assert store.events(after=1) == (two, three)
    assert store.events(after=3) == ()
    assert store.events(app_id="app-1", after=2) == (three,)
    assert store.events(limit=2) == (one, two)
    assert store.events(app_id="app-2") == ()


def test_failed_transaction_leaves_no_trace(store):
    with store.transaction() as changes:
        changes.append_event("rm_started", 1.0)
    with pytest.raises(ZeroDivisionError), store.transaction() as changes:
        changes.append_event("app_submitted", 2.0)
        changes.put_app(APP)
        changes.put_lease(LEASE)
        changes.put_meta("key", "value")
        raise ZeroDivisionError
    assert len(store.events()) == 1
    assert store.apps() == store.leases() == ()
    assert store.meta("key") is None
    with store.transaction() as changes:
        assert changes.append_event("client", 3.0).sequence == 2


def test_transactions_do_not_nest(store):
    with store.transaction() as changes:
        with pytest.raises(InvariantError), store.transaction():
            pass
        changes.put_meta("outer", "kept")
    assert store.meta("outer") == "kept"


def test_apps_are_replaced_and_ordered(store):
    early = replace(APP, app_id="app-0", submitted_at_s=5.0)
    final = {"rho": {"themis": 1.2}}
    done = replace(APP, state=AppState.FINISHED, attempt=2, pid=77, started_at_s=11.0, finished_at_s=12.5, final=final)
    with store.transaction() as changes:
        changes.put_app(APP)
        changes.put_app(early)
    assert store.apps() == (early, APP)
    with store.transaction() as changes:
        changes.put_app(done)
    assert store.apps() == (early, done)


def test_leases_are_held_ones_or_all(store):
    other = replace(LEASE, lease_id=2, gpu=GpuId("m0", 3), state=LeaseState.EXPIRING, renewals=4)
    reserved = replace(other, lease_id=4, app_id="app-2", state=LeaseState.RESERVED)
    ended = replace(LEASE, lease_id=3, state=LeaseState.RELEASED)
    with store.transaction() as changes:
        for lease in (ended, other, LEASE, reserved):
            changes.put_lease(lease)
    assert store.leases() == (LEASE, other, reserved)
    assert store.leases(held_only=False) == (LEASE, other, ended, reserved)


def test_reserved_lease_is_granted_after_the_other_ended(store):
    expiring = replace(LEASE, state=LeaseState.EXPIRING)
    reserved = replace(LEASE, lease_id=2, app_id="app-2", state=LeaseState.RESERVED)
    granted = replace(reserved, state=LeaseState.GRANTED)
    with store.transaction() as changes:
        changes.put_lease(expiring)
        changes.put_lease(reserved)
    with pytest.raises(InvariantError), store.transaction() as changes:
        changes.put_lease(granted)
    with store.transaction() as changes:
        changes.put_lease(replace(LEASE, state=LeaseState.RELEASED))
        changes.put_lease(granted)
    assert store.leases() == (granted,)


def test_gpu_cannot_be_leased_twice(store):
    rival = replace(LEASE, lease_id=2, app_id="app-2")
    with store.transaction() as changes:
        changes.put_lease(LEASE)
    with pytest.raises(InvariantError, match="m0/2"), store.transaction() as changes:
        changes.put_lease(rival)
    assert store.leases() == (LEASE,)
    with pytest.raises(InvariantError), store.transaction() as changes:
        changes.put_lease(replace(LEASE, lease_id=5, gpu=GpuId("m1", 0)))
        changes.put_lease(replace(LEASE, lease_id=6, gpu=GpuId("m1", 0)))
    with store.transaction() as changes:
        changes.put_lease(replace(LEASE, state=LeaseState.REVOKED))
        changes.put_lease(rival)
        changes.put_lease(replace(rival, expires_at_s=900.0, renewals=1))
    assert store.leases() == (replace(rival, expires_at_s=900.0, renewals=1),)


def test_non_finite_numbers_become_text(store):
    with store.transaction() as changes:
        changes.append_event("job_progress", 1.0, detail={"loss": math.nan, "rho": [math.inf, (-math.inf, 1.0)]})
    [event] = store.events()
    assert event.detail == {"loss": "NaN", "rho": ["Infinity", ["-Infinity", 1.0]]}
    assert math.isnan(float(event.detail["loss"]))


def test_details_outside_json_are_refused(store):
    with pytest.raises(TypeError), store.transaction() as changes:
        changes.append_event("client", 1.0, detail={"what": object()})
    assert store.events() == ()


def test_json_reads_back():
    value = {"a": [1, 2.5, None, True], "b": {"c": "\u00e9"}}
    assert from_json(to_json(value)) == value


def test_sqlite_store_keeps_content_after_reopening(tmp_path):
    path = tmp_path / "state.db"
    store = SqliteStore(path)
    with store.transaction() as changes:
        changes.append_event("client", 1.0, app_id="a", detail={"x": 1})
        changes.put_app(APP)
        changes.put_lease(LEASE)
        changes.put_meta("k", "v")
    seen = (store.events(), store.apps(), store.leases(), store.meta("k"))
    store.close()
    for again in (SqliteStore(path), SqliteReader(path)):
        assert (again.events(), again.apps(), again.leases(), again.meta("k")) == seen
        again.close()


def test_second_resource_manager_is_refused(tmp_path):
    store = SqliteStore(tmp_path / "state.db")
    with pytest.raises(StoreError, match="another ResourceManager"):
        SqliteStore(tmp_path / "state.db")
    reader = SqliteReader(tmp_path / "state.db")
    assert reader.apps() == ()
    reader.close()
    store.close()
    SqliteStore(tmp_path / "state.db").close()


def test_refused_row_is_an_invariant_error(tmp_path):
    store = SqliteStore(tmp_path / "state.db")
    with pytest.raises(InvariantError, match="does not fit the schema of the store"), store.transaction() as changes:
        changes.append_event("rm_started", math.nan)
    with store.transaction() as changes:
        changes.append_event("rm_started", 1.0)
    assert [event.time_s for event in store.events()] == [1.0]
    store.close()


def test_file_that_is_no_store_is_refused(tmp_path):
    with pytest.raises(StoreError, match="no such store"):
        SqliteReader(tmp_path / "none.db")
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"not a data base at all " * 100)
    with pytest.raises(StoreError, match="no store"):
        SqliteStore(junk)
    with pytest.raises(StoreError, match="no store"):
        SqliteReader(junk)
    path = tmp_path / "later.db"
    store = SqliteStore(path)
    store._connection.execute("PRAGMA user_version=99")
    store.close()
    with pytest.raises(StoreError, match="another version: 99; this program reads versions 1 to 3"):
        SqliteStore(path)


def test_database_of_another_program_is_refused(tmp_path):
    path = tmp_path / "state.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE things (name TEXT)")
    other.execute("PRAGMA user_version=1")
    other.close()
    with pytest.raises(StoreError, match=r"another program's database: '.*'; move the file away"):
        SqliteStore(path)


def test_damaged_store_is_refused_at_start(tmp_path):
    path = tmp_path / "state.db"
    store = SqliteStore(path)
    with store.transaction() as changes:
        for number in range(500):
            changes.append_event("client", float(number), detail={"text": "x" * 100})
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * 16384 + whole[24576:])
    with pytest.raises(StoreError, match=r"damaged \(.*\): '.*'; move the file away"):
        SqliteStore(path)


def archive_of(number, state=AppState.FINISHED, name="mine"):
    return replace(APP, app_id=f"app-{number:04d}", state=state, name=name)


def archived(store, through=10_000):
    """Apps 1 to 4, of which 1 to 3 are archived."""
    states = (AppState.FINISHED, AppState.FAILED, AppState.FINISHED, AppState.RUNNING)
    with store.transaction() as changes:
        changes.append_event("rm_started", 1.0)
        for number, state in enumerate(states, start=1):
            changes.put_app(archive_of(number, state, name="one" if number < 3 else "other"))
            changes.append_event("app_state", 2.0, app_id=f"app-{number:04d}")
            ended = replace(LEASE, lease_id=number, app_id=f"app-{number:04d}", state=LeaseState.RELEASED)
            changes.put_lease(ended)
        changes.append_event("round_started", 3.0)
    with store.transaction() as changes:
        changes.append_event("events_archived", 4.0)
        changes.archive_apps(["app-0001", "app-0002", "app-0003"], "events.gz", through=through)
    return store


def test_archived_apps_leave_list_log_and_leases(store):
    archived(store)
    assert [app.app_id for app in store.apps()] == ["app-0004"]
    assert [(event.sequence, event.app_id) for event in store.events()] == [
        *((1, ""), (5, "app-0004"), (6, ""), (7, "")),
    ]
    assert [lease.lease_id for lease in store.leases(held_only=False)] == [4]
    assert store.events(app_id="app-0002") == ()


def test_archived_apps_are_found_by_id_name_and_number(store):
    archived(store)
    assert store.archived_app("app-0001").archive == "events.gz"
    assert store.archived_app("one").app_id == "app-0002"
    assert store.archived_app("app-0004") is None
    assert store.archived_app("mine") is None
    assert [app.app_id for app in store.archived_apps(limit=2)] == ["app-0003", "app-0002"]
    assert [app.app_id for app in store.archived_apps(below=3, limit=9)] == ["app-0002", "app-0001"]
    assert [app.app_id for app in store.archived_apps(states={AppState.FAILED}, limit=9)] == ["app-0002"]
    assert dict(store.counts(archived=True)) == {AppState.FINISHED: 2, AppState.FAILED: 1}


def test_numbers_of_archived_apps_and_events_are_not_used_again(store):
    archived(store)
    assert store.last_app_number() == 4
    with store.transaction() as changes:
        changes.archive_apps([], "more.gz", through=7)
        assert changes.append_event("rm_started", 5.0).sequence == 8


def test_events_after_the_archived_ones_stay(store):
    archived(store, through=3)
    assert [event.sequence for event in store.events(app_id="app-0003")] == [4]
    assert store.events(app_id="app-0001") == ()


def test_events_of_no_app_are_removed_up_to_a_number(store):
    archived(store)
    assert [event.sequence for event in store.service_events(through=6, limit=9)] == [1, 6]
    assert [event.sequence for event in store.service_events(through=6, limit=1)] == [1]
    with store.transaction() as changes:
        changes.remove_events("", 6)
    assert [event.sequence for event in store.events()] == [5, 7]
    assert [event.sequence for event in store.events(after=5)] == [7]


def test_events_of_some_kinds_are_removed_and_the_others_stay(store):
    with store.transaction() as changes:
        for kind in ("a", "b", "c", "a"):
            changes.append_event(kind, 1.0, app_id="app-1")
        changes.append_event("a", 1.0, app_id="app-2")
    with store.transaction() as changes:
        changes.remove_events("app-1", 3, ("a", "b"))
    assert [(event.sequence, event.kind) for event in store.events()] == [(3, "c"), (4, "a"), (5, "a")]


def test_failed_archive_leaves_everything(store):
    archived(store)
    before = store.events(), store.apps(), store.leases(held_only=False)
    with pytest.raises(ZeroDivisionError), store.transaction() as changes:
        changes.archive_apps(["app-0004"], "x.gz", through=99)
        changes.remove_events("", 99)
        raise ZeroDivisionError
    assert (store.events(), store.apps(), store.leases(held_only=False)) == before
    assert dict(store.counts(archived=True)) == {AppState.FINISHED: 2, AppState.FAILED: 1}


def test_last_lease_id_is_that_of_all_leases(store):
    assert (store.last_lease_id(), store.last_app_number()) == (0, 0)
    with store.transaction() as changes:
        changes.put_lease(replace(LEASE, lease_id=8, state=LeaseState.RELEASED))
    assert store.last_lease_id() == 8
