import pytest
from exp_records import app, by_what, done, record

from themis_lab.paper.plotting import house_style
from themis_lab.paper.registry import experiment_named


def test_overheads_are_in_milliseconds_and_settings_are_marked():
    run = record(app(), bid_s=(0.029, 0.029, 0.029), auction_s=(0.1,))
    experiment = experiment_named("overheads")
    findings = experiment.evaluate([done(run, workload="w1", policy="themis", ends="aligned", seed=1)])
    lines = by_what(findings)
    assert lines["one bid (ms), median"].ours == pytest.approx(29.0)
    assert lines["one bid (ms), median"].ratio == pytest.approx(1.0)
    assert lines["one auction (ms), 95th percentile"].ours == pytest.approx(100.0)
    assert lines["resize: containers and restore, a setting of the simulator (s)"].remark.endswith("not measured.")
    assert lines["restarts of a job, share of its app's life (%), median"].ours == pytest.approx(100 * 2 * 40 / 3600)
    with house_style():
        assert len(experiment.draw(findings).axes) == 2
