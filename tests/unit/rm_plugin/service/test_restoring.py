"""Stores with unreadable rows: these are reported and skipped, and the service starts."""

import asyncio
import sqlite3

import pytest
from service_cases import NOW_S, ServiceCase, registration

from rm_plugin.service.recorder import Recorder
from rm_plugin.service.store_memory import MemoryStore
from rm_plugin.service.store_sqlite import SqliteStore
from rm_plugin.service.web.event_index import EventIndex
from themis.clock import VirtualClock
from themis.cluster import GpuId
from themis.leases import Lease
from themis.lifecycle import LeaseState


def lease(lease_id, app_id="app-0001", machine_id="m0", index=0, state=LeaseState.GRANTED):
    return Lease(
        lease_id=lease_id,
        gpu=GpuId(machine_id, index),
        app_id=app_id,
        granted_at_s=NOW_S,
        expires_at_s=NOW_S + 100,
        state=state,
    )


def restarted(path, damage, *, leases=()):
    """Two apps, of which the store is damaged by SQL; then a restart, a new app and a round."""

    async def whole():
        store = SqliteStore(path)
        case = ServiceCase(store)
        for name in ("one", "two"):
            await case.started(name)
        with store.transaction() as transaction:
            for each in leases:
                transaction.put_lease(each)
        store.close()
        with sqlite3.connect(path) as connection:
            connection.execute(*damage)
        connection.close()
        store = SqliteStore(path)
        again = ServiceCase(store)
        await again.manager.app_masters.recover()
        again.check()
        entry, _ = await again.started("three")
        await again.round()
        again.check()
        store.close()
        return again, entry

    return asyncio.run(asyncio.wait_for(whole(), 20))


@pytest.mark.parametrize(
    "damage",
    [
        ("UPDATE events SET detail = '{' WHERE sequence = 2",),
        ("UPDATE events SET detail = '[1]' WHERE sequence = 2",),
        ("UPDATE events SET kind = ? WHERE sequence = 2", (b"\xff",)),
        ("UPDATE events SET detail = CAST(? AS TEXT) WHERE sequence = 2", (b"\xff\xfe",)),
        ("UPDATE events SET time_s = 'now' WHERE sequence = 2",),
    ],
)
def test_unreadable_event_is_reported_and_keeps_its_sequence(tmp_path, damage, caplog):
    case, _ = restarted(tmp_path / "rm.sqlite", damage)
    assert "1 events cannot be read, the first is 2" in caplog.text
    store = SqliteStore(tmp_path / "rm.sqlite")
    events = store.events()
    store.close()
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [event.sequence for event in events if event.kind == "unreadable"] == [2]
    assert len(list(case.entries)) == 3


@pytest.mark.parametrize(
    "damage",
    [
        ("UPDATE apps SET state = 'LOST' WHERE app_id = 'app-0002'",),
        ("UPDATE apps SET final = '{' WHERE app_id = 'app-0002'",),
        ("UPDATE apps SET spec = ? WHERE app_id = 'app-0002'", (b"\xff\xff",)),
        ("UPDATE apps SET spec = '' WHERE app_id = 'app-0002'",),
        ("UPDATE apps SET submitted_at_s = 'now' WHERE app_id = 'app-0002'",),
        ("UPDATE apps SET diagnostics = CAST(? AS TEXT) WHERE app_id = 'app-0002'", (b"\xff",)),
    ],
)
def test_unreadable_app_is_skipped_and_its_gpus_and_id_stay_unused(tmp_path, damage, caplog):
    held = [lease(1), lease(2, "app-0002", index=1)]
    case, new = restarted(tmp_path / "rm.sqlite", damage, leases=held)
    assert "app-0002" in caplog.text
    assert "cannot be read and is passed over" in caplog.text
    assert (new.app_id, case.entries.lost) == ("app-0003", {"app-0002"})
    assert [each.lease_id for each in case.arbiter.table.live.values()] == [1]
    store = SqliteStore(tmp_path / "rm.sqlite")
    assert [each.lease_id for each in store.leases()] == [1]
    store.close()


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        (lease(2, machine_id="gone"), "the cluster has no such GPU"),
        (lease(2, index=77), "the cluster has no such GPU"),
        (lease(2, "app-0009", index=1), "its app cannot be read, or has ended"),
    ],
)
def test_lease_that_cannot_continue_is_revoked(tmp_path, odd, told, caplog):
    case, _ = restarted(tmp_path / "rm.sqlite", ("SELECT 1",), leases=[lease(1), odd])
    assert f"lease 2 of {odd.app_id} on {odd.gpu} is revoked: {told}" in caplog.text
    assert [each.lease_id for each in case.arbiter.table.live.values()] == [1]


def test_lease_with_unknown_state_is_skipped(tmp_path, caplog):
    damage = ("UPDATE leases SET state = 'HALF' WHERE lease_id = 2",)
    case, _ = restarted(tmp_path / "rm.sqlite", damage, leases=[lease(1), lease(2, index=1)])
    assert "2 of the table leases cannot be read" in caplog.text
    assert [each.lease_id for each in case.arbiter.table.live.values()] == [1]


@pytest.mark.parametrize("key", ["cluster", "grid_origin_s"])
def test_unreadable_store_value_is_replaced(tmp_path, key):
    restarted(tmp_path / "rm.sqlite", (f"INSERT OR REPLACE INTO meta VALUES ('{key}', 'x')",))
    store = SqliteStore(tmp_path / "rm.sqlite")
    assert Recorder(store, VirtualClock(NOW_S)).kept_cluster() is None
    assert store.meta("grid_origin_s") == repr(NOW_S)
    store.close()


def test_round_events_with_app_id_are_no_rounds():
    async def whole():
        store = MemoryStore()
        case = ServiceCase(store)
        entry, _ = await case.started("mine")
        for detail in ({}, {"round_id": 2**62}, {"round_id": [1]}):
            case.recorder.record("round_started", app_id=entry.app_id, detail=detail)
            case.recorder.record("lease_granted", app_id=entry.app_id, detail={"lease_id": [1]})
        again = ServiceCase(store)
        await again.manager.register(registration(again.entries.get("mine")))
        await again.round()
        started = [event for event in again.recorder.events(0, "", 99) if event.kind == "round_started"]
        assert started[-1].detail["round_id"] == 1
        index = EventIndex(again.recorder)
        for event in again.recorder.events(0, "", 99):
            index.take(event)
        assert [record.round_id for record in index.rounds()] == [1]

    asyncio.run(whole())


def test_invalid_duration_is_left_out_of_sums():
    async def whole():
        case = ServiceCase(MemoryStore())
        index = EventIndex(case.recorder)
        for seconds in (1.5, float("nan"), float("inf"), -1.0):
            case.recorder.record("checkpoint", app_id="app-0001", detail={"seconds": seconds})
        for event in case.recorder.events(0, "", 99):
            index.take(event)
        assert (index.totals.checkpoint.count, index.totals.checkpoint.sum_s) == (1, 1.5)

    asyncio.run(whole())


def test_second_lease_reserved_on_same_gpu_is_revoked():
    async def scenario():
        store = MemoryStore()
        case = ServiceCase(store)
        entry, _ = await case.started("mine")
        with store.transaction() as changes:
            for lease_id in (1, 2):
                changes.put_lease(
                    Lease(
                        lease_id=lease_id,
                        gpu=GpuId("m0", 0),
                        app_id=entry.app_id,
                        granted_at_s=NOW_S,
                        expires_at_s=NOW_S + 600,
                        state=LeaseState.RESERVED,
                    )
                )
        again = ServiceCase(store)
        assert [lease.lease_id for lease in again.arbiter.table.reserved.values()] == [1]
        assert [lease.lease_id for lease in store.leases()] == [1]

    asyncio.run(scenario())
