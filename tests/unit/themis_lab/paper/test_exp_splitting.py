"""What splitting an app gains: its workloads, its table by hand, and the command on a tiny workload."""

import csv
import json
from pathlib import Path

import pytest
from exp_records import app, done, record
from msgspec.structs import replace

from rm_plugin.policies.registry import POLICIES
from themis_cli.main import main
from themis_lab.paper import splitting
from themis_lab.paper.plans import Load, make_workload
from themis_lab.paper.port import Scale
from themis_lab.paper.splitting import EXPERIMENT, PARTS, Case, make_split_workload

TINY = Case(name="tiny", load=Load(name="w1-small", options={"apps": 3, "scale": 100.0}))


def test_parts_have_the_jobs_the_arrival_and_the_user_of_the_whole():
    whole = make_workload("w1-small", 1, "testbed")
    split = make_split_workload("w1-small", 1, "testbed", split="app-03")
    parts = [each for each in split.apps if each.owner.user == "app-03"]

    assert [len(part.jobs) for part in parts] == [len(whole.apps[3].jobs) // PARTS] * PARTS
    assert {job.job_id for part in parts for job in part.jobs} == {job.job_id for job in whole.apps[3].jobs}
    assert {part.arrival_s for part in parts} == {whole.apps[3].arrival_s}
    assert len({each.owner.user for each in split.apps}) == len(whole.apps)
    assert len(split.apps) == len(whole.apps) + PARTS - 1


def test_every_policy_runs_every_workload_whole_and_with_each_app_split_that_has_a_job_for_each_part():
    cells = EXPERIMENT.cells(Scale.QUICK, 1)
    runs = {(cell.labels["workload"], cell.labels["policy"], cell.labels["split"]) for cell in cells}

    assert len(runs) == len(cells)
    assert {policy for _, policy, _ in runs} == POLICIES.keys()
    small = {split for workload, _, split in runs if workload == "w1-small"}
    assert "" in small
    assert "app-09" not in small, "it has one job"


def run_of(policy, split, hours):
    apps = [replace(app(name), ended_at_s=3600.0 * each) for name, each in hours.items()]
    return done(record(*apps), workload="w", policy=policy, seed=1, split=split)


def test_gain_is_that_of_the_last_part():
    runs = [
        run_of("srtf", "", {"a": 2.0, "b": 4.0}),
        run_of("srtf", "a", {"a-0": 0.5, "a-1": 1.5, "a-2": 1.0, "a-3": 1.0, "b": 5.0}),
        run_of("srtf", "b", {"a": 2.0, "b-0": 1.0, "b-1": 1.0, "b-2": 4.2, "b-3": 1.0}),
        run_of("drf", "", {"a": 2.0, "b": 4.0}),
        run_of("drf", "a", {"a-0": 1.0, "a-1": 1.0, "a-2": 1.0, "a-3": 1.0, "b": 4.0}),
    ]
    findings = EXPERIMENT.evaluate(runs)

    assert [row["gain_percent"] for row in findings.rows] == pytest.approx([25.0, -5.0, 50.0])
    assert findings.rows[0]["others_percent"] == pytest.approx(25.0)
    assert findings.table == (
        ("policy", "w: mean gain (%)", "w: median, largest (%)"),
        ("drf", "+50.0 ± 0.0", "+50.0, +50.0"),
        ("srtf", "+10.0 ± 15.0", "+10.0, +25.0"),
    )
    assert "error: drf on w." in findings.remarks[1]


def test_command_writes_figure_and_table_of_a_tiny_workload(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(splitting, "CASES", (TINY,))
    monkeypatch.setattr(splitting, "POLICIES", ("fair_finish", "allox"))
    code = main(["reproduce", "splitting", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path), "--json"])

    assert code == 0
    (made,) = json.loads(capsys.readouterr().out)["experiments"]
    assert made["name"] == "splitting"
    with (tmp_path / "splitting.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["policy"] for row in rows} == {"fair_finish", "allox"}
    assert (tmp_path / "splitting.png").read_bytes().startswith(b"\x89PNG")
    assert "| allox |" in Path(made["files"]["md"]).read_text(encoding="utf-8")
