"""A process that lacks file handles for a while does not take others for gone, and goes on once it has some."""

import asyncio
import errno
import os
import signal
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from rm_plugin.engines import local
from rm_plugin.engines.local import LocalAppLauncher
from rm_plugin.engines.port import AmLaunch
from themis import processes, sessions
from themis.control_groups import ControlGroup
from themis.processes import ProcessSpec, StartError, kill_marked, look_surely, start, wait_for_exit


class Scarce:
    """Replaces a function that needs a file handle: fails `failures` times."""

    def __init__(self, function, failures):
        self.function, self.left = function, failures

    def __call__(self, *args, **kwargs):
        if self.left > 0:
            self.left -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self.function(*args, **kwargs)


@pytest.fixture(autouse=True)
def looks_again_soon(monkeypatch):
    monkeypatch.setattr(processes, "_LOOK_AGAIN_S", 0.01)


@pytest.fixture
def marks():
    marks = {"THEMIS_RUN_ID": f"run-{uuid.uuid4().hex}"}
    yield marks
    kill_marked(marks)


def sleeper(folder, marks):
    environment = {**os.environ, **marks}
    return ProcessSpec(command=("sleep", "60"), environment=environment, working_dir=folder, stdout=folder / "log")


def test_living_process_that_cannot_be_read_does_not_count_as_gone(tmp_path, marks, monkeypatch):
    async def scenario():
        process = start(sleeper(tmp_path, marks))
        with monkeypatch.context() as patched:
            patched.setattr(processes, "_read", Scarce(processes._read, 1 << 30))
            with pytest.raises(OSError, match="Too many open files"):
                kill_marked(marks)
        assert process.exit_code is None
        process.kill()
        await process.wait()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "look", [lambda group: group.kill(), lambda group: group.populated, lambda _: ControlGroup.of(os.getpid())]
)
def test_control_group_that_cannot_be_seen_does_not_count_as_empty(tmp_path, look, monkeypatch):
    def opened(*_args, **_kwargs):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", opened)
        patched.setattr(Path, "write_text", opened)
        with pytest.raises(OSError, match="Too many open files"):
            look(ControlGroup(tmp_path))


def test_look_that_fails_for_another_reason_is_not_repeated():
    def refused():
        raise PermissionError(errno.EPERM, "no")

    with pytest.raises(PermissionError):
        asyncio.run(look_surely(refused))


@pytest.mark.parametrize(
    "look",
    [
        lambda: sessions.has_members(os.getpgid(0)),
        lambda: sessions.sessions_below(os.getpid()),
        sessions.children_in_other_sessions,
        lambda: sessions.kill_sessions({1 << 30: ()}),
    ],
)
def test_sessions_that_cannot_be_read_do_not_count_as_gone(look, monkeypatch):
    monkeypatch.setattr(sessions, "open", Scarce(open, 1), raising=False)
    with pytest.raises(OSError, match="Too many open files"):
        look()


def test_look_is_repeated_until_it_succeeds():
    look = Scarce(lambda number: number + 1, 2)
    assert asyncio.run(look_surely(look, 6)) == 7
    assert look.left == 0


def test_end_of_a_foreign_process_is_noticed_later(monkeypatch):
    child = psutil.Popen([sys.executable, "-c", "input()"], stdin=-1)
    opened = Scarce(os.pidfd_open, 2)
    monkeypatch.setattr(os, "pidfd_open", opened)

    async def scenario():
        waiting = asyncio.ensure_future(wait_for_exit(child.pid))
        async with asyncio.timeout(60):
            while opened.left:
                await asyncio.sleep(0.01)
            child.communicate(b"\n")
            await waiting

    asyncio.run(scenario())


def test_process_whose_end_could_not_be_noticed_is_not_started(tmp_path, marks, monkeypatch):
    async def scenario():
        monkeypatch.setattr(os, "pidfd_open", Scarce(os.pidfd_open, 1))
        with pytest.raises(StartError, match="cannot watch a process"):
            start(sleeper(tmp_path, marks))

    asyncio.run(scenario())
    assert processes.find_marked(marks) == ()


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_process_ends_without_file_handles_and_its_sessions_later(tmp_path, marks, monkeypatch, end):
    async def scenario():
        process = start(sleeper(tmp_path, marks))
        process._sessions[1 << 30] = frozenset()
        looks, kills = Scarce(processes.sessions_below, 1), Scarce(processes.kill_sessions, 2)
        monkeypatch.setattr(processes, "sessions_below", looks)
        monkeypatch.setattr(processes, "kill_sessions", kills)
        async with asyncio.timeout(60):
            if end == "kill":
                process.kill()
                assert await process.wait() == -signal.SIGKILL
            else:
                assert await process.terminate(30.0) == -signal.SIGTERM
        assert (looks.left, kills.left) == (0, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["kill_marked", "sessions_below"])
def test_end_of_an_app_master_is_reported_later(tmp_path, marks, monkeypatch, name):
    async def scenario():
        ended = asyncio.Event()

        async def on_exit(exit_):
            ended.set()

        command = (sys.executable, "-c", "import time; time.sleep(60)")
        launcher = LocalAppLauncher(marks["THEMIS_RUN_ID"], on_exit, command=command)
        pid = await launcher.launch(
            AmLaunch(app_id="app-1", attempt=1, environment={}, token="t", working_dir=tmp_path)
        )
        scarce = Scarce(getattr(local, name), 3)
        monkeypatch.setattr(local, name, scarce)
        async with asyncio.timeout(60):
            await launcher.kill("app-1")
            await ended.wait()
            await launcher.shutdown()
        assert (scarce.left, psutil.pid_exists(pid)) == (0, False)

    asyncio.run(scenario())
