"""Tasks as real processes: what they see, how they end, and that nothing of them stays."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import uuid

import pytest
from living import is_alive

from am.runtimes.local import LocalRuntime
from am.runtimes.memory import MemoryRuntime, MemoryTask
from am.runtimes.memory_use import tree_memory_mb
from am.runtimes.port import ExitReason, MeasuredTask, TaskExit, TaskLaunch
from am.runtimes.task_process import inherited_environment, task_marks
from themis.cluster import GpuId
from themis.code_archive import pack_code
from themis.errors import InputError, InvariantError
from themis.processes import StartError, find_marked, kill_marked


@pytest.fixture
def app_id():
    name = f"app-{uuid.uuid4().hex}"
    yield name
    assert find_marked({"THEMIS_APP_ID": name}) == (), "a process outlived its test"
    kill_marked({"THEMIS_APP_ID": name})


def launch(tmp_path, app_id, command, **more):
    defaults = {"job_id": "j0", "task_index": 0, "incarnation": 1}
    paths = {"working_dir": tmp_path / "work", "log_path": tmp_path / "logs" / "task-0.log"}
    return TaskLaunch(app_id=app_id, command=command, **{**defaults, **paths, **more})


def run(scenario):
    async def whole():
        runtime = LocalRuntime()
        try:
            return await scenario(runtime)
        finally:
            await runtime.close()

    return asyncio.run(whole())


async def eventually(condition, what):
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail(what)


def shown(tmp_path, app_id, **more):
    """The environment that a task sees."""

    async def scenario(runtime):
        task = await runtime.start(launch(tmp_path, app_id, "env -0", **more))
        assert (await task.wait()).succeeded

    run(scenario)
    lines = (tmp_path / "logs" / "task-0.log").read_text().split("\0")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_tasks_see_their_leased_cards_only(tmp_path, app_id):
    seen = shown(tmp_path, app_id, gpus=(GpuId("m0", 3), GpuId("m0", 1)), environment={"CUDA_VISIBLE_DEVICES": "7"})
    assert seen["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert seen["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_task_on_a_cpu_node_runs_on_its_cores_only(tmp_path, app_id):
    async def scenario(runtime):
        core = runtime.cores[-1]
        task = await runtime.start(launch(tmp_path, app_id, "grep Cpus_allowed_list /proc/self/status", cores=(core,)))
        assert (await task.wait()).succeeded
        return core

    core = run(scenario)
    assert (tmp_path / "logs" / "task-0.log").read_text().split()[-1] == str(core)


def test_emulated_tasks_see_no_card(tmp_path, app_id):
    seen = shown(tmp_path, app_id, gpus=(GpuId("m0", 0),), emulated=True, environment={"MINE": "a b"})
    assert seen["CUDA_VISIBLE_DEVICES"] == ""
    assert seen["MINE"] == "a b"
    assert seen["THEMIS_APP_ID"] == app_id
    assert seen["THEMIS_INCARNATION"] == "1"


def test_tasks_do_not_inherit_secrets(tmp_path, app_id, monkeypatch):
    monkeypatch.setenv("THEMIS_TOKEN", "secret")
    monkeypatch.setenv("THEMIS_RUN_ID", "run-1")
    monkeypatch.setenv("SOMETHING", "else")
    seen = shown(tmp_path, app_id)
    assert "THEMIS_TOKEN" not in seen
    assert seen["THEMIS_RUN_ID"] == "run-1"
    assert seen["SOMETHING"] == "else"
    assert inherited_environment({"THEMIS_A": "1", "B": "2"}) == {"B": "2"}


@pytest.mark.parametrize(
    "name",
    [
        *("TF_CONFIG", "RANK", "WORLD_SIZE", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "OMPI_COMM_WORLD_RANK"),
        *("MV2_COMM_WORLD_RANK", "NOTIFY_SOCKET", "MEMORY_PRESSURE_WATCH", "SYSTEMD_EXEC_PID"),
    ],
)
def test_variables_of_other_launchers_reach_a_task_only_if_its_app_names_them(tmp_path, app_id, monkeypatch, name):
    assert inherited_environment({name: "3", "RANKING": "3"}) == {"RANKING": "3"}
    monkeypatch.setenv(name, "3")
    assert shown(tmp_path, app_id, environment={name: "4"})[name] == "4"


def test_exit_codes_and_an_appended_log(tmp_path, app_id):
    async def scenario(runtime):
        first = await runtime.start(launch(tmp_path, app_id, ("/bin/sh", "-c", "echo one; exit 75")))
        assert first.ended is None
        assert await first.wait() == TaskExit(exit_code=75)
        assert first.ended == TaskExit(exit_code=75)
        again = await runtime.start(launch(tmp_path, app_id, "echo two >&2", incarnation=2))
        assert await again.wait() == TaskExit(exit_code=0)
        assert await runtime.stop(again, 5.0) == TaskExit(exit_code=0)

    run(scenario)
    assert (tmp_path / "logs" / "task-0.log").read_text() == "one\ntwo\n"


def test_stop_lets_the_task_save_itself(tmp_path, app_id):
    script = "trap 'exit 75' TERM; echo up; while :; do sleep 0.02; done"

    async def scenario(runtime):
        task = await runtime.start(launch(tmp_path, app_id, script))
        await eventually(lambda: "up" in task.launch.log_path.read_text(), "the trap is set")
        assert await runtime.stop(task, 60.0) == TaskExit(exit_code=75, reason=ExitReason.STOPPED)

    run(scenario)


def test_stubborn_task_is_killed_with_its_children(tmp_path, app_id):
    # One child in the group, one that moved to a session of its own, both deaf to SIGTERM.
    script = "trap '' TERM; setsid sleep 60 & sleep 60 & echo up; while :; do sleep 0.02; done"

    async def scenario(runtime):
        task = await runtime.start(launch(tmp_path, app_id, script))
        await eventually(lambda: "up" in task.launch.log_path.read_text(), "the trap is set")
        await eventually(lambda: len(find_marked(task_marks(task.launch, ""))) >= 3, "its children are up")
        end = await runtime.stop(task, 0.1)
        assert end == TaskExit(exit_code=-signal.SIGKILL, reason=ExitReason.STOPPED)
        assert find_marked(task_marks(task.launch, "")) == ()

    run(scenario)


def test_ending_one_task_keeps_others_running(tmp_path, app_id):
    async def scenario(runtime):
        one, two = [await runtime.start(launch(tmp_path, app_id, "sleep 60", task_index=index)) for index in range(2)]
        assert (await runtime.kill(one)).reason is ExitReason.STOPPED
        assert two.ended is None
        assert is_alive(two.pid)

    run(scenario)


def test_close_kills_tasks_and_wakes_waiters(tmp_path, app_id):
    async def scenario():
        runtime = LocalRuntime()
        tasks = [await runtime.start(launch(tmp_path, app_id, "sleep 60", task_index=index)) for index in range(8)]
        waiting = asyncio.gather(*(task.wait() for task in tasks))
        await runtime.close()
        return await waiting

    ends = asyncio.run(scenario())
    assert {end.reason for end in ends} == {ExitReason.STOPPED}


def test_tasks_need_no_threads(tmp_path, app_id):
    async def scenario(runtime):
        before = set(threading.enumerate())
        for index in range(6):
            await runtime.start(launch(tmp_path, app_id, "sleep 60", task_index=index))
        assert set(threading.enumerate()) <= before

    run(scenario)


def test_an_empty_command_and_an_unusable_folder_are_refused(tmp_path, app_id):
    (tmp_path / "file").write_text("")

    async def scenario(runtime):
        with pytest.raises(InputError):
            await runtime.start(launch(tmp_path, app_id, ()))
        with pytest.raises(StartError):
            await runtime.start(launch(tmp_path, app_id, "true", working_dir=tmp_path / "file" / "x"))

    run(scenario)


def test_handles_of_another_runtime_are_a_defect(tmp_path, app_id):
    async def scenario(runtime):
        stranger = await MemoryRuntime().start(launch(tmp_path, app_id, "true"))
        assert isinstance(stranger, MemoryTask)
        with pytest.raises(InvariantError):
            await runtime.kill(stranger)

    run(scenario)


def test_task_above_memory_limit_is_killed_with_log_line(tmp_path, app_id):
    # The child holds it, not the task itself.
    hungry = "import time; held = bytearray(80 << 20); print('held', flush=True); time.sleep(60)"
    command = f'{sys.executable} -I -S -c "{hungry}" & wait'

    async def scenario():
        runtime = LocalRuntime(memory_check_s=0.05)
        modest = await runtime.start(launch(tmp_path, app_id, command, task_index=1, memory_mb=200))
        greedy = await runtime.start(launch(tmp_path, app_id, command, memory_mb=40, log_path=tmp_path / "greedy"))
        end = await greedy.wait()
        assert end == TaskExit(exit_code=-signal.SIGKILL, reason=ExitReason.MEMORY)
        assert not end.succeeded
        assert isinstance(modest, MeasuredTask)
        await eventually(lambda: modest.peak_memory_mb > 80, "the memory of the modest task is measured")
        await asyncio.sleep(0.2)
        assert modest.ended is None
        assert modest.peak_memory_mb < 200
        await runtime.close()
        return modest.pid

    pid = asyncio.run(scenario())
    assert "of its 40 MB of memory" in (tmp_path / "greedy").read_text()
    assert tree_memory_mb(pid) == 0.0


APP_MASTER = """
import asyncio, sys
from pathlib import Path
from am.runtimes.local import LocalRuntime
from am.runtimes.port import TaskLaunch

async def main():
    folder, app_id = Path(sys.argv[1]), sys.argv[2]
    runtime = LocalRuntime()
    for index in range(3):
        await runtime.start(TaskLaunch(app_id=app_id, job_id="j0", task_index=index, incarnation=1,
            command=(sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"),
            working_dir=folder, log_path=folder / f"task-{index}.log"))
    print("up", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_tasks_die_with_an_app_master_that_is_killed(tmp_path, app_id):
    command = [sys.executable, "-c", APP_MASTER, str(tmp_path), app_id]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("THEMIS_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as am:
        assert am.stdout.readline() == b"up\n"
        logs = [tmp_path / f"task-{index}.log" for index in range(3)]
        deadline_s = time.monotonic() + 60.0
        while not all("up" in log.read_text() for log in logs):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        assert len(find_marked({"THEMIS_APP_ID": app_id})) == 3
        am.kill()
    deadline_s = time.monotonic() + 60.0
    while find_marked({"THEMIS_APP_ID": app_id}):
        assert time.monotonic() < deadline_s, "tasks outlived their app master"
        time.sleep(0.01)


def test_tasks_start_in_the_code_that_travels_with_them(tmp_path, app_id):
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "train.sh").write_text("pwd; echo $THEMIS_TASK_INDEX >> own; cat own\n")
    archive = tmp_path / "code.tar.gz"
    archive.write_bytes(pack_code({".": tmp_path / "training"}, "test").content)

    async def scenario(runtime):
        for index in range(2):
            task = await runtime.start(launch(tmp_path, app_id, "sh train.sh", task_index=index, code=archive))
            assert (await task.wait()).succeeded

    run(scenario)
    where = tmp_path / "work" / "code"
    # Files of its own survive.
    assert (tmp_path / "logs" / "task-0.log").read_text() == f"{where}\n0\n{where}\n0\n1\n"
