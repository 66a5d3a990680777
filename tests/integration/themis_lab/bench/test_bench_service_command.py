"""`themis bench service` with a few apps, whole: real gRPC, REST, store and processes."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from themis_cli.main import main


def test_bench_service_prints_every_figure(capsys):
    # On a busy machine app masters may answer too late for a while.
    assert any(measured(capsys)["reports_in_time"] > 0.5 for _ in range(3))


def measured(capsys):
    assert main(["bench", "service", "--apps", "6", "--waiting", "4", "--gpus", "16", "--seconds", "8",
                 "--lease-s", "5", "--app-masters", "at_submit", "--json"]) == 0  # fmt: skip
    document = json.loads(capsys.readouterr().out)
    assert document["registered"] == 10
    assert all(document[name]["p50"] <= document[name]["p99"] for name in ("round_s", "rest_s", "list_s"))
    assert all(document[name] > 0.0 for name in ("submissions_per_s", "cpu_share", "rss_mb", "start_s"))
    return document


def test_interrupted_bench_service_ends_at_once():
    command = [str(Path(sys.executable).with_name("themis")), "bench", "service", "--apps", "3", "--waiting", "0"]
    run = subprocess.Popen([*command, "--gpus", "8", "--seconds", "100"], stderr=subprocess.PIPE, text=True)
    try:
        while "measuring" not in (line := run.stderr.readline()):
            assert line
        # Until its threads ask for documents and lists.
        time.sleep(2.0)
        run.send_signal(signal.SIGINT)
        _, rest = run.communicate(timeout=30)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 3
    assert "interrupted" in rest
