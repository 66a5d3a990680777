import math

import pytest
from exp_records import app, record

from themis_lab.paper.statistics import (
    DEFINITIONS,
    cdf,
    grouped,
    median,
    paired_ratios,
    percentile,
    run_metrics,
    summary,
)


def test_percentiles_interpolate():
    assert percentile([3.0, 1.0, 2.0], 0.5) == median([1.0, 2.0, 3.0]) == 2.0
    assert percentile([0.0, 10.0], 0.95) == pytest.approx(9.5)
    assert percentile([7.0], 0.95) == 7.0
    assert math.isnan(median([]))


def test_summary_has_median_least_and_most():
    reported = summary([3.0, 1.0, 5.0])
    assert (reported.median, reported.spread, reported.runs) == (3.0, (1.0, 5.0), 3)
    assert math.isnan(summary([]).median)


def test_cdf_ends_at_one():
    assert cdf([2.0, 1.0]) == ([1.0, 2.0], [0.5, 1.0])


def test_groups_keep_row_order():
    rows = [{"policy": "b", "x": 1.0}, {"policy": "a", "x": 2.0}, {"policy": "b", "x": 3.0}]
    assert list(grouped(rows, "policy")) == [("b",), ("a",)]


@pytest.mark.parametrize(("rho", "at_bound"), [(2.0, 1.0), (2.19, 1.0), (2.21, 0.0)])
def test_worst_app_is_at_its_bound_within_a_tenth(rho, at_bound):
    """The other app has a larger bound, but a smaller rho."""
    metrics = run_metrics(record(app("worst", rho=rho, bound=2.0), app("other", rho=1.0, bound=3.0)))
    assert (metrics["worst_at_bound"], metrics["max_bound"]) == (at_bound, 3.0)


def test_ratios_pair_equal_seeds_only():
    rows = [
        {"policy": "a", "seed": 1, "x": 4.0},
        {"policy": "a", "seed": 2, "x": 9.0},
        {"policy": "b", "seed": 1, "x": 2.0},
    ]
    assert paired_ratios(rows, "x", lambda row: row["policy"] == "a", lambda row: row["policy"] == "b") == [2.0]


def test_run_metrics_have_each_definition_of_rho():
    reported = run_metrics(record(app("a", rho=1.5), app("b", rho=0.5)))
    assert [reported[f"max_rho_{name}"] for name in DEFINITIONS] == [1.5, 11.5, 21.5, 31.5, 41.5]
    assert (reported["share_rho_above_1"], reported["gpu_time_h"], reported["completion_mean_s"]) == (0.5, 2.0, 3600.0)
