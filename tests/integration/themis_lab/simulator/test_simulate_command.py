"""`themis simulate` as users run it: a whole run on a small cluster, seeds in processes, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from documents import ROOT

COMMAND = [sys.executable, "-m", "themis_cli.main", "simulate", "--policy", "themis"]


def simulate(*options):
    return subprocess.run([*COMMAND, *options], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


def test_a_run_on_a_small_cluster_prints_one_document_and_nothing_else():
    ended = simulate("--cluster", "2x4+2x2", "--workload", "w1-small", "--apps", "4", "--scale", "40", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    assert (document["cluster_gpus"], len(document["apps"])) == (12, 4)
    for app in document["apps"]:
        assert app["rho"]["themis"] >= app["bound"] * (1 - 1e-9)
        assert app["gpu_time_s"] * (1 + 1e-9) >= app["ideal_gpu_s"]
    assert 0.0 < document["utilisation"]["running"] <= document["utilisation"]["leased"] <= 1.0
    assert document["invariants"]["violations"] == []


@pytest.mark.parametrize("options", [(), ("--seeds", "4", "--jobs", "2")])
def test_ctrl_c_ends_it_at_once_and_leaves_no_process(options):
    started = subprocess.Popen(
        [*COMMAND, "--cluster", "testbed", "--workload", "w1", *options],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    own = psutil.Process(started.pid)
    deadline_s = time.monotonic() + 60
    while not at_work(own, options) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    children = own.children(recursive=True)
    assert bool(children) == bool(options)
    os.killpg(started.pid, signal.SIGINT)
    _, output = started.communicate(timeout=40)
    assert (started.returncode, output.splitlines()[-1]) == (3, "themis: interrupted")
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive


def at_work(own, options):
    if not options:
        return own.cpu_times().user > 1.5
    return any(child.cpu_times().user > 1.0 for child in own.children(recursive=True))
