"""A gang starts whole or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from am.jobs.gang import start_gang
from am.runtimes.local import LocalRuntime
from am.runtimes.memory import MemoryRuntime, MemoryTask
from am.runtimes.port import SeatRequest, TaskLaunch
from themis.errors import ThemisError
from themis.processes import StartError, find_marked


@pytest.mark.parametrize("bad", ["echo \0", "/no/such/folder\0/program"])
def test_a_task_that_cannot_be_started_takes_the_started_ones_back(tmp_path: Path, bad: str) -> None:
    async def scenario() -> None:
        runtime = LocalRuntime()
        launches = [
            TaskLaunch(
                app_id="half-a-gang",
                job_id="job-00",
                task_index=index,
                incarnation=1,
                command=command,
                working_dir=tmp_path,
                log_path=tmp_path / f"task-{index}.log",
            )
            for index, command in enumerate(("sleep 60", bad))
        ]
        with pytest.raises(StartError):
            await start_gang(runtime, launches)
        assert find_marked({"THEMIS_APP_ID": "half-a-gang"}) == ()
        await runtime.close()

    asyncio.run(scenario())


class SecondTaskRuntime(MemoryRuntime):
    """In memory; the second task of a gang meets with something."""

    def __init__(self, meets: asyncio.Future[None]) -> None:
        super().__init__()
        self.meets = meets
        self.starting = asyncio.Event()

    async def start(self, launch: TaskLaunch) -> MemoryTask:
        if launch.task_index == 1:
            self.starting.set()
            await self.meets
        return await super().start(launch)


async def seated_gang(runtime: MemoryRuntime) -> list[TaskLaunch]:
    """Three tasks, each in a seat that was reserved for it."""
    requests = [SeatRequest(job_id="j", task_index=index, gpus=()) for index in range(3)]
    return [
        TaskLaunch(
            app_id="a",
            job_id="j",
            task_index=index,
            incarnation=1,
            command="train",
            working_dir=Path(),
            log_path=Path("log"),
            seat=seat,
        )
        for index, seat in enumerate(await runtime.reserve(requests))
    ]


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_gang_that_cannot_start_whole_gives_its_seats_back(cancelled: bool) -> None:
    async def scenario() -> None:
        meets: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        runtime = SecondTaskRuntime(meets)
        starting = asyncio.ensure_future(start_gang(runtime, await seated_gang(runtime)))
        await runtime.starting.wait()
        if cancelled:
            starting.cancel()
        else:
            meets.set_exception(ThemisError("no"))
        with pytest.raises(asyncio.CancelledError if cancelled else ThemisError):
            await starting
        assert [task.launch.task_index for task in runtime.started] == [0]
        assert runtime.running == []
        # The seat of the task that was killed ends with it.
        assert runtime.seated == {"j/0"}

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_task_that_cannot_be_killed_hides_neither_the_reason_nor_its_neighbours_seats(monkeypatch) -> None:
    async def scenario() -> None:
        meets: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        runtime = SecondTaskRuntime(meets)

        async def unkillable(handle: object) -> None:
            raise OSError("no such process")

        monkeypatch.setattr(runtime, "kill", unkillable)
        starting = asyncio.ensure_future(start_gang(runtime, await seated_gang(runtime)))
        await runtime.starting.wait()
        meets.set_exception(ThemisError("no room"))
        with pytest.raises(ThemisError, match="no room"):
            await starting
        assert runtime.seated == {"j/0"}

    asyncio.run(asyncio.wait_for(scenario(), 60))
