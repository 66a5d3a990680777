"""Processes that outlive their starter, and reuse of their ids by others."""

import os
import signal
import subprocess
import sys
import time

import pytest
from msgspec.structs import replace

from themis_lab.devcluster.errors import DevClusterError
from themis_lab.devcluster.processes import KnownProcess, end, kill, known, spawn, working_below


@pytest.fixture
def start(tmp_path):
    """Start shell scripts detached, and end them after the test."""
    started = []

    def run(script, **environment):
        values = {"PATH": os.environ["PATH"], **environment}
        process = spawn(["sh", "-c", script], values, tmp_path, tmp_path / "log")
        started.append(process)
        return process

    yield run
    kill(started)


@pytest.fixture
def stranger():
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def wait_for(text, path):
    deadline_s = time.monotonic() + 60
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_spawned_process_is_no_child_of_ours(start, tmp_path):
    process = start("echo says $WHAT; echo also >&2; exec sleep 60", WHAT="something")
    wait_for("says something\nalso\n", tmp_path / "log")
    assert process.is_running()
    assert os.getsid(process.pid) == process.pid
    assert known(process.pid) == process
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def test_missing_program_is_an_error(tmp_path):
    with pytest.raises(DevClusterError, match=r"cannot start a daemon: '/no/such'.*No such file"):
        spawn(["/no/such"], {}, tmp_path, tmp_path / "log")


def test_terminate_waits_for_grace_then_kills(start, tmp_path):
    willing = start("trap 'echo ends; exit' TERM; echo waits; while :; do sleep 0.01; done")
    deaf = start("trap '' TERM; echo deaf; while :; do sleep 0.01; done")
    wait_for("waits", tmp_path / "log")
    wait_for("deaf", tmp_path / "log")
    began_s = time.monotonic()
    end([willing, deaf], grace_s=0.5)
    assert 0.5 <= time.monotonic() - began_s < 60
    assert not willing.is_running()
    assert not deaf.is_running()
    assert "ends" in (tmp_path / "log").read_text()
    # Once more does no harm.
    end([willing, deaf], grace_s=0.5)


@pytest.mark.parametrize("difference", [{"started": 1}, {"boot": "another"}])
def test_foreign_process_with_same_id_is_not_signalled(stranger, difference):
    once = replace(known(stranger.pid), **difference)
    assert not once.is_running()
    once.send(signal.SIGKILL)
    end([once], grace_s=0.1)
    kill([once])
    assert stranger.poll() is None
    known(stranger.pid).send(signal.SIGKILL)
    assert stranger.wait(60) == -signal.SIGKILL


def test_zombie_is_not_running():
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = known(child.pid)
    deadline_s = time.monotonic() + 60
    while known(child.pid) is not None:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert process is None or not process.is_running()
    assert child.wait(60) == 0


def test_unused_id_is_not_running():
    gone = KnownProcess(pid=2**22 + 1, started=1, boot="x")
    assert not gone.is_running()
    gone.send(signal.SIGKILL)


def test_processes_are_found_by_working_folder(start, tmp_path):
    inside, outside = tmp_path / "in" / "deep", tmp_path / "inside"
    inside.mkdir(parents=True)
    outside.mkdir()
    wanted = start(f"cd {inside}; echo there; exec env -i {sys.executable} -c 'import time; time.sleep(60)'")
    start(f"cd {outside}; echo here; exec sleep 60")
    wait_for("there", tmp_path / "log")
    wait_for("here", tmp_path / "log")
    assert [process.pid for process in working_below(tmp_path / "in")] == [wanted.pid]
    inside.rmdir()
    assert [process.pid for process in working_below(tmp_path / "in")] == [wanted.pid]
