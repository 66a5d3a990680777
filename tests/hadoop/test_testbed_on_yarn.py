"""The testbed run on real YARN and HDFS, as `make testbed ENGINE=yarn` runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT


def run(jars, out, mix, *options):
    """Run a mix; returns its report."""
    command = [
        "-m",
        "themis_cli.main",
        "testbed",
        "run",
        str(ROOT / "conf/testbed" / f"{mix}.yaml"),
        "--engine",
        "yarn",
    ]
    done = subprocess.run(
        [sys.executable, *command, "--out", str(out), *options],
        env={**os.environ, "THEMIS_HADOOP_JARS": str(jars)}, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((out / "report.json").read_text())


def test_the_main_job_on_yarn_keeps_every_promise(hadoop_programs, tmp_path):
    _, jars = hadoop_programs
    report = run(jars, tmp_path / "out", "yarn")
    assert (report["engine"], report["cluster"]["emulated"], report["invariants"]["violations"]) == ("yarn", True, [])
    assert {(app["kind"], app["state"]) for app in report["apps"]} == {("real", "FINISHED"), ("replay", "FINISHED")}
    best = next(app["best"] for app in report["apps"] if app["kind"] == "real")
    assert best["accuracy"] > 0.9 and best["checkpoint"].startswith("hdfs://")
    assert not (tmp_path / "out/hadoop").exists()
    histories = list(Path(tmp_path / "out/state/apps").glob("*/jobs/*/history.jsonl"))
    assert len(histories) == sum(app["jobs"] for app in report["apps"])


@pytest.mark.nightly
def test_allox_trains_by_tensorflow_on_cpu_nodes_of_yarn_beside_emulated_gpus(hadoop_programs, tmp_path):
    _, jars = hadoop_programs
    report = run(jars, tmp_path / "out", "hybrid-yarn", "--policy", "allox")
    assert (report["invariants"]["violations"], {app["state"] for app in report["apps"]}) == ([], {"FINISHED"})
    real = next(app for app in report["apps"] if app["kind"] == "real")
    # It states a higher speed on CPU nodes, and AlloX does not move a job that runs.
    assert set(real["gpu_time_s_by_device"]) == {"cpu"} and real["best"]["accuracy"] > 0.9
    only_gpus = next(app for app in report["apps"] if app["name"] == "gpu-pair")
    assert set(only_gpus["gpu_time_s_by_device"]) == {"gpu"}
