from exp_records import app, both_ends, by_what, record

from themis_lab.paper.plotting import house_style
from themis_lab.paper.registry import experiment_named


def test_fig13_ranks_themis_by_mean_score_on_workload_2():
    scores = {"themis": 0.8, "gandiva": 0.9, "slaq": 0.5}
    second = both_ends({policy: record(app(score=score)) for policy, score in scores.items()}, workload="w2")
    first = both_ends(
        {policy: record(app(score=1.0), app("b", score=score)) for policy, score in scores.items()}, workload="w1"
    )
    experiment = experiment_named("fig13")
    findings = experiment.evaluate([*first, *second])
    lines = by_what(findings)
    rank = lines["rank of themis by mean score, workload 2, aligned"]
    assert (rank.ours, rank.paper_value) == (2.0, 1.0)
    assert rank.remark.startswith("best first: gandiva, themis, slaq;")
    assert lines["share of apps with a score over 0.99, workload 1, aligned, median over policies"].ours == 0.5
    with house_style():
        assert len(experiment.draw(findings).axes) == 3
