"""`themis bench auction` as users run it: a small run, bad options, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from documents import ROOT

COMMAND = [sys.executable, "-m", "themis_cli.main", "bench", "auction"]


def bench(*options):
    return subprocess.run([*COMMAND, *options], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_a_small_run_prints_one_document_and_progress_goes_elsewhere():
    ended = bench("--sizes", "64", "--markets", "2", "--gangs", "powers", "--cluster", "fragmented", "--json")
    assert ended.returncode == 0, ended.stderr
    (row,) = json.loads(ended.stdout)["rows"]
    assert (row["gpus"], row["machines"], row["bidders"], row["markets"]) == (64, 20, 5, 2)
    assert row["highs_markets"] == 2
    assert row["objective_rel_diff"] <= 1e-9
    assert row["worst_ratio"] <= row["ratio"]
    assert min(row["ours_s"], row["highs_s"], row["bid_p95_ms"], row["rows"]) > 0
    assert "64/20/5 powers fragmented: 2 of 2 markets" in ended.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--sizes", "65"], "no such size: 65; known: 64, 168, 1024, 10000"),
        (["--sizes", "64,"], "--sizes does not parse: '64,'; write numbers of GPUs: 64,168"),
        (["--markets", "0"], "--markets must be 1 or more: 0"),
        (["--solver", "exat"], "unknown solver: 'exat'; did you mean 'exact'?"),
    ],
)
def test_invalid_options_are_refused(options, expected):
    ended = bench(*options)
    assert (ended.returncode, ended.stderr.strip()) == (2, f"themis: {expected}")


def test_missing_highspy_is_reported_with_the_install_command(tmp_path, monkeypatch):
    (tmp_path / "highspy.py").write_text("raise ImportError('there is none')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))))
    ended = bench("--sizes", "64", "--markets", "1", "--gangs", "powers", "--cluster", "empty")
    reported = "themis: HiGHS needs highspy: 'there is none'; pip install highspy\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", reported)


def test_ctrl_c_ends_it_at_once_in_the_midst_of_a_solve():
    started = subprocess.Popen(
        [*COMMAND, "--sizes", "1024", "--solver", "highs", "--gangs", "any"],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    own = psutil.Process(started.pid)
    deadline_s = time.monotonic() + 60
    while not any(child.cpu_times().user > 1.0 for child in own.children()) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    children = own.children(recursive=True)
    assert children
    os.killpg(started.pid, signal.SIGINT)
    _, output = started.communicate(timeout=40)
    assert (started.returncode, output.strip()) == (3, "themis: interrupted")
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
