"""Without the package highspy, only requests for HiGHS fail, with the remedy."""

import os
import subprocess
import sys

import pytest
from documents import ROOT

from rm_plugin.solvers.registry import solver
from themis.errors import InputError
from themis_cli.main import main

MARKET = ("--market", str(ROOT / "conf/markets/three-apps.json"))
RUN = ("--policy", "themis", "--cluster", "4x2", "--workload", "w1-small", "--apps", "2", "--scale", "40")
TOLD = r"HiGHS needs highspy: '.*'; pip install highspy, or choose another solver"


@pytest.fixture(autouse=True)
def without_highspy(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    for name in ("rm_plugin.solvers.highs_package", "rm_plugin.solvers.highs"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_error_names_installation_command():
    with pytest.raises(InputError, match=TOLD):
        solver("highs")


def test_other_solvers_work_without_it():
    assert [solver(name).name for name in ("exact", "brute_force")] == ["exact", "brute_force"]


@pytest.mark.parametrize(
    "command",
    [("auction", *MARKET), ("simulate", *RUN), ("bench", "auction")],
    ids=lambda command: " ".join(command[:2]),
)
def test_command_exits_2_with_one_line(command, capsys):
    assert main([*command, "--solver", "highs"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("themis: HiGHS needs highspy: ")
    assert output.err.endswith("; pip install highspy, or choose another solver\n")
    assert output.err.count("\n") == 1


def test_exact_solves_market_without_it(capsys):
    assert main(["auction", *MARKET]) == 0
    assert "optimal by exact" in capsys.readouterr().out


def test_error_of_reference_solver_offers_no_other_solver(tmp_path):
    # In a process of its own: here the audit may have been imported before.
    (tmp_path / "highspy.py").write_text("raise ImportError('there is none')\n", encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    ended = subprocess.run(
        [sys.executable, "-m", "themis_cli", "audit", "--markets", "1"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    reported = "themis: HiGHS needs highspy: 'there is none'; pip install highspy\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", reported)
