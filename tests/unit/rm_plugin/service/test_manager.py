"""What the ResourceManager does with submissions, kills and the messages of app masters, over memory adapters."""

import asyncio
import math

import pytest
from losable_lock import LosableLock
from msgspec.structs import replace
from service_cases import app, heartbeat, registration

from rm_plugin.engines.memory import MemoryAppLauncher
from rm_plugin.service.app_masters import AppMasters
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.grant_limit import GrantLimit
from rm_plugin.service.memory_service import memory_service, until
from rm_plugin.service.retention import SETTLED_S
from rm_plugin.service.status import app_status
from themis.apps import JobShape, JobSpec
from themis.archives import ArchiveError
from themis.bids import PlacedGang
from themis.cluster import Allocation, Level
from themis.errors import InputError, UnreachableError
from themis.identity import Identity
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message, cluster_to_message


def run(tmp_path, scenario, **settings):
    async def whole():
        async with memory_service(tmp_path, **settings) as rm:
            await scenario(rm)

    asyncio.run(asyncio.wait_for(whole(), 20))


def sent(session):
    """What the session has for its app master, which takes it."""
    messages = []
    while not session._outgoing.empty():
        messages.append(session._outgoing.get_nowait())
    return messages


def bodies(session):
    return [message and message.WhichOneof("body") for message in sent(session)]


async def grant(rm, entry, gpus):
    gangs = {entry.app_id: [PlacedGang(Allocation.of({"m0": gpus}), Level.MACHINE)]}
    settle = rm.arbiter.table.settle
    await rm.manager.changes.make(
        lambda change: change.leases(settle(gangs, [], now_s=change.now_s, end_s=lambda at_s: at_s + 600, round_id=1))
    )


def reasons(rm):
    """Why rounds are due."""
    return list(rm.rounds._reasons)


class TestSubmissions:
    def test_app_shares_the_cluster_as_its_owners(self, tmp_path):
        async def scenario(rm):
            entry = await rm.manager.submit(app("mine"))
            (shown,) = rm.arbiter.begin_round(rm.clock.now_s())[0].apps
            assert (shown.app_id, shown.owner) == (entry.app_id, entry.owner)
            assert shown.owner.user == "user"

        run(tmp_path, scenario)

    def test_gang_that_the_policy_cannot_serve_is_refused(self, tmp_path):
        pair = JobSpec(job_id="j", iterations_total=1, shape=JobShape(tasks=2, min_tasks=2))

        async def scenario(rm):
            with pytest.raises(InputError, match="gives each job one device"):
                await rm.manager.submit(replace(app("mine"), jobs=(pair,)))
            assert list(rm.entries) == []

        run(tmp_path, scenario, policy="allox")

    def test_app_that_waits_is_shown_without_times_of_a_start_or_an_end(self, tmp_path):
        async def scenario(rm):
            shown = app_status(rm.manager, await rm.manager.submit(app("mine")), whole=False)
            assert shown.submitted_at_s == rm.clock.now_s()
            assert (shown.started_at_s, shown.finished_at_s) == (0.0, 0.0)

        run(tmp_path, scenario)

    def test_app_is_accepted_although_its_start_raises(self, tmp_path, monkeypatch):
        async def launch(self, _launch):
            raise RuntimeError("a defect of an engine")

        monkeypatch.setattr(MemoryAppLauncher, "launch", launch)

        async def scenario(rm):
            entry = await rm.manager.submit(app("mine"))
            assert not entry.ended
            assert rm.kinds == ["app_submitted"]

        run(tmp_path, scenario)


class TestKills:
    def test_reason_that_cannot_be_shown_is_refused(self, tmp_path):
        async def scenario(rm):
            entry = await rm.manager.submit(app("mine"))
            with pytest.raises(InputError, match="reason"):
                await rm.manager.kill(entry.app_id, "\x1b[2J")
            assert (entry.kill_reason, "app_kill_wanted" in rm.kinds) == ("", False)

        run(tmp_path, scenario)

    def test_kill_without_a_reason_is_by_its_user(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            sent(session)
            await rm.manager.kill(entry.app_id, "")
            assert entry.kill_reason == "killed by its user"
            (message,) = sent(session)
            assert message.shut_down.reason == "killed by its user"

        run(tmp_path, scenario)

    def test_kill_by_an_administrator_is_written_with_their_name(self, tmp_path):
        async def scenario(rm):
            entry, _ = await rm.registered(app("mine"))
            await rm.manager.kill(entry.app_id, "", by="root")
            assert entry.kill_reason == "killed by root"
            (wanted,) = (event for event in rm.store.events() if event.kind == "app_kill_wanted")
            assert wanted.detail == {"reason": "killed by root", "user": "root"}

        run(tmp_path, scenario)

    def test_second_of_two_kills_at_once_changes_nothing(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            sent(session)
            await asyncio.gather(*(rm.manager.kill(entry.app_id, reason) for reason in ("first", "second")))
            assert rm.kinds.count("app_kill_wanted") == 1
            assert (entry.kill_reason, bodies(session)) == ("first", ["shut_down"])

        run(tmp_path, scenario)

    def test_kill_of_an_ended_app_changes_nothing(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, finish=pb.Finish(state="FINISHED")))
            kinds = rm.kinds
            assert await rm.manager.kill(entry.app_id, "late") is entry
            assert (entry.state, entry.kill_reason, rm.kinds) == (AppState.FINISHED, "", kinds)

        run(tmp_path, scenario)

    def test_app_that_is_to_end_is_stored_and_gets_no_more_gpus(self, tmp_path):
        async def scenario(rm):
            entry, _ = await rm.registered(app("mine"))
            await rm.manager.kill(entry.app_id, "unwanted")
            (stored,) = rm.store.apps()
            assert stored.final["kill_reason"] == "unwanted"
            assert [event.detail for event in rm.store.events() if event.kind == "app_kill_wanted"] == [
                {"reason": "unwanted", "user": "user"}
            ]
            snapshot, _ = rm.arbiter.begin_round(rm.clock.now_s())
            assert all(each.silent for each in snapshot.apps)

        run(tmp_path, scenario)

    def test_app_without_a_session_ends_at_once(self, tmp_path):
        async def scenario(rm):
            entry = await rm.manager.submit(app("mine"))
            await rm.manager.kill(entry.app_id, "unwanted")
            await until(lambda: entry.ended)
            assert (entry.state, entry.diagnostics) == (AppState.KILLED, "unwanted")

        run(tmp_path, scenario)


class TestRegistration:
    def test_welcome_has_all_that_an_app_master_needs(self, tmp_path):
        settings = {
            "lease": {"duration_s": 77.0, "checkpoint_lead_s": 7.0, "grace_s": 11.0},
            "heartbeat_s": 0.7,
            "time_scale": 5.0,
            "task_log_mb": 9,
        }

        async def scenario(rm):
            entry = await rm.manager.submit(app("mine"))
            await grant(rm, entry, 2)
            rm.clock.advance_to(1_010.0)
            _, session = await rm.manager.sessions.register(registration(entry))
            (welcome,) = sent(session)
            (first, second) = welcome.registered.leases.leases
            assert {(lease.machine_id, lease.gpu_index) for lease in (first, second)} == {("m0", 0), ("m0", 1)}
            welcome.registered.ClearField("leases")
            assert welcome.registered == pb.Registered(
                spec=app_to_message(entry.spec),
                cluster=cluster_to_message(rm.arbiter.cluster),
                submitted_at_s=1_000.0,
                now_s=1_010.0,
                lease_s=77.0,
                checkpoint_lead_s=7.0,
                grace_s=11.0,
                heartbeat_s=0.7,
                time_scale=5.0,
                active_apps=1,
                contention=1.0,
                bundle_rule="continuation",
                app_id=entry.app_id,
                gpus_available=4,
                task_log_mb=9,
            )

        run(tmp_path, scenario, **settings)

    def test_welcome_counts_the_gpus_that_are_there_by_then(self, tmp_path):
        async def scenario(rm):
            entry, first = await rm.registered(app("mine"))
            rm.arbiter.machine_lost("m0", now_s=rm.clock.now_s(), reason="gone")
            _, second = await rm.manager.sessions.register(registration(entry))
            welcomes = [sent(session)[0].registered for session in (first, second)]
            assert [welcome.gpus_available for welcome in welcomes] == [4, 0]

        run(tmp_path, scenario)

    def test_page_that_is_not_its_own_is_ignored_and_its_secret_path_is_not_in_the_log(self, tmp_path, caplog):
        async def scenario(rm):
            entry = await rm.manager.submit(app("mine"))
            known = registration(entry, page_url=f"http://127.0.0.1:9/{'s' * 32}/")
            await rm.manager.sessions.register(known, "ipv4:192.0.2.7:40000")
            assert entry.page_url == ""
            assert "127.0.0.1:9" in caplog.text
            assert "sss" not in caplog.text

        run(tmp_path, scenario)

    @pytest.mark.parametrize(("left", "answer"), [(1, InputError), (0, UnreachableError)])
    def test_attempt_is_not_refused_without_the_lock_as_the_next_holder_may_have_started_it(
        self, tmp_path, left, answer
    ):
        async def scenario(rm):
            entry = await rm.manager.submit(app("mine"))
            rm.manager.sessions._lock = LosableLock(left)
            with pytest.raises(answer):
                await rm.manager.sessions.register(registration(entry, token="of the next one", attempt=2))

        run(tmp_path, scenario)

    def test_attempt_is_known_with_its_process_page_and_engine_id(self, tmp_path):
        async def scenario(rm):
            entry = await rm.manager.submit(app("mine"))
            rm.rounds._reasons.clear()
            known = {"pid": 99, "page_url": "http://there/", "engine_id": "yarn-1"}
            await rm.manager.sessions.register(registration(entry, **known))
            assert (entry.pid, entry.page_url, entry.engine_id) == tuple(known.values())
            assert (entry.registered_attempt, entry.state) == (1, AppState.RUNNING)
            (stored,) = rm.store.apps()
            assert (stored.pid, stored.state) == (99, AppState.RUNNING)
            assert reasons(rm) == ["app arrived"]

        run(tmp_path, scenario)

    def test_registration_ends_the_turn_of_its_start(self, tmp_path):
        async def scenario(rm):
            first = await rm.manager.submit(app("first"))
            second = await rm.manager.submit(app("second"))
            assert (first.attempt, second.attempt) == (1, 0)
            await rm.manager.sessions.register(registration(first))
            await until(lambda: second.attempt == 1)

        run(tmp_path, scenario, am_starts_at_once=1)

    def test_expiring_leases_that_the_next_attempt_does_not_hold_are_released(self, tmp_path):
        async def scenario(rm):
            entry, _ = await rm.registered(app("mine"))
            await grant(rm, entry, 3)
            first, second, third = rm.arbiter.table.of_app(entry.app_id)
            await rm.manager.changes.make(lambda change: change.leases(rm.arbiter.table.expire([first, second])))
            await rm.manager.sessions.register(registration(entry, held_lease_ids=[first.lease_id]))
            held = {lease.lease_id for lease in rm.arbiter.table.of_app(entry.app_id)}
            assert held == {first.lease_id, third.lease_id}

        run(tmp_path, scenario)

    def test_engines_own_next_attempt_is_written_as_a_loss_and_a_start(self, tmp_path):
        async def scenario(rm):
            entry, _ = await rm.registered(app("mine"))
            rm.launcher.restarted[entry.app_id] = 2
            await rm.manager.sessions.register(registration(entry, attempt=2, pid=5))
            assert rm.kinds[-3:] == ["am_lost", "am_started", "am_registered"]
            assert (entry.attempt, entry.registered_attempt) == (2, 2)

        run(tmp_path, scenario)

    def test_new_session_ends_the_former_one(self, tmp_path):
        async def scenario(rm):
            entry, first = await rm.registered(app("mine"))
            _, second = await rm.manager.sessions.register(registration(entry))
            assert (first.closed, second.closed, entry.session) == (True, False, second)
            rm.manager.sessions.disconnected(entry, first)
            assert entry.session is second

        run(tmp_path, scenario)

    def test_app_that_is_to_end_is_not_asked(self, tmp_path):
        async def scenario(rm):
            entry, _ = await rm.registered(app("mine"))
            await rm.manager.kill(entry.app_id, "unwanted")
            _, session = await rm.manager.sessions.register(registration(entry))
            assert bodies(session) == ["registered", "shut_down"]
            assert all(each.silent for each in rm.arbiter.begin_round(rm.clock.now_s())[0].apps)

        run(tmp_path, scenario)


class TestMessages:
    def test_answer_has_the_time_and_what_the_app_shares_with(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            other, _ = await rm.registered(app("other"))
            rm.clock.advance_to(1_020.0)
            sent(session)
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=3, heartbeat=heartbeat()))
            (answer,) = sent(session)
            contention = rm.arbiter.contention(entry.app_id, 1_020.0)
            expected = pb.Acknowledge(
                of_id=3,
                now_s=1_020.0,
                contention=contention,
                active_apps=2,
                heartbeat_s=rm.manager.settings.heartbeat_s,
            )
            assert (answer.acknowledge, entry.last_seen_s) == (expected, 1_020.0)
            assert contention == pytest.approx(2.0)
            assert other.last_seen_s == 1_000.0

        run(tmp_path, scenario)

    def test_heartbeats_become_rarer_as_app_masters_come_and_only_then(self, tmp_path, monkeypatch):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            settings = rm.manager.settings
            assert rm.manager.app_masters.count == 1
            for count in (500, 1_000, 1):
                monkeypatch.setattr(AppMasters, "count", count)
                await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, heartbeat=heartbeat()))
                told_s = sent(session)[-1].acknowledge.heartbeat_s
                assert told_s == pytest.approx(max(1.0, count / 500) * settings.heartbeat_s)

        run(tmp_path, scenario)

    def test_ended_app_shares_with_no_app(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            sent(session)
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, finish=pb.Finish(state="FINISHED")))
            acknowledge = sent(session)[-1].acknowledge
            assert (math.isnan(acknowledge.contention), acknowledge.active_apps) == (True, 0)

        run(tmp_path, scenario)

    def test_answers_to_a_round_are_not_acknowledged(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            asked = session.expect_report(1), session.expect_bid(1)
            sent(session)
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, rho=pb.RhoReport(round_id=1, rho=1.5)))
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=2, bid=pb.Bid(round_id=1, empty_value=1)))
            assert [future.done() for future in asked] == [True, True]
            assert bodies(session) == []

        run(tmp_path, scenario)

    def test_invalid_message_is_counted_and_answered(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            sent(session)
            for number in (1, 2):
                message = pb.AmMessage(id=number, job_event=pb.JobEvent(job_id="job-0", kind="round_started"))
                await rm.manager.sessions.receive(entry, session, message)
            assert (entry.refused_messages, bodies(session)) == (2, ["acknowledge"] * 2)
            assert "round_started" not in rm.kinds

        run(tmp_path, scenario)

    def test_heartbeat_shows_progress_and_asks_for_a_round_until_the_end(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            rm.rounds._reasons.clear()
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, heartbeat=heartbeat()))
            assert (entry.progress, reasons(rm)) == (0.5, ["demand"])
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=2, finish=pb.Finish(state="FINISHED")))
            late = heartbeat()
            late.progress = 0.75
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=3, heartbeat=late))
            assert entry.heartbeat.progress == 0.5
            assert (entry.heartbeat.unmet_gpus, app_status(rm.manager, entry, whole=False).gpus_unmet) == (2, 0)

        run(tmp_path, scenario)

    def test_heartbeat_with_headroom_ends_what_the_engine_would_not_grant(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            entry.grant_limit = GrantLimit(gpus=0, wanted_gpus=1, until_s=2_000.0)
            message = heartbeat()
            message.headroom_gpus = 1
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, heartbeat=message))
            assert entry.grant_limit.at(rm.clock.now_s()) is None

        run(tmp_path, scenario)

    def test_bid_says_how_long_it_took(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            future = session.expect_bid(3)
            await rm.manager.sessions.receive(
                entry, session, pb.AmMessage(id=1, bid=pb.Bid(round_id=3, empty_value=0.1, prepare_ms=1.0))
            )
            assert (session.bid_prepare_ms, (await future).app_id) == (1.0, entry.app_id)

        run(tmp_path, scenario)

    def test_job_event_is_kept_once_and_with_its_own_time(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            event = pb.JobEvent(job_id="job-0", kind="checkpoint", time_s=1_001.5, detail='{"iteration": 5}')
            for number in (4, 4, 3):
                await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=number, job_event=event))
            untimed = pb.JobEvent(job_id="job-0", kind="checkpoint", detail='{"iteration": 6}')
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=5, job_event=untimed))
            kept = [(each.time_s, each.detail) for each in rm.store.events() if each.kind == "checkpoint"]
            assert kept == [
                (1_001.5, {"job_id": "job-0", "iteration": 5}),
                (1_000.0, {"job_id": "job-0", "iteration": 6}),
            ]
            assert entry.last_message == (1, 5)

        run(tmp_path, scenario)

    def test_messages_of_the_next_attempt_count_from_the_start(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            event = pb.JobEvent(job_id="job-0", kind="checkpoint", detail='{"iteration": 5}')
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=9, job_event=event))
            rm.launcher.restarted[entry.app_id] = 2
            _, session = await rm.manager.sessions.register(registration(entry, attempt=2))
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, job_event=event))
            assert rm.kinds.count("checkpoint") == 2

        run(tmp_path, scenario)

    @pytest.mark.parametrize(
        ("unwanted", "state", "diagnostics"), [("", AppState.FINISHED, "well"), ("enough", AppState.KILLED, "enough")]
    )
    def test_end_of_an_app_is_stored(self, tmp_path, unwanted, state, diagnostics):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            await grant(rm, entry, 2)
            if unwanted:
                await rm.manager.kill(entry.app_id, unwanted)
            rm.clock.advance_to(1_030.0)
            end = pb.Finish(state="FINISHED", diagnostics="well", best="job-1", jobs=heartbeat().jobs)
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, finish=end))
            restored = AppEntry.restored(next(iter(rm.store.apps())))
            for each in (entry, restored):
                assert (each.state, each.diagnostics, each.best_job) == (state, diagnostics, "job-1")
                assert (each.finished_at_s, each.gpu_time_s) == (1_030.0, 60.0)
            assert rm.arbiter.table.of_app(entry.app_id) == []
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=2, finish=pb.Finish(state="FAILED")))
            assert entry.state is state

        run(tmp_path, scenario)

    def test_app_whose_session_breaks_is_not_asked(self, tmp_path):
        async def scenario(rm):
            entry, session = await rm.registered(app("mine"))
            rm.manager.sessions.disconnected(entry, session)
            assert entry.session is None
            (shown,) = rm.arbiter.begin_round(rm.clock.now_s())[0].apps
            assert shown.silent

        run(tmp_path, scenario)


class TestReaders:
    """An administrator who reads what is private of another user's app leaves an event."""

    async def read(self, rm, user, is_admin=True):
        entry = await rm.manager.submit(app("mine"))
        await rm.manager.note_read(entry, Identity(user=user, is_admin=is_admin), "logs_read")
        return [event.detail for event in rm.store.events() if event.kind == "user_acted"]

    def test_administrator_is_noted_and_the_user_is_not(self, tmp_path):
        async def scenario(rm):
            assert await self.read(rm, "user", is_admin=False) == []
            assert await self.read(rm, "root") == [{"user": "root", "action": "logs_read"}]

        run(tmp_path, scenario)

    def test_nobody_is_noted_where_readers_have_no_names(self, tmp_path):
        async def scenario(rm):
            assert await self.read(rm, "somebody") == []

        run(tmp_path, scenario, anonymous=True)


class TestLogs:
    """Logs are fetched from where the app master is, at most once a second and once more after the end."""

    def scenario_with(self, tmp_path, scenario, seconds=0.0):
        fetched = []

        async def fetch(app_id, page_url, folder):
            assert folder == tmp_path / "apps" / app_id
            begun = len(fetched)
            fetched.append(page_url)
            await asyncio.sleep(seconds)
            assert len(fetched) == begun + 1, "two at once"

        async def whole(rm):
            rm.manager._fetch_logs = fetch
            entry = await rm.manager.submit(app("mine"))
            _, session = await rm.manager.sessions.register(registration(entry, page_url="http://there/"))
            await scenario(rm, entry, session, fetched)

        run(tmp_path, whole)

    def test_logs_are_fetched_once_a_second_and_one_at_a_time(self, tmp_path):
        async def scenario(rm, entry, _session, fetched):
            await asyncio.gather(*(rm.manager.fetch_logs(entry) for _ in range(3)))
            assert fetched == ["http://there/"]
            rm.clock.advance_to(1_001.0)
            assert await rm.manager.fetch_logs(entry) == tmp_path / "apps" / entry.app_id
            assert fetched == ["http://there/"] * 2

        self.scenario_with(tmp_path, scenario, 0.01)

    def test_logs_that_could_not_be_fetched_at_the_end_are_fetched_again(self, tmp_path):
        async def scenario(rm, entry, session, fetched):
            fetch = rm.manager._fetch_logs

            async def full(app_id, page_url, folder):
                await fetch(app_id, page_url, folder)
                raise ArchiveError("no space")

            rm.manager._fetch_logs = full
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, finish=pb.Finish(state="FINISHED")))
            await until(lambda: fetched == [""])
            assert await rm.manager.fetch_logs(entry) == tmp_path / "apps" / entry.app_id
            assert not entry.logs_whole
            rm.manager._fetch_logs = fetch
            await rm.manager.fetch_logs(entry)
            assert (fetched, entry.logs_whole) == ([""] * 3, True)

        self.scenario_with(tmp_path, scenario)

    def test_logs_of_an_ended_app_are_fetched_once_and_not_from_its_page(self, tmp_path):
        async def scenario(rm, entry, session, fetched):
            await rm.manager.fetch_logs(entry)
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, finish=pb.Finish(state="FINISHED")))
            await until(lambda: entry.logs_whole)
            rm.clock.advance_to(1_100.0)
            await rm.manager.fetch_logs(entry)
            assert fetched == ["http://there/", ""]
            assert (rm.manager._fetching, rm.manager._fetched) == ({}, {})

        self.scenario_with(tmp_path, scenario)


async def ended(rm, name):
    """An app that finished, and whose app master is gone."""
    entry, session = await rm.registered(app(name))
    await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, finish=pb.Finish(state="FINISHED")))
    session.close()
    rm.manager.sessions.disconnected(entry, session)
    return entry


async def archived(rm):
    """Archive all apps that have ended."""
    rm.clock.advance_to(rm.clock.now_s() + SETTLED_S)
    await rm.manager.retention.archive_old()


class TestArchivedApps:
    @pytest.mark.parametrize("limit", [1, 2])
    def test_pages_of_archived_apps_follow_each_other_to_the_last(self, tmp_path, limit):
        """Five archived apps and one that runs."""

        async def scenario(rm):
            for number in range(5):
                await ended(rm, f"old-{number}")
            await archived(rm)
            running = await rm.manager.submit(app("new"))
            assert [entry.app_id for entry in rm.entries] == [running.app_id]
            pages, after = [], ""
            while len(pages) < 9:
                page = await rm.manager.page_of_apps(after=after, limit=limit)
                pages.append([entry.spec.name for entry in page.entries])
                after = page.next_mark
                if not after:
                    break
            names = ["new", "old-4", "old-3", "old-2", "old-1", "old-0"]
            assert pages == [names[first : first + limit] for first in range(0, 6, limit)]

        run(tmp_path, scenario, retention={"keep_apps": 0})

    def test_one_search_at_a_time_reads_the_archive(self, tmp_path, monkeypatch):
        """Others who read the store wait for one search at most."""

        async def scenario(rm):
            await ended(rm, "old")
            await archived(rm)
            search, together = rm.manager.recorder.archived_apps, []

            async def noted(*words):
                together.append(+1)
                await asyncio.sleep(0.01)
                found = await search(*words)
                at_once.append(sum(together))
                together.append(-1)
                return found

            at_once: list[int] = []
            monkeypatch.setattr(rm.manager.recorder, "archived_apps", noted)
            pages = await asyncio.gather(*(rm.manager.page_of_apps(search="old") for _ in range(5)))
            assert [page.entries[0].spec.name for page in pages] == ["old"] * 5
            assert at_once == [1] * 5

        run(tmp_path, scenario, retention={"keep_apps": 0})

    def test_search_goes_through_all_archived_apps(self, tmp_path):
        """More than are read at a time for a page of one."""

        async def scenario(rm):
            for number in range(5):
                await ended(rm, f"old-{number}")
            await archived(rm)
            page = await rm.manager.page_of_apps(search="old-0", limit=1)
            assert ([entry.spec.name for entry in page.entries], page.next_mark) == (["old-0"], "")

        run(tmp_path, scenario, retention={"keep_apps": 0})

    def test_archived_app_is_found_with_the_file_of_its_events(self, tmp_path):
        async def scenario(rm):
            entry = await ended(rm, "old")
            assert rm.manager.archive_path(entry) == ""
            await archived(rm)
            found = await rm.manager.find("old")
            assert (found.app_id, found.state) == (entry.app_id, AppState.FINISHED)
            path = rm.manager.archive_path(found)
            assert path.startswith(str(tmp_path / "archive"))
            with pytest.raises(InputError):
                await rm.manager.find("never")

        run(tmp_path, scenario, retention={"keep_apps": 0})

    def test_app_whose_events_were_dropped_has_no_file(self, tmp_path):
        async def scenario(rm):
            await ended(rm, "old")
            await archived(rm)
            assert rm.manager.archive_path(await rm.manager.find("old")) == ""

        run(tmp_path, scenario, retention={"keep_apps": 0, "archive": False})
