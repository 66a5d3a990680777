"""The built wheel works outside a checkout: commands, example files, types and the compiled parts."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
OF_EXTRAS = (
    "cvxpy",
    "docker",
    "ecos",
    "gurobipy",
    "hdfs",
    "jpype",
    "keras",
    "optuna",
    "scikit",
    "sklearn",
    "tensorflow",
)
"""How the packages of the extras begin, which a plain installation lacks."""
REPLAYED = """
name: replayed
time_scale: 30
time_limit_s: 90
cluster: ../clusters/small-8.yaml
lease: {duration_s: 5, checkpoint_lead_s: 1, grace_s: 8}
apps: [{group: apps/small-pair.yaml}]
"""
PACKAGES = ("am", "rm_plugin", "submarine_client", "tf_jobs", "themis", "themis_cli", "themis_lab")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--disable-pip-version-check")
    subprocess.run([*command, "--wheel-dir", folder, ROOT], check=True, cwd=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The scripts of a fresh environment with the wheel, this environment's dependencies and no extra."""
    folder = tmp_path_factory.mktemp("env")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = (folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check")
    subprocess.run([*pip, wheel], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": folder, "platbase": folder}))
    for path in Path(np.__file__).parents[1].iterdir():
        # A .pth file would add this checkout.
        ours = path.suffix == ".pth" or path.name.startswith(("__editable__", "themis_scheduler"))
        if not ours and not path.name.lower().startswith(OF_EXTRAS) and not (packages / path.name).exists():
            (packages / path.name).symlink_to(path)
    return folder / "bin"


def run(installed, cwd, *words):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [installed / words[0], *words[1:]]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_wheel_claims_only_our_names(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == set(PACKAGES)
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)


def test_wheel_holds_every_example(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {f"themis/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "conf").rglob("*") if path.is_file()}
    assert expected <= names


def test_code_is_the_wheels(installed, tmp_path):
    result = run(
        installed, tmp_path, "python", "-c", "import am.agent, themis; print(am.agent.__file__, themis.__file__)"
    )
    assert result.returncode == 0, result.stderr
    assert str(ROOT) not in result.stdout


def test_examples_are_found_by_name(installed, tmp_path):
    result = run(installed, tmp_path, "submarine", "app", "validate", "replay-search")
    assert result.returncode == 0, result.stderr
    assert "Jobs:           8" in result.stdout
    assert run(installed, tmp_path, "themis", "auction", "--market", "three-apps").returncode == 0


def test_simulation_runs_with_shipped_workloads(installed, tmp_path):
    words = ("simulate", "--policy", "themis", "--workload", "w1-small", "--apps", "2", "--cluster", "small-8")
    result = run(installed, tmp_path, "themis", *words)
    assert result.returncode == 0, result.stderr


def test_testbed_replays_and_draws_its_report_without_extras(installed, tmp_path):
    assert run(installed, tmp_path, "themis", "examples", "--copy", "conf").returncode == 0
    (tmp_path / "conf/testbed/replayed.yaml").write_text(REPLAYED, encoding="utf-8")
    result = run(installed, tmp_path, "themis", "testbed", "run", "conf/testbed/replayed.yaml", "--out", "run")
    assert result.returncode == 0, result.stdout + result.stderr
    assert (tmp_path / "run/report.html").is_file()


def test_testbed_names_the_missing_extra_before_it_starts(installed, tmp_path):
    result = run(installed, tmp_path, "themis", "testbed", "run", "small", "--out", "run")
    assert result.returncode == 2
    assert "pip install 'themis-scheduler[tf]'" in result.stderr
    assert not (tmp_path / "run").exists()


def test_figures_are_drawn_without_extras(installed, tmp_path):
    result = run(installed, tmp_path, "themis", "reproduce", "fig6", "--seeds", "1", "--out", "figures")
    assert result.returncode == 0, result.stderr


def test_version_is_printed_by_both_commands(installed, tmp_path):
    for command in ("themis", "submarine"):
        assert run(installed, tmp_path, command, "--version").stdout.startswith(f"{command} 0.")
