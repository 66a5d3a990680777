"""`themis` with a closed pipe, with closed output, and with signals that end it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from documents import ROOT

THEMIS = [sys.executable, "-m", "themis_cli"]
SHORT = [
    "simulate",
    "--policy",
    "themis",
    "--cluster",
    "1x2",
    "--workload",
    "w1-small",
    "--apps",
    "2",
    "--scale",
    "100",
]
LONG = ["simulate", "--policy", "themis", "--cluster", "testbed", "--workload", "w1"]


def in_a_shell(words, redirection):
    """Run the command. `{gone}` in the redirection is a pipe whose reader has left: one that leaves may be too slow."""
    reader, writer = os.pipe()
    os.close(reader)
    command = ["bash", "-c", f'"$@" {redirection.format(gone=writer)}', "bash", *THEMIS, *words]
    try:
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False, pass_fds=[writer]
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    "words",
    [
        SHORT,
        [*SHORT, "--json"],
        [*SHORT, "--explain", "app-00"],
        ["auction", "--market", "conf/markets/three-apps.json"],
    ],
    ids=["tables", "json", "explain", "auction"],
)
def test_a_reader_that_went_away_ends_it_as_a_shell_has_it(words):
    ended = in_a_shell(words, ">&{gone}")
    assert (ended.returncode, ended.stderr) == (141, "")


def test_a_closed_output_is_refused_before_the_run():
    ended = in_a_shell(SHORT, ">&-")
    printed = "themis: standard output is closed; redirect it to /dev/null to discard it\n"
    assert (ended.returncode, ended.stderr) == (2, printed)


def test_where_standard_error_is_closed_results_are_all_that_is_written():
    ended = in_a_shell([*SHORT, "--json"], "2>&-")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["workload"] == "w1-small"
    refused = in_a_shell([*SHORT, "--seed", "one"], "2>&-")
    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", "")


@pytest.mark.parametrize("lost", ["2> /dev/full", "2>&{gone} > /dev/null"])
def test_an_unwritable_error_keeps_its_exit_code(lost):
    ended = in_a_shell([*SHORT, "--seed", "one"], lost)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", "")


HELP = [[], ["--help"], ["simulate", "--help"]]


@pytest.mark.parametrize("words", HELP)
@pytest.mark.parametrize(("redirection", "code"), [(">&{gone}", 141), ("> /dev/full", 2)])
def test_unwritable_help_fails(words, redirection, code):
    ended = in_a_shell(words, redirection)
    reported = "themis: [Errno 28] No space left on device\n" if code == 2 else ""
    assert (ended.returncode, ended.stderr) == (code, reported)


@pytest.mark.parametrize("redirection", ["2> /dev/full", "2>&-"])
def test_progress_that_finds_no_room_changes_nothing(tmp_path, redirection):
    ended = in_a_shell(["reproduce", "fig6", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path)], redirection)
    assert ended.returncode == 0
    assert ended.stdout.startswith("fig6: two instances")


def test_a_full_output_device_is_reported_once():
    ended = in_a_shell(SHORT, "> /dev/full")
    assert (ended.returncode, ended.stderr) == (2, "themis: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_leaves_no_partial_recording(tmp_path, number):
    started = recording(tmp_path)
    started.send_signal(number)
    _, output = started.communicate(timeout=60)
    assert (started.returncode, output) == (3, "themis: interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("apart_s", [0.005, 0.02, 0.035, 0.05])
def test_a_second_interrupt_changes_nothing(tmp_path, apart_s):
    started = recording(tmp_path)
    for _ in range(8):
        if started.poll() is None:
            started.send_signal(signal.SIGINT)
        time.sleep(apart_s)
    _, output = started.communicate(timeout=60)
    assert (started.returncode, output) == (3, "themis: interrupted\n")


def recording(folder):
    """Start the command with default signal handlers, and wait until its recording has begun."""
    started = subprocess.Popen(
        ["env", "--default-signal", *THEMIS, *LONG, "--record", str(folder / "run.jsonl")],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline_s = time.monotonic() + 60
    while not list(folder.iterdir()):
        assert time.monotonic() < deadline_s, "no recording was begun"
        time.sleep(0.05)
    return started
