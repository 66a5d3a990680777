"""A gang starts whole or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from am.jobs.gang import start_gang
from am.runtimes.local import LocalRuntime
from am.runtimes.port import TaskLaunch
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
