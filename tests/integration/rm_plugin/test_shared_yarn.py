"""Apps on a YARN cluster that another tenant shares."""

import asyncio

import pytest
from shared_yarn import site

from rm_plugin.policies.port import traits_of
from rm_plugin.policies.registry import POLICIES, make_policy


def shape(policy):
    return {"tasks": 8} if traits_of(make_policy(policy)).gangs else {"jobs": 8, "tasks": 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_gpus_that_another_tenant_took_at_the_end_of_leases_do_not_stop_the_others(tmp_path, policy):
    async def scenario():
        async with site(tmp_path, policy) as here:
            apps = [await here.submit(name, **shape(policy)) for name in ("one", "other")]
            await here.until(lambda: here.tasks == 10, "every GPU is in use", 10)
            here.stranger.ask(m0=2, m1=2, m2=1)
            await here.manager.kill(apps[0], "")

            def settled():
                held = here.stranger.held.total()
                return held and here.tasks == min(8, 10 - held) == here.yarn.used(ours=True).total()

            await here.until(settled, "the app has the rest", 10)

    asyncio.run(scenario())
