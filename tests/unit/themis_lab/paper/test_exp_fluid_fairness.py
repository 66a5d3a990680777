"""Fairness by the fluid fair cluster: its runs, its table by hand, and the command at a tiny scale."""

import csv
import json

import pytest
from exp_records import app, done, record
from msgspec.structs import replace

from themis_cli.main import main
from themis_lab.paper import fluid_fairness, frontier
from themis_lab.paper.fluid_fairness import CASES, EXPERIMENT, FIRST_SEED, HEADINGS, Case
from themis_lab.paper.forecast import expected_s
from themis_lab.paper.plans import Load, policies
from themis_lab.paper.port import Scale
from themis_lab.paper.registry import experiment_named


@pytest.mark.parametrize("scale", Scale)
def test_every_policy_runs_every_workload(scale):
    cells = experiment_named("fairness").cells(scale, 2)
    assert len(cells) == len(CASES[scale]) * 2 * (len(policies()) + 1)
    assert {cell.labels["seed"] for cell in cells} == {FIRST_SEED, FIRST_SEED + 1}
    assert min(expected_s(cell) for cell in cells) > 0.1


def run_of(policy, seed, rho, hours, restarts):
    outcome = app(rho=rho, gpu_h=2.0)
    outcome = replace(outcome, ended_at_s=3600.0 * hours, restarts=restarts)
    return done(record(outcome), workload="w", policy=policy, seed=seed)


def test_table_has_ratios_to_the_best_other_policy_with_the_fairest_first():
    runs = [
        run_of("themis", 101, 3.0, 2.0, 10),
        run_of("srtf", 101, 2.0, 1.0, 20),
        run_of("themis", 102, 0.9, 3.0, 10),
        run_of("srtf", 102, 0.5, 1.0, 40),
    ]
    headings, first, second = EXPERIMENT.evaluate(runs).table
    assert headings == HEADINGS
    # By seed: 2 / 3 and 1 for srtf, 3 / 2 and 1 for themis; a rho below 1 counts as 1.
    assert first == ("w: srtf", "0.83", "1.00", "50%", "1.00", "1.00", "3.00")
    assert second == ("w: themis", "1.25", "1.50", "50%", "2.50", "1.00", "1.00")


def test_command_writes_figure_and_table_of_a_tiny_workload(tmp_path, monkeypatch, capsys):
    tiny = Case(name="tiny", load=Load(name="w1-small", options={"apps": 2, "scale": 100.0}))
    for module in (fluid_fairness, frontier):
        monkeypatch.setattr(module, "CASES", {Scale.QUICK: (tiny,)})
    code = main(["reproduce", "fairness", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path), "--json"])
    assert code == 0
    made = json.loads(capsys.readouterr().out)["experiments"]
    assert [each["name"] for each in made] == ["fairness", "frontier"]
    with (tmp_path / "fairness.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * (len(policies()) + 1)
    assert (tmp_path / "fairness.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "## The experiments" in summary
    assert "| tiny: 0.8 |" in summary
    assert "| tiny: fair_finish |" in (tmp_path / "fairness.md").read_text(encoding="utf-8")
