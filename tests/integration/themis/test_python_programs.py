"""Programs of Themis in a folder whose own `am/`, `themis/`, `audit.py` and the like would stand in for ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from am.runtimes.remote.processes import HOST_COMMAND
from rm_plugin.engines.local import AM_COMMAND
from tf_jobs.catalog import program_command
from themis_lab.testbed.rm_process import rm_command

ROOT = Path(__file__).resolve().parents[3]
STRANGER = "a stranger's code was imported"
NAMES = ("am", "rm_plugin", "submarine_client", "tf_jobs", "themis", "themis_cli", "themis_lab")


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit({STRANGER!r})\n")
    for name in ("audit", "random", "simulator"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit({STRANGER!r})\n")
    return tmp_path


def printed_by(command, folder):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "THEMIS_"))}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_python_by_itself_prefers_the_working_folder(folder):
    assert STRANGER in printed_by([sys.executable, "-m", "am.main"], folder)


@pytest.mark.parametrize(
    ("command", "ours"),
    [
        pytest.param(AM_COMMAND, "THEMIS_", id="app master"),
        pytest.param(HOST_COMMAND, "THEMIS_", id="task host"),
        pytest.param([*program_command("replay"), "--help"], "usage: ", id="task"),
        pytest.param(rm_command(Path("missing.yaml")), "missing.yaml", id="ResourceManager"),
        pytest.param([f"{Path(sys.executable).parent}/themis", "audit", "--help"], "usage: ", id="themis"),
        pytest.param([f"{Path(sys.executable).parent}/submarine", "--help"], "usage: ", id="submarine"),
    ],
)
def test_our_programs_never_import_from_the_working_folder(folder, command, ours):
    printed = printed_by(command, folder)
    assert STRANGER not in printed
    assert ours in printed


def test_the_product_starts_modules_in_one_way_only():
    by_hand = [
        str(path.relative_to(ROOT))
        for name in NAMES
        for path in (ROOT / name).rglob("*.py")
        if '"-m", ' in path.read_text(encoding="utf-8")
    ]
    assert by_hand == ["themis/python_programs.py"]
