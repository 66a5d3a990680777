"""A ResourceManager that starts again over the same store: living, gone, killed and waiting apps, with their leases."""

import asyncio

import pytest
from service_cases import app, registration

from rm_plugin.service import app_masters, attempt_losses, launches
from rm_plugin.service.memory_service import memory_service, until
from rm_plugin.service.session_service import ArbiterService
from themis.bids import PlacedGang
from themis.cluster import Allocation, Level
from themis.docker_host import DockerError
from themis.errors import UnreachableError
from themis.lifecycle import AppState, LeaseState
from themis.wire import themis_pb2 as pb


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario(), 20))


async def grant(rm, entry, gpus):
    """Lease GPUs of the one machine to an app, outside a round."""
    gangs = {entry.app_id: [PlacedGang(Allocation.of({"m0": gpus}), Level.MACHINE)]}

    def give(change):
        lasts_s = 600
        table = rm.arbiter.table
        granted = table.settle(gangs, [], now_s=change.now_s, end_s=lambda at_s: at_s + lasts_s, round_id=1)
        change.leases(granted)

    await rm.manager.changes.make(give)


def living(former, *app_ids):
    return {app_id: former.launcher.living[app_id] for app_id in app_ids}


def launched(rm):
    return [(am.app_id, am.attempt) for am in rm.launcher.launched]


class TestSeveralApps:
    """One of each fate: the first and the last are adopted, so what comes after the first counts too."""

    async def former(self, folder):
        """A service that is gone; returns it, and which of its app masters live on."""
        async with memory_service(folder, gpus=8) as rm:
            entries = {}
            for name in ("lives", "gone", "asked", "asked-gone", "again"):
                entries[name], _ = await rm.registered(app(name))
            await grant(rm, entries["lives"], 2)
            await grant(rm, entries["gone"], 1)
            for name in ("asked", "asked-gone"):
                await rm.manager.kill(entries[name].app_id, "no longer wanted")
            masters = living(rm, *[entries[name].app_id for name in ("lives", "asked", "again")])
        return rm, masters

    def after_restart(self, tmp_path, check, monkeypatch):
        async def scenario():
            former, masters = await self.former(tmp_path)
            # Not before: on a busy machine the former service would end the apps itself.
            monkeypatch.setattr(app_masters, "KILL_GRACE_S", 0.05)
            async with memory_service(tmp_path, store=former.store, gpus=8) as rm:
                rm.launcher.living = dict(masters)
                await rm.manager.app_masters.recover()
                await check(rm, {entry.spec.name: entry for entry in rm.entries})

        run(scenario)

    def test_living_app_masters_are_adopted_without_a_new_attempt(self, tmp_path, monkeypatch):
        async def check(rm, apps):
            assert [(apps[name].attempt, apps[name].state) for name in ("lives", "again")] == [
                (1, AppState.RUNNING),
                (1, AppState.RUNNING),
            ]
            assert {"app-0001", "app-0005"} <= set(rm.launcher.living)

        self.after_restart(tmp_path, check, monkeypatch)

    def test_gone_app_masters_are_started_again_and_it_counts_as_no_failure(self, tmp_path, monkeypatch):
        async def check(rm, apps):
            gone = apps["gone"]
            assert launched(rm) == [(gone.app_id, 2)]
            assert (gone.state, gone.attempt_losses.excused_attempts) == (AppState.ACCEPTED, 1)
            (lost,) = [event for event in rm.store.events(app_id=gone.app_id) if event.kind == "am_lost"]
            reason = "it was gone when the ResourceManager came back; not counted as its failure"
            assert lost.detail == {"attempt": 1, "reason": reason}

        self.after_restart(tmp_path, check, monkeypatch)

    def test_apps_that_were_asked_to_end_are_killed_and_end(self, tmp_path, monkeypatch):
        async def check(rm, apps):
            for name in ("asked", "asked-gone"):
                await until(lambda name=name: apps[name].ended)
                assert (apps[name].state, apps[name].diagnostics) == (AppState.KILLED, "no longer wanted")
            assert "app-0003" not in rm.launcher.living

        self.after_restart(tmp_path, check, monkeypatch)

    def test_adopted_app_may_register_with_its_token_only(self, tmp_path, monkeypatch):
        async def check(rm, apps):
            entry, session = await rm.manager.sessions.register(registration(apps["again"]))
            assert entry.session is session
            with pytest.raises(Exception, match="the token is not this app's"):
                await rm.manager.sessions.register(registration(apps["again"], token="x"))
            with pytest.raises(Exception, match="this attempt is over"):
                await rm.manager.sessions.register(registration(apps["gone"], attempt=1))

        self.after_restart(tmp_path, check, monkeypatch)


@pytest.mark.parametrize("lives", [True, False])
def test_master_of_app_that_a_user_killed_during_recovery_is_killed_only_if_it_lives(tmp_path, monkeypatch, lives):
    monkeypatch.setattr(launches, "RELAUNCH_EVERY_S", 0.01)
    monkeypatch.setattr(app_masters, "KILL_GRACE_S", 0.0)

    async def scenario():
        async with memory_service(tmp_path) as former:
            entry, _ = await former.registered(app("mine"))
            masters = living(former, entry.app_id)
        async with memory_service(tmp_path, store=former.store) as rm:
            rm.launcher.living = dict(masters) if lives else {}
            adopt, kill, is_away, kills = rm.launcher.adopt, rm.launcher.kill, True, []

            async def adopt_once_there(*known):
                if is_away:
                    raise UnreachableError("the engine is unavailable")
                return await adopt(*known)

            async def count_kills(app_id):
                kills.append(app_id)
                if is_away:
                    return
                await kill(app_id)

            rm.launcher.adopt, rm.launcher.kill = adopt_once_there, count_kills
            recovering = asyncio.ensure_future(rm.manager.app_masters.recover())
            (entry,) = rm.entries
            await rm.manager.kill(entry.app_id, "no longer wanted")
            await until(lambda: entry.ended)
            before, is_away = len(kills), False
            await recovering
            await asyncio.sleep(0.05)
            assert len(kills) - before == (1 if lives else 0)
            assert launched(rm) == []

    run(scenario)


@pytest.mark.parametrize(
    ("registered", "silent_s", "reason"),
    [
        (True, 29.0, ""),
        (True, 31.0, "the app master is silent"),
        (False, 31.0, ""),
        (False, 299.0, ""),
        (False, 301.0, "it never registered"),
    ],
)
def test_silence_limit_is_that_of_app_masters_that_registered_or_start(tmp_path, registered, silent_s, reason):
    async def scenario():
        async with memory_service(tmp_path, am_expiry_s=30.0, am_start_s=300.0) as rm:
            entry = await rm.manager.submit(app("mine"))
            if registered:
                await rm.manager.sessions.register(registration(entry))
            rm.clock.advance_to(rm.clock.now_s() + silent_s)
            rm.manager.app_masters.check_apps()
            await until(lambda: not rm.manager.app_masters._being_checked)
            lost = [event.detail["reason"] for event in rm.store.events() if event.kind == "am_lost"]
            assert lost == ([reason] if reason else [])
            assert entry.attempt == (2 if reason else 1)

    run(scenario)


@pytest.mark.parametrize(("silent_s", "reason"), [(299.0, ""), (301.0, "the app master is silent")])
def test_app_master_that_yarn_may_start_again_has_the_time_of_a_start(tmp_path, silent_s, reason):
    """YARN may have started its next attempt, which has yet to register. On other engines 30 s are the limit."""

    async def scenario():
        async with memory_service(tmp_path, am_expiry_s=30.0, am_start_s=300.0) as rm:
            masters = rm.manager.app_masters
            masters.watch.settings = masters.settings.model_copy(update={"engine": "yarn"})
            entry, session = await rm.registered(app("mine"))
            rm.manager.sessions.disconnected(entry, session)
            rm.clock.advance_to(rm.clock.now_s() + silent_s)
            masters.check_apps()
            await until(lambda: not masters._being_checked)
            lost = [event.detail["reason"] for event in rm.store.events() if event.kind == "am_lost"]
            assert lost == ([reason] if reason else [])

    run(scenario)


def test_app_is_asked_for_nothing_between_the_loss_of_its_app_master_and_the_next_registration(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, _ = await rm.registered(app("mine"))
            assert not is_silent(rm, entry)
            await rm.launcher.end(entry.app_id, 1)
            await until(lambda: len(rm.launcher.launched) == 2)
            assert is_silent(rm, entry)
            await rm.manager.sessions.register(registration(entry))
            assert not is_silent(rm, entry)

    run(scenario)


def test_resumed_app_is_asked_for_nothing_until_its_app_master_registers(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, session = await rm.registered(app("mine"))
            rm.manager.sessions.disconnected(entry, session)
            await rm.manager.pause(entry.app_id)
            await until(lambda: entry.state is AppState.PAUSED)
            await rm.manager.resume(entry.app_id)
            assert is_silent(rm, entry)

    run(scenario)


def test_tokens_of_attempts_are_forgotten_once_they_are_launched(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            await rm.manager.submit(app("mine"))
            assert len(rm.launcher.launched) == 1
            assert not rm.manager.app_masters.launches._tokens

    run(scenario)


def is_silent(rm, entry):
    snapshot, _ = rm.arbiter.begin_round(rm.clock.now_s())
    (found,) = [each for each in snapshot.apps if each.app_id == entry.app_id]
    return found.silent


def test_lost_app_master_keeps_its_leases_except_those_that_end(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, session = await rm.registered(app("mine"))
            await grant(rm, entry, 2)
            first, second = rm.arbiter.table.of_app(entry.app_id)

            await rm.manager.changes.make(lambda change: change.leases(rm.arbiter.table.expire([second])))
            await rm.launcher.end(entry.app_id, 1)
            await until(lambda: entry.attempt == 2)
            assert session.closed and entry.session is None
            (held,) = rm.arbiter.table.of_app(entry.app_id)
            assert (held.lease_id, held.state) == (first.lease_id, LeaseState.GRANTED)
            (revoked,) = [event.detail for event in rm.store.events() if event.kind == "lease_revoked"]
            assert (revoked["lease_id"], revoked["reason"]) == (second.lease_id, "its app master is gone")

    run(scenario)


def test_app_master_that_is_silent_loses_its_leases_after_its_processes_are_killed(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, _ = await rm.registered(app("mine"))
            await grant(rm, entry, 2)
            order = []
            kill = rm.launcher.kill

            async def noted(app_id):
                order.append(("kill", len(rm.arbiter.table.of_app(app_id))))
                await kill(app_id)

            rm.launcher.kill = noted
            rm.clock.advance_to(rm.clock.now_s() + rm.settings.am_expiry_s + 1.0)
            rm.manager.app_masters.check_apps()
            await until(lambda: entry.attempt == 2)
            # It held both when its processes were killed.
            assert order[0] == ("kill", 2)
            assert rm.arbiter.table.of_app(entry.app_id) == []
            revoked = [event.detail for event in rm.store.events() if event.kind == "lease_revoked"]
            assert [detail["reason"] for detail in revoked] == ["the app master is silent"] * 2

    run(scenario)


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_app_fails_once_its_last_attempt_is_lost(tmp_path, attempts):
    async def scenario():
        async with memory_service(tmp_path, am_max_attempts=attempts) as rm:
            entry = await rm.manager.submit(app("mine"))
            for number in range(1, attempts + 1):
                await until(lambda number=number: entry.attempt == number and entry.app_id in rm.launcher.living)
                assert not entry.ended
                await rm.manager.sessions.register(registration(entry))
                await rm.launcher.end(entry.app_id, 7)
                rm.clock.advance_to(rm.clock.now_s() + attempt_losses.FIRST_DELAY_S)
                rm.manager.app_masters.check_apps()
            await until(lambda: entry.ended)
            assert entry.state is AppState.FAILED
            assert entry.diagnostics == f"its app master was lost {attempts} times, at last: exit code 7"
            assert launched(rm) == [(entry.app_id, number) for number in range(1, attempts + 1)]

    run(scenario)


def test_loss_whose_next_attempt_did_not_start_is_counted_once(tmp_path):
    async def scenario():
        settings = {"am_starts_at_once": 1, "am_max_attempts": 2}
        async with memory_service(tmp_path, **settings) as former:
            entry, _ = await former.registered(app("mine"))
            # The other app's start takes the only turn.
            await former.manager.submit(app("other"))
            await former.launcher.end(entry.app_id, 7)
            assert (entry.lost_attempt, entry.attempt) == (1, 1)
        async with memory_service(tmp_path, store=former.store, am_max_attempts=2) as rm:
            await rm.manager.app_masters.recover()
            entry = rm.entries.get("mine")
            await until(lambda: entry.attempt == 2)
            await rm.manager.sessions.register(registration(entry))
            await rm.launcher.end(entry.app_id, 7)
            await until(lambda: entry.ended)
            assert entry.diagnostics == "its app master was lost 2 times, at last: exit code 7"

    run(scenario)


def test_orderly_stop_costs_no_attempt(tmp_path):
    async def scenario():
        store = None
        for start in range(1, 5):
            async with memory_service(tmp_path, store=store, am_max_attempts=1) as rm:
                store = rm.store
                if start == 1:
                    await rm.manager.submit(app("mine"))
                else:
                    await rm.manager.app_masters.recover()
                (entry,) = rm.entries
                await until(lambda entry=entry, start=start: entry.attempt == start)
                await rm.manager.sessions.register(registration(entry))
            assert entry.state is AppState.RUNNING

    run(scenario)


def test_events_of_one_app_tell_its_whole_life(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, session = await rm.registered(app("mine"))
            await grant(rm, entry, 1)
            (lease,) = rm.arbiter.table.of_app(entry.app_id)
            messages = [
                {"job_event": pb.JobEvent(job_id="job-0", kind="checkpoint", time_s=1001.5, detail='{"bytes":7}')},
                {"release": pb.Release(lease_ids=[lease.lease_id], reason="done")},
                {"finish": pb.Finish(state="FINISHED", diagnostics="well")},
            ]
            for number, body in enumerate(messages, start=1):
                await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=number, **body))
            reported = [(event.kind, event.time_s, event.detail) for event in rm.store.events(app_id=entry.app_id)]
            on_gpu = {"lease_id": lease.lease_id, "gpu": "m0/0", "expires_at_s": 1600.0}
            submitted = {
                "name": "mine",
                "user": "user",
                "queue": "default",
                "tuner": "single",
                "program": "digits",
                "replay": False,
                "jobs": 2,
                "demand_max_gpus": 4,
            }
            assert reported == [
                ("app_submitted", 1000.0, submitted),
                ("am_started", 1000.0, {"attempt": 1, "pid": 1}),
                ("am_registered", 1000.0, {"attempt": 1, "pid": 1}),
                ("lease_granted", 1000.0, {**on_gpu, "round_id": 1, "device": "gpu"}),
                ("checkpoint", 1001.5, {"job_id": "job-0", "bytes": 7}),
                ("lease_released", 1000.0, {**on_gpu, "reason": "done"}),
                ("app_state", 1000.0, {"state": "FINISHED", "diagnostics": "well"}),
            ]

    run(scenario)


# ---- sessions -------------------------------------------------------------------------------------------------------


class RefusedError(Exception):
    """What a refused call raises."""


class Context:
    """A gRPC context that notes why a call was refused."""

    def peer(self):
        return "unix:"

    def invocation_metadata(self):
        return ()

    async def abort(self, code, details, trailing_metadata=()):
        raise RefusedError(code.name, details)


class Stream:
    """What an app master sends, message by message."""

    def __init__(self, *messages):
        self.queue = asyncio.Queue()
        for message in messages:
            self.queue.put_nowait(message)

    async def __aiter__(self):
        while (message := await self.queue.get()) is not None:
            yield message

    def send(self, message):
        self.queue.put_nowait(message)


async def rest_of(replies):
    return [reply async for reply in replies]


class TestSession:
    def test_session_begins_with_welcome_and_answers_messages(self, tmp_path):
        async def scenario():
            async with memory_service(tmp_path) as rm:
                entry = await rm.manager.submit(app("mine"))
                stream = Stream(pb.AmMessage(register=registration(entry)))
                replies = ArbiterService(rm.manager).Session(stream, Context())
                welcome = await anext(replies)
                assert welcome.registered.app_id == entry.app_id
                assert (welcome.registered.spec.name, welcome.registered.lease_s) == ("mine", 600.0)
                stream.send(pb.AmMessage(id=1, heartbeat=pb.Heartbeat(progress=0.25)))
                assert (await anext(replies)).acknowledge.of_id == 1
                assert entry.progress == 0.25
                assert rm.arbiter.begin_round(rm.clock.now_s())[0].apps[0].silent is False
                stream.send(None)
                with pytest.raises(StopAsyncIteration):
                    await anext(replies)
                assert entry.session is None
                assert rm.arbiter.begin_round(rm.clock.now_s())[0].apps[0].silent is True

        run(scenario)

    def test_second_session_of_an_attempt_replaces_the_first(self, tmp_path):
        async def scenario():
            async with memory_service(tmp_path) as rm:
                entry = await rm.manager.submit(app("mine"))
                service = ArbiterService(rm.manager)
                streams = [Stream(pb.AmMessage(register=registration(entry))) for _ in range(2)]
                first, second = (service.Session(stream, Context()) for stream in streams)
                await anext(first)
                await anext(second)
                ended = asyncio.ensure_future(rest_of(first))
                # Its app master need not close the stream.
                await until(ended.done)
                # The end of the first does not end the second.
                assert entry.session is not None
                streams[1].send(pb.AmMessage(id=5, heartbeat=pb.Heartbeat(progress=0.5)))
                assert (await anext(second)).acknowledge.of_id == 5
                streams[1].send(None)
                with pytest.raises(StopAsyncIteration):
                    await anext(second)

        run(scenario)

    @pytest.mark.parametrize(
        ("first", "code"),
        [
            (pb.AmMessage(id=1, heartbeat=pb.Heartbeat()), "INVALID_ARGUMENT"),
            (None, "INVALID_ARGUMENT"),
            (pb.AmMessage(register=pb.Register(app_id="app-0001", attempt=1, token="x")), "PERMISSION_DENIED"),
            (pb.AmMessage(register=pb.Register(app_id="app-0009", attempt=1)), "PERMISSION_DENIED"),
        ],
    )
    def test_session_without_valid_registration_is_refused(self, tmp_path, first, code):
        async def scenario():
            async with memory_service(tmp_path) as rm:
                entry = await rm.manager.submit(app("mine"))
                with pytest.raises(RefusedError) as raised:
                    await anext(ArbiterService(rm.manager).Session(Stream(first), Context()))
                assert raised.value.args[0] == code
                assert (entry.session, entry.state) == (None, AppState.ACCEPTED)

        run(scenario)

    def test_attempt_that_the_engine_started_by_itself_tries_again_while_the_engine_is_unavailable(
        self, tmp_path, monkeypatch
    ):
        async def scenario():
            async with memory_service(tmp_path) as rm:
                entry, _ = await rm.registered(app("mine"))
                first = pb.AmMessage(register=registration(entry, attempt=2, pid=5))
                rm.launcher.restarted[entry.app_id] = 2

                async def unavailable(_app_id, _attempt):
                    raise UnreachableError("the engine does not answer")

                with monkeypatch.context() as patched:
                    patched.setattr(rm.launcher, "attempts", unavailable)
                    with pytest.raises(RefusedError) as raised:
                        await anext(ArbiterService(rm.manager).Session(Stream(first), Context()))
                    assert raised.value.args[0] == "UNAVAILABLE"
                replies = ArbiterService(rm.manager).Session(Stream(first), Context())
                assert (await anext(replies)).WhichOneof("body") == "registered"
                assert entry.registered_attempt == 2
                await replies.aclose()

        run(scenario)

    @pytest.mark.parametrize(("taken", "failures"), [({1}, 0), ({2}, 1), (set(), 1)])
    def test_attempt_that_the_engine_started_after_the_site_took_the_former_one_is_no_failure(
        self, tmp_path, taken, failures
    ):
        async def scenario():
            async with memory_service(tmp_path) as rm:
                entry, _ = await rm.registered(app("mine"))
                rm.launcher.restarted[entry.app_id], rm.launcher.taken[entry.app_id] = 2, frozenset(taken)
                first = pb.AmMessage(register=registration(entry, attempt=2, pid=5))
                replies = ArbiterService(rm.manager).Session(Stream(first), Context())
                assert (await anext(replies)).WhichOneof("body") == "registered"
                assert (entry.registered_attempt, len(entry.attempt_losses.failed_at_s)) == (2, failures)
                await replies.aclose()

        run(scenario)

    def test_app_that_is_to_end_is_told_so_at_once(self, tmp_path):
        async def scenario():
            async with memory_service(tmp_path) as rm:
                entry, _ = await rm.registered(app("mine"))
                await rm.manager.kill(entry.app_id, "no longer wanted")
                stream = Stream(pb.AmMessage(register=registration(entry)))
                replies = ArbiterService(rm.manager).Session(stream, Context())
                assert (await anext(replies)).WhichOneof("body") == "registered"
                assert (await anext(replies)).shut_down.reason == "no longer wanted"
                await replies.aclose()

        run(scenario)


@pytest.mark.parametrize("trouble", [None, DockerError("the Docker engine does not answer")])
def test_leases_outlast_an_orderly_stop_also_if_the_engine_does_not_answer(tmp_path, monkeypatch, trouble):
    """Else the first app that comes back would take the GPUs of all."""

    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, _ = await rm.registered(app("mine"))
            await grant(rm, entry, 2)

            async def refuse():
                raise trouble

            if trouble is not None:
                monkeypatch.setattr(rm.launcher, "shutdown", refuse)
            await rm.manager.app_masters.close()
            assert [lease.app_id for lease in rm.store.leases()] == [entry.app_id] * 2

    run(scenario)
