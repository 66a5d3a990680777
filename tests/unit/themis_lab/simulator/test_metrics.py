"""The numbers of a run: worked examples, and what a document holds."""

import json
import math

import pytest
from msgspec.structs import replace
from sim_records import app, record

from themis.rho import RhoDefinition
from themis_lab.simulator.compare import figures_of, spreads_of, sweep_document
from themis_lab.simulator.metrics import (
    MEASURED,
    document_of,
    fairness,
    jain,
    measured_of,
    metrics_of,
    percentile,
    share_over,
    summary,
)
from themis_lab.simulator.record import Counts


def test_jains_index_is_1_for_equal_shares_and_1_over_n_for_one_owner():
    assert jain([2.0, 2.0, 2.0]) == pytest.approx(1.0)
    assert jain([5.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([1.0, 2.0, 3.0]) == pytest.approx(36 / 42)
    assert jain([0.0, 0.0]) == 1.0


def test_medians_are_the_middle_and_95th_percentiles_the_nearest_rank():
    assert summary([4.0, 1.0, 3.0]) == {"mean": pytest.approx(8 / 3), "p50": 3.0, "p95": 4.0}
    assert summary([1.0, 2.0])["p50"] == 1.5
    assert summary([float(n) for n in range(1, 101)])["p95"] == 95.0
    assert summary([]) == {"mean": None, "p50": None, "p95": None}


def test_percentiles_of_distributions_are_linear_between_values():
    assert [percentile([3.0, 1.0, 2.0], share) for share in (0.0, 0.25, 0.5, 1.0)] == [1.0, 1.5, 2.0, 3.0]
    assert percentile([7.0], 0.95) == 7.0
    assert math.isnan(percentile([], 0.5))


def test_a_share_counts_values_above_the_limit():
    assert share_over([0.9, 1.0, 1.01, 1.2], 1.0) == 0.5
    assert fairness([1.0, 1.04, 1.06]) == {
        "max": 1.06, "mean": pytest.approx(3.1 / 3), "median": 1.04, "p95": 1.06,
        "share_over_1": pytest.approx(2 / 3), "share_over_1.05": pytest.approx(1 / 3),
        "jain": pytest.approx(3.1**2 / (3 * (1 + 1.04**2 + 1.06**2))),
    }  # fmt: skip


def test_definitions_of_rho_are_never_mixed():
    names = [definition.value for definition in RhoDefinition]
    apps = [
        app("a", rho={name: 1.0 + place for place, name in enumerate(names)}),
        app("b", rho={name: 10.0 + place for place, name in enumerate(names)}),
    ]
    metrics = metrics_of(record(apps))
    assert metrics["max_rho"] == {name: 10.0 + place for place, name in enumerate(names)}
    for place, name in enumerate(names):
        assert metrics["by_definition"][name] == fairness([1.0 + place, 10.0 + place])
    of_themis = metrics["by_definition"]["themis"]
    for scalar in ("mean", "jain", "share_over_1"):
        assert metrics["mean_rho" if scalar == "mean" else scalar] == of_themis[scalar]


def test_a_document_has_the_keys_that_programs_may_rely_on():
    document = document_of(record([app("a")]))
    assert document.keys() >= {
        "policy", "cluster", "workload", "seed", "apps", "max_rho", "mean_rho", "jain", "share_over_1", "gpu_time_s",
        "makespan_s", "completion_s", "utilisation", "rounds", "events", "wall_s", "peak_memory_mb", "invariants",
    }  # fmt: skip
    assert document["apps"][0].keys() >= {
        "name", "jobs", "rho", "completion_s", "gpu_time_s", "placement_score", "queueing_s", "restarts"
    }  # fmt: skip
    assert set(document["completion_s"]) == {"mean", "p50", "p95"}
    assert set(document["invariants"]) == {"checks", "violations"}
    json.dumps(document, allow_nan=False)


def test_sums_and_times_of_two_apps():
    two = [
        app("a", submitted_at_s=10.0, first_gpu_at_s=15.0, ended_at_s=110.0, gpu_time_s=100.0, placement_score=0.5),
        app("b", submitted_at_s=20.0, first_gpu_at_s=None, ended_at_s=80.0, gpu_time_s=50.0, placement_score=1.0),
    ]
    metrics = metrics_of(record(two, counts=Counts(granted_gpus=6, leftover_gpus=2, bids=4, empty_bids=1)))
    assert metrics["gpu_time_s"] == 150.0
    assert metrics["completion_s"] == {"mean": 80.0, "p50": 80.0, "p95": 100.0}
    assert metrics["longest_wait_s"] == 60.0
    assert metrics["placement_score"]["deciles"] == [0.5] * 5 + [0.5] + [1.0] * 5
    assert metrics["auctions"]["share_of_gpus_by_leftovers"] == 0.25
    assert metrics["auctions"]["share_of_empty_bids"] == 0.25


def test_bound_is_the_largest_and_rho_is_set_against_each_apps_own():
    bounds = (0.5, 2.0, 0.0)
    apps = [
        app(str(bound), bound=bound, rho={definition.value: 3.0 for definition in RhoDefinition}) for bound in bounds
    ]
    metrics = metrics_of(record(apps))
    assert metrics["bound"] == 2.0
    assert [each["bound"] for each in metrics["apps"]] == [0.5, 2.0, 0.0]
    # An app of which nothing is known has a bound of 0, and no ratio.
    assert metrics["over_bound"] == summary([3.0 / 0.5, 3.0 / 2.0])


def test_shares_of_nothing_are_not_known():
    auctions = metrics_of(record([app("a")]))["auctions"]
    assert auctions["share_of_empty_bids"] is auctions["share_of_gpus_by_leftovers"] is None


def test_wall_times_are_kept_apart():
    one = record([app("a")], counts=Counts(bid_s=[0.001, 0.003], auction_s=[0.5]))
    other = replace(one, wall_s=9.0, peak_memory_mb=7.0, counts=Counts())
    assert metrics_of(one) == metrics_of(other)
    assert tuple(measured_of(one)) == MEASURED
    assert measured_of(one)["overheads"] == {
        "bid_ms": {"count": 2, "p50": 2.0, "p95": 3.0},
        "auction_ms": {"count": 1, "p50": 500.0, "p95": 500.0},
    }


def test_figures_leave_apps_seeds_and_wall_times_out():
    figures = figures_of(document_of(record([app("a", gpu_time_s=7.0)])))
    assert figures["gpu_time_s"] == 7.0
    assert figures["auctions.share_of_empty_bids"] is None
    assert not any(key.startswith(("apps", "seed", "wall_s", "overheads", "policy")) for key in figures)


def test_spreads_are_median_least_and_largest_over_seeds():
    documents = [
        document_of(record([app("a", gpu_time_s=gpu_s)], seed=seed)) for seed, gpu_s in enumerate((3.0, 9.0, 4.0))
    ]
    assert spreads_of(documents)["gpu_time_s"] == {"median": 4.0, "min": 3.0, "max": 9.0}
    assert spreads_of(documents)["auctions.share_of_empty_bids"] == {"median": None, "min": None, "max": None}
    swept = sweep_document(documents)
    assert (swept["policies"], swept["seeds"], len(swept["runs"])) == (["themis"], [0, 1, 2], 3)
    assert swept["metrics"]["themis"]["gpu_time_s"]["median"] == 4.0
