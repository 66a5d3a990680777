import pytest
from exp_records import app, both_ends, by_what, record

from themis_lab.paper.plotting import house_style
from themis_lab.paper.registry import experiment_named


def runs(**gpu_h):
    return both_ends({policy: record(app(gpu_h=hours)) for policy, hours in gpu_h.items()})


def test_fig11_expects_equal_gpu_time():
    lines = by_what(experiment_named("fig11").evaluate(runs(themis=10.0, gandiva=10.1, slaq=12.0, drf=13.0)))
    assert lines["GPU time, themis, aligned (h)"].ours == 10.0
    assert lines["GPU time, gandiva / themis, aligned"].remark == ""
    slaq = lines["GPU time, slaq / themis, staggered"]
    assert (slaq.paper, slaq.ratio, slaq.remark) == ("alike", 1.2, "differs by more than 2%.")
    assert lines["GPU time, drf / themis, aligned"].paper == ""


def test_fig12_claims_are_percentages_of_the_named_policy():
    lines = by_what(experiment_named("fig12").evaluate(runs(themis=9.52, gandiva=10.0, slaq=33.32)))
    assert lines["GPU time, themis under gandiva, aligned (%)"].ours == pytest.approx(4.8)
    slaq = lines["GPU time, slaq over themis, staggered (%)"]
    assert (slaq.ours, slaq.remark) == (pytest.approx(250.0), "")


def test_reversed_or_smaller_claim_has_a_remark():
    lines = by_what(experiment_named("fig12").evaluate(runs(themis=10.0, gandiva=9.0, slaq=10.5)))
    assert (
        lines["GPU time, themis under gandiva, aligned (%)"].remark == "here themis takes more GPU time than gandiva."
    )
    assert lines["GPU time, slaq over themis, aligned (%)"].remark == "the sign is the paper's, the size is not."


def test_difference_is_split_into_placement_and_rest():
    """Of an app of 0.5 GPU hours at S = 1 five sixths of the GPU time are iterations; at S = 4 it would be 2 hours."""
    reported = experiment_named("fig12").evaluate(runs(themis=0.9, gandiva=1.0, slaq=1.2)).remarks
    gandiva, slaq = (text for text in reported if text.startswith("GPU time, "))
    assert gandiva.startswith("GPU time, themis under gandiva, aligned: of +10.0 %, +8.3 are iterations")
    assert "of +33.3 %, +27.8 are iterations" in slaq
    assert "iterations would take 167 % more than under themis: the paper's about 250 % is beyond what" in slaq


def test_missing_policies_are_left_out():
    experiment = experiment_named("fig12")
    findings = experiment.evaluate(runs(themis=10.0))
    assert list(by_what(findings)) == ["GPU time, themis, aligned (h)", "GPU time, themis, staggered (h)"]
    assert findings.remarks[0].startswith("Under themis (aligned) a workload takes 20 times its work")
    with house_style():
        assert experiment.draw(findings).axes
