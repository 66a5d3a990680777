"""App masters as real processes: start, report of the end, adoption, and end with all tasks."""

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from living import is_alive
from losable_lock import LosableLock

from rm_plugin.engines import local
from rm_plugin.engines.folder_lock import LockLostError
from rm_plugin.engines.local import AM_COMMAND, LocalAppLauncher
from rm_plugin.engines.memory import MemoryAppLauncher
from rm_plugin.engines.port import AmExit, AmLaunch
from themis.control_groups import ControlGroup
from themis.errors import InputError, UnreachableError
from themis.processes import find_marked, kill_marked

# An app master that starts a task in a session of its own, unguarded: the hardest to find.
AM = (
    "import os, subprocess, sys, time\n"
    "print(os.environ['THEMIS_APP_ID'], os.environ['THEMIS_ATTEMPT'], os.environ.get('MINE'), flush=True)\n"
    "subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    "time.sleep(float(os.environ.get('LIVES_S', '60'))); sys.exit(5)\n"
)
COMMAND = (sys.executable, "-c", AM)


@pytest.fixture
def run_id():
    name = f"run-{uuid.uuid4().hex}"
    yield name
    left = find_marked({"THEMIS_RUN_ID": name})
    kill_marked({"THEMIS_RUN_ID": name})
    assert left == (), "a process outlived its test"


def order(app_id, attempt, environment, working_dir):
    return AmLaunch(app_id=app_id, attempt=attempt, environment=environment, working_dir=working_dir)


class Exits:
    """Collects the reported ends."""

    def __init__(self):
        self.seen = []
        self.came = asyncio.Event()

    async def __call__(self, end):
        self.seen.append(end)
        self.came.set()


def run(run_id, scenario, command=COMMAND, lock=None):
    async def whole():
        exits = Exits()
        engine = LocalAppLauncher(run_id, exits, lock, command=command)
        try:
            return await scenario(engine, exits)
        finally:
            if lock is not None:
                lock.left = math.inf
            await engine.shutdown()

    return asyncio.run(asyncio.wait_for(whole(), 90.0))


async def marked(count, **marks):
    for _ in range(1000):
        if len(pids := find_marked(marks)) >= count:
            return pids
        await asyncio.sleep(0.01)
    pytest.fail(f"{count} processes with {marks}")


def test_the_real_command_is_the_app_master():
    assert AM_COMMAND[1:] == ("-P", "-m", "am.main")


def test_a_run_needs_an_id():
    with pytest.raises(InputError):
        LocalAppLauncher("", lambda end: None)


def test_an_exit_is_reported_once_after_its_tasks_ended(tmp_path, run_id):
    async def scenario(engine, exits):
        pid = await engine.launch(order("app-1", 1, {"MINE": "yes", "LIVES_S": "0.3"}, tmp_path / "app-1"))
        assert is_alive(pid)
        await exits.came.wait()
        assert find_marked({"THEMIS_RUN_ID": run_id}) == ()
        assert not is_alive(pid)
        await engine.kill("app-1")
        assert exits.seen == [AmExit(app_id="app-1", attempt=1, pid=pid, exit_code=5, last_words="app-1 1 yes")]

    run(run_id, scenario)
    assert (tmp_path / "app-1" / "am-1.log").read_text() == "app-1 1 yes\n"


def test_kill_ends_one_app_and_its_tasks_only(tmp_path, run_id):
    async def scenario(engine, exits):
        one = await engine.launch(order("app-1", 1, {}, tmp_path / "app-1"))
        two = await engine.launch(order("app-2", 1, {}, tmp_path / "app-2"))
        await marked(4, THEMIS_RUN_ID=run_id)
        await engine.kill("app-1")
        assert find_marked({"THEMIS_RUN_ID": run_id, "THEMIS_APP_ID": "app-1"}) == ()
        assert len(find_marked({"THEMIS_RUN_ID": run_id, "THEMIS_APP_ID": "app-2"})) == 2
        assert is_alive(two)
        await exits.came.wait()
        assert exits.seen == [AmExit(app_id="app-1", attempt=1, pid=one, exit_code=-signal.SIGKILL)]
        await engine.kill("unknown")

    run(run_id, scenario)


def test_apps_of_another_run_are_not_touched(tmp_path, run_id):
    environment = {**os.environ, "THEMIS_RUN_ID": f"{run_id}-other", "THEMIS_APP_ID": "app-1"}
    with subprocess.Popen(["sleep", "60"], env=environment) as stranger:

        async def scenario(engine, exits):
            await engine.launch(order("app-1", 1, {}, tmp_path))
            await engine.kill("app-1")

        run(run_id, scenario)
        assert stranger.poll() is None
        stranger.kill()


def test_a_new_attempt_replaces_the_old(tmp_path, run_id):
    async def scenario(engine, exits):
        first = await engine.launch(order("app-1", 1, {}, tmp_path))
        second = await engine.launch(order("app-1", 2, {}, tmp_path))
        assert not is_alive(first)
        await exits.came.wait()
        await asyncio.sleep(0.2)
        assert is_alive(second), "the sweep behind the first attempt hit the second"
        assert [end.attempt for end in exits.seen] == [1]

    run(run_id, scenario)


def test_without_the_lock_nothing_is_started_or_killed(tmp_path, run_id):
    lock = LosableLock()

    async def scenario(engine, exits):
        await engine.launch(order("app-1", 1, {}, tmp_path))
        living = await marked(2, THEMIS_RUN_ID=run_id)
        lock.left = 0
        for act in (engine.launch(order("app-1", 2, {}, tmp_path)), engine.kill("app-1"), engine.shutdown()):
            with pytest.raises(LockLostError):
                await act
        assert find_marked({"THEMIS_RUN_ID": run_id}) == living

    run(run_id, scenario, lock=lock)


def test_kill_that_a_stale_lock_refused_is_made_again_once_it_is_fresh(tmp_path, run_id):
    lock = LosableLock()

    async def scenario(engine, exits):
        await engine.launch(order("app-1", 1, {}, tmp_path))
        await marked(2, THEMIS_RUN_ID=run_id)
        answers = iter([False])
        lock.is_fresh = lambda: next(answers, True)
        await engine.kill("app-1")
        assert find_marked({"THEMIS_RUN_ID": run_id, "THEMIS_APP_ID": "app-1"}) == ()

    run(run_id, scenario, lock=lock)


def test_attempt_is_not_started_if_the_lock_is_lost_while_the_former_one_is_ended(tmp_path, run_id):
    lock = LosableLock(left=1)
    lock.is_fresh = lambda: True

    async def scenario(engine, exits):
        with pytest.raises(LockLostError):
            await engine.launch(order("app-1", 1, {}, tmp_path))
        assert find_marked({"THEMIS_RUN_ID": run_id}) == ()

    run(run_id, scenario, lock=lock)


def test_end_of_an_attempt_ends_no_other_one_until_the_lock_is_confirmed(tmp_path, run_id):
    lock = LosableLock()
    marks = {"THEMIS_RUN_ID": run_id, "THEMIS_APP_ID": "app-1"}

    async def scenario(engine, exits):
        pid = await engine.launch(order("app-1", 1, {}, tmp_path))
        with subprocess.Popen(["sleep", "60"], env={**os.environ, **marks}) as of_the_next_holder:
            lock.left, asked = 0, lock.asked
            os.kill(pid, signal.SIGKILL)
            while lock.asked < asked + 2:
                await asyncio.sleep(0.01)
            assert (of_the_next_holder.poll(), exits.seen) == (None, [])
            lock.left = math.inf
            await exits.came.wait()
            assert of_the_next_holder.wait(60) == -signal.SIGKILL

    run(run_id, scenario, lock=lock)


def test_a_callback_may_launch_the_next_attempt(tmp_path, run_id):
    async def scenario(engine, exits):
        pids = []
        came = asyncio.Event()

        async def relaunch(end):
            pids.append(await engine.launch(order(end.app_id, end.attempt + 1, {}, tmp_path)))
            came.set()

        engine._on_exit = relaunch
        await engine.launch(order("app-1", 1, {"LIVES_S": "0.1"}, tmp_path))
        await came.wait()
        assert is_alive(pids[0])

    run(run_id, scenario)


def test_shutdown_ends_all_processes_without_reporting_exits(tmp_path, run_id):
    async def scenario(engine, exits):
        for index in range(4):
            await engine.launch(order(f"app-{index}", 1, {}, tmp_path / str(index)))
        await marked(8, THEMIS_RUN_ID=run_id)
        await engine.shutdown()
        assert find_marked({"THEMIS_RUN_ID": run_id}) == ()
        assert exits.seen == []

    run(run_id, scenario)


def test_shutdown_leaves_and_names_an_app_whose_process_does_not_end(tmp_path, run_id, monkeypatch):
    """The kernel kills no process that waits for a file server that hangs."""

    async def scenario(engine, exits):
        await engine.launch(order("app-1", 1, {}, tmp_path))
        with monkeypatch.context() as patched:
            patched.setattr(local, "STOP_LIMIT_S", 0.2)
            patched.setattr(local, "kill_marked", lambda marks, may_kill: ())
            patched.setattr(local, "kill_sessions", lambda sessions: None)
            with pytest.raises(UnreachableError, match="not all processes could be killed: 'app-1'"):
                await engine.shutdown()
        # Now the kernel kills it.
        await engine.shutdown()
        assert not engine._gone, "the second call did not wait"

    run(run_id, scenario)


RM = """
import asyncio, sys
from pathlib import Path
from rm_plugin.engines.local import LocalAppLauncher
from rm_plugin.engines.port import AmLaunch

async def nothing(end): pass

async def main():
    engine = LocalAppLauncher(sys.argv[1], nothing, command=[sys.executable, "-c", sys.argv[3]])
    order = AmLaunch(app_id="app-1", attempt=1, environment={}, working_dir=Path(sys.argv[2]))
    print(await engine.launch(order), flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_app_masters_outlive_a_killed_resource_manager_and_are_adopted(tmp_path, run_id):
    with subprocess.Popen([sys.executable, "-c", RM, run_id, str(tmp_path), AM], stdout=subprocess.PIPE) as rm:
        pid = int(rm.stdout.readline())
        rm.kill()
    time.sleep(0.2)
    assert is_alive(pid)

    async def scenario(engine, exits):
        await marked(2, THEMIS_RUN_ID=run_id)
        assert not await engine.adopt("app-2", 1, pid), "another app's"
        assert not await engine.adopt("app-1", 1, os.getpid()), "a stranger that got the id"
        assert await engine.adopt("app-1", 1, pid)
        os.kill(pid, signal.SIGTERM)
        await exits.came.wait()
        assert exits.seen == [AmExit(app_id="app-1", attempt=1, pid=pid, exit_code=None)]
        assert find_marked({"THEMIS_RUN_ID": run_id}) == ()
        assert not await engine.adopt("app-1", 1, pid)

    run(run_id, scenario)


def test_memory_engine_reports_exits(tmp_path):
    async def scenario():
        exits = Exits()
        engine = MemoryAppLauncher(exits)
        pid = await engine.launch(order("app-1", 1, {"A": "b"}, tmp_path))
        assert engine.living["app-1"].pid == pid
        assert await engine.adopt("app-1", 1, pid)
        assert not await engine.adopt("app-1", 2, pid)
        second = await engine.launch(order("app-1", 2, {}, tmp_path))
        await engine.end("app-1", 0)
        await engine.kill("app-1")
        await engine.launch(order("app-2", 1, {}, tmp_path))
        await engine.shutdown()
        assert [(end.attempt, end.exit_code) for end in exits.seen] == [(1, -9), (2, 0)]
        assert engine.living == {} and second == 2
        assert engine.launched[0].environment == {"A": "b"}

    asyncio.run(scenario())


HIDING = """
import os, sys, time
from themis.sessions import adopting_orphans
with adopting_orphans():
    if not os.fork():
        os.setsid()
        if os.fork(): os._exit(0)
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", "import os, time; "
            "open('partial', 'w').write(str(os.getpid())); os.rename('partial', 'pid'); time.sleep(60)"], {})
    os.wait()
    time.sleep(60)
"""


@pytest.mark.parametrize("order_to", ["kill", "shut down"])
def test_processes_without_parents_and_marks_end_with_their_app(tmp_path, run_id, order_to, monkeypatch):
    # They would find them.
    monkeypatch.setattr(ControlGroup, "make", lambda *_limits, **_more: None)

    async def scenario(engine, _exits):
        folder = tmp_path / "app-1"
        pid = await engine.launch(order("app-1", 1, {}, folder))
        while not (folder / "pid").exists():
            await asyncio.sleep(0.01)
        hidden = int((folder / "pid").read_text())
        assert hidden not in find_marked({"THEMIS_RUN_ID": run_id}) and is_alive(hidden)
        if order_to == "kill":
            await engine.kill("app-1")
        else:
            await engine.shutdown()
        assert not is_alive(pid)
        for _ in range(1000):
            if not is_alive(hidden):
                return
            await asyncio.sleep(0.01)
        os.kill(hidden, signal.SIGKILL)
        pytest.fail("it outlived its app")

    run(run_id, scenario, command=(sys.executable, "-c", HIDING))


SERVICE = """
import asyncio, os, signal, sys
from pathlib import Path
from rm_plugin.engines.local import LocalAppLauncher
from rm_plugin.engines.port import AmLaunch
from themis.control_groups import ControlGroup
from themis.sessions import adopting_orphans

ControlGroup.make = lambda *_limits, **_more: None

async def main():
    folder, ended = Path(sys.argv[2]), asyncio.Event()
    async def on_exit(exit_):
        ended.set()
    launcher = LocalAppLauncher(sys.argv[1], on_exit, command=(sys.executable, "-c", sys.argv[3]))
    for app_id in ("dies", "lives"):
        launch = AmLaunch(app_id=app_id, attempt=1, environment={}, working_dir=folder / app_id)
        pid = await launcher.launch(launch)
        while not (folder / app_id / "pid").exists():
            await asyncio.sleep(0.01)
        if app_id == "dies":
            dying = pid
    # As a task of its user can.
    os.kill(dying, signal.SIGKILL)
    await ended.wait()
    print("ended", flush=True)
    sys.stdin.read()
    await launcher.shutdown()

with adopting_orphans():
    asyncio.run(main())
"""


def test_what_a_dead_app_master_leaves_to_the_service_ends_and_other_apps_run_on(tmp_path, run_id):
    command = [sys.executable, "-c", SERVICE, run_id, str(tmp_path), HIDING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout.readline() == "ended\n"
            left, lives = (int((tmp_path / app / "pid").read_text()) for app in ("dies", "lives"))
            assert not is_alive(left)
            # A zombie would keep its process id.
            assert not Path(f"/proc/{left}").exists()
            assert is_alive(lives)
        finally:
            service.stdin.close()
            service.wait()
