"""A store that cannot be written: nothing changes, callers are refused or wait, and all continues once it works."""

import asyncio
import gc
from contextlib import suppress

import pytest
from service_cases import SPEC, answer, known_token

from rm_plugin.service import changes as changes_module
from rm_plugin.service.memory_service import memory_service, until
from rm_plugin.service.status import app_status
from rm_plugin.service.store import StoreError
from themis.bids import PlacedGang
from themis.cluster import Allocation, GpuId, Level
from themis.lifecycle import AppState, LeaseState
from themis.wire import themis_pb2 as pb


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(changes_module, "PROBE_EVERY_S", 0.02)


def run(tmp_path, scenario, **choices):
    async def whole():
        async with memory_service(tmp_path, **choices) as rm:
            await scenario(rm)

    asyncio.run(asyncio.wait_for(whole(), 20))


async def grant(rm, app_id, gpus):
    """Lease GPUs outside a round."""

    def give(change):
        gang = PlacedGang(Allocation.of({"m0": gpus}), Level.MACHINE)
        change.leases(
            rm.arbiter.table.settle(
                {app_id: [gang]}, [], now_s=change.now_s, end_s=lambda begins_s: begins_s + 600, round_id=1
            )
        )

    await rm.manager.changes.make(give)
    return [lease.lease_id for lease in rm.arbiter.table.of_app(app_id)]


def break_store(rm):
    rm.store.trouble = "disk full"


async def broken(rm):
    """Make a store whose first write has failed."""
    break_store(rm)
    with suppress(StoreError):
        await rm.manager.submit(SPEC)
    assert rm.manager.changes.trouble


async def waits(coroutine):
    """Start this as a task, and check that it waits."""
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(0.1)
    assert not task.done()
    return task


def test_failed_submit_is_refused_and_leaves_nothing(tmp_path):
    async def scenario(rm):
        break_store(rm)
        with pytest.raises(StoreError, match="disk full"):
            await rm.manager.submit(SPEC)
        assert (list(rm.entries), rm.arbiter.active_apps, rm.launcher.launched, rm.kinds) == ([], (), [], [])
        rm.store.trouble = ""
        await rm.manager.changes.usable()
        entry = await rm.manager.submit(SPEC)
        assert entry.app_id == "app-0001"
        assert app_status(rm.manager, entry, whole=True).state == "ACCEPTED"

    run(tmp_path, scenario)


def test_app_is_visible_only_after_its_write(tmp_path):
    async def scenario(rm):
        rm.store.hold()
        submit = await waits(rm.manager.submit(SPEC))
        assert (list(rm.entries), rm.arbiter.active_apps) == ([], ())
        rm.store.let_go()
        await submit
        assert [entry.app_id for entry in rm.entries] == ["app-0001"]

    run(tmp_path, scenario)


def test_slow_write_does_not_block_loop(tmp_path):
    async def scenario(rm):
        entry, session = await rm.registered(SPEC)
        rm.store.hold()
        submit = await waits(rm.manager.submit(SPEC))
        async with asyncio.timeout(60):
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, heartbeat=pb.Heartbeat(progress=0.5)))
            await rm.manager.recorder.read_events(0, "", 10)
        assert entry.progress == 0.5
        rm.store.let_go()
        await submit

    run(tmp_path, scenario)


def test_failed_kill_is_refused_and_app_continues(tmp_path):
    async def scenario(rm):
        entry, _ = await rm.registered(SPEC)
        break_store(rm)
        with pytest.raises(StoreError):
            await rm.manager.kill(entry.app_id, "no longer wanted")
        rm.store.trouble = ""
        await rm.manager.changes.usable()
        await asyncio.sleep(0.05)
        assert (entry.kill_reason, entry.state, entry.app_id in rm.launcher.living) == ("", AppState.RUNNING, True)
        assert "app_kill_wanted" not in rm.kinds

    run(tmp_path, scenario)


def test_kill_completes_after_client_disconnects(tmp_path):
    async def scenario(rm):
        entry, _ = await rm.registered(SPEC)
        rm.store.hold()
        kill = await waits(rm.manager.kill(entry.app_id, "no longer wanted"))
        kill.cancel()
        await asyncio.sleep(0.02)
        rm.store.let_go()
        await until(lambda: entry.kill_reason == "no longer wanted")
        assert rm.kinds[-1] == "app_kill_wanted"

    run(tmp_path, scenario)


def test_registration_waits_for_its_write(tmp_path):
    async def scenario(rm):
        entry = await rm.manager.submit(SPEC)
        await broken(rm)
        message = pb.Register(app_id=entry.app_id, token=known_token(entry), attempt=1, pid=7)
        register = await waits(rm.manager.sessions.register(message))
        assert (entry.session, entry.state) == (None, AppState.ACCEPTED)
        rm.store.trouble = ""
        _, session = await register
        assert (entry.session, entry.state) == (session, AppState.RUNNING)

    run(tmp_path, scenario)


def test_registration_with_broken_stream_leaves_no_session(tmp_path):
    async def scenario(rm):
        entry = await rm.manager.submit(SPEC)
        rm.store.hold()
        message = pb.Register(app_id=entry.app_id, token=known_token(entry), attempt=1, pid=7)
        register = await waits(rm.manager.sessions.register(message))
        register.cancel()
        await asyncio.sleep(0.02)
        rm.store.let_go()
        await until(lambda: entry.state is AppState.RUNNING)
        assert entry.session is None
        snapshot, _ = rm.arbiter.begin_round(rm.clock.now_s())
        assert snapshot.apps[0].silent

    run(tmp_path, scenario)


def acknowledged(session):
    ids = []
    while not session._outgoing.empty():
        message = session._outgoing.get_nowait()
        if message is not None and message.WhichOneof("body") == "acknowledge":
            ids.append(message.acknowledge.of_id)
    return ids


def kept_messages(lease_ids):
    return [
        (pb.AmMessage(id=1, release=pb.Release(lease_ids=lease_ids, reason="done")), "lease_released"),
        (
            pb.AmMessage(id=1, job_event=pb.JobEvent(kind="job_state", job_id="job-0", detail='{"state": "RUNNING"}')),
            "job_state",
        ),
        (pb.AmMessage(id=1, finish=pb.Finish(state="FINISHED")), "app_state"),
    ]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_stored_message_is_acknowledged_after_its_write(tmp_path, which):
    async def scenario(rm):
        entry, session = await rm.registered(SPEC)
        lease_ids = await grant(rm, entry.app_id, 2)
        message, kind = kept_messages(lease_ids)[which]
        await broken(rm)
        before = rm.kinds
        receive = await waits(rm.manager.sessions.receive(entry, session, message))
        assert (acknowledged(session), rm.kinds, entry.state) == ([], before, AppState.RUNNING)
        assert {lease.state for lease in rm.arbiter.table.of_app(entry.app_id)} == {LeaseState.GRANTED}
        rm.store.trouble = ""
        await receive
        assert acknowledged(session) == [1]
        assert kind in rm.kinds[len(before) :]
        # It comes again after a break of the session, and is only acknowledged.
        written = rm.kinds
        await rm.manager.sessions.receive(entry, session, message)
        assert (acknowledged(session), rm.kinds) == ([1], written)

    run(tmp_path, scenario)


def test_leases_stay_held_if_their_end_cannot_be_written(tmp_path):
    async def scenario(rm):
        entry, _ = await rm.registered(SPEC)
        lease_ids = await grant(rm, entry.app_id, 3)
        before = (dict(rm.arbiter.table.live), rm.arbiter.attained_gpu_s(entry.app_id, 1_010.0))
        rm.clock.advance_to(1_010.0)
        break_store(rm)
        release = pb.Release(lease_ids=lease_ids)
        with pytest.raises(StoreError):
            await rm.manager.changes.make(lambda change: rm.manager.live_cluster.release(change, entry.app_id, release))
        assert (dict(rm.arbiter.table.live), rm.arbiter.attained_gpu_s(entry.app_id, 1_010.0)) == before
        rm.arbiter.validate()

    run(tmp_path, scenario)


def test_machine_is_lost_after_its_write(tmp_path):
    async def scenario(rm):
        entry, _ = await rm.registered(SPEC)
        await grant(rm, entry.app_id, 3)
        await broken(rm)
        lost = await waits(rm.manager.live_cluster.machine_lost("m0", "its switch died"))
        assert (rm.arbiter.table.lost, len(rm.arbiter.table.live)) == (frozenset(), 3)
        rm.store.trouble = ""
        await lost
        assert (rm.arbiter.table.lost, len(rm.arbiter.table.live)) == ({"m0"}, 0)

    run(tmp_path, scenario)


def test_no_lease_is_revoked_during_and_right_after_failed_writes(tmp_path):
    async def scenario(rm):
        entry, session = await rm.registered(SPEC)
        await broken(rm)
        rm.clock.advance_to(rm.clock.now_s() + 10 * rm.settings.am_expiry_s)
        rm.manager.app_masters.check_apps()
        await asyncio.sleep(0.05)
        assert (entry.attempt, entry.app_id in rm.launcher.living) == (1, True)
        rm.store.trouble = ""
        await rm.manager.changes.usable()
        rm.manager.app_masters.check_apps()
        await asyncio.sleep(0.05)
        assert (entry.attempt, entry.session) == (1, session)
        rm.clock.advance_to(rm.clock.now_s() + 2 * rm.settings.am_expiry_s)
        rm.manager.app_masters.check_apps()
        await until(lambda: entry.attempt == 2)

    run(tmp_path, scenario)


def test_app_master_that_dies_meanwhile_is_restarted_afterwards(tmp_path):
    async def scenario(rm):
        entry, _ = await rm.registered(SPEC)
        await broken(rm)
        died = await waits(rm.launcher.end(entry.app_id, 1))
        assert (entry.attempt, len(rm.launcher.launched)) == (1, 1)
        rm.store.trouble = ""
        await died
        assert (entry.attempt, len(rm.launcher.launched)) == (2, 2)
        assert rm.kinds[-2:] == ["am_lost", "am_started"]

    run(tmp_path, scenario)


def test_failed_writes_are_logged_once(tmp_path, caplog):
    async def scenario(rm):
        await broken(rm)
        for _ in range(5):
            with pytest.raises(StoreError, match="cannot write its store now"):
                await rm.manager.submit(SPEC)
            await asyncio.sleep(0.03)
        rm.store.trouble = ""
        await rm.manager.changes.usable()
        messages = [record.getMessage() for record in caplog.records if record.name == "themis.rm.store"]
        assert [message.split(";")[0] for message in messages] == [
            "the store cannot be written: 'disk full'",
            "the store can be written again",
        ]

    run(tmp_path, scenario)


@pytest.mark.parametrize("writes", range(6))
def test_round_with_failed_write_is_repeated(tmp_path, writes):
    """The store fails after this many writes of the round: at its start, within, at its grants, at its end."""

    async def scenario(rm):
        entry, session = await rm.registered(SPEC)
        rm.rounds._reasons.clear()
        answering = asyncio.ensure_future(answer(rm, entry, session))
        rm.store.break_after(writes, "disk full")
        playing = asyncio.ensure_future(rm.rounds.run())
        rm.rounds.trigger("demand")
        await until(lambda: bool(rm.manager.changes.trouble) or "round_ended" in rm.kinds)
        await asyncio.sleep(0.05)
        held = [lease.gpu for lease in rm.store.leases()]
        assert [lease.gpu for lease in rm.arbiter.table.live.values()] == held
        rm.store.trouble = ""
        await until(lambda: len(rm.arbiter.table.live) == 1 and rm.kinds[-1] == "round_ended")
        assert rm.kinds.count("round_started") == rm.kinds.count("round_ended")
        assert [lease.gpu for lease in rm.store.leases()] == [GpuId("m0", 0)]
        for task in (playing, answering):
            task.cancel()
        await asyncio.gather(playing, answering, return_exceptions=True)

    run(tmp_path, scenario)


def test_service_stops_while_loss_waits_for_store(tmp_path):
    async def scenario(rm):
        entry, _ = await rm.registered(SPEC)
        await broken(rm)
        died = await waits(rm.launcher.end(entry.app_id, 1))
        async with asyncio.timeout(60):
            await rm.close()
            await died
        assert (entry.attempt, "am_lost" in rm.kinds) == (1, False)

    run(tmp_path, scenario)


def test_error_in_test_write_does_not_end_retries(tmp_path, monkeypatch):
    async def scenario(rm):
        await broken(rm)
        probe, failed = rm.manager.recorder.probe, []

        async def probe_that_fails_once():
            if not failed:
                failed.append(True)
                raise RuntimeError("a defect")
            await probe()

        monkeypatch.setattr(rm.manager.recorder, "probe", probe_that_fails_once)
        rm.store.trouble = ""
        async with asyncio.timeout(60):
            await rm.manager.changes.usable()
        assert failed

    run(tmp_path, scenario)


def test_error_of_a_change_whose_caller_is_gone_is_not_logged_as_lost(tmp_path):
    async def scenario(rm):
        lost = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context["message"]))
        rm.store.hold()
        submit = await waits(rm.manager.submit(SPEC))
        submit.cancel()
        break_store(rm)
        rm.store.let_go()
        await until(lambda: rm.manager.changes.trouble)
        del submit
        gc.collect()
        await asyncio.sleep(0.05)
        assert lost == []

    run(tmp_path, scenario)


def test_registration_cancelled_in_effect_leaves_no_session(tmp_path, monkeypatch):
    async def scenario(rm):
        entry = await rm.manager.submit(SPEC)
        message = pb.Register(app_id=entry.app_id, token=known_token(entry), attempt=1, pid=7)
        register = asyncio.ensure_future(rm.manager.sessions.register(message))
        greet = rm.manager.sessions._greet

        def cancelled_now(*arguments):
            greet(*arguments)
            register.cancel()

        monkeypatch.setattr(rm.manager.sessions, "_greet", cancelled_now)
        with suppress(asyncio.CancelledError):
            await register
        assert register.cancelled()
        assert entry.session is None

    run(tmp_path, scenario)
