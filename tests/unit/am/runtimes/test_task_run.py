"""The run of a task in a container that cannot start the task."""

import asyncio
import os
import sys

import pytest

from am.runtimes.remote.frames import Frame
from am.runtimes.remote.task_run import TaskRun

ORDER = Frame(
    kind="run",
    fields={
        "command": [sys.executable],
        "python": True,
        "marks": {},
        "mirrored": [],
        "code_bytes": 0,
        "environment": {},
    },
)


def without_folder(logs):
    """As on a full disk, where the folder of the logs cannot be made."""
    logs.rmdir()
    logs.write_text("")


def pipe(logs):
    os.mkfifo(logs / "task.log")


@pytest.mark.parametrize("spoil", [without_folder, pipe], ids=lambda spoil: spoil.__name__)
def test_task_ends_at_once_if_its_log_cannot_be_opened(tmp_path, spoil):
    """Else the order would be repeated for ever, or the host would wait for a reader of the pipe."""
    logs = tmp_path / "logs"
    logs.mkdir()
    spoil(logs)

    async def scenario():
        task_run = TaskRun(1, tmp_path / "container", logs)
        task_run.start(ORDER, {})
        assert task_run.exit_code == 127
        await asyncio.wait_for(task_run.ended.wait(), 60)

    asyncio.run(scenario())


def test_task_ends_at_once_if_its_code_cannot_be_unpacked(tmp_path):
    (tmp_path / "container").write_text("")
    code = b"no archive, and no folder for it either"

    async def scenario():
        task_run = TaskRun(1, tmp_path / "container", tmp_path)
        task_run.add_code(0, code)
        task_run.start(Frame(kind="run", fields={**ORDER.fields, "code_bytes": len(code)}), {})
        assert task_run.exit_code == 127
        assert "an archive cannot be unpacked" in (tmp_path / "task.log").read_text()

    asyncio.run(scenario())
