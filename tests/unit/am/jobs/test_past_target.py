"""An app with a job that runs past its target declares no end."""

import asyncio

from am.status import LossCurves, heartbeat_message


def provisional(app):
    return heartbeat_message(app, app.view({}), LossCurves(), None).provisional


def test_end_of_an_app_is_unknown_while_a_job_runs_past_its_target(attempt):
    one = attempt(tuner="single", jobs=("j0",), iterations=20)
    said = []

    async def scenario():
        await one.start("j0")
        for first in (1, 11, 23):
            one.log("j0", *[0.5] * 5, first=first)
            one.look(2)
            said.append(provisional(one.app))
        one.jobs["j0"].handles[0].end(0)
        await one.ended("j0")
        said.append(provisional(one.app))

    asyncio.run(scenario())
    assert said == [False, False, True, False]
