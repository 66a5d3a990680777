"""The figures and tables of the live experiment, from rows with known results."""

import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from themis.rho import RhoDefinition
from themis_lab.paper.live.findings import Shown
from themis_lab.paper.live.plan import plan_experiment
from themis_lab.paper.live.report import _show as show
from themis_lab.paper.live.results import SIMULATOR, TESTBED, Results
from themis_lab.paper.live.scale import scale_named
from themis_lab.paper.live.summary import over_figures
from themis_lab.paper.live.tables import cells, document, section
from themis_lab.paper.live.views.agreement import AGREEMENT
from themis_lab.paper.live.views.efficiency import FIG11, FIG12
from themis_lab.paper.live.views.fairness import FIG9
from themis_lab.paper.live.views.overheads import OVERHEADS
from themis_lab.paper.live.views.pair import TAB5
from themis_lab.paper.live.views.placement import FIG13
from themis_lab.paper.plotting import house_style

RHO = {"themis": (1.0, 1.2), "gandiva": (1.0, 3.0), "slaq": (0.5, 1.5)}
GPU_S = {"themis": 600.0, "gandiva": 660.0, "slaq": 1800.0}
SCORE = {"themis": 0.9, "gandiva": 1.0, "slaq": 0.5}


def row(policy, source, seed, app, rho):
    faster = 0.9 if source == SIMULATOR else 1.0
    return {
        "workload": "w2",
        "policy": policy,
        "source": source,
        "seed": seed,
        "app": app,
        "kind": "replay",
        "jobs": 2,
        **{f"rho_{name}": rho for name in RhoDefinition},
        "completion_s": 100.0 * faster,
        "queueing_s": 1.0,
        "gpu_time_s": GPU_S[policy] / 2,
        "placement_score": SCORE[policy],
        "restarts": 1,
    }


def results(workload="w2", policies=tuple(RHO)):
    rows = []
    for policy in policies:
        for app, rho in zip(("tab5-long", "tab5-short"), RHO[policy], strict=True):
            rows.append(row(policy, TESTBED, 1, app, rho))
            rows += [row(policy, SIMULATOR, seed, app, rho * factor) for seed, factor in ((1, 1.0), (2, 1.1), (3, 9.0))]
    overheads = {
        key: {"median": 2.0, "p95": None, "count": 1}
        for key in ("bid_ms", "auction_ms", "round_ms", "resize_s", "checkpoint_s", "first_step_s", "cut_short_s")
    }
    reports = {policy: {"overheads": overheads} for policy in policies}
    return Results(workload=workload, rows=tuple(rows), reports=reports, unfinished={})


def line_of(view, what, of=None):
    lines = [line for line in view.lines(of or results()) if line.what == what]
    assert len(lines) == 1, what
    return lines[0]


def test_fairness_lines_give_max_rho_and_ratios():
    assert line_of(FIG9, "max rho, themis").testbed == 1.2
    # The median over the predictions, not their mean: one of three is far off.
    assert line_of(FIG9, "max rho, themis").simulator == pytest.approx(1.32)
    nearest = line_of(FIG9, "max rho, nearest baseline / themis")
    assert (nearest.testbed, nearest.paper_value) == (pytest.approx(1.25), 2.2)
    assert nearest.remark == "this is slaq; the lead of themis is smaller than in the paper."
    farthest = line_of(FIG9, "max rho, farthest baseline / themis")
    assert (farthest.testbed, farthest.remark) == (
        pytest.approx(2.5),
        "this is gandiva; the lead of themis is smaller than in the paper.",
    )
    assert line_of(FIG9, "share of apps with rho > 1.05, gandiva").testbed == 0.5


def test_max_rho_by_definitions_that_rank_policies_is_shown_unless_the_run_is_older():
    for definition in ("fluid", "isolated_fluid", "themis_fluid"):
        assert line_of(FIG9, f"max rho by {definition}, gandiva").testbed == 3.0
    old = results(policies=("themis",))
    rows = tuple({**each, "rho_fluid": math.nan} for each in old.rows)
    older = Results(workload="w2", rows=rows, reports=old.reports, unfinished={})
    shown = [line.what for line in FIG9.lines(older)]
    assert "max rho by fluid, themis" not in shown
    assert "max rho by themis_fluid, themis" in shown


def test_fairer_baseline_has_a_remark():
    lines = FIG9.lines(results(policies=("themis", "slaq")))
    assert not [line for line in lines if "fares better" in line.remark]
    unfair = Results(
        workload="w2",
        rows=tuple(dict(each, rho_themis=0.1) if each["policy"] == "slaq" else each for each in results().rows),
        reports=results().reports,
        unfinished={},
    )
    assert "fares better than that of themis" in line_of(FIG9, "max rho, nearest baseline / themis", unfair).remark


def test_efficiency_lines_give_totals_ratios_and_claims():
    assert line_of(FIG12, "GPU time, themis (min)").testbed == 10.0
    assert line_of(FIG12, "GPU time, gandiva / themis").testbed == pytest.approx(1.1)
    assert line_of(FIG12, "GPU time, themis under gandiva (%)").testbed == pytest.approx(100 * 60 / 660)
    slaq = line_of(FIG12, "GPU time, slaq over themis (%)")
    assert (slaq.testbed, slaq.over_paper) == (pytest.approx(200.0), pytest.approx(0.8))
    assert line_of(FIG11, "GPU time, slaq / themis").paper == "alike"


def test_placement_ranks_policies():
    rank = line_of(FIG13, "rank of themis by mean score, of 3")
    assert (rank.testbed, rank.paper, rank.remark) == (2.0, "1", "best first: gandiva, themis, slaq.")
    assert line_of(FIG13, "rank of themis by mean score, of 3", results("w1")).paper == ""
    assert line_of(FIG13, "share of apps with a score over 0.99, gandiva").testbed == 1.0


def test_ranks_are_not_divided():
    line = line_of(FIG13, "rank of themis by mean score, of 3")
    assert (line.over_paper, line.predicted) == (None, None)
    assert cells(line) == ("rank of themis by mean score, of 3", "1", "2", "2", "", "")


def test_table_5_compares_both_apps_with_the_paper():
    assert line_of(TAB5, "rho of the long app, themis").testbed == 1.0
    short = line_of(TAB5, "rho of the short app, themis")
    assert (short.testbed, short.paper, short.over_paper) == (1.2, "about 1.2", pytest.approx(1.0))
    assert line_of(TAB5, "rho of the short app, slaq").paper == ""


def test_overheads_omit_missing_values_and_need_themis():
    lines = OVERHEADS.lines(results())
    assert [line.what for line in lines if "95th" in line.what] == []
    assert line_of(OVERHEADS, "one auction (ms), median").over_paper == pytest.approx(2 / 354)
    assert line_of(OVERHEADS, "starts cut short").testbed == 1
    assert not OVERHEADS.lines(results(policies=("slaq",)))


def test_agreement_pairs_the_same_apps():
    assert line_of(AGREEMENT, "completion, predicted / measured, all policies, median").simulator == pytest.approx(0.9)


def test_agreement_has_no_testbed_value():
    line = line_of(AGREEMENT, "completion, predicted / measured, all policies, median")
    assert cells(line) == ("completion, predicted / measured, all policies, median", "", "", "0.9", "", "")
    assert document(line)["testbed"] is None


def test_no_ratios_without_themis():
    lines = [*FIG9.lines(results(policies=("slaq",))), *FIG12.lines(results(policies=("slaq",)))]
    assert lines
    assert not [line for line in lines if "/ themis" in line.what]


@pytest.mark.parametrize("view", [FIG9, FIG12, FIG13, AGREEMENT], ids=lambda view: view.name)
def test_figures_show_testbed_and_simulator(view):
    with house_style():
        figure = view.draw(results())
    drawn = sum(len(axes.lines) + len(axes.patches) + len(axes.collections) for axes in figure.axes)
    assert drawn >= 3


@pytest.mark.parametrize("view", [FIG9, FIG11, FIG12, FIG13, AGREEMENT], ids=lambda view: view.name)
def test_every_figure_mentions_emulation(view, tmp_path, monkeypatch):
    titles = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure,
        "savefig",
        lambda figure, *args, **how: (titles.append(figure.get_suptitle()), save(figure, *args, **how)),
    )
    experiment = plan_experiment("w1", ["themis"], 1, scale_named("quick"))
    assert show(view, results(), tmp_path, over_figures(experiment)).figure.is_file()
    assert titles == ["emulated GPUs; replayed apps 30 times faster than measured, trained apps in real time"]


def test_line_becomes_text_markdown_and_json():
    line = line_of(FIG12, "GPU time, slaq over themis (%)")
    assert cells(line) == ("GPU time, slaq over themis (%)", "about 250", "200", "200", "0.8", "1")
    assert document(line)["testbed_over_paper"] == pytest.approx(0.8)
    shown = Shown(view=FIG12, lines=[line], figure=Path("out/fig12.png"))
    page = section(shown).markdown("###")
    assert page.startswith(
        "### fig12: total GPU time, workload 2\n\n![total GPU time, workload 2](fig12.png)\n\n| what |"
    )
    assert "| GPU time, slaq over themis (%) | about 250 | 200 | 200 | 0.8 | 1 |" in page


def test_nan_becomes_null():
    line = line_of(AGREEMENT, "completion, predicted / measured, all policies, median", results(policies=("themis",)))
    assert math.isfinite(line.simulator)
    hollow = Results(workload="w1", rows=(), reports={"themis": {}}, unfinished={})
    assert document(AGREEMENT.lines(hollow)[0])["simulator"] is None
