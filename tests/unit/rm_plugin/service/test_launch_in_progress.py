"""A ResourceManager that ends while an app master is being started: the next one adopts or replaces it at once."""

import asyncio

import pytest
from service_cases import app

from rm_plugin.service.memory_service import memory_service, until
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario(), 20))


def registration(master):
    """The first message of an app master, with the token that its launch gave it."""
    return pb.Register(app_id=master.app_id, attempt=master.attempt, token=master.launch.token, pid=4711)


async def cut_off(folder, *, started, **settings):
    """A service that ends before the engine's answer reaches it; returns it and what the engine started."""
    async with memory_service(folder, **settings) as rm:
        launch, came = rm.launcher.launch, asyncio.Event()

        async def unanswered(order):
            if started:
                await launch(order)
            came.set()
            await asyncio.Event().wait()

        rm.launcher.launch = unanswered
        submitting = asyncio.ensure_future(rm.manager.submit(app("mine")))
        await came.wait()
        submitting.cancel()
        masters = dict(rm.launcher.living)
    return rm, masters


@pytest.mark.parametrize("started", [True, False])
def test_start_whose_process_id_is_unknown_is_made_again_at_once(tmp_path, started):
    """On the engine local nothing finds the app master without its id, but the next launch ends it first."""

    async def scenario():
        former, masters = await cut_off(tmp_path, started=started)
        async with memory_service(tmp_path, store=former.store) as rm:
            rm.launcher.living = dict(masters)
            await rm.manager.app_masters.recover()
            (entry,) = rm.entries
            assert [am.attempt for am in rm.launcher.living.values()] == [2]
            assert (entry.attempt, entry.attempt_losses.excused_attempts) == (2, 1)
            if started:
                with pytest.raises(Exception, match="the token is not this app's"):
                    await rm.manager.sessions.register(registration(masters[entry.app_id]))
            await rm.manager.sessions.register(registration(rm.launcher.launched[0]))
            assert entry.state is AppState.RUNNING

    run(scenario)


def test_start_that_the_engine_knows_is_adopted_with_the_token_it_was_given(tmp_path):
    """YARN finds an application by its tags, and Docker a container by its labels."""

    async def scenario():
        former, masters = await cut_off(tmp_path, started=True)
        async with memory_service(tmp_path, store=former.store) as rm:
            rm.launcher.living = dict(masters)
            rm.launcher.adopt = lambda app_id, attempt, pid: answer(app_id in rm.launcher.living)
            assert await rm.manager.app_masters.recover() == 1
            (entry,) = rm.entries
            assert rm.launcher.launched == []
            await rm.manager.sessions.register(registration(masters[entry.app_id]))
            assert (entry.state, entry.attempt) == (AppState.RUNNING, 1)

    run(scenario)


async def answer(value):
    return value


@pytest.mark.parametrize(("silent_s", "reason"), [(31.0, ""), (299.0, ""), (301.0, "it never registered")])
def test_adopted_app_master_that_has_not_registered_has_the_time_of_a_start(tmp_path, silent_s, reason):
    async def scenario():
        limits = {"am_expiry_s": 30.0, "am_start_s": 300.0}
        async with memory_service(tmp_path, **limits) as former:
            await former.manager.submit(app("mine"))
            masters = dict(former.launcher.living)
        async with memory_service(tmp_path, store=former.store, **limits) as rm:
            rm.launcher.living = dict(masters)
            assert await rm.manager.app_masters.recover() == 1
            rm.clock.advance_to(rm.clock.now_s() + silent_s)
            rm.manager.app_masters.check_apps()
            await until(lambda: not rm.manager.app_masters._being_checked)
            lost = [event.detail["reason"] for event in rm.store.events() if event.kind == "am_lost"]
            assert lost == ([reason] if reason else [])

    run(scenario)
