"""What a process starts ends with it, however it hides, where the machine has control groups."""

import asyncio
import os
from pathlib import Path

import pytest
from living import is_alive

from themis import control_groups
from themis.control_groups import ControlGroup
from themis.processes import ProcessSpec, start


@pytest.fixture
def group():
    made = ControlGroup.make()
    if made is None:
        pytest.skip("this process may not make control groups (cgroup v2, Linux 5.14, a group of its own user)")
    yield made
    made.kill()
    made.remove()


def run(tmp_path: Path, script: str) -> int:
    async def scenario() -> int:
        shell = ProcessSpec(
            command=("/bin/sh", "-c", script),
            environment={"PATH": os.environ["PATH"]},
            working_dir=tmp_path,
            stdout=tmp_path / "log",
            dies_with_parent=True,
        )
        return await start(shell).wait()

    return asyncio.run(scenario())


HIDDEN = "(setsid env -i /bin/sh -c 'echo $$ > pid; sleep 60; true' &); until [ -s pid ]; do sleep 0.01; done"
"""A process in a session of its own, without environment, whose parent is gone."""


def test_hidden_descendant_is_dead_when_the_exit_is_reported(tmp_path, group):
    assert run(tmp_path, HIDDEN + "; exit 3") == 3
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_group_of_a_finished_process_is_removed(tmp_path, group):
    run(tmp_path, "cat /proc/self/cgroup")
    [path] = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("0::")]
    assert path.rpartition("/")[2].startswith("themis-")
    assert not (group.folder.parent / path.rpartition("/")[2]).exists()


def test_group_is_found_by_a_process_in_it(tmp_path, group):
    async def scenario() -> None:
        process = start(
            ProcessSpec(command=("sleep", "60"), environment=os.environ, working_dir=tmp_path, stdout=tmp_path / "log")
        )
        found = ControlGroup.of(process.pid)
        assert found.populated
        found.kill()
        assert await process.wait() == -9
        assert not found.populated

    asyncio.run(scenario())


def test_no_group_of_another_maker_is_found(group):
    assert ControlGroup.of(1) is None


def test_empty_group_of_a_dead_maker_is_removed(group):
    left = group.folder.parent / "themis-4999999-0"
    (left / "themis-4999998-0").mkdir(parents=True)
    ControlGroup.make().remove()
    assert not left.exists()
    assert group.folder.exists()


def test_without_control_groups_none_is_made(tmp_path, monkeypatch):
    mounts = tmp_path / "mountinfo"
    mounts.write_text("31 23 0:30 / /proc rw - proc proc rw\n")
    monkeypatch.setattr(control_groups, "_MOUNTS", mounts)
    assert ControlGroup.make() is None
    assert run(tmp_path, "exit 4") == 4


def test_group_with_processes_keeps_its_empty_groups_though_its_maker_is_dead(tmp_path, group):
    """An app master of a ResourceManager that was killed has just made a group for its next task."""
    left = ControlGroup(group.folder.parent / "themis-4999999-1")

    async def scenario() -> None:
        process = start(
            ProcessSpec(command=("sleep", "60"), environment=os.environ, working_dir=tmp_path, stdout=tmp_path / "log")
        )
        (left.folder / "themis-1-0").mkdir(parents=True)
        left.add(process.pid)
        ControlGroup.make().remove()
        assert (left.folder / "themis-1-0").exists()
        left.kill()
        await process.wait()

    try:
        asyncio.run(scenario())
    finally:
        left.remove()
