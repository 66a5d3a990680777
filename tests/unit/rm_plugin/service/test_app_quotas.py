"""Queues in the service: apps that wait, submissions that are refused, a reload, and usage by user and month."""

import asyncio

import pytest
from hosted_cases import InlineHost
from msgspec.structs import replace
from service_cases import ServiceCase, app, registration

from rm_plugin.engines.port import AmExit
from rm_plugin.service.log_summary import by_month
from rm_plugin.service.memory_service import until
from rm_plugin.service.status import app_status
from rm_plugin.service.store_memory import MemoryStore
from themis.errors import InputError, UnknownNameError
from themis.identity import Identity
from themis.lifecycle import AppState

LIMITED = "queues: {vision: {max_active_apps: 1}, speech: {each_user: {max_active_apps: 1}}, default: {}}"


def of(user: str, queue: str, name: str):
    return replace(app(name), user=user, queue=queue)


def case_of(tmp_path, text: str, store=None) -> ServiceCase:
    path = tmp_path / "queues.yaml"
    path.write_text(text)
    return ServiceCase(store or MemoryStore(), folder=tmp_path, queues=path)


def run(body) -> None:
    asyncio.run(body())


def test_an_app_over_the_limit_waits_with_the_reason_until_another_ends(tmp_path):
    async def body():
        case = case_of(tmp_path, LIMITED)
        first = await case.manager.submit(of("anna", "vision", "first"))
        second = await case.manager.submit(of("bob", "vision", "second"))
        assert second.state is AppState.SUBMITTED
        assert case.manager.waits_for(second) == "queue vision has 1 active apps, and may have 1"
        assert case.arbiter.active_apps == (first.app_id,)
        case.check()
        case.manager.app_masters.check_apps()
        assert case.arbiter.active_count == 1
        await case.manager.changes.make(
            lambda change: case.manager.app_masters.lifecycle.end(change, first, AppState.FAILED, "it failed")
        )
        case.manager.app_masters.check_apps()
        await until(lambda: second.attempt == 1)
        assert case.arbiter.active_apps == (second.app_id,)
        assert case.manager.waits_for(second) == ""

    run(body)


def test_the_limit_of_each_user_counts_the_apps_of_this_user_alone(tmp_path):
    async def body():
        case = case_of(tmp_path, LIMITED)
        for user in ("anna", "bob"):
            assert (await case.manager.submit(of(user, "speech", f"of-{user}"))).attempt == 1
        waits = await case.manager.submit(of("anna", "speech", "more"))
        assert "user anna in queue speech has 1 active apps" in case.manager.waits_for(waits)

    run(body)


def test_time_until_the_end_of_an_app_that_was_never_admitted_is_a_wait(tmp_path):
    async def body():
        case = case_of(tmp_path, LIMITED)
        await case.manager.submit(of("anna", "vision", "first"))
        waits = await case.manager.submit(of("anna", "vision", "second"))
        case.clock.advance_to(case.clock.now_s() + 100.0)
        await case.manager.kill(waits.app_id, "")
        await until(lambda: waits.ended)
        assert (waits.waits_since_s, waits.unadmitted_s) == (None, 100.0)

    run(body)


def test_an_app_that_waits_can_be_killed(tmp_path):
    async def body():
        case = case_of(tmp_path, LIMITED)
        await case.manager.submit(of("anna", "vision", "first"))
        waits = await case.manager.submit(of("anna", "vision", "second"))
        await case.manager.kill(waits.app_id, "")
        await asyncio.sleep(0.01)
        case.manager.app_masters.check_apps()
        assert waits.state is AppState.KILLED
        assert not case.manager.quotas.waiting

    run(body)


def test_an_app_that_waits_still_waits_after_a_restart(tmp_path):
    async def body():
        store = MemoryStore()
        case = case_of(tmp_path, LIMITED, store)
        await case.manager.submit(of("anna", "vision", "first"))
        await case.manager.submit(of("anna", "vision", "second"))
        again = case_of(tmp_path, LIMITED, store)
        await again.manager.app_masters.recover()
        first, second = again.entries.active()
        assert again.arbiter.active_apps == (first.app_id,)
        assert again.manager.waits_for(second).startswith("queue vision has 1")

    run(body)


async def end(case, entry) -> None:
    await case.manager.changes.make(
        lambda change: case.manager.app_masters.lifecycle.end(change, entry, AppState.FAILED, "it failed")
    )


async def admitted(case, entry) -> None:
    case.manager.app_masters.check_apps()
    await until(lambda: entry.is_admitted)


async def paused(case, entry) -> None:
    await case.manager.pause(entry.app_id)
    await until(lambda: entry.state is AppState.PAUSED)


async def resumed_over_the_limit(case):
    """An app with GPU time that was paused, and waits since its resume, as another one is active."""
    entry = await case.manager.submit(of("anna", "vision", "first"))
    await case.manager.changes.make(lambda change: _grant(case, change, entry.app_id))
    case.clock.advance_to(case.clock.now_s() + 50.0)
    await paused(case, entry)
    other = await case.manager.submit(of("bob", "vision", "second"))
    await case.manager.resume(entry.app_id)
    assert case.arbiter.active_apps == (other.app_id,)
    return entry, other


@pytest.mark.parametrize("app_masters", ["at_submit", "at_grant"])
def test_apps_that_wait_keep_their_order_over_a_restart(tmp_path, app_masters):
    async def body():
        def case(store):
            path = tmp_path / "queues.yaml"
            path.write_text("queues: {vision: {max_active_apps: 2}}")
            return ServiceCase(store, folder=tmp_path, queues=path, app_masters=app_masters, host=InlineHost())

        store = MemoryStore()
        before = case(store)
        ids = [(await before.manager.submit(of("anna", "vision", f"a{number}"))).app_id for number in range(4)]
        again = case(store)
        await again.manager.app_masters.recover()
        assert list(again.arbiter.active_apps) == ids[:2]
        assert list(again.manager.quotas.waiting) == ids[2:]
        await end(again, again.entries.get(ids[0]))
        await admitted(again, again.entries.get(ids[2]))
        assert list(again.manager.quotas.waiting) == ids[3:]
        for each in (before, again):
            await each.manager.hosted.close()

    run(body)


def test_app_counts_as_paused_until_it_is_admitted_again_or_ends(tmp_path):
    def paused_apps(case):
        snapshot, _ = case.arbiter.begin_round(case.clock.now_s())
        return snapshot.paused

    async def body():
        store = MemoryStore()
        case = case_of(tmp_path, LIMITED, store=store)
        entry, other = await resumed_over_the_limit(case)
        assert paused_apps(case) == {entry.app_id}
        again = case_of(tmp_path, LIMITED, store=store)
        again.clock.advance_to(case.clock.now_s())
        assert paused_apps(again) == {entry.app_id}
        await end(case, other)
        await admitted(case, entry)
        assert not paused_apps(case)
        await paused(case, entry)
        assert paused_apps(case) == {entry.app_id}
        await case.manager.kill(entry.app_id, "enough")
        assert not paused_apps(case)

    run(body)


def test_new_app_waits_behind_those_that_wait_when_a_place_comes_free(tmp_path):
    async def body():
        case = case_of(tmp_path, LIMITED)
        first = await case.manager.submit(of("anna", "vision", "first"))
        second = await case.manager.submit(of("bob", "vision", "second"))
        await end(case, first)
        third = await case.manager.submit(of("carl", "vision", "third"))
        assert case.manager.waits_for(third) == "it waits for its turn within the limits of its queue"
        await admitted(case, second)
        assert list(case.manager.quotas.waiting) == [third.app_id]
        case.manager.app_masters.check_apps()
        assert case.manager.waits_for(third) == "queue vision has 1 active apps, and may have 1"

    run(body)


def test_fairness_counts_from_the_admission_for_rounds_app_masters_and_after_a_restart(tmp_path):
    async def body():
        store = MemoryStore()
        case = case_of(tmp_path, LIMITED, store)
        first = await case.manager.submit(of("anna", "vision", "first"))
        second = await case.manager.submit(of("bob", "vision", "second"))
        case.clock.advance_to(case.clock.now_s() + 1_000.0)
        await end(case, first)
        await admitted(case, second)
        # Its launch writes the hash of its token before.
        await until(lambda: second.app_id in case.launcher.living)
        _, session = await case.manager.sessions.register(registration(second))
        welcome = session._outgoing.get_nowait().registered
        snapshot, _ = case.arbiter.begin_round(case.clock.now_s())
        assert welcome.submitted_at_s == snapshot.standing(second.app_id).submitted_at_s == case.clock.now_s()
        again = case_of(tmp_path, LIMITED, store)
        again.clock.advance_to(case.clock.now_s() + 5.0)
        snapshot, _ = again.arbiter.begin_round(again.clock.now_s())
        assert snapshot.standing(second.app_id).submitted_at_s == welcome.submitted_at_s

    run(body)


def test_resumed_app_over_the_limit_waits_over_a_restart_and_keeps_its_gpu_time(tmp_path):
    async def body():
        store = MemoryStore()
        case = case_of(tmp_path, LIMITED, store)
        entry, other = await resumed_over_the_limit(case)
        assert app_status(case.manager, entry, whole=False).gpu_time_s == pytest.approx(100.0)
        again = case_of(tmp_path, LIMITED, store)
        again.clock.advance_to(case.clock.now_s() + 10.0)
        await again.manager.app_masters.recover()
        entry, other = again.entries.get(entry.app_id), again.entries.get(other.app_id)
        assert again.arbiter.active_apps == (other.app_id,)
        assert (entry.attempt, list(again.manager.quotas.waiting)) == (1, [entry.app_id])
        await end(again, other)
        await admitted(again, entry)
        await until(lambda: entry.attempt == 2)
        assert again.arbiter.attained_gpu_s(entry.app_id, again.clock.now_s()) == pytest.approx(100.0)
        assert entry.arrived_at_s == entry.submitted_at_s + 10.0

    run(body)


@pytest.mark.parametrize("leave", ["pause", "kill"])
def test_app_that_leaves_while_it_waits_keeps_its_gpu_time(tmp_path, leave):
    async def body():
        case = case_of(tmp_path, LIMITED)
        entry, other = await resumed_over_the_limit(case)
        await getattr(case.manager, leave)(entry.app_id, "")
        # Its place comes free in the moment in which it leaves.
        await end(case, other)
        case.manager.app_masters.check_apps()
        await until(lambda: not entry.is_active)
        assert (entry.attempt, entry.gpu_time_s) == (1, pytest.approx(100.0))
        assert case.arbiter.active_apps == ()
        assert not case.manager.quotas.waiting

    run(body)


@pytest.mark.parametrize("killed", ["", "killed by yarn"])
def test_late_end_of_the_paused_attempt_does_not_start_or_end_the_resumed_app(tmp_path, killed):
    async def body():
        case = case_of(tmp_path, LIMITED)
        entry, _ = await resumed_over_the_limit(case)
        await case.manager.app_masters.am_exited(
            AmExit(app_id=entry.app_id, attempt=1, pid=1, exit_code=0, killed=killed)
        )
        assert (entry.state, entry.attempt) == (AppState.ACCEPTED, 1)
        assert entry.app_id in case.manager.quotas.waiting

    run(body)


def test_look_without_a_change_costs_nothing(tmp_path, monkeypatch):
    async def body():
        case = case_of(tmp_path, LIMITED)
        for name in ("first", "second"):
            await case.manager.submit(of("anna", "vision", name))
        assert not case.manager.quotas.look()
        monkeypatch.setattr(case.manager.quotas, "due", None)
        assert not case.manager.quotas.look()

    run(body)


@pytest.mark.parametrize("app_masters", ["at_submit", "at_grant"])
def test_gpu_time_of_paused_apps_counts_for_their_user_after_a_restart_too(tmp_path, app_masters):
    async def body():
        store, settings = MemoryStore(), {"app_masters": app_masters, "host": InlineHost()}
        case = ServiceCase(store, folder=tmp_path, **settings)
        await case.manager.submit(app("older"))
        entry = await case.manager.submit(app("paused"))
        await case.manager.changes.make(lambda change: _grant(case, change, entry.app_id))
        case.clock.advance_to(case.clock.now_s() + 50.0)
        await paused(case, entry)
        now_s = case.clock.now_s()
        before = case.arbiter.begin_round(now_s)[0].ended_gpu_s
        assert before == {("root", "user"): pytest.approx(100.0)}
        again = ServiceCase(store, folder=tmp_path, now_s=now_s, **settings)
        assert again.arbiter.begin_round(now_s)[0].ended_gpu_s == before
        await case.manager.hosted.close()

    run(body)


def test_a_submission_over_the_rate_is_refused_until_time_has_passed(tmp_path):
    async def body():
        case = case_of(tmp_path, "each_user: {submissions_per_minute: 2}")
        for number in range(2):
            await case.manager.submit(of("anna", "any", f"a{number}"))
        with pytest.raises(InputError, match=r"user anna in queue root may submit 2 apps a minute; try again in 30 s"):
            await case.manager.submit(of("anna", "any", "a2"))
        await case.manager.submit(of("bob", "any", "b"))
        case.clock.advance_to(case.clock.now_s() + 31.0)
        await case.manager.submit(of("anna", "any", "a3"))

    run(body)


def test_a_user_over_its_own_rate_does_not_use_up_that_of_its_queue(tmp_path):
    async def body():
        case = case_of(tmp_path, "submissions_per_minute: 3\neach_user: {submissions_per_minute: 1}")
        await case.manager.submit(of("anna", "any", "a"))
        for _ in range(5):
            with pytest.raises(InputError, match="user anna in queue root"):
                await case.manager.submit(of("anna", "any", "again"))
        await case.manager.submit(of("bob", "any", "b"))

    run(body)


def test_a_queue_that_the_file_lacks_is_refused(tmp_path):
    async def body():
        case = case_of(tmp_path, LIMITED)
        with pytest.raises(UnknownNameError, match="did you mean 'vision'"):
            await case.manager.submit(of("anna", "visoin", "a"))

    run(body)


def test_a_reload_is_written_and_applies_and_a_wrong_file_changes_nothing(tmp_path):
    async def body():
        store = MemoryStore()
        case = case_of(tmp_path, LIMITED, store)
        await case.manager.submit(of("anna", "vision", "first"))
        waits = await case.manager.submit(of("anna", "vision", "second"))
        (tmp_path / "queues.yaml").write_text("queues: {vision: {weight: -1}}")
        before = case.arbiter.queues
        with pytest.raises(InputError, match="weight"):
            await case.manager.reload_queues(by="root")
        assert case.arbiter.queues is before
        (tmp_path / "queues.yaml").write_text("queues: {vision: {max_active_apps: 2}}")
        await case.manager.reload_queues(by="root")
        event = store.events()[-1]
        assert (event.kind, event.detail["action"], event.detail["user"]) == ("user_acted", "queues_reloaded", "root")
        assert "the queues changed" in case.rounds._reasons
        case.manager.app_masters.check_apps()
        await until(lambda: waits.app_id in case.arbiter.active_apps)

    run(body)


def test_a_reload_without_a_file_says_which_setting_is_missing():
    async def body():
        case = ServiceCase(MemoryStore())
        with pytest.raises(InputError, match="set `queues` in the settings"):
            await case.manager.reload_queues(by="root")

    run(body)


def test_usage_is_the_metered_time_of_leases_by_user_and_device_and_outlives_events_and_restarts(tmp_path):
    async def body():
        store = MemoryStore()
        case = ServiceCase(store, policy="tiresias", folder=tmp_path, retention={"keep_s": 60.0})
        entry, session = await case.started("mine", jobs=1)
        admin = Identity(user="root", is_admin=True)
        change = await case.manager.changes.make(lambda change: _grant(case, change, entry.app_id))
        assert len(change) == 2
        case.clock.advance_to(case.clock.now_s() + 100.0)
        month = next(by_month(case.clock.now_s() - 1.0, case.clock.now_s()))[0]
        key = (month, "user", "default", "v100")
        assert case.manager.usage("", admin) == {key: pytest.approx(200.0)}
        await case.manager.changes.make(
            lambda change: case.manager.app_masters.lifecycle.end(change, entry, AppState.FAILED, "it failed")
        )
        case.clock.advance_to(case.clock.now_s() + 500.0)
        session.close()
        case.manager.sessions.disconnected(entry, session)
        assert await case.manager.retention.archive_old() == 1
        assert not store.events(app_id=entry.app_id)
        again = ServiceCase(store, policy="tiresias", folder=tmp_path, now_s=case.clock.now_s())
        assert again.manager.usage(month, admin) == {key: pytest.approx(200.0)}
        assert again.manager.usage("2001-01", admin) == {}
        assert again.manager.usage("", Identity(user="other")) == {}
        assert list(again.manager.usage("", Identity(user="user"))) == [key]
        assert list(again.manager.usage("", Identity(user="keeper", queues=frozenset({"default"})))) == [key]
        assert again.manager.usage("", Identity(user="keeper", queues=frozenset({"v100"}))) == {}

    run(body)


def _grant(case, change, app_id):
    from rm_plugin.arbiter.round_values import Decision
    from rm_plugin.arbiter.rounds import RoundResult
    from themis.bids import PlacedGang
    from themis.cluster import Allocation, Level

    snapshot, _ = case.arbiter.begin_round(case.clock.now_s())
    gang = PlacedGang(gpus=Allocation.of({"m0": 2}), level=Level.SLOT, slot=0, device="v100")
    result = RoundResult(snapshot=snapshot, decision=Decision(auction={app_id: (gang,)}))
    changes = case.arbiter.settle(result, now_s=case.clock.now_s())
    change.leases(changes)
    return changes


@pytest.mark.parametrize("month", ["2026", "2026-13", "november"])
def test_what_is_not_a_month_is_refused(month):
    async def body():
        with pytest.raises(InputError, match="write it as 2026-11"):
            ServiceCase(MemoryStore()).manager.usage(month, Identity(user="a"))

    run(body)
