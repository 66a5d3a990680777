"""`themis testbed --workload`: a tiny experiment from beginning to end by the command, and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from themis.rho import RhoDefinition
from themis_cli.main import main

TINY = """
name: tiny
about: three apps for a test
time_scale: 60
time_limit_s: 90
lease: {duration_s: 5, checkpoint_lead_s: 1, grace_s: 8}
rm: {coalesce_s: 0.2, report_deadline_s: 2, bid_deadline_s: 2, heartbeat_s: 0.5}
cluster:
  name: eight
  devices: {gpu: {kind: gpu, emulated: true}}
  machines: [{prefix: m, count: 2, slots: [2, 2], device: gpu, racks: [r0, r1]}]
trace: {apps: 3, scale: 8000, job_divisor: 25, app_spread: 1.5, job_spread: 1.5}
pair_divisor: 200
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


def test_an_experiment_runs_goes_on_and_reports(tiny: Path, tmp_path: Path, capsys):
    out = tmp_path / "out"
    words = ["testbed", "--workload", "w2", "--scale", str(tiny), "--out", str(out)]
    assert main([*words, "--policies", "themis"]) == 0
    assert "to run: themis, " in capsys.readouterr().out
    made = (out / "runs/themis/events.jsonl").stat()
    assert main([*words, "--policies", "themis,tiresias"]) == 0
    assert "themis was run before and is kept" in capsys.readouterr().out
    assert (out / "runs/themis/events.jsonl").stat().st_mtime_ns == made.st_mtime_ns
    check_report(out)
    (out / "report.html").unlink()
    assert main(["testbed", "report", str(out)]) == 0
    assert (out / "report.html").is_file()
    assert main([*words, "--seed", "2"]) == 2
    assert "another experiment" in capsys.readouterr().err


def check_report(out: Path) -> None:
    """Every policy has its run and its prediction, every figure is there, and the numbers are those of the runs."""
    report = json.loads((out / "report.json").read_text())
    assert list(report["policies"]) == ["themis", "tiresias"]
    assert (report["emulated"], report["failures"], report["unfinished"]) == (True, [], {})
    with (out / "results.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for policy in report["policies"]:
        run = json.loads((out / "runs" / policy / "report.json").read_text())
        live = [row for row in rows if (row["source"], row["policy"]) == ("testbed", policy)]
        names = {app["name"] for app in run["apps"]}
        assert {row["app"] for row in live} == names
        assert len(names) == 5
        for definition in RhoDefinition:
            worst = max(float(row[f"rho_{definition}"]) for row in live)
            assert worst == pytest.approx(run["max_rho"][definition])
        predicted = [row for row in rows if (row["source"], row["policy"]) == ("simulator", policy)]
        assert {row["app"] for row in predicted} == names
    for name in ("fig10", "fig12", "fig13", "agreement"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert report["views"][name]["lines"]
    page = (out / "report.html").read_text()
    assert "emulated" in page
    assert 'href="runs/tiresias/report.html"' in page
    assert "## Workload 2, tiny" in (out / "report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "run MIX, report OUT, or --workload"),
        (["--workload", "w3"], "one of w1, w2"),
        (["--workload", "w1", "--policies", "themis,tiresia"], "did you mean 'tiresias'"),
        (["--workload", "w1", "--policies", ","], "a policy without a name"),
        (["--workload", "w1", "--scale", "ful"], "did you mean 'full'"),
        (["--workload", "w1", "--scale", "gone.yaml"], "cannot read gone.yaml"),
        (
            ["--workload", "w1", "report", "here"],
            "stands before a subcommand: '--workload'",
        ),
        (["--seed", "3", "run", "mix.yaml"], "stands before a subcommand: '--seed'"),
    ],
)
def test_invalid_input_is_refused_before_files_are_created(arguments, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["testbed", *arguments]) == 2
    assert expected in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
