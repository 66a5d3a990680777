"""The in-memory runtime keeps the port's promises, as its users' tests rely on them."""

import asyncio
from pathlib import Path

import pytest

from am.runtimes.memory import MemoryRuntime
from am.runtimes.port import ExitReason, TaskExit, TaskLaunch, visible_devices
from themis.cluster import GpuId
from themis.errors import ThemisError


def launch(job_id="j0"):
    paths = {"working_dir": Path("w"), "log_path": Path("l")}
    return TaskLaunch(app_id="a", job_id=job_id, task_index=0, incarnation=1, command=("true",), **paths)


def test_tasks_run_until_they_are_stopped():
    async def scenario():
        runtime = MemoryRuntime()
        task = await runtime.start(launch())
        assert task.ended is None
        assert runtime.running == [task]
        waiting = asyncio.ensure_future(task.wait())
        end = await runtime.stop(task, 5.0)
        assert end == TaskExit(exit_code=-15, reason=ExitReason.STOPPED)
        assert await waiting == end == task.ended
        assert await runtime.kill(task) == end
        assert runtime.running == []
        assert runtime.stops == [(task.pid, 5.0)]

    asyncio.run(scenario())


def test_scripted_ends_come_in_order():
    async def scenario():
        runtime = MemoryRuntime(exit_codes={"j0": [1, 75]})
        ends = [(await runtime.start(launch())).ended for _ in range(3)]
        assert ends == [TaskExit(exit_code=1), TaskExit(exit_code=75), None]
        runtime.running[0].end(0)
        assert runtime.started[-1].ended.succeeded
        await runtime.close()

    asyncio.run(scenario())


def test_refused_and_stubborn_jobs():
    async def scenario():
        runtime = MemoryRuntime(refused=frozenset({"bad"}), stubborn=frozenset({"deaf"}))
        with pytest.raises(ThemisError):
            await runtime.start(launch("bad"))
        deaf = await runtime.start(launch("deaf"))
        assert (await runtime.stop(deaf, 0.01)).exit_code == -9

    asyncio.run(scenario())


def test_close_kills_running_tasks():
    async def scenario():
        runtime = MemoryRuntime()
        tasks = [await runtime.start(launch()) for _ in range(3)]
        await runtime.close()
        assert {task.ended.exit_code for task in tasks} == {-9}

    asyncio.run(scenario())


def test_visible_devices():
    gpus = (GpuId("m0", 10), GpuId("m0", 2))
    assert visible_devices(gpus, emulated=False) == "2,10"
    assert visible_devices(gpus, emulated=True) == visible_devices((), emulated=False) == ""
