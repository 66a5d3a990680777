"""Apps wait without an app master: the agent host answers for them, until a round gives them GPUs."""

import asyncio
import json
import math
import os
import signal
import struct
import subprocess

import pytest
from hosted_cases import InlineHost, negotiate, specs
from msgspec.structs import replace
from service_cases import CLUSTER, NOW_S, ServiceCase, registration

from am.app import App
from am.app_view import view_to_bytes
from am.journal import Journal
from am.journal_store import EmptyJournal
from rm_plugin.service import app_masters
from rm_plugin.service.grant_limit import NO_GRANT_LIMIT, GrantLimit
from rm_plugin.service.host_process import HOST_COMMAND, HostLostError, HostProcess
from rm_plugin.service.memory_service import until
from rm_plugin.service.status import app_status
from rm_plugin.service.store_memory import MemoryStore
from themis.cluster import Cluster, Machine
from themis.errors import InputError, UnreachableError
from themis.lifecycle import WAITING, AppState, LeaseState
from themis.wire import themis_pb2 as pb
from themis.wire.app_status import shown_state
from themis.wire.values import cluster_to_message

SPECS = tuple(specs())
BIG = Cluster(
    name="big",
    machines=tuple(
        Machine(machine_id=f"m{place}", rack_id=f"r{place // 2}", slots=(2, 2), device="v100") for place in range(4)
    ),
    devices=CLUSTER.devices,
)


def case(tmp_path, host=None, *, store=None, **settings):
    return ServiceCase(
        store or MemoryStore(),
        folder=tmp_path,
        host=host or InlineHost(),
        **{"app_masters": "at_grant", "report_deadline_s": 5.0, "bid_deadline_s": 5.0, **settings},
    )


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, 110))


async def entered(service):
    await until(lambda: not service.manager.hosted._to_enter)


def rounds_of(service):
    """What the rounds decided, without times that were measured."""
    found = []
    for event in service.recorder.store.events():
        if event.kind.startswith("round_") and event.kind != "round_ended":
            detail = json.loads(json.dumps(dict(event.detail)))
            for bid in detail.get("bids", {}).values():
                bid.pop("prepare_ms")
            for measured in ("solve_ms", "decide_ms"):
                detail.pop(measured, None)
            found.append((event.kind, detail))
    return found


@pytest.mark.parametrize("policy", ["themis", "fair_finish", "tiresias", "oef"])
def test_round_decides_the_same_with_the_host_and_with_app_masters(tmp_path, policy):
    async def decided(app_masters):
        service = case(tmp_path, cluster=BIG, policy=policy, app_masters=app_masters)
        speakers = []
        for number, spec in enumerate(SPECS):
            service.clock.advance_to(NOW_S + 10.0 * number)
            entry = await service.manager.submit(spec)
            if app_masters == "at_submit":
                entry, session = await service.manager.sessions.register(registration(entry))
                speakers.append(asyncio.ensure_future(negotiate(service, entry, session, tmp_path)))
                # It reads the welcome, and sets its clock by it, before the time goes on.
                await until(session._outgoing.empty)
        service.clock.advance_to(NOW_S + 1_000.0)
        await service.rounds._play(["test"])
        wanted = len(SPECS if app_masters == "at_submit" else _winners(service))
        await until(lambda: len(service.launcher.launched) == wanted)
        for speaker in speakers:
            speaker.cancel()
        await service.manager.hosted.close()
        return rounds_of(service)

    decisions = run(decided("at_grant"))
    assert decisions == run(decided("at_submit"))
    assert {kind for kind, _ in decisions} >= {"round_started", "round_reported", "round_granted"}
    assert decisions[-1][1]["auction"] or decisions[-1][1]["leftovers"]


def _winners(service):
    return {lease.app_id for entry in service.entries for lease in service.arbiter.table.of_app(entry.app_id)}


def test_burst_of_submissions_starts_no_app_master(tmp_path):
    async def scenario():
        service = case(tmp_path)
        for _ in range(1_000):
            await service.manager.submit(SPECS[0])
        await entered(service)
        assert service.launcher.launched == []
        assert len(service.manager.hosted) == 1_000
        await service.manager.hosted.close()

    run(scenario())


def test_waiting_app_is_shown_with_its_rank_and_reason(tmp_path):
    async def scenario():
        service = case(tmp_path)
        apps = [await service.manager.submit(spec) for spec in SPECS[:3]]
        await entered(service)
        status = app_status(service.manager, apps[1], whole=True)
        assert shown_state(status) == WAITING
        assert [job.state for job in status.jobs] == ["WAITING"]
        assert (status.waiting.of, bool(status.waiting.rank), bool(status.waiting.reason)) == (3, True, True)
        assert status.estimate.end_s.median > 0.0
        service.check()
        await service.manager.hosted.close()

    run(scenario())


def test_app_master_starts_with_the_first_grant_and_takes_over(tmp_path):
    async def scenario():
        service = case(tmp_path)
        entry = await service.manager.submit(SPECS[0])
        await service.rounds._play(["test"])
        await until(lambda: bool(service.launcher.launched))
        assert entry.app_id not in service.manager.hosted
        # Until it registers, the app is asked for nothing.
        assert service.arbiter._apps[entry.app_id].silent
        await service.manager.sessions.register(registration(entry))
        assert (entry.state, entry.attempt) == (AppState.RUNNING, 1)
        assert not service.arbiter._apps[entry.app_id].silent
        (message,) = [entry.session._outgoing.get_nowait() for _ in range(1)]
        assert message.registered.leases.leases
        service.manager.app_masters.check_apps()
        service.check()
        await service.manager.hosted.close()

    run(scenario())


SHORT = {"duration_s": 10.0, "checkpoint_lead_s": 1.0, "grace_s": 1.0}


def test_first_lease_that_is_shorter_than_the_start_of_the_app_master_waits_for_it_at_most_am_start_s(tmp_path):
    async def scenario():
        service = case(tmp_path, lease=SHORT, am_start_s=60.0)
        entry = await service.manager.submit(SPECS[0])
        await service.rounds._play(["test"])
        await until(lambda: bool(service.launcher.launched))
        (lease,) = service.arbiter.table.of_app(entry.app_id)
        while lease.state is not LeaseState.EXPIRING:
            service.clock.advance_to(lease.expires_at_s - 0.5)
            await service.rounds._play(["test"])
            (lease,) = service.arbiter.table.of_app(entry.app_id)
        # Once it may not start any more, it waits once more as of any app whose master is unavailable.
        assert 60.0 < lease.expires_at_s - NOW_S <= 80.0
        await service.manager.hosted.close()

    run(scenario())


def test_time_to_register_counts_from_the_grant_and_not_from_the_wait(tmp_path, monkeypatch):
    """The engine takes its time, and the app has waited for a day."""

    async def scenario():
        service = case(tmp_path)
        launches = asyncio.Event()

        async def slow(_launch):
            launches.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(service.launcher, "launch", slow)
        await service.manager.submit(SPECS[0])
        await entered(service)
        service.clock.advance_to(NOW_S + 86_400.0)
        await service.rounds._play(["test"])
        await launches.wait()
        service.manager.app_masters.check_apps()
        assert not service.manager.app_masters._being_checked
        await service.manager.app_masters.close()

    run(scenario())


def test_watch_does_not_miss_the_app_master_of_an_app_that_waits(tmp_path):
    async def scenario():
        service = case(tmp_path)
        entry = await service.manager.submit(SPECS[0])
        service.clock.advance_to(NOW_S + 100_000.0)
        service.manager.app_masters.check_apps()
        await entered(service)
        assert (entry.state, service.launcher.launched) == (AppState.ACCEPTED, [])
        await service.manager.hosted.close()

    run(scenario())


def test_check_looks_at_no_hosted_app(tmp_path, monkeypatch):
    async def scenario():
        service = case(tmp_path)
        apps = [await service.manager.submit(spec) for spec in SPECS]
        await service.rounds._play(["test"])
        await until(lambda: len(service.launcher.launched) == len(_winners(service)))
        looked = []
        monkeypatch.setattr(
            service.manager.app_masters.watch, "_due", lambda entry, now_s, overdue: looked.append(entry.app_id)
        )
        service.manager.app_masters.check_apps()
        assert set(looked) == _winners(service) != {entry.app_id for entry in apps}
        await service.manager.hosted.close()

    run(scenario())


def test_cluster_is_one_message_until_it_changes(tmp_path):
    async def scenario():
        service = case(tmp_path, cluster=BIG)
        before = service.manager.live_cluster.registered()
        assert service.manager.live_cluster.registered() is before
        service.arbiter.machine_lost("m1", now_s=NOW_S, reason="a test")
        after = service.manager.live_cluster.registered()
        assert (before.gpus_available, after.gpus_available) == (16, 12)
        assert service.manager.live_cluster.registered() is after
        await service.manager.hosted.close()

    run(scenario())


def test_leases_that_run_out_before_the_app_master_has_its_turn_are_taken_back(tmp_path):
    async def scenario():
        service = case(tmp_path, am_starts_at_once=1, cluster=BIG)
        apps = [await service.manager.submit(SPECS[0]) for _ in range(2)]
        await service.rounds._play(["test"])
        await until(lambda: bool(service.launcher.launched))
        (late,) = [entry for entry in apps if entry.app_id not in service.launcher.living]
        # They are prolonged once for an app master that is not there, and expire then.
        for _ in range(2):
            service.clock.advance_to(service.arbiter.table.of_app(late.app_id)[0].expires_at_s)
            await service.rounds._play(["test"])
        service.clock.advance_to(service.clock.now_s() + 1_000.0)
        for entry in apps:
            entry.last_seen_s = service.clock.now_s()
        service.manager.app_masters.check_apps()
        await until(lambda: not service.arbiter.table.of_app(late.app_id))
        assert (late.state, late.attempt) == (AppState.ACCEPTED, 0)
        service.check()
        await service.manager.hosted.close()

    run(scenario())


def test_waiting_app_that_is_killed_ends_without_an_app_master(tmp_path):
    async def scenario():
        service = case(tmp_path)
        entry = await service.manager.submit(SPECS[0])
        await service.manager.kill(entry.app_id, "")
        await until(lambda: entry.ended)
        assert (entry.state, service.launcher.launched) == (AppState.KILLED, [])
        assert len(service.manager.hosted) == 0
        await service.rounds._play(["test"])
        service.check()
        await service.manager.hosted.close()

    run(scenario())


def test_app_that_is_paused_before_its_first_grant_waits_again_after_the_pause(tmp_path):
    async def scenario():
        service = case(tmp_path)
        entry = await service.manager.submit(SPECS[0])
        await service.manager.pause(entry.app_id)
        await until(lambda: entry.state is AppState.PAUSED)
        assert len(service.manager.hosted) == 0
        service.clock.advance_to(NOW_S + 500.0)
        await service.manager.resume(entry.app_id)
        await entered(service)
        assert (entry.state, service.launcher.launched) == (AppState.ACCEPTED, [])
        await service.rounds._play(["test"])
        (reported,) = [detail for kind, detail in rounds_of(service) if kind == "round_reported"]
        assert reported["absent"] == []
        await until(lambda: bool(service.launcher.launched))
        await service.manager.hosted.close()

    run(scenario())


def test_restart_hosts_apps_again_that_never_had_an_app_master(tmp_path):
    async def scenario():
        store = MemoryStore()
        first = case(tmp_path, store=store)
        waiting, killed = [await first.manager.submit(spec) for spec in SPECS[:2]]
        await first.manager.kill(killed.app_id, "")
        await until(lambda: killed.ended)
        await first.manager.hosted.close()
        second = case(tmp_path, store=store)
        assert await second.manager.app_masters.recover() == 0
        await second.rounds._play(["test"])
        await until(lambda: bool(second.launcher.launched))
        assert [am.app_id for am in second.launcher.launched] == [waiting.app_id]
        await second.manager.hosted.close()

    run(scenario())


def test_restart_starts_the_app_master_of_an_app_that_was_granted_gpus(tmp_path):
    async def scenario():
        store = MemoryStore()
        first = case(tmp_path, store=store)
        entry = await first.manager.submit(SPECS[0])
        first.manager.app_masters.start_granted = lambda changes: None
        await first.rounds._play(["test"])
        assert first.arbiter.table.of_app(entry.app_id)
        await first.manager.hosted.close()
        second = case(tmp_path, store=store)
        await second.manager.app_masters.recover()
        assert [am.app_id for am in second.launcher.launched] == [entry.app_id]
        await second.manager.hosted.close()

    run(scenario())


class PoisonedHost(InlineHost):
    """It is lost whenever the app `poison` enters, as by a search of its that takes for ever."""

    async def ask(self, request):
        if any(app.spec.name == "poison" for app in request.enter):
            self.losses = 1
        return await super().ask(request)


def test_app_that_ends_the_host_gets_its_app_master_and_the_others_are_answered_for(tmp_path):
    async def scenario():
        service = case(tmp_path, PoisonedHost())
        first, poison, last = [
            await service.manager.submit(spec) for spec in (SPECS[0], replace(SPECS[1], name="poison"), SPECS[2])
        ]
        await until(lambda: poison.attempt == 1)
        await entered(service)
        assert poison.app_id not in service.manager.hosted
        assert (first.attempt, last.attempt) == (0, 0)
        assert service.manager.hosted._first_reports.keys() == {first.app_id, last.app_id}

    run(scenario())


def test_after_a_loss_the_apps_that_did_not_enter_with_it_enter_together(tmp_path):
    entered_together = []

    class WatchedHost(PoisonedHost):
        async def ask(self, request):
            entered_together.append(len(request.enter))
            return await super().ask(request)

    async def scenario():
        service = case(tmp_path, WatchedHost())
        hosted = service.manager.hosted
        poison = await service.manager.submit(replace(SPECS[1], name="poison"))
        await until(lambda: hosted._suspects == {poison.app_id})
        for spec in SPECS[:3]:
            await service.manager.submit(spec)
        await until(lambda: poison.attempt == 1)
        await entered(service)
        # The app that is suspected enters last.
        assert max(entered_together) > 1 and not hosted._suspects

    run(scenario())


@pytest.mark.parametrize("losses", [1, 2])
def test_lost_host_is_replaced_within_a_round(tmp_path, losses):
    async def scenario():
        host = InlineHost()
        service = case(tmp_path, host)
        apps = [await service.manager.submit(spec) for spec in SPECS[:3]]
        await entered(service)
        host.losses = losses
        await service.rounds._play(["test"])
        (reported,) = [detail for kind, detail in rounds_of(service) if kind == "round_reported"]
        # The first one is asked again, of the second the reports are missing, and another round will ask.
        assert len(reported["absent"]) == (0 if losses == 1 else len(apps))
        assert service.rounds._unanswered == (losses == 2)
        await service.rounds._play(["test"])
        assert service.launcher.launched
        await service.manager.hosted.close()

    run(scenario())


def test_app_that_the_host_cannot_evaluate_gets_its_app_master(tmp_path):
    async def scenario():
        host = InlineHost()
        service = case(tmp_path, host)
        host._host._first_report = lambda message: 1 / 0
        entry = await service.manager.submit(SPECS[0])
        await until(lambda: bool(service.launcher.launched))
        assert entry.app_id not in service.manager.hosted
        await service.manager.hosted.close()

    run(scenario())


def test_changed_machines_let_all_apps_enter_anew(tmp_path):
    async def scenario():
        host = InlineHost()
        service = case(tmp_path, host, cluster=BIG)
        for spec in SPECS[:3]:
            await service.manager.submit(spec)
        await entered(service)
        await service.manager.live_cluster.machine_lost("m0", "the test takes it")
        await service.rounds._play(["test"])
        assert [len(request.enter) for request in host.requests if request.HasField("cluster")][-1] == 3
        (reported,) = [detail for kind, detail in rounds_of(service) if kind == "round_reported"]
        assert reported["absent"] == []
        await service.manager.hosted.close()

    run(scenario())


class TestResting:
    """An app master that has held no GPUs for long leaves its app to the host."""

    @staticmethod
    async def idle(service, spec=SPECS[0]):
        """An app with an app master and without GPUs, and the view of it."""
        entry = await service.manager.submit(spec)
        await service.rounds._play(["test"])
        await until(lambda: bool(service.launcher.launched))
        entry, session = await service.manager.sessions.register(registration(entry))
        leases = [lease.lease_id for lease in service.arbiter.table.of_app(entry.app_id)]
        await service.send(entry, session, release=pb.Release(lease_ids=leases, reason="the test"))
        while not session._outgoing.empty():
            message = session._outgoing.get_nowait()
            if message.HasField("registered"):
                message.registered.ClearField("leases")
                app = App(message.registered, service.manager.folder("x"), "", Journal(EmptyJournal()), service.clock)
        return entry, session, view_to_bytes(app.view({}))

    def test_it_is_asked_once_it_has_held_none_for_long(self, tmp_path):
        async def scenario():
            service = case(tmp_path, am_idle_s=100.0)
            entry, session, _ = await self.idle(service)
            for at_s, asked in ((0.0, 0), (99.0, 0), (101.0, 1), (150.0, 1), (202.0, 2)):
                service.clock.advance_to(NOW_S + at_s)
                entry.last_seen_s = service.clock.now_s()
                service.manager.app_masters.check_apps()
                sent = [message.WhichOneof("body") for message in session._outgoing._queue]
                assert sent.count("ask_rest") == asked
            await service.manager.hosted.close()

        run(scenario())

    def test_it_ends_and_the_host_answers_until_the_next_grant(self, tmp_path):
        async def scenario():
            service = case(tmp_path)
            entry, session, view = await self.idle(service)
            entry.page_url, entry.grant_limit = "http://there/", GrantLimit(gpus=1, until_s=math.inf)
            await service.send(entry, session, rest=pb.Rest(view=view))
            await until(lambda: entry.app_id not in service.launcher.living)
            assert (entry.page_url, entry.grant_limit, entry.attempt_losses.excused_attempts) == ("", NO_GRANT_LIMIT, 1)
            assert (entry.state, entry.session, entry.app_id in service.manager.hosted) == ("ACCEPTED", None, True)
            assert shown_state(app_status(service.manager, entry, whole=True)) == WAITING
            with pytest.raises(InputError, match="over"):
                await service.manager.sessions.register(registration(entry))
            await service.rounds._play(["test"])
            await until(lambda: len(service.launcher.launched) == 2)
            await service.manager.sessions.register(registration(entry))
            assert (entry.state, entry.attempt, entry.resting_view) == ("RUNNING", 2, b"")
            assert not entry.attempt_losses.failed_at_s
            service.check()
            await service.manager.hosted.close()

        run(scenario())

    def test_it_goes_on_if_it_was_granted_gpus_meanwhile(self, tmp_path):
        async def scenario():
            service = case(tmp_path)
            entry, session, view = await self.idle(service)
            session_answers = asyncio.ensure_future(self._answer(service, entry, session))
            await service.rounds._play(["test"])
            session_answers.cancel()
            await service.send(entry, session, rest=pb.Rest(view=view))
            assert (entry.state, entry.resting_view) == ("RUNNING", b"")
            assert entry.session is session
            await service.manager.hosted.close()

        run(scenario())

    @staticmethod
    async def _answer(service, entry, session):
        async for message in session.outgoing():
            if message.HasField("ask_rho"):
                demand = pb.GangDemand(
                    job_id="job-0",
                    min_gpus=1,
                    max_gpus=1,
                    unit_gpus=1,
                    slowdown=pb.Slowdown(slot=1.0, machine=1.0, rack=1.0, cluster=1.0),
                    work_left_gpu_s=10.0,
                )
                report = pb.RhoReport(
                    round_id=message.ask_rho.round_id, rho=2.0, t_shared_s=20.0, t_ideal_s=10.0, demands=[demand]
                )
                await service.send(entry, session, rho=report)
            elif message.HasField("offer"):
                await service.send(entry, session, bid=pb.Bid(round_id=message.offer.round_id, empty_value=0.5))

    @pytest.mark.parametrize("is_granted", [False, True])
    def test_it_rests_on_after_a_restart(self, tmp_path, is_granted):
        async def scenario():
            store = MemoryStore()
            first = case(tmp_path, store=store)
            entry, session, view = await self.idle(first)
            unmet_gpus = entry.heartbeat.unmet_gpus
            await first.send(entry, session, rest=pb.Rest(view=view))
            if is_granted:
                first.manager.app_masters.start_granted = lambda changes: None
                await first.rounds._play(["test"])
            await first.manager.hosted.close()
            second = case(tmp_path, store=store)
            assert await second.manager.app_masters.recover() == 0
            again = second.entries.get(entry.app_id)
            assert (again.heartbeat.unmet_gpus, again.attempt_losses.failed_at_s) == (unmet_gpus, ())
            assert [am.attempt for am in second.launcher.launched] == ([2] if is_granted else [])
            assert (again.app_id in second.manager.hosted) == (not is_granted)
            await second.manager.hosted.close()

        run(scenario())

    def test_pause_takes_it_from_the_host_and_the_end_of_the_pause_starts_its_app_master(self, tmp_path):
        async def scenario():
            service = case(tmp_path)
            entry, session, view = await self.idle(service)
            await service.send(entry, session, rest=pb.Rest(view=view))
            await service.manager.pause(entry.app_id)
            await until(lambda: entry.state is AppState.PAUSED)
            assert len(service.manager.hosted) == 0
            await service.manager.resume(entry.app_id)
            await until(lambda: len(service.launcher.launched) == 2)
            service.check()
            await service.manager.hosted.close()

        run(scenario())

    async def rest_while_the_engine_refuses_a_kill(self, service, entry, session, view):
        kill, failures = service.launcher.kill, [UnreachableError("the engine is unavailable")]

        async def kill_later(app_id):
            if failures:
                raise failures.pop()
            await kill(app_id)

        service.launcher.kill = kill_later
        await service.send(entry, session, rest=pb.Rest(view=view))
        await until(lambda: not failures)

    def test_attempt_after_a_pause_starts_after_the_late_kill_of_the_rested_one(self, tmp_path, monkeypatch):
        monkeypatch.setattr(app_masters, "KILL_GRACE_S", 0.3)

        async def scenario():
            service = case(tmp_path)
            entry, session, view = await self.idle(service)
            await self.rest_while_the_engine_refuses_a_kill(service, entry, session, view)
            await service.manager.pause(entry.app_id)
            await until(lambda: entry.state is AppState.PAUSED)
            await service.manager.resume(entry.app_id)
            await until(lambda: len(service.launcher.launched) == 2)
            await asyncio.sleep(0.4)
            assert entry.app_id in service.launcher.living
            await service.manager.hosted.close()

        run(scenario())

    @pytest.mark.parametrize("resumed", [False, True])
    def test_pause_while_the_next_attempt_waits_for_the_late_kill_of_the_rested_one(
        self, tmp_path, monkeypatch, resumed
    ):
        monkeypatch.setattr(app_masters, "KILL_GRACE_S", 0.3)

        async def scenario():
            service = case(tmp_path)
            entry, session, view = await self.idle(service)
            await self.rest_while_the_engine_refuses_a_kill(service, entry, session, view)
            service.manager.app_masters.start_hosted(entry)
            await asyncio.sleep(0)
            await service.manager.pause(entry.app_id)
            await until(lambda: entry.state is AppState.PAUSED)
            if resumed:
                await service.manager.resume(entry.app_id)
            await asyncio.sleep(0.6)
            assert len(service.launcher.living) == resumed
            assert [am.attempt for am in service.launcher.launched] == ([1, 2] if resumed else [1])
            assert entry.state is (AppState.ACCEPTED if resumed else AppState.PAUSED)
            await service.manager.hosted.close()

        run(scenario())

    def test_view_that_is_none_costs_the_app_a_start_of_its_app_master(self, tmp_path):
        async def scenario():
            service = case(tmp_path)
            entry, session, _ = await self.idle(service)
            await service.send(entry, session, rest=pb.Rest(view=b"nonsense"))
            await until(lambda: len(service.launcher.launched) == 2)
            assert entry.app_id not in service.manager.hosted
            await service.manager.hosted.close()

        run(scenario())

    def test_kill_ends_it_at_once(self, tmp_path):
        async def scenario():
            service = case(tmp_path)
            entry, session, view = await self.idle(service)
            await service.send(entry, session, rest=pb.Rest(view=view))
            await service.manager.kill(entry.app_id, "")
            await until(lambda: entry.ended)
            assert (entry.state, len(service.manager.hosted)) == (AppState.KILLED, 0)
            await service.manager.hosted.close()

        run(scenario())


class TestProcess:
    REQUEST = pb.HostRequest(
        cluster=pb.Registered(cluster=cluster_to_message(CLUSTER), lease_s=600.0, bundle_rule="continuation")
    )

    def test_killed_process_is_reported_and_replaced(self):
        async def scenario():
            host = HostProcess()
            assert await host.ask(self.REQUEST) == pb.HostReply()
            first = host.pid
            os.kill(first, signal.SIGKILL)
            with pytest.raises(HostLostError, match="gone"):
                await host.ask(self.REQUEST)
            assert await host.ask(self.REQUEST) == pb.HostReply()
            assert host.pid not in (None, first)
            await host.close()

        run(scenario())

    def test_process_ends_without_a_word_if_nobody_reads_its_reply(self):
        """So it is if the ResourceManager is killed: a traceback would stand in its log."""
        content = self.REQUEST.SerializeToString()
        process = subprocess.Popen(HOST_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        errors = process.communicate(struct.pack(">I", len(content)) + content, timeout=60)[1]
        assert (process.returncode, errors) == (0, b"")

    def test_process_that_does_not_answer_is_killed(self):
        async def scenario():
            host = HostProcess(["sleep", "60"], reply_s=0.1)
            with pytest.raises(HostLostError):
                await host.ask(self.REQUEST)
            assert host.pid is None

        run(scenario())

    def test_process_that_cannot_be_started_counts_as_lost(self):
        async def scenario():
            with pytest.raises(HostLostError):
                await HostProcess(["/does/not/exist"]).ask(self.REQUEST)

        run(scenario())

    def test_process_ends_with_its_pipe(self):
        async def scenario():
            host = HostProcess()
            await host.ask(self.REQUEST)
            process = host._process
            process.stdin.close()
            assert await asyncio.wait_for(process.wait(), 60) == 0

        run(scenario())


def test_hosted_app_is_paused_without_an_app_master_and_resumed_as_one_that_waits(tmp_path):
    async def scenario():
        service = case(tmp_path)
        manager = service.manager
        entry = await manager.submit(SPECS[0])
        await entered(service)
        await manager.pause(entry.app_id)
        await until(lambda: entry.state is AppState.PAUSED)
        assert entry.app_id not in manager.hosted
        assert manager.arbiter.active_count == 0
        await manager.resume(entry.app_id)
        assert (entry.state, entry.attempt) == (AppState.ACCEPTED, 0)
        assert entry.app_id in manager.hosted
        assert manager.arbiter.active_apps == (entry.app_id,)
        await manager.app_masters.close()

    run(scenario())
