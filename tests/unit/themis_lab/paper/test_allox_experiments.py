"""The experiments on AlloX: equal bytes for equal seeds, figures, and bands of acceptance on a small workload."""

import pytest

from themis_cli.main import main
from themis_lab.paper.allox import experiment
from themis_lab.paper.allox.registry import EXPERIMENTS
from themis_lab.paper.output import section
from themis_lab.paper.port import Scale
from themis_lab.paper.report_frame import csv_text, figure_png

BY_NAME = {each.name: each for each in EXPERIMENTS}


@pytest.fixture
def few_jobs(monkeypatch):
    """Twenty jobs per user, at the same load; runs of other sizes are forgotten before and after."""
    monkeypatch.setattr(experiment, "JOBS_PER_USER", {Scale.QUICK: 20})
    for cached in (experiment.large_trace, experiment.large_run):
        cached.cache_clear()
    yield
    for cached in (experiment.large_trace, experiment.large_run):
        cached.cache_clear()


def outside(findings):
    return [line.what for line in findings.comparisons if "outside the band" in line.remark]


@pytest.mark.parametrize("name", ["allox_tab1", "allox_fig10"])
def test_examples_and_errors_are_within_their_bands(name):
    assert outside(BY_NAME[name].run(Scale.QUICK, 3)) == []


@pytest.mark.slow
def test_small_cluster_has_the_papers_order():
    findings = BY_NAME["allox_fig11"].run(Scale.QUICK, 1)
    assert outside(findings) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in ("allox_tab1", "allox_fig10")])
def test_experiments_run_and_draw(few_jobs, name):
    found = BY_NAME[name]
    findings = found.run(Scale.QUICK, 1)
    assert findings.rows
    assert section(found, findings).text().startswith(f"{name}: ")
    assert figure_png(lambda: found.draw(findings)).startswith(b"\x89PNG")


@pytest.mark.slow
def test_equal_seeds_give_equal_bytes(few_jobs):
    def made():
        findings = BY_NAME["allox_fig16"].run(Scale.QUICK, 1)
        return csv_text(findings.rows), section(BY_NAME["allox_fig16"], findings).text()

    first = made()
    experiment.large_run.cache_clear()
    assert made() == first


def test_command_refuses_other_names_with_a_paper(capsys, tmp_path):
    assert main(["reproduce", "allox", "fig9", "--out", str(tmp_path)]) == 2
    assert "such an evaluation is made alone" in capsys.readouterr().err
