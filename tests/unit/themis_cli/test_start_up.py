"""Help comes at once: it loads neither numpy nor HiGHS nor any solver, so that no start pays for the compiled core."""

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
    """What a command line says, and what of all that is slow to load it loads."""
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


@pytest.mark.parametrize(("threads", "told"), [(None, "1"), ("3", "3")])
def test_what_computes_starts_no_threads_for_large_matrices_unless_told_to(monkeypatch, threads, told):
    monkeypatch.delenv(THREADS, raising=False)
    if threads is not None:
        monkeypatch.setenv(THREADS, threads)
    assert main(["auction", "--market", "conf/markets/three-apps.json"]) == 0
    assert os.environ[THREADS] == told


def test_jobs_that_others_start_are_left_to_choose(monkeypatch):
    monkeypatch.delenv(THREADS, raising=False)
    with pytest.raises(SystemExit):
        main(["testbed", "--help"])
    assert THREADS not in os.environ


def test_an_auction_loads_the_compiled_core():
    """So the test above looks where it should."""
    _, slow = loaded("themis_cli.main", "auction", "--market", "conf/markets/three-apps.json")
    assert {"numpy", "rm_plugin.solvers.exact._core"} <= set(slow)
