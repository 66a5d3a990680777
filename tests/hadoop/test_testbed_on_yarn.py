"""The testbed run on real YARN and HDFS, as `make testbed ENGINE=yarn` runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from documents import ROOT


def test_the_main_job_on_yarn_keeps_every_promise(hadoop_programs, tmp_path):
    _, jars = hadoop_programs
    command = ["-m", "themis_cli.main", "testbed", "run", str(ROOT / "conf/testbed/yarn.yaml"), "--engine", "yarn"]
    done = subprocess.run(
        [sys.executable, *command, "--out", str(tmp_path / "out")],
        env={**os.environ, "THEMIS_HADOOP_JARS": str(jars)}, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert (report["engine"], report["cluster"]["emulated"], report["invariants"]["violations"]) == ("yarn", True, [])
    assert {(app["kind"], app["state"]) for app in report["apps"]} == {("real", "FINISHED"), ("replay", "FINISHED")}
    best = next(app["best"] for app in report["apps"] if app["kind"] == "real")
    assert best["accuracy"] > 0.9 and best["checkpoint"].startswith("hdfs://")
    assert not (tmp_path / "out/hadoop").exists()
    histories = list(Path(tmp_path / "out/state/apps").glob("*/jobs/*/history.jsonl"))
    assert len(histories) == sum(app["jobs"] for app in report["apps"])
