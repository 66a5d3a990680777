"""Stores with unreadable rows: these are reported and skipped, and the service starts."""

import asyncio
import sqlite3

import msgspec
import pytest
from instant_loop import run_instantly
from msgspec.structs import replace
from service_cases import CLUSTER, NOW_S, ServiceCase, app, registration, report

from rm_plugin.arbiter.round_values import Decision
from rm_plugin.policies.allox_policy import AlloxMemory
from rm_plugin.policies.oef.decision import OefMemory
from rm_plugin.policies.oef_policy import OefPolicyMemory
from rm_plugin.policies.registry import make_policy
from rm_plugin.service import store_sqlite
from rm_plugin.service.hooks import HOOKS
from rm_plugin.service.identities import USER_TOKENS
from rm_plugin.service.live_cluster import DRAINED
from rm_plugin.service.log_summary import read_summary
from rm_plugin.service.recorder import Recorder
from rm_plugin.service.restoring import restored_entries, restored_memory, restored_waits
from rm_plugin.service.server import Server, clock_of
from rm_plugin.service.store_memory import MemoryStore
from rm_plugin.service.store_rows import read_app
from rm_plugin.service.store_sqlite import SqliteStore
from rm_plugin.service.web.event_index import EventIndex
from themis.apps import JobShape
from themis.bids import RhoOf
from themis.clock import VirtualClock, WallClock
from themis.cluster import DeviceType, GpuId, Machine
from themis.config.rm_settings import RmSettings
from themis.leases import Lease
from themis.lifecycle import LeaseState
from themis.values import Value
from themis.wire import themis_pb2 as pb


def test_a_start_reads_each_app_once(tmp_path, monkeypatch):
    async def accepted():
        store = SqliteStore(tmp_path / "rm.sqlite")
        case = ServiceCase(store)
        for name in ("one", "two", "three"):
            await case.started(name)
        await case.manager.changes.close()
        store.close()

    run_instantly(accepted())
    read = []
    monkeypatch.setattr(store_sqlite, "read_app", lambda columns, *row: read.append(row[0]) or read_app(columns, *row))
    store = SqliteStore(tmp_path / "rm.sqlite")
    clock_of(store)
    assert len(restored_entries(store)) == 3
    assert read == ["app-0001", "app-0002", "app-0003"]
    store.close()


def test_store_that_was_lost_refuses_the_app_masters_of_the_former_one(tmp_path):
    file = tmp_path / "refusals.key"
    key = restored_entries(MemoryStore(), file).refusal_key
    assert file.stat().st_mode & 0o777 == 0o600
    assert restored_entries(MemoryStore(), file).refusal_key == key


def test_ids_of_folders_that_the_store_does_not_know_are_not_used_again(tmp_path, caplog):
    """After the loss of a store, or of a part by an older backup, a new app would go on from another one's model."""
    for name in ("app-0002", "app-0011", "app-notes"):
        (tmp_path / name).mkdir()
    assert restored_entries(MemoryStore(), app_folders=tmp_path.iterdir()).next_id() == "app-0012"
    assert "the store knows apps up to 0, but the folder of apps has 11" in caplog.text


@pytest.mark.parametrize("content", [b"", b"0" * 63, b"x" * 64, b"\xff" * 64])
def test_file_of_a_damaged_key_is_replaced(tmp_path, content):
    file = tmp_path / "refusals.key"
    file.write_bytes(content)
    store = MemoryStore()
    key = restored_entries(store, file).refusal_key
    assert (len(key), file.read_text()) == (64, key)
    # The store's key counts.
    file.write_text("0" * 64)
    assert restored_entries(store, file).refusal_key == key == file.read_text()


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

    return run_instantly(whole())


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
        ("UPDATE apps SET submitted_at_s = 9e999 WHERE app_id = 'app-0002'",),
        ("UPDATE apps SET diagnostics = CAST(? AS TEXT) WHERE app_id = 'app-0002'", (b"\xff",)),
    ],
)
def test_unreadable_app_is_skipped_and_its_gpus_and_id_stay_unused(tmp_path, damage, caplog):
    held = [lease(1), lease(2, "app-0002", index=1)]
    case, new = restarted(tmp_path / "rm.sqlite", damage, leases=held)
    assert "app-0002" in caplog.text
    assert "cannot be read and is skipped" in caplog.text
    assert (new.app_id, case.entries.lost) == ("app-0003", {"app-0002"})
    assert [each.lease_id for each in case.arbiter.table.live.values()] == [1]
    store = SqliteStore(tmp_path / "rm.sqlite")
    assert [each.lease_id for each in store.leases()] == [1]
    store.close()


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        (lease(2, machine_id="gone"), "the cluster has no such GPU"),
        (lease(2, index=77), "the cluster has no such GPU"),
        (lease(2, "app-0009", index=1), "its app cannot be read, or has ended"),
    ],
)
def test_lease_that_cannot_continue_is_revoked(tmp_path, odd, expected, caplog):
    case, _ = restarted(tmp_path / "rm.sqlite", ("SELECT 1",), leases=[lease(1), odd])
    assert f"lease 2 of {odd.app_id} on {odd.gpu} is revoked: {expected}" in caplog.text
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


def test_value_of_the_store_that_cannot_be_read_is_reported_and_does_not_prevent_a_start(tmp_path, caplog):
    async def scenario():
        store = MemoryStore()
        with store.transaction() as transaction:
            for key in (DRAINED, USER_TOKENS, HOOKS):
                transaction.put_meta(key, '{"half": ')
        settings = RmSettings(cluster=tmp_path / "none.yaml", state_dir=tmp_path, listen="127.0.0.1:0")
        server = Server(settings, CLUSTER, store, WallClock())
        await server.start()
        manager = server.manager
        assert (manager.live_cluster.drained, manager.identities.tokens, manager.hooks.pending) == (frozenset(), {}, ())
        await server.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert [key in caplog.text for key in (DRAINED, USER_TOKENS, HOOKS)] == [True] * 3


def test_round_events_with_app_id_are_no_rounds():
    async def whole():
        store = MemoryStore()
        case = ServiceCase(store)
        entry, _ = await case.started("mine")
        for detail in ({}, {"round_id": 2**62}, {"round_id": [1]}):
            case.recorder.record("round_started", app_id=entry.app_id, detail=detail)
            case.recorder.record("lease_granted", app_id=entry.app_id, detail={"lease_id": [1]})
        again = ServiceCase(store)
        await again.manager.sessions.register(registration(again.entries.get("mine")))
        await again.round()
        started = [event for event in again.recorder.events(0, "", 99) if event.kind == "round_started"]
        assert started[-1].detail["round_id"] == 1
        index = EventIndex(again.recorder)
        for event in again.recorder.events(0, "", 99):
            index.take(event)
        assert [record.round_id for record in index.rounds()] == [1]

    run_instantly(whole())


def test_invalid_duration_is_left_out_of_sums():
    async def whole():
        case = ServiceCase(MemoryStore())
        index = EventIndex(case.recorder)
        for seconds in (1.5, float("nan"), float("inf"), -1.0):
            case.recorder.record("checkpoint", app_id="app-0001", detail={"seconds": seconds})
        for event in case.recorder.events(0, "", 99):
            index.take(event)
        assert (index.totals.checkpoint.count, index.totals.checkpoint.sum_s) == (1, 1.5)

    run_instantly(whole())


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

    run_instantly(scenario())


def test_app_that_the_new_policy_would_refuse_is_named_in_the_log(caplog):
    async def scenario():
        store = MemoryStore()
        case = ServiceCase(store)
        wide = replace(app("wide", jobs=1).jobs[0], shape=JobShape(tasks=2, min_tasks=2))
        await case.manager.submit(replace(app("wide"), jobs=(wide,)))
        await case.manager.submit(app("narrow"))
        ServiceCase(store)
        assert caplog.text == ""
        ServiceCase(store, policy="allox")

    run_instantly(scenario())
    assert "jobs of app-0001 wait until the policy changes: policy allox gives each job one device" in caplog.text
    assert "app-0002" not in caplog.text


class Counted(Value, frozen=True, kw_only=True):
    """What `Counting` remembers."""

    rounds: int
    share: dict[str, tuple[float, ...]]


class Counting:
    """A policy that grants nothing and counts its rounds."""

    name = "counting"
    rho_of = RhoOf.NO_APP
    memory_type = Counted

    def decide(self, snapshot):
        rounds = snapshot.memory.rounds if snapshot.memory else 0
        return Decision(memory=Counted(rounds=rounds + 1, share={"u": (1 / 3, 0.1)}))


def wants_two(round_id):
    """A report of an app that wants two GPUs, no fewer."""
    message = report(round_id)
    del message.demands[:]
    message.demands.append(
        pb.GangDemand(job_id="job-0", min_gpus=2, max_gpus=2, unit_gpus=1, slowdown=report(1).demands[0].slowdown)
    )
    return message


@pytest.mark.parametrize("stored", [None, {}, {"app-0001": {"reason": 3}}, ["app-0001"]])
def test_waits_that_cannot_be_read_are_unknown(stored):
    assert restored_waits(stored) == {}


def memory_after(store, *, policy):
    summary = read_summary(store)
    return restored_memory(summary.memory, policy, summary.memory_policy)


def store_of(policy, memory):
    """A store whose last round was under this policy."""
    store = MemoryStore()
    recorder = Recorder(store, VirtualClock(NOW_S))
    recorder.record("rm_started", detail={"policy": policy})
    recorder.record("round_granted", detail={"round_id": 1, "memory": msgspec.to_builtins(memory)})
    return store


class TestPolicyMemory:
    @pytest.fixture
    def store(self):
        """Two rounds under `Counting`."""

        async def scenario():
            store = MemoryStore()
            case = ServiceCase(store, decider=Counting())
            await case.started("mine")
            for _ in range(2):
                await case.round()
            return store

        return run_instantly(scenario())

    def test_it_survives_a_restart(self, store):
        again = ServiceCase(store, decider=Counting())
        assert again.arbiter.begin_round(NOW_S)[0].memory == Counted(rounds=2, share={"u": (1 / 3, 0.1)})

    def test_oef_remembers_the_same_after_a_restart(self):
        async def scenario():
            store = MemoryStore()
            case = ServiceCase(store, policy="oef")
            apps = [await case.started(name) for name in ("one", "two", "three", "four", "five")]

            def answers(round_id, body):
                return [(*app, pb.AmMessage(rho=wants_two(round_id))) for app in apps]

            await case.round(answers)
            return case, ServiceCase(store, policy="oef")

        case, again = run_instantly(scenario())
        memory = again.arbiter.begin_round(NOW_S)[0].memory
        assert memory == case.arbiter.begin_round(NOW_S)[0].memory
        assert memory.starved == {"app-0005": 1}

    def test_oef_shares_a_type_that_joins_and_goes_on_without_it_once_it_is_lost(self):
        async def scenario():
            store = MemoryStore()
            case = ServiceCase(store, policy="oef")
            apps = [await case.started(name) for name in ("one", "two", "three", "four", "five")]

            def answers(round_id, body):
                wanting = [app for app in apps if not case.arbiter.table.live_of(app[0].app_id)]
                return [(*app, pb.AmMessage(rho=wants_two(round_id))) for app in wanting]

            await case.round(answers)
            waiting = {app.app_id for app, _ in apps if not case.arbiter.table.live_of(app.app_id)}
            machine = Machine(machine_id="k0", rack_id="r0", slots=(2,), device="k80")
            wider = replace(
                case.arbiter.cluster,
                machines=(*case.arbiter.cluster.machines, machine),
                devices={**case.arbiter.cluster.devices, "k80": DeviceType(name="k80", speed=0.5)},
            )
            await case.manager.live_cluster.refit(wider, ["k0"])
            await case.round(answers)
            on_new = {lease.app_id for lease in case.arbiter.table.live.values() if lease.gpu.machine_id == "k0"}
            await case.manager.live_cluster.machine_lost("k0", "test")
            await case.round(answers)
            case.check()
            return waiting, on_new, memory_after(store, policy=make_policy("oef"))

        waiting, on_new, memory = run_instantly(scenario())
        assert len(waiting) == 1
        assert on_new == waiting
        assert memory.types == ("k80", "v100")
        assert waiting <= set(memory.tenants)

    def test_an_abandoned_round_does_not_change_it(self, store):
        Recorder(store, VirtualClock(NOW_S)).record("round_started", detail={"round_id": 3})
        assert memory_after(store, policy=Counting()).rounds == 2

    @pytest.mark.parametrize("stored", [{"rounds": "many", "share": {}}, {"rounds": 3}, [], 5, "x"])
    def test_unreadable_memory_is_logged_and_reset(self, store, stored, caplog):
        Recorder(store, VirtualClock(NOW_S)).record("round_granted", detail={"round_id": 3, "memory": stored})
        assert memory_after(store, policy=Counting()) is None
        assert "the policy counting starts without memory" in caplog.text

    def test_memory_of_another_policy_is_dropped_by_one_with_memory(self, store, caplog):
        assert memory_after(store, policy=make_policy("oef")) is None
        assert "what is stored is dropped, because another policy wrote it" in caplog.text

    def test_memory_of_another_policy_is_dropped_by_one_without_memory(self, store, caplog):
        assert memory_after(store, policy=make_policy("drf")) is None
        assert "the policy drf uses no memory" in caplog.text

    @pytest.mark.parametrize(
        ("former", "policy", "is_kept"),
        [("oef", "max_min", True), ("oef", "allox", False), ("allox", "oef", False), ("allox", "sjf_plus", True)],
    )
    def test_change_of_policy_is_logged_with_the_fate_of_its_memory(self, caplog, former, policy, is_kept):
        memory = OefPolicyMemory(rule=former, types=("k80",), shares=OefMemory()) if former == "oef" else AlloxMemory()
        store = store_of(former, memory)
        assert memory_after(store, policy=make_policy(policy)) == (memory if is_kept else None)
        verb = "kept" if is_kept else "dropped"
        assert f"the policy changed from {former} to {policy}: what {former} remembered is {verb}" in caplog.text

    def test_the_policy_of_a_start_without_a_round_does_not_count(self, caplog):
        memory = AlloxMemory(last_start_s={"u": 5.0})
        store = store_of("allox", memory)
        Recorder(store, VirtualClock(NOW_S)).record("rm_started", detail={"policy": "oef"})
        assert memory_after(store, policy=make_policy("allox")) == memory
        assert caplog.text == ""

    def test_a_later_round_without_memory_ends_it(self, store):
        Recorder(store, VirtualClock(NOW_S)).record("round_granted", detail={"round_id": 3})
        assert memory_after(store, policy=Counting()) is None


def test_key_that_cannot_be_kept_beside_the_store_stops_no_start(tmp_path, caplog):
    store, file = MemoryStore(), tmp_path / "refusals.key"
    file.with_suffix(".partial").mkdir()
    key = restored_entries(store, file).refusal_key
    assert not file.exists()
    assert restored_entries(store).refusal_key == key
    assert "cannot be kept beside the store" in caplog.text
