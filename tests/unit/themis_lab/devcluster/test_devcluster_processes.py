"""Processes that outlive their starter, and strangers that get the id of one."""

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
    """Starts shell scripts detached, and ends what is left of them."""
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
    deadline_s = time.monotonic() + 10
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_spawned_process_belongs_to_nobody_here(start, tmp_path):
    process = start("echo says $WHAT; echo also >&2; exec sleep 60", WHAT="something")
    wait_for("says something\nalso\n", tmp_path / "log")
    assert process.is_running()
    assert os.getsid(process.pid) == process.pid
    assert known(process.pid) == process
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def test_a_program_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DevClusterError, match=r"cannot start a daemon: '/no/such'.*No such file"):
        spawn(["/no/such"], {}, tmp_path, tmp_path / "log")


def test_terminating_waits_for_the_grace_and_kills_then(start, tmp_path):
    willing = start("trap 'echo ends; exit' TERM; echo waits; while :; do sleep 0.01; done")
    deaf = start("trap '' TERM; echo deaf; while :; do sleep 0.01; done")
    wait_for("waits", tmp_path / "log")
    wait_for("deaf", tmp_path / "log")
    began_s = time.monotonic()
    end([willing, deaf], grace_s=0.5)
    assert 0.5 <= time.monotonic() - began_s < 5
    assert not willing.is_running()
    assert not deaf.is_running()
    assert "ends" in (tmp_path / "log").read_text()
    # Once more does no harm.
    end([willing, deaf], grace_s=0.5)


@pytest.mark.parametrize("difference", [{"started": 1}, {"boot": "another"}])
def test_a_stranger_with_that_id_is_never_signalled(stranger, difference):
    once = replace(known(stranger.pid), **difference)
    assert not once.is_running()
    once.send(signal.SIGKILL)
    end([once], grace_s=0.1)
    kill([once])
    assert stranger.poll() is None
    known(stranger.pid).send(signal.SIGKILL)
    assert stranger.wait(10) == -signal.SIGKILL


def test_a_zombie_does_not_run():
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = known(child.pid)
    deadline_s = time.monotonic() + 10
    while known(child.pid) is not None:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert process is None or not process.is_running()
    assert child.wait(10) == 0


def test_an_id_that_nobody_has_is_not_running():
    gone = KnownProcess(pid=2**22 + 1, started=1, boot="x")
    assert not gone.is_running()
    gone.send(signal.SIGKILL)


def test_processes_are_found_by_their_working_folder(start, tmp_path):
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
