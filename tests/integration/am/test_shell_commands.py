"""Shell commands of the user's own under the local runtime: the word to stop reaches the program, and its answer us."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from am.runtimes.local import LocalRuntime
from am.runtimes.port import TaskExit, TaskLaunch

SAVES = (
    "import signal,sys,time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), print('saved'), sys.exit(75)))"
)


async def _stopped(command: str, folder: Path) -> TaskExit:
    runtime = LocalRuntime()
    log = folder / "task-0.log"
    launch = TaskLaunch(
        app_id="shell",
        job_id="job-00",
        task_index=0,
        incarnation=1,
        command=command,
        working_dir=folder,
        log_path=log,
    )
    task = await runtime.start(launch)
    async with asyncio.timeout(60):
        while not log.exists() or "ready" not in log.read_text():
            await asyncio.sleep(0.02)
    end = await runtime.stop(task, 60.0)
    await runtime.close()
    return end


@pytest.mark.parametrize("before", ["", "exec ", "true && ", "cd . ; "])
def test_a_program_behind_a_shell_saves_and_its_exit_code_counts(tmp_path: Path, before: str) -> None:
    program = f"{before}python3 -c \"{SAVES}; print('ready', flush=True); time.sleep(60)\""
    end = asyncio.run(_stopped(program, tmp_path))
    assert end.exit_code == 75
    assert "saved" in (tmp_path / "task-0.log").read_text()


@pytest.mark.parametrize("after", [" & wait $!", " & wait", " 2>&1 | tee copy"])
def test_a_program_in_the_background_or_before_tee_saves(tmp_path: Path, after: str) -> None:
    noisy = SAVES.replace("print('saved')", "print('saving', flush=True), print('saved', flush=True)")
    program = f"python3 -c \"{noisy}; print('ready', flush=True); time.sleep(60)\"{after}"
    asyncio.run(_stopped(program, tmp_path))
    assert "saved" in (tmp_path / "task-0.log").read_text()


def test_a_stop_skips_the_rest_of_the_shell_command(tmp_path: Path) -> None:
    program = f"python3 -c \"{SAVES}; print('ready', flush=True); time.sleep(60)\"; echo went on"
    end = asyncio.run(_stopped(program, tmp_path))
    assert end.exit_code == 75
    assert "went on" not in (tmp_path / "task-0.log").read_text()
