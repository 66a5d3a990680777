"""Limits of control groups, on folders that stand for cgroup v2 with all controllers."""

from pathlib import Path

import pytest

from themis import control_groups
from themis.control_groups import SELF, ControlGroup, Limits, enable_limits


class Controllers:
    """Makes what the kernel makes in a new group: files as far as its parent enables them."""

    def __init__(self, own: Path) -> None:
        self.own = own

    def fill(self, folder: Path) -> None:
        (folder / "cgroup.kill").touch()
        (folder / "cgroup.subtree_control").touch()
        if "memory" in (folder.parent / "cgroup.subtree_control").read_text():
            for name in ("memory.max", "memory.swap.max", "memory.oom.group", "cpu.max"):
                (folder / name).write_text("max")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch) -> Controllers:
    unit = tmp_path / "themis-rm.service"
    kernel = Controllers(unit / SELF)
    kernel.own.mkdir(parents=True)
    (unit / "cgroup.subtree_control").touch()
    monkeypatch.setattr(control_groups, "_folder_of", lambda pid: kernel.own)
    mkdir = Path.mkdir

    def made(folder: Path, *arguments: object, **options: object) -> None:
        mkdir(folder, *arguments, **options)
        kernel.fill(folder)

    def enable(folder: Path) -> None:
        (folder / "cgroup.subtree_control").write_text("cpu memory")

    monkeypatch.setattr(Path, "mkdir", made)
    monkeypatch.setattr(control_groups, "_enable", enable)
    return kernel


def test_app_and_its_tasks_are_limited_beside_their_makers(kernel: Controllers) -> None:
    assert enable_limits()
    app = ControlGroup.make(Limits(memory_mb=3072), for_maker=True)
    assert app is not None and app.folder.parent == kernel.own.parent
    assert (app.folder / "memory.max").read_text() == str(3072 << 20)
    assert (app.folder / "cpu.max").read_text() == "max"
    app.add(81)
    assert (app.folder / SELF / "cgroup.procs").read_text() == "81"

    # The same in the app master.
    kernel.own = app.folder / SELF
    task = ControlGroup.make(Limits(memory_mb=1024, cores=2))
    assert task is not None and task.folder.parent == app.folder
    files = {name: (task.folder / name).read_text() for name in ("memory.max", "memory.oom.group", "cpu.max")}
    assert files == {"memory.max": str(1024 << 20), "memory.oom.group": "1", "cpu.max": "200000 100000"}
    assert (task.folder / "memory.swap.max").read_text() == "0"
    assert not (task.folder / SELF).exists()


@pytest.mark.parametrize("inside", [SELF, "", "themis-81-0", "themis-81-0/themis-81-1"])
def test_group_of_an_app_is_found_by_its_app_master_wherever_that_hides(
    kernel: Controllers, inside: str, monkeypatch
) -> None:
    unit = kernel.own.parent
    folders = {"self": kernel.own, "81": unit / "themis-70-0" / inside}
    monkeypatch.setattr(control_groups, "_folder_of", folders.get)
    found = ControlGroup.of(81)
    assert found is not None and found.folder == unit / "themis-70-0"


def test_service_in_a_group_finds_the_groups_inside_it_only(kernel: Controllers, monkeypatch) -> None:
    """As a service that a test starts: it must not end itself."""
    own = kernel.own / "themis-70-0"
    folders = {"self": own, "81": own / "themis-71-0", "82": own}
    monkeypatch.setattr(control_groups, "_folder_of", folders.get)
    found = ControlGroup.of(81)
    assert found is not None and found.folder == own / "themis-71-0"
    assert ControlGroup.of(82) is None


@pytest.mark.parametrize("name", ["themis-rm.service", f"themis-rm.service/{SELF}", "user.slice"])
def test_group_of_the_service_is_not_taken_for_an_apps(kernel: Controllers, name: str) -> None:
    kernel.own = Path("/sys/fs/cgroup/system.slice") / name
    assert ControlGroup.of(81) is None


def test_service_that_shares_its_group_sets_no_limits(kernel: Controllers) -> None:
    kernel.own = kernel.own.parent
    assert not enable_limits()
    app = ControlGroup.make(Limits(memory_mb=3072), for_maker=True)
    assert app is not None and app.folder.parent == kernel.own
    assert not (app.folder / "memory.max").exists() and not (app.folder / SELF).exists()


def test_group_whose_limit_ended_it_is_known(tmp_path: Path) -> None:
    group = ControlGroup(tmp_path)
    assert not group.ran_out_of_memory
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 0\noom_group_kill 0\n")
    assert not group.ran_out_of_memory
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\noom_group_kill 1\n")
    assert group.ran_out_of_memory
    # The machine ran out, not the group.
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 0\noom_kill 2\noom_group_kill 0\n")
    assert not group.ran_out_of_memory
