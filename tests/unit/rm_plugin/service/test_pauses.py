"""Pausing and resuming apps, over memory adapters: what is written, what is asked of the app master, what it costs."""

import asyncio
import logging

import pytest
from instant_loop import run_instantly
from service_cases import app, heartbeat, registration

from rm_plugin.service import app_masters
from rm_plugin.service.memory_service import MemoryService, memory_service, until
from rm_plugin.service.status import app_status
from rm_plugin.service.store import StoreError
from themis.bids import PlacedGang
from themis.cluster import Allocation, Level
from themis.errors import InputError, UnreachableError
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb


def run(tmp_path, scenario, **settings):
    async def whole():
        async with memory_service(tmp_path, **settings) as rm:
            await scenario(rm)

    run_instantly(whole())


def shut_downs(session):
    found = []
    while not session._outgoing.empty():
        message = session._outgoing.get_nowait()
        if message is not None and message.WhichOneof("body") == "shut_down":
            found.append(message.shut_down)
    return found


async def grant(rm, entry, gpus):
    gangs = {entry.app_id: [PlacedGang(Allocation.of({"m0": gpus}), Level.MACHINE)]}
    settle = rm.arbiter.table.settle
    await rm.manager.changes.make(
        lambda change: change.leases(settle(gangs, [], now_s=change.now_s, end_s=lambda at_s: at_s + 600, round_id=1))
    )


async def finish(rm, entry, session, state="PAUSED", number=1):
    await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=number, finish=pb.Finish(state=state)))


async def paused(rm, spec=None):
    entry, session = await rm.registered(spec or app("mine"))
    await rm.manager.pause(entry.app_id)
    await finish(rm, entry, session)
    return entry


class TestPause:
    def test_running_app_is_asked_to_pause_and_keeps_its_gpus_until_it_has_stopped(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            await grant(rm, entry, 2)
            await rm.manager.pause(entry.app_id, by="carol")
            (message,) = shut_downs(session)
            assert (message.pause, message.reason) == (True, "paused by carol")
            assert entry.state is AppState.RUNNING
            assert len(rm.arbiter.table.live) == 2
            await finish(rm, entry, session)
            assert entry.state is AppState.PAUSED
            assert not rm.arbiter.table.live
            assert rm.arbiter.active_count == 0
            assert (entry.diagnostics, entry.pause_reason) == ("paused by carol", "")

        run(tmp_path, scenario)

    def test_second_pause_changes_nothing(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            await rm.manager.pause(entry.app_id, by="carol")
            assert await rm.manager.pause(entry.app_id, "later") is entry
            wanted = [event.detail for event in rm.store.events() if event.kind == "app_pause_wanted"]
            assert wanted == [{"reason": "paused by carol", "user": "carol"}]
            assert [message.reason for message in shut_downs(session)] == ["paused by carol"]

        run(tmp_path, scenario)

    def test_paused_app_wants_nothing_and_shows_no_running_job(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, heartbeat=heartbeat()))
            await rm.manager.pause(entry.app_id)
            await finish(rm, entry, session, number=2)
            late = pb.AmMessage(id=3, heartbeat=heartbeat())
            await rm.manager.sessions.receive(entry, session, late)
            assert entry.heartbeat.unmet_gpus == 0
            assert [(job.state, job.gpus) for job in entry.jobs] == [("WAITING", 0)]
            status = app_status(rm.manager, entry, whole=True)
            assert (status.state, status.gpus, status.progress) == ("PAUSED", 0, 0.5)
            assert "submarine app resume app-0001" in status.waits_for

        run(tmp_path, scenario)

    def test_pause_that_cannot_be_written_changes_nothing(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            rm.store.trouble = "disk full"
            with pytest.raises(StoreError):
                await rm.manager.pause(entry.app_id)
            rm.store.trouble = ""
            assert entry.pause_reason == ""
            assert not shut_downs(session)

        run(tmp_path, scenario)

    def test_app_master_that_the_engine_ends_meanwhile_has_paused(self, tmp_path):
        """It reports a kill then, which nobody asked for."""

        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            await rm.manager.pause(entry.app_id)
            await finish(rm, entry, session, "KILLED")
            assert entry.state is AppState.PAUSED

        run(tmp_path, scenario)

    def test_app_that_finishes_meanwhile_is_finished(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            await rm.manager.pause(entry.app_id)
            await finish(rm, entry, session, "FINISHED")
            assert entry.state is AppState.FINISHED

        run(tmp_path, scenario)

    def test_app_master_that_does_not_stop_is_killed_and_its_app_paused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(app_masters.AppMasters, "_pause_grace_s", 0.01)

        async def scenario(rm):
            entry, _session = await rm.registered(app("mine"))
            await grant(rm, entry, 2)
            await rm.manager.pause(entry.app_id)
            await until(lambda: entry.state is AppState.PAUSED)
            assert not rm.launcher.living
            assert not rm.arbiter.table.live

        run(tmp_path, scenario)

    @pytest.mark.parametrize(("lead_s", "lease_grace_s", "grace_s"), [(40.0, 20.0, 60.0), (1.0, 2.0, 10.0)])
    def test_it_has_the_time_of_an_ending_lease_but_ten_seconds_at_least(
        self, tmp_path, lead_s, lease_grace_s, grace_s
    ):
        async def scenario(rm):
            assert rm.manager.app_masters._pause_grace_s == grace_s

        run(tmp_path, scenario, lease={"checkpoint_lead_s": lead_s, "grace_s": lease_grace_s})

    def test_kill_of_an_app_that_is_about_to_pause_wins(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            await rm.manager.pause(entry.app_id)
            await rm.manager.kill(entry.app_id, "")
            assert [message.pause for message in shut_downs(session)] == [True, False]
            await finish(rm, entry, session)
            assert entry.state is AppState.KILLED

        run(tmp_path, scenario)

    def test_paused_app_can_be_killed(self, tmp_path):
        async def scenario(rm):
            entry = await paused(rm)
            await rm.manager.kill(entry.app_id, "")
            assert entry.state is AppState.KILLED
            assert entry not in rm.entries.living()

        run(tmp_path, scenario)

    def test_ended_app_cannot_be_paused(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            await finish(rm, entry, session, "FINISHED")
            with pytest.raises(InputError, match="cannot be paused"):
                await rm.manager.pause(entry.app_id)

        run(tmp_path, scenario)

    def test_app_master_cannot_pause_its_app_by_itself(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            await finish(rm, entry, session)
            assert entry.state is AppState.RUNNING
            assert entry.refused_messages == 1

        run(tmp_path, scenario)


class TestPauseInAnEngine:
    def test_app_whose_app_master_waits_in_the_engines_queue_is_paused_at_once(self, tmp_path):
        async def scenario(rm):
            entry = await rm.manager.submit(app("mine"))
            rm.launcher.queued[entry.app_id] = "waits in YARN's queue"
            rm.manager.app_masters.check_apps()
            assert entry.launch_wait
            await rm.manager.pause(entry.app_id)
            await until(lambda: entry.state is AppState.PAUSED)
            assert not rm.launcher.living
            await rm.manager.resume(entry.app_id)
            assert rm.launcher.living[entry.app_id].launch.attempt == 2
            assert not entry.attempt_losses.failed_at_s

        run(tmp_path, scenario)

    @pytest.mark.parametrize("started", [True, False])
    def test_pause_is_done_once_an_engine_that_was_away_is_back(self, tmp_path, monkeypatch, started, caplog):
        """Until then something of the app may run: it keeps its GPUs, and cannot be resumed."""
        monkeypatch.setattr(app_masters, "KILL_GRACE_S", 0.01)
        caplog.set_level(logging.INFO)
        asked = []

        async def unavailable(*_):
            asked.append(None)
            raise UnreachableError("YARN is unavailable")

        async def scenario(rm):
            with monkeypatch.context() as away:
                if not started:
                    away.setattr(rm.launcher, "launch", unavailable)
                entry = await rm.manager.submit(app("mine"))
                await grant(rm, entry, 2)
                away.setattr(rm.launcher, "kill", unavailable)
                asked.clear()
                caplog.clear()
                await rm.manager.pause(entry.app_id)
                await until(lambda: len(asked) > 2)
                rm.manager.app_masters.check_apps()
                assert (entry.state, len(rm.arbiter.table.live)) == (AppState.ACCEPTED, 2)
                with pytest.raises(InputError, match="not paused yet"):
                    await rm.manager.resume(entry.app_id)
            await until(lambda: entry.state is AppState.PAUSED)
            assert not rm.launcher.living
            assert not rm.arbiter.table.live
            assert not entry.attempt_losses.failed_at_s
            # One line as the outage begins, and one as it ends: no traceback for each try.
            assert [(record.levelname, record.exc_info) for record in caplog.records] == [
                ("WARNING", None),
                ("INFO", None),
            ]

        run(tmp_path, scenario)

    def test_app_that_is_resumed_while_its_start_is_still_in_flight_has_one_app_master(self, tmp_path, monkeypatch):
        """The engine knows nothing yet of a start that it has not received, so a kill finds nothing."""
        received = asyncio.Event()

        async def scenario(rm):
            launch = rm.launcher.launch

            async def launch_slowly(order):
                if order.attempt == 1:
                    await received.wait()
                return await launch(order)

            monkeypatch.setattr(rm.launcher, "launch", launch_slowly)
            entry = await rm.manager.submit(app("mine"))
            await rm.manager.pause(entry.app_id)
            await asyncio.sleep(1.0)
            with pytest.raises(InputError, match="not paused yet"):
                await rm.manager.resume(entry.app_id)
            received.set()
            await until(lambda: entry.state is AppState.PAUSED)
            assert not rm.launcher.living
            await rm.manager.resume(entry.app_id)
            assert [am.attempt for am in rm.launcher.launched] == [1, 2]
            assert rm.launcher.living[entry.app_id].attempt == entry.attempt == 2

        run(tmp_path, scenario)

    def test_app_master_that_the_engine_restarts_during_a_pause_gets_no_longer(self, tmp_path, monkeypatch):
        monkeypatch.setattr(app_masters.AppMasters, "_pause_grace_s", 0.1)

        async def scenario(rm):
            entry, _session = await rm.registered(app("mine"))
            await rm.manager.pause(entry.app_id)
            rm.launcher.restarted[entry.app_id] = 2
            _, session = await rm.manager.sessions.register(registration(entry, attempt=2, pid=4712))
            assert [message.pause for message in shut_downs(session)] == [True]
            await until(lambda: entry.state is AppState.PAUSED)
            assert not rm.launcher.living

        run(tmp_path, scenario)


class TestResume:
    def test_attempts_that_the_engine_made_after_the_pause_are_no_loss(self, tmp_path):
        """YARN starts an app master again that it could not take leave of, up to a resume."""

        async def scenario(rm):
            entry = await paused(rm)
            rm.launcher.restarted[entry.app_id] = 2
            await rm.manager.resume(entry.app_id)
            assert [am.attempt for am in rm.launcher.launched] == [1, 2]
            assert "am_lost" not in rm.kinds
            assert entry.is_active

        run(tmp_path, scenario)

    def test_resumed_app_starts_its_next_attempt_and_loses_none(self, tmp_path):
        async def scenario(rm):
            entry = await paused(rm)
            rm.clock.advance_to(rm.clock.now_s() + 500.0)
            await rm.manager.resume(entry.app_id, by="carol")
            assert entry.state is AppState.ACCEPTED
            assert rm.launcher.living[entry.app_id].launch.attempt == 2
            assert rm.launcher.launched[-1].launch.attempts_left == rm.settings.am_max_attempts
            assert rm.arbiter.active_apps == (entry.app_id,)
            (resumed,) = [event for event in rm.store.events() if event.kind == "app_resumed"]
            assert resumed.detail == {"user": "carol"}

        run(tmp_path, scenario)

    def test_time_of_a_pause_counts_for_no_fairness(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            rm.clock.advance_to(rm.clock.now_s() + 100.0)
            await rm.manager.pause(entry.app_id)
            await finish(rm, entry, session)
            rm.clock.advance_to(rm.clock.now_s() + 500.0)
            await rm.manager.resume(entry.app_id)
            assert entry.arrived_at_s == entry.submitted_at_s + 500.0
            again, session = await rm.manager.sessions.register(registration(entry))
            welcome = session._outgoing.get_nowait().registered
            assert welcome.now_s - welcome.submitted_at_s == pytest.approx(100.0)
            assert again.state is AppState.RUNNING

        run(tmp_path, scenario)

    def test_gpu_time_goes_on_from_before_the_pause(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            await grant(rm, entry, 2)
            rm.clock.advance_to(rm.clock.now_s() + 10.0)
            await rm.manager.pause(entry.app_id)
            await finish(rm, entry, session)
            assert entry.gpu_time_s == pytest.approx(20.0)
            await rm.manager.resume(entry.app_id)
            assert rm.arbiter.attained_gpu_s(entry.app_id, rm.clock.now_s()) == pytest.approx(20.0)

        run(tmp_path, scenario)

    def test_app_that_is_not_paused_is_refused(self, tmp_path):
        async def scenario(rm):
            entry, _session = await rm.registered(app("mine"))
            with pytest.raises(InputError, match="is not paused"):
                await rm.manager.resume(entry.app_id)
            await rm.manager.pause(entry.app_id)
            with pytest.raises(InputError, match="not paused yet"):
                await rm.manager.resume(entry.app_id)

        run(tmp_path, scenario)


class TestRestart:
    def test_paused_app_stays_paused_and_can_be_resumed(self, tmp_path):
        async def scenario(rm):
            entry = await paused(rm)
            after = MemoryService(tmp_path, store=rm.store, clock=rm.clock)
            await after.manager.app_masters.recover()
            again = after.entries.get(entry.app_id)
            assert (again.state, again.paused_at_s) == (AppState.PAUSED, entry.paused_at_s)
            assert not after.launcher.launched
            assert after.arbiter.active_count == 0
            await after.manager.resume(entry.app_id)
            assert after.launcher.living[entry.app_id].launch.attempt == 2
            await after.close()

        run(tmp_path, scenario)

    @pytest.mark.parametrize("stops", [True, False])
    def test_app_master_that_lives_is_asked_again_to_stop_for_the_pause(self, tmp_path, monkeypatch, stops):
        monkeypatch.setattr(app_masters.AppMasters, "_pause_grace_s", 10.0 if stops else 0.1)

        async def scenario():
            async with memory_service(tmp_path) as rm:
                entry, _session = await rm.registered(app("mine"))
                await grant(rm, entry, 2)
                await rm.manager.pause(entry.app_id, by="carol")
                living = dict(rm.launcher.living)
            async with memory_service(tmp_path, store=rm.store, clock=rm.clock) as after:
                after.launcher.living = living
                await after.manager.app_masters.recover()
                entry, session = await after.manager.sessions.register(registration(after.entries.get(entry.app_id)))
                (message,) = shut_downs(session)
                assert (message.pause, message.reason) == (True, "paused by carol")
                if stops:
                    await finish(after, entry, session)
                await until(lambda: entry.state is AppState.PAUSED)
                assert (entry.diagnostics, entry.attempt_losses.failed_at_s) == ("paused by carol", ())
                assert not after.arbiter.table.live
                assert stops or not after.launcher.living

        run_instantly(scenario())

    def test_pause_completes_if_the_resource_manager_stops_first(self, tmp_path):
        async def scenario(rm):
            entry, _session = await rm.registered(app("mine"))
            await rm.manager.pause(entry.app_id)
            # Its app master is gone: the new launcher knows of none.
            after = MemoryService(tmp_path, store=rm.store, clock=rm.clock)
            await after.manager.app_masters.recover()
            again = after.entries.get(entry.app_id)
            assert again.state is AppState.PAUSED
            assert not again.attempt_losses.failed_at_s
            await after.close()

        run(tmp_path, scenario)
