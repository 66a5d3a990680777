"""The `python3` of tasks: the start warns if it is not the interpreter of the service."""

from pathlib import Path

import pytest

from rm_plugin.engines.task_python import task_python_warning


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The folder of the service's interpreter and that of the machine, each with a `python3`."""
    service, machine = tmp_path / "service" / "bin", tmp_path / "machine" / "bin"
    for folder in (service, machine):
        folder.mkdir(parents=True)
        (folder / "python3").write_text("#!/bin/sh\n")
        (folder / "python3").chmod(0o755)
    return service, machine


def warning(path: str, service: Path) -> str:
    return task_python_warning({"PATH": path}, own=str(service / "python3.11"))


def test_activated_environment_is_not_warned_of(folders: tuple[Path, Path]) -> None:
    service, machine = folders
    assert warning(f"{service}:{machine}", service) == ""


def test_environment_reached_by_a_link_is_not_warned_of(folders: tuple[Path, Path], tmp_path: Path) -> None:
    service, _ = folders
    (tmp_path / "current").symlink_to(service.parent)
    assert warning(f"{tmp_path}/current/bin", service) == ""


def test_other_interpreter_is_named_with_the_remedy(folders: tuple[Path, Path]) -> None:
    service, machine = folders
    text = warning(f"{machine}:{service}", service)
    assert f"is {machine}/python3, not the interpreter of this service, {service}/python3.11" in text
    assert f"{service} first in PATH" in text
    assert "`python`" in text


def test_path_without_a_python_is_warned_of(folders: tuple[Path, Path], tmp_path: Path) -> None:
    assert "`python3` of tasks is not in PATH" in warning(str(tmp_path), folders[0])
