"""When a job that was started counts as running: once its tasks' processes run, whatever they print."""

import asyncio

from attempt_cases import SLOT

from themis.lifecycle import JobState


def test_job_that_prints_nothing_runs(attempt):
    one = attempt(tuner="single", iterations=10, jobs=("j0",))
    states = []
    one.app.search.on_turn = lambda job: states.append(job.state)

    async def scenario():
        await one.start("j0")
        one.look(3)
        assert (one.jobs["j0"].state, one.details("first_step")) == (JobState.RUNNING, [])
        one.jobs["j0"].handles[0].end(0)
        await one.ended("j0")

    asyncio.run(scenario())
    assert states == [JobState.STARTING, JobState.RUNNING, JobState.PHASE_DONE]


def test_job_that_waits_for_room_is_starting(attempt, monkeypatch):
    one = attempt(tuner="single", iterations=10, jobs=("j0",))
    job = one.jobs["j0"]
    job.folder.mkdir(parents=True)

    async def scenario():
        async def no_room_yet(requests):
            await asyncio.Event().wait()

        monkeypatch.setattr(one.runtime, "reserve", no_room_yet)
        one.runner.start(job, (SLOT["j0"],))
        await asyncio.sleep(0)
        one.look(3)
        assert job.state is JobState.STARTING
        one.runner.stop(job, "its lease ends")
        await one.ended("j0")

    asyncio.run(scenario())
    assert job.state is JobState.WAITING


def test_job_that_is_stopped_before_its_first_line_does_not_count_as_running_again(attempt):
    one = attempt(tuner="single", iterations=10, jobs=("j0",))

    async def scenario():
        await one.start("j0")
        one.runner.stop(one.jobs["j0"], "its lease ends")
        one.look(2)
        assert one.jobs["j0"].state is JobState.CHECKPOINTING
        one.jobs["j0"].handles[0].end(75)
        await one.ended("j0")

    asyncio.run(scenario())
    assert one.jobs["j0"].state is JobState.WAITING
