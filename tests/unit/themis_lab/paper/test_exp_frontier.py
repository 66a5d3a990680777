"""The frontier of the preemption margin: its runs, and its table by hand."""

import pytest
from exp_records import app, done, record
from msgspec.structs import replace

from themis_lab.paper.frontier import DEFAULT_MARGIN, EXPERIMENT, HEADINGS, MARGINS, frontier
from themis_lab.paper.plans import distinct_runs
from themis_lab.paper.plotting import house_style
from themis_lab.paper.port import Scale
from themis_lab.paper.registry import experiment_named

WORKLOADS = 2


@pytest.mark.parametrize("scale", Scale)
def test_fairness_has_made_all_runs_but_those_of_other_margins(scale):
    fairness = experiment_named("fairness")
    alone = len(distinct_runs([fairness], scale, 2))
    both = len(distinct_runs([fairness, experiment_named("frontier")], scale, 2))
    assert DEFAULT_MARGIN in MARGINS
    assert both - alone == WORKLOADS * 2 * (len(MARGINS) - 1)


def run_of(policy, margin, seed, rho, hours, restarts):
    outcome = app(rho=rho, gpu_h=2.0)
    outcome = replace(outcome, ended_at_s=3600.0 * hours, restarts=restarts)
    return done(record(outcome), workload="w", policy=policy, margin=margin, seed=seed)


RUNS = [
    run_of("themis", 0.8, 101, 3.0, 2.0, 10),
    run_of("srtf", 0.8, 101, 2.0, 1.0, 20),
    run_of("srsf", 0.8, 101, 4.0, 1.0, 20),
    run_of("fair_finish", 0.0, 101, 1.0, 1.5, 40),
    run_of("fair_finish", 1.0, 101, 2.5, 1.0, 5),
    run_of("themis", 0.8, 102, 3.0, 2.0, 10),
    run_of("srtf", 0.8, 102, 1.0, 1.0, 20),
    run_of("srsf", 0.8, 102, 4.0, 1.0, 20),
    run_of("fair_finish", 0.0, 102, 1.5, 1.5, 20),
    run_of("fair_finish", 1.0, 102, 3.0, 1.0, 5),
]


def test_each_margin_is_compared_with_the_other_policies_only():
    headings, low, high = EXPERIMENT.evaluate(RUNS).table
    assert headings == HEADINGS
    # By seed: 1 / 2 and 1.5 / 1 at margin 0, 2.5 / 2 and 3 / 1 at margin 1.
    assert low == ("w: 0", "1.00", "1.50", "1.50", "1.00", "3.00")
    assert high == ("w: 1", "2.12", "3.00", "1.00", "1.00", "0.50")


def test_figure_has_a_panel_per_cost_with_all_margins():
    findings = EXPERIMENT.evaluate(RUNS)
    assert [*frontier(findings.rows)] == [0.0, 1.0]
    with house_style():
        panels = EXPERIMENT.draw(findings).axes
    assert [axes.get_xlabel() for axes in panels] == ["restarts / themis", "mean completion / srtf"]
    assert all([text.get_text() for text in axes.texts] == ["0", "1"] for axes in panels)
