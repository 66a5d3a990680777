"""A burst of submissions: few app masters start at a time, in order, and no app waits for ever."""

import asyncio

import pytest
from service_cases import app, registration

from rm_plugin.service import starts
from rm_plugin.service.launches import RELAUNCH_EVERY_S
from rm_plugin.service.memory_service import memory_service, until
from rm_plugin.service.starts import Starts
from themis.errors import UnreachableError
from themis.lifecycle import AppState


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario(), 20))


async def burst(rm, apps):
    return [await rm.manager.submit(app(f"of-{number}")) for number in range(apps)]


def launched(rm):
    return [am.app_id for am in rm.launcher.launched]


def test_burst_starts_at_most_limit_until_one_registers(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, am_starts_at_once=3) as rm:
            entries = await burst(rm, 20)
            assert launched(rm) == ["app-0001", "app-0002", "app-0003"]
            assert [entry.state for entry in entries[3:]] == [AppState.SUBMITTED] * 17
            await rm.manager.sessions.register(registration(entries[1]))
            await until(lambda: len(launched(rm)) == 4)
            assert launched(rm)[-1] == "app-0004"
            # The registration of an app that is no longer starting lets no other app start.
            await rm.manager.sessions.register(registration(entries[1]))
            await asyncio.sleep(0.05)
            assert len(launched(rm)) == 4

    run(scenario)


def test_every_app_of_burst_starts_in_order_of_submission(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, am_starts_at_once=2) as rm:
            entries = await burst(rm, 30)
            for entry in entries:
                await until(lambda entry=entry: entry.attempt == 1 and entry.pid > 0)
                await rm.manager.sessions.register(registration(entry))
            assert launched(rm) == [entry.app_id for entry in entries]

    run(scenario)


def test_app_killed_while_it_waits_never_starts(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, am_starts_at_once=1) as rm:
            first, second, third = await burst(rm, 3)
            await rm.manager.kill(second.app_id, "no longer wanted")
            await until(lambda: second.ended)
            await rm.manager.sessions.register(registration(first))
            await until(lambda: len(launched(rm)) == 2)
            assert third.attempt == 1
            assert launched(rm) == [first.app_id, third.app_id]
            assert second.state is AppState.KILLED

    run(scenario)


def test_waiting_app_is_not_silent(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, am_starts_at_once=1) as rm:
            _, second = await burst(rm, 2)
            rm.clock.advance_to(rm.clock.now_s() + rm.settings.am_start_s - 1.0)
            second.last_seen_s -= 10 * rm.settings.am_start_s
            rm.manager.app_masters.check_apps()
            await until(lambda: not rm.manager.app_masters._being_checked)
            assert (second.state, second.attempt) == (AppState.SUBMITTED, 0)
            assert "am_lost" not in rm.kinds

    run(scenario)


def test_lost_app_master_gives_its_turn_to_next(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, am_starts_at_once=1, am_max_attempts=1) as rm:
            first, second = await burst(rm, 2)
            await rm.launcher.end(first.app_id, 1)
            await until(lambda: second.attempt == 1)
            assert first.state is AppState.FAILED

    run(scenario)


def test_recovery_starts_at_most_limit(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, am_starts_at_once=5) as rm:
            await burst(rm, 9)
        async with memory_service(tmp_path, store=rm.store, am_starts_at_once=2) as again:
            await again.manager.app_masters.recover()
            await asyncio.sleep(0.05)
            assert launched(again) == ["app-0001", "app-0002"]

    run(scenario)


def test_apps_that_waited_for_the_engine_start_at_most_limit_at_once(tmp_path, monkeypatch):
    async def unavailable(_):
        raise UnreachableError("YARN is unavailable")

    async def scenario():
        async with memory_service(tmp_path, am_starts_at_once=2) as rm:
            with monkeypatch.context() as away:
                away.setattr(rm.launcher, "launch", unavailable)
                entries = await burst(rm, 6)
                await until(lambda: all(entry.launch_wait for entry in entries))
            rm.clock.advance_to(rm.clock.now_s() + RELAUNCH_EVERY_S)
            rm.manager.app_masters.check_apps()
            await until(lambda: len(launched(rm)) == 2)
            await asyncio.sleep(0.05)
            assert len(launched(rm)) == 2
            await rm.manager.sessions.register(registration(entries[0]))
            await until(lambda: len(launched(rm)) == 3)

    run(scenario)


def test_start_that_takes_long_gives_up_its_turn(monkeypatch):
    monkeypatch.setattr(starts, "STARTING_S", 0.02)

    async def scenario():
        turns = Starts(1)
        await turns.turn("app-0001")
        await turns.turn("app-0002")
        assert not turns.has_room

    run(scenario)


def test_cancelled_turn_is_not_given_away():
    async def scenario():
        turns = Starts(1)
        await turns.turn("app-0001")
        waiting = asyncio.ensure_future(turns.turn("app-0002"))
        await asyncio.sleep(0)
        waiting.cancel()
        turns.done("app-0001")
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert turns.has_room

    run(scenario)
