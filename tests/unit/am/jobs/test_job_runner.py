"""The job runner where something goes wrong between a start of tasks and their end: nothing waits or starts twice."""

import asyncio

from am.profiler.health import MIN_STALL_S
from am.runtimes.port import ExitReason
from themis.errors import ThemisError
from themis.lifecycle import JobState


def one_job(attempt, **more):
    return attempt(tuner="single", iterations=60, jobs=("j0",), **more)


async def end(one, exit_code, reason=ExitReason.EXITED):
    one.jobs["j0"].handles[0].end(exit_code, reason)
    await one.ended("j0")


def test_stop_between_a_crash_and_the_restart_asks_no_task(attempt):
    one = one_job(attempt)
    job = one.jobs["j0"]

    async def scenario():
        await one.start("j0")
        job.handles[0].end(1)
        while job.state is not JobState.WAITING:
            await asyncio.sleep(0.001)
        assert job.running, "its GPUs stay its own during the pause"
        one.runner.stop(job, "its lease ends")
        await one.ended("j0")

    asyncio.run(scenario())
    assert (job.state, job.stop_reason, one.runtime.stops) == (JobState.WAITING, "its lease ends", [])


def test_second_stop_changes_nothing(attempt):
    one = one_job(attempt)
    job = one.jobs["j0"]

    async def scenario():
        await one.start("j0")
        one.runner.stop(job, "its lease ends")
        one.runner.stop(job, "it moves")
        await one.ended("j0")

    asyncio.run(scenario())
    assert job.stop_reason == "its lease ends"
    assert one.runtime.stops == [(1, 1.0)]


def test_job_that_is_stopped_while_its_tasks_start_gets_the_signal_afterwards(attempt, monkeypatch):
    one = one_job(attempt)
    job = one.jobs["j0"]
    job.folder.mkdir(parents=True)
    start = one.runtime.start

    async def scenario():
        starts, go_on = asyncio.Event(), asyncio.Event()

        async def slow_start(launch):
            starts.set()
            await go_on.wait()
            return await start(launch)

        monkeypatch.setattr(one.runtime, "start", slow_start)
        await_start = asyncio.create_task(one.start("j0"))
        await starts.wait()
        one.runner.stop(job, "its lease ends")
        assert one.runtime.stops == []
        go_on.set()
        await one.ended("j0")
        await_start.cancel()

    asyncio.run(scenario())
    assert (job.state, one.runtime.stops) == (JobState.WAITING, [(1, 1.0)])


def test_job_that_used_too_much_memory_says_so(attempt):
    one = one_job(attempt, restarts=0)

    async def scenario():
        await one.start("j0")
        await end(one, -9, ExitReason.MEMORY)

    asyncio.run(scenario())
    memory_mb = one.app.spec.resources.memory_mb
    assert one.details("job_given_up") == [("j0", {"reason": f"a task used more than {memory_mb} MB", "restarts": 0})]


def test_unreadable_checkpoints_leave_the_known_iteration(attempt, monkeypatch):
    one = one_job(attempt)
    job = one.jobs["j0"]
    job.saved_iteration = 20

    def away(job_id):
        raise ThemisError("the store does not answer")

    monkeypatch.setattr(one.app.store, "latest_iteration", away)

    async def scenario():
        await one.start("j0")
        await end(one, 75)

    asyncio.run(scenario())
    assert (job.state, job.saved_iteration) == (JobState.WAITING, 20)
    assert one.details("tasks_ended")[0][1]["iteration"] == 20


def test_journal_that_cannot_be_written_ends_the_attempt_and_frees_the_gpus(attempt, monkeypatch):
    one = one_job(attempt)
    full = OSError("no space left on device")

    def refuse(record):
        raise full

    async def scenario():
        await one.start("j0")
        monkeypatch.setattr(one.journal, "job", refuse)
        await end(one, 1)

    asyncio.run(scenario())
    assert one.runner.broken is full
    assert not one.jobs["j0"].running


def test_stall_is_shown_while_the_job_runs(attempt):
    one = one_job(attempt)
    job = one.jobs["j0"]

    async def scenario():
        await one.start("j0")
        for step in (1, 2, 3):
            one.log("j0", 0.5, first=step)
        one.look(int(MIN_STALL_S) + 1)
        assert job.health == f"no iteration for {MIN_STALL_S + 1:.0f} s"
        await end(one, 75)

    asyncio.run(scenario())
    assert "no iteration" not in job.health
