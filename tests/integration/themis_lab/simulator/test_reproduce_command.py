"""`themis reproduce` as users run it: tiny experiments, bad names, Ctrl-C."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
from documents import ROOT

COMMAND = [sys.executable, "-m", "themis_cli.main", "reproduce"]


def reproduce(*options):
    return subprocess.run([*COMMAND, *options], cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)


def test_figure_6_leaves_a_csv_a_figure_and_the_table(tmp_path):
    ended = reproduce("fig6", "--seeds", "2", "--out", str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fig6.csv", "fig6.md", "fig6.png", "fig6.txt"]
    with (tmp_path / "fig6.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    blind = {row["instance"]: row for row in rows if row["policy"] == "drf, blind"}
    assert [blind["1"][f"keeps_{name}"] for name in ("SI", "EF", "PE")] == ["0.0", "1.0", "0.0"]
    assert [blind["2"][f"keeps_{name}"] for name in ("SI", "EF", "PE")] == ["0.0", "0.0", "0.0"]
    themis = [row for row in rows if row["policy"] == "themis, f = 0"]
    assert {row["seed"] for row in themis} == {"1", "2"}
    assert all(row["keeps_SI"] == row["keeps_EF"] == row["keeps_PE"] == "1.0" for row in themis)
    assert ended.stdout.startswith("fig6: two instances")
    assert "16 runs at scale quick, 2 at a time: about" in ended.stderr
    assert "16 of 16 runs" in ended.stderr


def test_the_result_does_not_depend_on_how_many_run_at_a_time(tmp_path):
    for jobs in ("1", "2"):
        ended = reproduce("fig6", "--seeds", "1", "--jobs", jobs, "--out", str(tmp_path / jobs), "--json")
        assert ended.returncode == 0, ended.stderr
        (reported,) = json.loads(ended.stdout)["experiments"]
        assert (reported["name"], len(reported["comparisons"])) == ("fig6", 14)
    for name in ("fig6.csv", "fig6.md", "fig6.png", "fig6.txt"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["fig66"], "unknown experiment: 'fig66'; did you mean 'fig6'? known: fig6, fig9, "),
        (["all", "fig66"], "unknown experiment: 'fig66'; did you mean 'fig6'? known: fig6, fig9, "),
        (["fig6", "--out", "/proc"], "cannot write in the folder /proc: "),
        (["fig6", "--out", "/proc/x"], "cannot make the folder /proc/x: 'No such file or directory'; name another by"),
        (["fig6", "--seeds", "0"], "--seeds must be 1 or more: 0"),
        (["fig6", "--jobs", "0"], "--jobs must be 1 or more: 0"),
    ],
)
def test_invalid_options_are_refused(options, expected):
    ended = reproduce(*options)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"themis: {expected}")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_findings_are_printed_if_their_files_cannot_be_written(tmp_path, options):
    (tmp_path / "fig6.csv").mkdir()
    ended = reproduce("fig6", "--seeds", "1", "--out", str(tmp_path), *options)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith(f"themis: cannot write {tmp_path}/fig6.csv: 'Is a directory'; make")
    if options:
        (reported,) = json.loads(ended.stdout)["experiments"]
        assert (reported["name"], reported["files"]) == ("fig6", None)
    else:
        assert ended.stdout.startswith("fig6: two instances")
    # The runs stay: with room made, the same command only evaluates them.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fig6.csv", "unfinished"]


def test_runs_are_kept_until_the_document_is_written(tmp_path):
    command = ["bash", "-c", '"$@" > /dev/full', "bash", *COMMAND, "fig6", "--seeds", "1", "--json", "--out", tmp_path]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (2, "themis: [Errno 28] No space left on device")
    assert (tmp_path / "unfinished").is_dir()
    again = reproduce("fig6", "--seeds", "1", "--json", "--out", str(tmp_path))
    assert again.returncode == 0
    assert "8 of them made before" in again.stderr
    assert not (tmp_path / "unfinished").exists()


def begun(folder):
    """The command with a run under way, and its processes."""
    started = subprocess.Popen(
        ["env", "--default-signal", *COMMAND, "fig11", "--out", str(folder)],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    own = psutil.Process(started.pid)
    deadline_s = time.monotonic() + 60
    while not any(child.cpu_times().user > 1.0 for child in own.children(recursive=True)):
        assert time.monotonic() < deadline_s, "no run was begun"
        time.sleep(0.05)
    return started, own.children(recursive=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_an_interrupt_of_the_whole_terminal_ends_it_and_leaves_no_process(tmp_path, number):
    started, children = begun(tmp_path)
    os.killpg(started.pid, number)
    _, output = started.communicate(timeout=40)
    assert (started.returncode, output.strip().splitlines()[-1]) == (3, "themis: interrupted")
    assert not {"Traceback", "resource_tracker"} & set(re.findall(r"\w+", output))
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_its_processes_do_not_outlive_it(tmp_path, how):
    started, children = begun(tmp_path)
    started.send_signal(how)
    started.communicate(timeout=40)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive


def test_runs_finished_before_an_interrupt_are_reused(tmp_path):
    started, _ = begun(tmp_path)
    kept = tmp_path / "unfinished"
    deadline_s = time.monotonic() + 60
    while not (kept.is_dir() and any(not path.suffix for path in kept.iterdir())):
        assert time.monotonic() < deadline_s, "no run was kept"
        time.sleep(0.05)
    os.killpg(started.pid, signal.SIGINT)
    _, output = started.communicate(timeout=40)
    assert started.returncode == 3
    assert f"kept in {kept}: the same command goes on from there\n" in output
    there = sum(1 for _ in kept.iterdir())
    again, _ = begun(tmp_path)
    os.killpg(again.pid, signal.SIGINT)
    _, output = again.communicate(timeout=40)
    assert output.startswith(f"54 runs at scale quick, {there} of them made before, 2 at a time: about ")
