"""Apps on a YARN cluster that other tenants and limits share."""

import asyncio

import pytest
from shared_yarn import site

from rm_plugin.policies.port import traits_of
from rm_plugin.policies.registry import POLICIES, make_policy


def run(scenario, tmp_path, policy="fair_finish", **settings):
    async def whole():
        async with site(tmp_path, policy, **settings) as here:
            await scenario(here)

    asyncio.run(whole())


def of_eight(policy="fair_finish"):
    """The jobs of an app that can use eight GPUs."""
    return {"tasks": 8} if traits_of(make_policy(policy)).gangs else {"jobs": 8, "tasks": 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_gpus_that_another_tenant_takes_leave_the_rest_in_use(tmp_path, policy):
    async def scenario(here):
        first = await here.submit("first", **of_eight(policy))
        await here.submit("second", **of_eight(policy))
        await here.until(lambda: here.tasks == 10, "every GPU is in use")
        here.stranger.ask(m0=2, m1=2, m2=1)
        await here.manager.kill(first, "")

        def settled():
            held = here.stranger.held.total()
            return held and here.tasks == min(8, 10 - held) == here.yarn.used(ours=True).total()

        await here.until(settled, "the other app has the rest")

    run(scenario, tmp_path, policy)


def test_scattered_gpus_are_used(tmp_path):
    async def scenario(here):
        here.stranger.ask(m0=3, m1=3, m2=1)
        here.stranger.take()
        await here.submit("one", **of_eight())
        await here.until(lambda: here.tasks == 3, "the app has one GPU of each machine")

    run(scenario, tmp_path)


def test_gpus_of_a_tenant_that_leaves_are_used(tmp_path):
    async def scenario(here):
        here.stranger.ask(m0=4, m1=2)
        here.stranger.take()
        await here.submit("one", **of_eight())
        await here.until(lambda: here.tasks == 4, "the app has the rest")
        here.stranger.leave()
        await here.until(lambda: here.tasks == 8, "the app has all that it can use")

    run(scenario, tmp_path)


def test_queue_that_shrinks_and_grows_is_used_up_to_its_limit(tmp_path):
    async def scenario(here):
        for name in ("one", "other"):
            await here.submit(name, **of_eight())
        await here.until(lambda: here.tasks == 10, "every GPU is in use")
        for limit in (3, 5):
            here.yarn.queue_gpus = limit
            await here.until(lambda: here.tasks == limit, f"{limit} GPUs are in use")  # noqa: B023

    run(scenario, tmp_path)


def test_job_works_on_while_yarn_does_not_grant_what_it_could_grow_by(tmp_path):
    """As under a `user-limit-factor`, which YARN does not report."""

    async def scenario(here):
        here.yarn.unreported_gpus = 5
        app_id = await here.submit("one", **of_eight())
        await here.until(lambda: here.tasks == 5, "it starts on what it is granted")
        released = lambda: len(here.events("lease_released", app_id))  # noqa: E731
        before = released()
        lowest = 5
        async with asyncio.timeout(50):
            while released() < before + 6:
                lowest = min(lowest, here.tasks)
                await asyncio.sleep(0.01)
        assert lowest == 5
        entry = here.manager.entries.get(app_id)
        assert "YARN granted no container" in here.manager.waits_for(entry)

    run(scenario, tmp_path)


GANG_POLICIES = [name for name in POLICIES if traits_of(make_policy(name)).gangs]


@pytest.mark.parametrize("policy", GANG_POLICIES)
def test_smaller_app_gets_what_a_gang_was_not_granted(tmp_path, policy):
    """The gang may ask again after 100 s only, and not at all until YARN has headroom for it."""

    async def scenario(here):
        here.yarn.unreported_gpus = 5
        gang = await here.submit("gang", tasks=8, min_tasks=6)
        await here.until(lambda: here.grants(gang).gpus is not None, "the gang is not granted")
        await here.submit("small", **of_eight(policy))
        await here.until(lambda: here.tasks == 5, "the smaller app has all that YARN grants")
        shown = here.manager.waits_for(here.manager.entries.get(gang))
        assert "YARN granted no container" in shown
        assert "at most 5 GPUs are leased to it for" in shown

    run(scenario, tmp_path, policy, unfit_s=100)


def test_gang_starts_as_soon_as_yarn_has_headroom_for_it(tmp_path):
    async def scenario(here):
        here.yarn.unreported_gpus = 5
        gang = await here.submit("gang", tasks=8, min_tasks=6)
        await here.until(lambda: here.grants(gang).gpus is not None, "the gang is not granted")
        here.yarn.unreported_gpus = None
        await here.until(lambda: here.tasks == 8, "the gang runs", 20)
        assert here.grants(gang).gpus is None

    run(scenario, tmp_path, unfit_s=60)


@pytest.mark.parametrize("knows_headroom", [True, False])
def test_gang_that_yarn_never_grants_asks_less_and_less_often(tmp_path, knows_headroom):
    async def scenario(here):
        here.yarn.unreported_gpus, here.yarn.knows_headroom = 5, knows_headroom
        gang = await here.submit("gang", tasks=8, min_tasks=6)
        again_s = []
        for times in (2, 3, 4):
            await here.until(lambda: here.grants(gang).times == times, f"request {times} is not granted")  # noqa: B023
            again_s.append(here.grants(gang).until_s)
        # Pauses of 1 and 2 s, twice as long each time, and what a busy machine adds.
        assert again_s[1] - again_s[0] > 1.9
        assert again_s[2] - again_s[1] > 3.9
        await here.submit("small", **of_eight())
        await here.until(lambda: here.tasks == 5, "the smaller app has all that YARN grants")

    run(scenario, tmp_path)
