"""Real processes: they end with their parent, as a group, and by their marks, and nothing else does."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from living import is_alive

from themis import processes
from themis.errors import InputError
from themis.processes import (
    ProcessSpec,
    RunningProcess,
    StartError,
    find_marked,
    has_marks,
    kill_marked,
    start,
    wait_for_exit,
)
from themis.sessions import Member, adopting_orphans, adopts_orphans, kill_sessions

SLEEP = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)")


@pytest.fixture
def mark() -> dict[str, str]:
    """A mark of this test alone; whatever carries it is gone afterwards."""
    marks = {"THEMIS_TEST_MARK": uuid.uuid4().hex}
    yield marks
    assert kill_marked(marks) == ()


def spec(tmp_path: Path, marks: dict[str, str], *command: str, **more: object) -> ProcessSpec:
    environment = {"PATH": os.environ["PATH"], **marks}
    defaults = {"working_dir": tmp_path, "stdout": tmp_path / "log"}
    return ProcessSpec(command=command, environment=environment, **{**defaults, **more})


def until(condition, what: str, limit_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.01)


def read_pids(path: Path, count: int) -> list[int]:
    until(lambda: path.exists() and len(path.read_text().split()) >= count, f"{count} pids in {path}")
    return [int(word) for word in path.read_text().split()]


def test_output_exit_code_and_environment(tmp_path, mark):
    async def scenario() -> int:
        script = "import os, sys; print(sorted(os.environ)); print('err', file=sys.stderr); sys.exit(7)"
        process = start(spec(tmp_path, mark, sys.executable, "-I", "-S", "-c", script))
        assert process.exit_code is None
        assert await process.wait() == 7
        return process.exit_code

    assert asyncio.run(scenario()) == 7
    text = (tmp_path / "log").read_text()
    assert "THEMIS_TEST_MARK" in text
    assert "HOME" not in text
    assert "err" in text


def test_logs_are_appended_to_and_folders_made(tmp_path, mark):
    async def scenario() -> None:
        for word in ("one", "two"):
            files = {"stdout": tmp_path / "deep" / "out", "stderr": tmp_path / "deep" / "err"}
            command = ("/bin/sh", "-c", f"echo {word}; echo {word}! >&2; pwd")
            await start(spec(tmp_path, mark, *command, working_dir=tmp_path / "work" / "dir", **files)).wait()

    asyncio.run(scenario())
    folder = str(tmp_path / "work" / "dir")
    assert (tmp_path / "deep" / "out").read_text().split("\n") == ["one", folder, "two", folder, ""]
    assert (tmp_path / "deep" / "err").read_text() == "one!\ntwo!\n"


def test_a_program_that_cannot_start_raises_start_error(tmp_path, mark):
    async def scenario() -> None:
        with pytest.raises(StartError, match="no-such-program"):
            start(spec(tmp_path, mark, "no-such-program"))
        (tmp_path / "file").write_text("")
        with pytest.raises(StartError):
            start(spec(tmp_path, mark, "true", working_dir=tmp_path / "file"))
        guarded = start(spec(tmp_path, mark, "no-such-program", dies_with_parent=True))
        assert await guarded.wait() == 127

    asyncio.run(scenario())
    assert "cannot run 'no-such-program'" in (tmp_path / "log").read_text()


def test_guard_leaves_signals_at_their_defaults(tmp_path, mark):
    async def scenario(guarded: bool) -> str:
        log = tmp_path / f"log-{guarded}"
        # No Python here, which would ignore SIGPIPE of itself.
        command = ("/bin/sh", "-c", "grep SigIgn /proc/self/status")
        await start(spec(tmp_path, mark, *command, stdout=log, dies_with_parent=guarded)).wait()
        return log.read_text()

    assert asyncio.run(scenario(True)) == asyncio.run(scenario(False))


def test_guarded_process_and_its_children_run_on_the_given_cores_only(tmp_path, mark):
    core = max(os.sched_getaffinity(0))

    async def scenario() -> None:
        command = ("/bin/sh", "-c", "grep Cpus_allowed_list /proc/self/status")
        assert await start(spec(tmp_path, mark, *command, dies_with_parent=True, cores=(core,))).wait() == 0

    asyncio.run(scenario())
    assert (tmp_path / "log").read_text().split() == ["Cpus_allowed_list:", str(core)]


def test_process_runs_unpinned_if_a_core_is_not_there(tmp_path, mark):
    async def scenario() -> None:
        command = ("/bin/sh", "-c", "echo ran")
        assert await start(spec(tmp_path, mark, *command, dies_with_parent=True, cores=(8000,))).wait() == 0

    asyncio.run(scenario())
    assert (tmp_path / "log").read_text().startswith("themis: cannot pin to cores 8000: ")
    assert (tmp_path / "log").read_text().endswith("ran\n")


def test_terminate_is_polite_first(tmp_path, mark):
    script = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"

    async def scenario() -> int:
        process = start(spec(tmp_path, mark, "/bin/sh", "-c", script))
        await asyncio.to_thread(until, lambda: "up" in (tmp_path / "log").read_text(), "the trap is set")
        return await process.terminate(60.0)

    assert asyncio.run(scenario()) == 3
    assert "bye" in (tmp_path / "log").read_text()


def test_terminate_kills_the_stubborn_group_after_the_grace(tmp_path, mark):
    script = f"trap '' TERM; sleep 60 & echo $! > {tmp_path}/pids; wait; sleep 60"

    async def scenario() -> tuple[int, float]:
        process = start(spec(tmp_path, mark, "/bin/sh", "-c", script))
        await asyncio.to_thread(read_pids, tmp_path / "pids", 1)
        begun_s = time.monotonic()
        code = await process.terminate(0.3)
        return code, time.monotonic() - begun_s

    code, took_s = asyncio.run(scenario())
    assert code == -signal.SIGKILL
    assert 0.3 <= took_s < 50.0
    [child] = read_pids(tmp_path / "pids", 1)
    until(lambda: not is_alive(child), "the child in the group is killed with its leader")


def busy(saves_s: float) -> str:
    """A program that takes so long to save when it is asked to end."""
    return f"(trap 'sleep {saves_s}; echo saved; exit' TERM; echo up; while :; do sleep 0.05; done)"


def ended_by_terminate(tmp_path, mark, script: str, grace_s: float) -> tuple[int, str]:
    async def scenario() -> int:
        process = start(spec(tmp_path, mark, "/bin/sh", "-c", script))
        await asyncio.to_thread(until, lambda: "up" in (tmp_path / "log").read_text(), "the trap is set")
        return await process.terminate(grace_s)

    return asyncio.run(scenario()), (tmp_path / "log").read_text()


def test_group_has_the_grace_although_its_leader_ends_at_once(tmp_path, mark):
    code, log = ended_by_terminate(tmp_path, mark, f"{busy(0.4)} & wait", 60.0)
    assert code == -signal.SIGTERM
    assert "saved" in log


def test_group_that_outlasts_the_grace_is_killed_without_its_leader(tmp_path, mark):
    code, log = ended_by_terminate(tmp_path, mark, f"{busy(60.0)} & wait", 0.1)
    assert code == -signal.SIGTERM
    assert "saved" not in log
    until(lambda: find_marked(mark) == (), "the killed group has ended")


def test_second_terminate_with_less_grace_ends_the_group(tmp_path, mark):
    async def scenario() -> float:
        process = start(spec(tmp_path, mark, "/bin/sh", "-c", "(trap '' TERM; echo up; sleep 60) & wait"))
        await asyncio.to_thread(until, lambda: "up" in (tmp_path / "log").read_text(), "the trap is set")
        begun_s = time.monotonic()
        await asyncio.gather(process.terminate(100.0), process.terminate(0.1))
        return time.monotonic() - begun_s

    assert asyncio.run(scenario()) < 50.0
    until(lambda: find_marked(mark) == (), "the killed group has ended")


@pytest.mark.parametrize("way", ["terminate", "kill", "noted"])
def test_child_in_a_session_and_environment_of_its_own_ends_with_the_leader(tmp_path, mark, way):
    helper = f"setsid env -i /bin/sh -c 'echo $$ > {tmp_path}/pids; sleep 61; true' &"
    script = f"{helper} until [ -s {tmp_path}/pids ]; do sleep 0.01; done; " + (
        "until [ -e end ]; do sleep 0.01; done" if way == "noted" else "sleep 60"
    )

    async def scenario() -> None:
        process = start(spec(tmp_path, mark, "/bin/sh", "-c", script))
        await asyncio.to_thread(read_pids, tmp_path / "pids", 1)
        if way == "terminate":
            await process.terminate(5.0)
        elif way == "kill":
            process.kill()
        else:
            process.note_sessions()
            (tmp_path / "end").touch()
        await process.wait()

    asyncio.run(scenario())
    [child] = read_pids(tmp_path / "pids", 1)
    until(lambda: not is_alive(child), "a child in another session outlived its leader")


def test_session_whose_noted_members_are_gone_is_spared(mark, tmp_path):
    async def scenario() -> bool:
        stranger = start(spec(tmp_path, mark, *SLEEP))
        kill_sessions({stranger.pid: {Member(stranger.pid, 1)}})
        alive = is_alive(stranger.pid)
        stranger.kill()
        await stranger.wait()
        return alive

    assert asyncio.run(scenario())


def test_children_left_in_the_group_end_with_the_leader(tmp_path, mark):
    async def scenario() -> int:
        return await start(spec(tmp_path, mark, "/bin/sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pids")).wait()

    assert asyncio.run(scenario()) == 0
    [child] = read_pids(tmp_path / "pids", 1)
    until(lambda: not is_alive(child), "a child outlived its leader")


def test_signals_after_the_exit_are_ignored(tmp_path, mark):
    async def scenario() -> RunningProcess:
        process = start(spec(tmp_path, mark, "true"))
        await process.wait()
        process.kill()
        assert await process.terminate(0.0) == 0
        return process

    asyncio.run(scenario())


def test_many_waiters_and_a_cancelled_one(tmp_path, mark):
    async def scenario() -> list[int]:
        process = start(spec(tmp_path, mark, "/bin/sh", "-c", "sleep 0.2; exit 4"))
        cancelled = asyncio.ensure_future(process.wait())
        await asyncio.sleep(0)
        cancelled.cancel()
        return await asyncio.gather(process.wait(), process.wait())

    assert asyncio.run(scenario()) == [4, 4]


PARENT = """
import asyncio, sys
from pathlib import Path
from themis.processes import ProcessSpec, start

async def main():
    folder = Path(sys.argv[1])
    environment = {"PATH": "/usr/bin:/bin", "THEMIS_TEST_MARK": sys.argv[2]}
    def run(name, guarded, script):
        command = ["/bin/sh", "-c", script]
        files = {"working_dir": folder, "stdout": folder / "log"}
        return start(ProcessSpec(command=command, environment=environment, dies_with_parent=guarded, **files)).pid
    guarded = run("guarded", True, "exec sleep 60")
    # Its child moves into a session of its own, out of every group's reach.
    shell = run("shell", True, f"setsid sleep 60 & echo $! > {folder}/grandchild; wait")
    free = run("free", False, "exec sleep 60")
    while not (folder / "grandchild").exists():
        await asyncio.sleep(0.01)
    (folder / "part").write_text(f"{guarded} {shell} {free}")
    (folder / "part").rename(folder / "pids")
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_killed_parent_takes_the_guarded_along(tmp_path, mark):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), mark["THEMIS_TEST_MARK"]])
    guarded, shell, free = read_pids(tmp_path / "pids", 3)
    [grandchild] = read_pids(tmp_path / "grandchild", 1)
    until(lambda: psutil.Process(guarded).name() == "sleep", "the guard has become the command")
    assert all(is_alive(pid) for pid in (guarded, shell, free, grandchild))
    parent.kill()
    parent.wait()
    until(lambda: not is_alive(guarded), "the guarded child outlived its parent")
    until(lambda: not is_alive(shell), "the guarded shell outlived its parent")
    # What the guard cannot reach, and what was not to be guarded.
    assert is_alive(grandchild)
    assert is_alive(free)
    assert set(find_marked(mark)) == {grandchild, free}
    assert kill_marked(mark) == ()
    assert not is_alive(grandchild)
    assert not is_alive(free)


def test_guard_gives_up_when_its_parent_is_gone_already(tmp_path):
    from themis.processes import GUARD

    not_my_parent = str(os.getppid())
    done = subprocess.run(
        [sys.executable, "-I", "-S", GUARD, not_my_parent, "9", "touch", tmp_path / "ran"], check=False
    )
    assert done.returncode == 128 + 9
    assert not (tmp_path / "ran").exists()


def test_marks_must_all_match_and_never_hit_the_caller(tmp_path, mark):
    environment = {**os.environ, **mark, "THEMIS_TEST_APP": "one"}
    with (
        subprocess.Popen(SLEEP, env=environment) as one,
        subprocess.Popen(SLEEP, env={**environment, "THEMIS_TEST_APP": "two"}) as two,
        subprocess.Popen(SLEEP) as other,
    ):
        until(lambda: set(find_marked(mark)) == {one.pid, two.pid}, "both are found")
        assert has_marks(one.pid, {**mark, "THEMIS_TEST_APP": "one"})
        assert not has_marks(one.pid, {**mark, "THEMIS_TEST_APP": "two"})
        assert not has_marks(one.pid, {"THEMIS_TEST_MARK": mark["THEMIS_TEST_MARK"][:-1]})
        assert kill_marked({**mark, "THEMIS_TEST_APP": "two"}) == ()
        assert two.wait(30) == -signal.SIGKILL
        assert one.poll() is None
        assert other.poll() is None
        one.kill()
        other.kill()


def test_what_may_not_be_killed_any_more_is_returned(mark):
    with subprocess.Popen(SLEEP, env={**os.environ, **mark}) as process:
        until(lambda: find_marked(mark), "it is found")
        assert kill_marked(mark, may_kill=lambda: False) == (process.pid,)
        assert process.poll() is None
        process.kill()


def test_marked_caller_spares_itself_and_its_ancestors(mark):
    script = (
        "import os, subprocess, sys\n"
        "from themis.processes import kill_marked\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"left = kill_marked({mark!r})\n"
        "print(left, child.wait())\n"
    )
    shell = f"{sys.executable} -c '{{}}'; echo survived".replace("{}", script.replace("'", '"'))
    done = subprocess.run(
        ["/bin/sh", "-c", shell], env={**os.environ, **mark}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["() -9", "survived"]


@pytest.mark.parametrize("marks", [{}, {"THEMIS_TEST_MARK": ""}, {"": "x"}])
def test_empty_marks_are_refused(marks):
    with pytest.raises(InputError):
        kill_marked(marks)
    with pytest.raises(InputError):
        find_marked(marks)


def test_forking_processes_are_hunted_down(mark):
    script = "while :; do (sleep 60; :) & sleep 0.01; done"
    environment = {"PATH": os.environ["PATH"], **mark}
    with subprocess.Popen(["/bin/sh", "-c", script], env=environment, start_new_session=True):
        until(lambda: len(find_marked(mark)) > 5, "it forks")
        assert kill_marked(mark) == ()
    assert find_marked(mark) == ()


def test_declared_environment_is_read_up_to_a_limit(tmp_path, monkeypatch):
    """A process may declare any of its memory to be its environment."""
    fake_process(tmp_path / "7", environment_end=1)
    (tmp_path / "7" / "environ").write_bytes(b"A=1\0" * 1_000)
    monkeypatch.setattr(processes, "_MAX_ENVIRONMENT_BYTES", 100)
    assert len(processes._read(str(tmp_path / "7" / "environ"))) == 100


def fake_process(folder: Path, environment_end: int) -> None:
    """This process as /proc shows one without an environment."""
    folder.mkdir()
    (folder / "environ").write_bytes(b"")
    fields = ["S", *(["1"] * 47), str(environment_end), "0"]
    (folder / "stat").write_text(f"{folder.name} (a) b) {' '.join(fields)}\n")


def test_a_process_amid_exec_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PROC", tmp_path)
    folder = tmp_path / str(os.getpid())
    fake_process(folder, environment_end=0)
    (folder / "exe").symlink_to(sys.executable)

    def finish_exec() -> None:
        (folder / "environ.new").write_bytes(b"A=b\0THEMIS_TEST_MARK=x\0")
        (folder / "environ.new").rename(folder / "environ")

    with ThreadPoolExecutor(1) as later:
        later.submit(lambda: (time.sleep(0.1), finish_exec()))
        assert has_marks(os.getpid(), {"THEMIS_TEST_MARK": "x"})


@pytest.mark.parametrize("environment_end", [0, 140737], ids=["a zombie", "an empty environment"])
def test_a_process_without_environment_is_not_awaited(tmp_path, monkeypatch, environment_end):
    monkeypatch.setattr(processes, "PROC", tmp_path)
    monkeypatch.setattr(processes.time, "sleep", pytest.fail)
    fake_process(tmp_path / str(os.getpid()), environment_end)
    assert not has_marks(os.getpid(), {"THEMIS_TEST_MARK": "x"})


def test_a_real_process_with_an_empty_environment_is_not_awaited(mark, monkeypatch):
    with subprocess.Popen(["/bin/sleep", "60"], env={}) as bare:
        until(lambda: Path(f"/proc/{bare.pid}/cmdline").read_bytes(), "it is past exec")
        with monkeypatch.context() as patch:
            patch.setattr(processes.time, "sleep", pytest.fail)
            assert not has_marks(bare.pid, mark)
        bare.kill()


def test_waiting_for_a_process_that_is_not_our_child(tmp_path, mark):
    shell = f"sleep 0.3 & echo $! > {tmp_path}/pids"
    subprocess.run(["/bin/sh", "-c", shell], env={"PATH": os.environ["PATH"], **mark}, check=True)
    [pid] = read_pids(tmp_path / "pids", 1)

    async def scenario() -> None:
        await asyncio.wait_for(wait_for_exit(pid), 60.0)
        await asyncio.wait_for(wait_for_exit(pid), 60.0)

    asyncio.run(scenario())
    assert not is_alive(pid)


def test_a_process_adopts_orphans_only_in_its_block():
    """A process that stayed their parent would have children that it never waits for."""
    assert not adopts_orphans()
    with adopting_orphans():
        with adopting_orphans():
            assert adopts_orphans()
        assert adopts_orphans()
    assert not adopts_orphans()
