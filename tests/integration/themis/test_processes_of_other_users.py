"""Processes that root starts with the rights of other users, and files in folders of theirs."""

import asyncio
import os
import signal
import subprocess
import uuid
from pathlib import Path

import pytest
from living import is_alive
from other_users import ANN, BOB, only_root

from themis.accounts import Account
from themis.files import last_line, open_below
from themis.processes import ProcessSpec, StartError, find_marked, has_marks, kill_marked, start

pytestmark = only_root
ACCOUNT = Account(name="ann", uid=ANN, gid=ANN, groups=(ANN, 54_400))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of ann's."""
    made = tmp_path / "app-0001"
    made.mkdir(0o700)
    os.chown(made, ANN, ANN)
    return made


def spec(folder: Path, *command: str, **marks: str) -> ProcessSpec:
    environment = {"PATH": os.environ["PATH"], **marks}
    return ProcessSpec(
        command=command, environment=environment, working_dir=folder, stdout=folder / "log", account=ACCOUNT
    )


def run(folder: Path, *command: str) -> int:
    async def scenario() -> int:
        return await start(spec(folder, *command)).wait()

    return asyncio.run(scenario())


def test_process_has_the_rights_of_its_user_alone(folder: Path) -> None:
    assert (
        run(folder, "/bin/sh", "-c", "echo $(id -u) $(id -g) $(id -G); grep ^CapEff /proc/self/status; ls /root") == 2
    )
    said = (folder / "log").read_text()
    assert said.startswith(f"{ANN} {ANN} {ANN} 54400\nCapEff:\t0000000000000000\n")
    assert "Permission denied" in said
    assert ((folder / "log").stat().st_uid, (folder / "log").stat().st_mode & 0o777) == (ANN, 0o600)


def test_log_that_is_another_users_file_is_not_written(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of root")
    # What ann could make where hard links are not protected.
    os.link(secret, folder / "log")
    with pytest.raises(StartError, match="not a file of ann"):
        run(folder, "true")
    assert (secret.read_text(), secret.stat().st_uid) == ("of root", 0)
    (folder / "log").unlink()
    (folder / "log").symlink_to(secret)
    with pytest.raises(StartError):
        run(folder, "true")
    assert (secret.read_text(), secret.stat().st_uid) == ("of root", 0)


def test_root_reads_files_of_the_folders_user_only(folder: Path, tmp_path: Path) -> None:
    (folder / "log").write_text("of ann\n")
    os.chown(folder / "log", ANN, ANN)
    assert last_line(folder / "log") == "of ann"
    (tmp_path / "secret").write_text("of root\n")
    os.link(tmp_path / "secret", folder / "task-0.log")
    assert last_line(folder / "task-0.log") == ""
    with pytest.raises(PermissionError, match="another user"):
        open_below(folder, "task-0.log")
    # In folders of root everything is as before.
    os.close(open_below(tmp_path, "secret"))


def test_root_finds_and_ends_marked_processes_of_all_users(folder: Path) -> None:
    marks = {"THEMIS_TEST_MARK": uuid.uuid4().hex}

    async def scenario() -> None:
        process = start(spec(folder, "sleep", "60", **marks))
        while not find_marked(marks):
            await asyncio.sleep(0.01)
        assert has_marks(process.pid, marks, uid=ANN)
        assert not has_marks(process.pid, marks) and not has_marks(process.pid, marks, uid=BOB)
        assert kill_marked(marks) == ()
        assert await process.wait() == -signal.SIGKILL

    asyncio.run(scenario())


def test_user_ends_no_marked_process_of_another_user(folder: Path) -> None:
    marks = {"THEMIS_TEST_MARK": uuid.uuid4().hex}
    with subprocess.Popen(["sleep", "60"], env=marks, executable="/bin/sleep", user=BOB) as bobs:
        try:
            script = f"for pid in {bobs.pid}; do kill -9 $pid && echo ended; done; cat /proc/{bobs.pid}/environ"
            assert run(folder, "/bin/sh", "-c", script) == 1
            assert "ended" not in (folder / "log").read_text() and is_alive(bobs.pid)
        finally:
            assert kill_marked(marks) == ()


def test_user_makes_groups_in_the_group_of_its_process_and_cannot_leave_it(folder: Path) -> None:
    script = """
    sleep 0.5
    own=$(sed -n 's/^0:://p' /proc/self/cgroup)
    root=$(awk '/ - cgroup2 / {print $5}' /proc/self/mountinfo)
    case $own in */themis-*) ;; *) exit 3;; esac
    mkdir "$root$own/mine" && echo $$ > "$root$own/mine/cgroup.procs" && echo made
    echo $$ > "$root/cgroup.procs" && echo left
    cd "$root$own"; for depth in 1 2 3 4 5 6 7 8 9; do mkdir deeper && cd deeper; done; pwd; true
    """
    code = run(folder, "/bin/sh", "-c", script)
    if code == 3:
        pytest.skip("this process may not make control groups (cgroup v2, Linux 5.14)")
    said = (folder / "log").read_text().splitlines()
    assert "made" in said and "left" not in said
    # A service that removes the group would never end with it.
    assert said[-1].count("/deeper") == 8
