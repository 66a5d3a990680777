import pytest
from exp_records import app, both_ends, by_what, record

from themis_lab.paper.plotting import house_style
from themis_lab.paper.registry import experiment_named


def runs(**worst):
    return both_ends({policy: record(app("a", rho=0.5), app("b", rho=rho)) for policy, rho in worst.items()})


def test_fairness_compares_max_rho_with_themis():
    findings = experiment_named("fig9").evaluate(runs(themis=1.0, gandiva=3.0, tiresias=2.2, drf=9.0))
    lines = by_what(findings)
    assert lines["max rho, themis, aligned"].ours == 1.0
    assert lines["max rho, gandiva / themis, aligned"].ours == 3.0
    nearest = lines["max rho, nearest baseline / themis, staggered"]
    assert (nearest.ours, nearest.paper_value, nearest.remark) == (2.2, 2.2, "this is tiresias.")
    farthest = lines["max rho, farthest baseline / themis, aligned"]
    assert (farthest.ours, farthest.ratio) == (3.0, pytest.approx(3.0 / 3.25))
    assert "smaller than in the paper" in farthest.remark
    assert lines["max rho, drf / themis, aligned"].ours == 9.0, "our own baselines are shown, but are not the paper's"


def test_better_baseline_is_named():
    lines = by_what(experiment_named("fig10").evaluate(runs(themis=2.0, gandiva=1.0)))
    assert lines["max rho, nearest baseline / themis, aligned"].remark.startswith(
        "this is gandiva; its worst app fares"
    )
    assert lines["policies with a narrower spread than themis, aligned"].ours == 1.0
    assert lines["share of apps with rho > 1.05, themis, aligned"].ours == 0.5
    assert lines["the same, median over the other policies, aligned"].ours == 0.0


def test_definitions_are_reported_separately():
    lines = by_what(experiment_named("fig9").evaluate(runs(themis=1.0, gandiva=0.8)))
    assert lines["max rho by definition isolated_share, themis, aligned"].ours == 11.0
    line = lines["max rho by definition attainable, themis, staggered"]
    assert (line.ours, line.remark) == (41.0, "by this definition gandiva is best, with 40.8.")


def test_remarks_count_runs_at_their_bounds():
    reported = " ".join(experiment_named("fig9").evaluate(runs(themis=0.52, gandiva=3.0, slaq=0.5)).remarks)
    assert "in 2 of 2 aligned runs of themis and in 2 of 4 of the other policies" in reported
    assert "0% of the apps end with rho > 1.05" in reported


def test_other_policy_may_be_below_the_bound():
    (cause,) = experiment_named("fig9").evaluate(runs(themis=0.52, worst_rho_first=0.49, slaq=0.5)).causes
    assert "at its lower bound, which no policy can undercut at the same N_avg" in cause
    assert "Max rho of worst_rho_first, which holds no auction, is 0.96 times that of themis" in cause


def test_figure_is_drawn_from_rows_only():
    experiment = experiment_named("fig9")
    with house_style():
        figure = experiment.draw(experiment.evaluate(runs(themis=1.0, gandiva=3.0)))
    assert [axes.get_title() for axes in figure.axes] == [
        f"{ends} lease ends" for ends in ("aligned", "aligned", "staggered")
    ]
    assert [line.get_label() for line in figure.axes[0].lines[:2]] == ["themis", "gandiva"]
