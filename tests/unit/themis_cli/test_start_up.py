"""Help starts quickly: it loads neither numpy nor HiGHS nor any solver."""

import os
import subprocess
import sys

import pytest

from themis_cli.main import main

THREADS = "OPENBLAS_NUM_THREADS"

SCRIPT = """
import runpy, sys
module, *words = sys.argv[1:]
sys.argv = [module, *words]
try:
    runpy.run_module(module, run_name="__main__")
finally:
    slow = {"numpy", "highspy", "scipy"} & {name.split(".")[0] for name in sys.modules}
    slow |= {name for name in sys.modules if name.startswith(("rm_plugin.solvers", "am.agent"))}
    print(*sorted(slow), file=sys.stderr)
"""


def loaded(*words):
    """Return the output of a command line, and the slow modules that it loads."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, ran.stderr.split()


@pytest.mark.parametrize(
    "words",
    [
        ("themis_cli.main", "--help"),
        ("themis_cli.main", "auction", "--help"),
        ("themis_cli.main", "oef", "--help"),
        ("themis_cli.main", "bench", "auction", "--help"),
        ("themis_cli.main", "audit", "--help"),
        ("themis_cli.main", "rm", "--help"),
        ("submarine_client.main", "--help"),
        ("submarine_client.main", "job", "run", "--help"),
    ],
    ids=" ".join,
)
def test_help_loads_no_solver(words):
    said, slow = loaded(*words)
    assert "usage" in said.lower()
    assert slow == []


@pytest.mark.parametrize(("threads", "expected"), [(None, "1"), ("3", "3")])
def test_computing_commands_use_one_blas_thread_by_default(monkeypatch, threads, expected):
    monkeypatch.delenv(THREADS, raising=False)
    if threads is not None:
        monkeypatch.setenv(THREADS, threads)
    assert main(["auction", "--market", "conf/markets/three-apps.json"]) == 0
    assert os.environ[THREADS] == expected


def test_commands_that_start_jobs_set_no_blas_threads(monkeypatch):
    monkeypatch.delenv(THREADS, raising=False)
    with pytest.raises(SystemExit):
        main(["testbed", "--help"])
    assert THREADS not in os.environ


def test_auction_loads_compiled_core():
    """Shows that the test above looks for the right module."""
    _, slow = loaded("themis_cli.main", "auction", "--market", "conf/markets/three-apps.json")
    assert {"numpy", "rm_plugin.solvers.exact._core"} <= set(slow)
