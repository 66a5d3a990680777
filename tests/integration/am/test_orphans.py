"""Orphans of tasks in other sessions and environments: nothing of an app outlives it, without control groups too."""

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest
from living import is_alive

HIDE = (
    "import os, sys, time\n"
    "if os.fork():\n"
    "    while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    "    sys.exit() if sys.argv[2] == 'ends' else time.sleep(60)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "os.execve(sys.executable, [sys.executable, '-I', '-S', '-c', 'import os, sys, time; "
    "open(sys.argv[1] + str(0), chr(119)).write(str(os.getpid())); "
    "os.rename(sys.argv[1] + str(0), sys.argv[1]); time.sleep(float(sys.argv[2]))', sys.argv[1], sys.argv[3]], {})\n"
)
"""A task that leaves a process behind: in another session, with another parent and an empty environment."""

APP_MASTER = """
import asyncio, os, sys
from pathlib import Path
from am.runtimes.local import LocalRuntime
from themis.sessions import adopting_orphans
from am.runtimes.port import TaskLaunch
from themis.control_groups import ControlGroup

ControlGroup.make = lambda *_limits, **_more: None

async def main():
    folder, app_id, ends, lives_s, hide = Path(sys.argv[1]), *sys.argv[2:6]
    runtime = LocalRuntime()
    tasks = [await runtime.start(TaskLaunch(app_id=app_id, job_id="j0", task_index=index, incarnation=1,
        command=(sys.executable, "-I", "-S", "-c", hide, str(folder / f"pid-{index}"), ends, lives_s),
        working_dir=folder, log_path=folder / f"task-{index}.log")) for index in range(2)]
    if ends == "ends":
        for task in tasks:
            print((await task.wait()).exit_code, flush=True)
    await asyncio.sleep(60)

with adopting_orphans():
    asyncio.run(main())
"""


@pytest.fixture
def app_master(tmp_path: Path):
    """Starts an app master with two tasks, and ends what is left of it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(ends: str, lives_s: float) -> subprocess.Popen[bytes]:
        words = [str(tmp_path), f"app-{uuid.uuid4().hex}", ends, str(lives_s), HIDE]
        command = [sys.executable, "-c", APP_MASTER, *words]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True))
        return started[-1]

    yield start
    for am in started:
        below = psutil.Process(am.pid).children(recursive=True)
        for process in (am, *below):
            process.kill()
        am.wait()
        am.stdout.close()


def read_pid(path: Path) -> int:
    until(path.exists, f"{path.name} is there")
    return int(path.read_text())


def until(condition, what: str) -> None:
    deadline_s = time.monotonic() + 40.0
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.02)


def test_hidden_orphans_end_with_the_last_task(tmp_path, app_master) -> None:
    am = app_master("ends", 60.0)
    orphans = [read_pid(tmp_path / f"pid-{index}") for index in range(2)]
    assert [am.stdout.readline() for _ in range(2)] == [b"0\n"] * 2
    for pid in orphans:
        assert not is_alive(pid)


def test_orphans_that_end_leave_the_process_table(tmp_path, app_master) -> None:
    app_master("stays", 0.1)
    orphans = [read_pid(tmp_path / f"pid-{index}") for index in range(2)]
    until(lambda: not any(psutil.pid_exists(pid) for pid in orphans), "zombies are left")


def test_orphan_of_a_task_that_runs_is_spared(tmp_path, app_master) -> None:
    am = app_master("stays", 60.0)
    for index in range(2):
        pid = read_pid(tmp_path / f"pid-{index}")
        until(lambda pid=pid: psutil.Process(pid).ppid() == am.pid, "the app master adopts it")
        assert is_alive(pid) and os.getsid(pid) != os.getsid(am.pid)
