"""`themis bench simulator` as users run it: a tiny run, a given trace, bad options, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from documents import ROOT

from themis_lab.bench.simulator_trace import write_trace
from themis_lab.simulator.workloads.gavel_sample import draw_jobs

COMMAND = [sys.executable, "-m", "themis_cli.main", "bench", "simulator"]


def bench(*options):
    return subprocess.run([*COMMAND, *options], cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)


def test_a_tiny_run_prints_one_document_and_progress_goes_elsewhere():
    ended = bench("--parts", "growth", "--sizes", "16/2,8/1", "--json")
    assert ended.returncode == 0, ended.stderr
    read = json.loads(ended.stdout)
    assert [(row["gpus"], row["apps"], row["left_out"]) for row in read["rows"]] == [(8, 1, None), (16, 2, None)]
    for row in read["rows"]:
        assert row["wall_s"] > row["run_s"] > 0
        assert min(row["cpu_s"], row["memory_mib"] / 20, row["events_per_s"], row["rounds_per_s"]) > 0.0
    assert [growth["over"] for growth in read["growth"]] == ["GPUs and apps"]
    assert "growth 8/1: synthetic, load 1" in ended.stderr


def test_a_given_trace_is_run(tmp_path):
    trace, speeds = write_trace(draw_jobs(6, 32, seed=1), tmp_path, "mine")
    ended = bench("--parts", "gavel-120", "--trace", str(trace), "--throughputs", str(speeds), "--repeats", "2")
    assert ended.returncode == 0, ended.stderr
    assert "gavel-120 32/6  given trace" in ended.stdout
    assert "gavel-120 32/6: the fastest of 2 runs; the slowest took " in ended.stdout


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--sizes", "65/2"], "no such size: '65/2'; write GPUS/APPS, GPUs being a multiple of 8: 80/16,400/80"),
        (["--repeats", "0"], "--repeats must be 1 or more: 0"),
        (["--sizes", "64"], "--sizes does not parse: '64'; write GPUS/APPS: 80/16,400/80"),
        (["--parts", "growt"], "unknown part of the benchmark: 'growt'; did you mean 'growth'?"),
        (["--policy", "temis"], "unknown policy: 'temis'; did you mean 'themis'?"),
        (["--throughputs", "t.csv"], "--throughputs belongs to a trace; name the trace with --trace"),
    ],
)
def test_invalid_options_are_refused(options, expected):
    ended = bench(*options)
    assert ended.returncode == 2
    assert ended.stderr.strip().startswith(f"themis: {expected}")


def test_ctrl_c_ends_it_at_once_and_leaves_no_process():
    started = subprocess.Popen(
        [*COMMAND, "--parts", "w1"],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    own = psutil.Process(started.pid)
    deadline_s = time.monotonic() + 60
    while len(own.children(recursive=True)) < 2 and time.monotonic() < deadline_s:
        time.sleep(0.05)
    children = own.children(recursive=True)
    assert len(children) == 2
    os.kill(started.pid, signal.SIGINT)
    _, output = started.communicate(timeout=40)
    assert (started.returncode, output.strip().splitlines()[-1]) == (3, "themis: interrupted")
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
