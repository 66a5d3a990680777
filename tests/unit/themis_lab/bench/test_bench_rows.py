"""Rows, growth, table and document from markets; and whether HiGHS runs whole, sampled or not."""

import json
from random import Random

import pytest
from msgspec.structs import replace

import themis_lab.bench.auction_timing as timing
from themis.errors import InputError, InvariantError
from themis_lab.bench.apps import GangMix
from themis_lab.bench.auction_markets import auction_market
from themis_lab.bench.auction_output import document, table
from themis_lab.bench.auction_plan import AuctionBenchPlan, HighsUse, RowKind, Variant, variants_of
from themis_lab.bench.auction_rows import MarketFigures, ResultRow, growths, percentile, sum_up
from themis_lab.bench.auction_run import Progress, run_plan
from themis_lab.bench.auction_timing import (
    HighsAuction,
    OurAuction,
    Seconds,
    relative_difference,
    time_highs,
    time_ours,
)
from themis_lab.bench.holdings import ClusterState
from themis_lab.bench.sizes import SIZES
from themis_lab.bench.worker import run_apart

VARIANT = Variant(size=SIZES[64], gangs=GangMix.POWERS, cluster=ClusterState.EMPTY, kind=RowKind.GANGS)


def figures(ours_s, highs_s=None, *, sampled=None, rows=100, objective=1.0, process_s=None):
    ours = OurAuction(
        seconds=Seconds(ours_s, ours_s if process_s is None else process_s),
        objectives={None: 1.0},
        optimal=True,
        states=None,
        fallbacks=None,
    )
    highs = HighsAuction(
        seconds=Seconds(highs_s or 0.0, highs_s or 0.0), objectives={None: objective}, proven=True, sampled=sampled
    )
    return MarketFigures(
        rows=rows,
        rows_dropped=0,
        free_gpus=64,
        asked_gpus=100,
        bids=(Seconds(0.01, 0.002), Seconds(0.03, 0.004)),
        ours=ours,
        highs=None if highs_s is None else highs,
    )


# ---- rows -----------------------------------------------------------------------------------------------------------


def test_ratios_have_median_and_minimum_over_markets():
    row = sum_up(VARIANT, [figures(0.1, 1.0), figures(0.1, 4.0), figures(0.2, 4.0)])
    assert (row.ratio, row.worst_ratio) == (pytest.approx(20), pytest.approx(10))
    assert (row.ours_s, row.highs_s) == (pytest.approx(0.1), pytest.approx(4.0))
    assert (row.highs_markets, row.highs_sampled) == (3, False)
    assert (row.bid_p50_ms, row.bid_p95_ms) == (pytest.approx(10), pytest.approx(30))
    assert (row.bid_p50_process_ms, row.bid_p95_process_ms) == (pytest.approx(2), pytest.approx(4))


def test_explicit_tables_have_no_bid_times():
    row = sum_up(VARIANT, [replace(figures(0.1), bids=())])
    assert (row.bid_p50_ms, row.bid_p95_ms, row.bid_p50_process_ms, row.bid_p95_process_ms) == (None,) * 4


def test_ratios_use_cpu_seconds():
    row = sum_up(VARIANT, [figures(0.4, 1.0, process_s=0.1), figures(0.1, 4.0), figures(0.2, 4.0, process_s=0.0)])
    assert (row.ratio, row.worst_ratio) == (pytest.approx(20), pytest.approx(2.5))
    assert row.worst_process_ratio == pytest.approx(10)
    assert row.process_ratio == pytest.approx(40)


def test_largest_objective_difference_counts():
    row = sum_up(VARIANT, [figures(1, 1), figures(1, 1, objective=1.0 + 1e-6)])
    assert row.objective_rel_diff == pytest.approx(1e-6, rel=1e-3)
    assert relative_difference({None: -200.0, "a": 1.0, "b": 5.0}, {None: -202.0, "a": 1.0}) == pytest.approx(2 / 202)
    assert relative_difference({None: 1e-12}, {None: 2e-12}) == pytest.approx(1e-12)


def test_objectives_unproven_by_both_are_not_called_equal():
    assert relative_difference({None: 1.0}, {"a": 1.0}) is None
    unproven = figures(1, 600)
    unproven = replace(unproven, highs=replace(unproven.highs, objectives={}, proven=False))
    row = sum_up(VARIANT, [unproven])
    assert row.objective_rel_diff is None
    assert table(AuctionBenchPlan(variants=(VARIANT,)), [row]).splitlines()[2].split()[-3] == "-"
    assert sum_up(VARIANT, [unproven, figures(1, 1)]).objective_rel_diff == 0.0


def test_sampled_and_skipped_markets_are_marked():
    row = sum_up(VARIANT, [figures(1, 30, sampled=2), figures(1)])
    assert (row.highs_sampled, row.highs_sampled_markets, row.highs_sampled_problems) == (True, 1, 2)
    assert row.highs_markets == 1
    text = table(AuctionBenchPlan(variants=(VARIANT,), markets=3), [row])
    assert "HiGHS was sampled in 1 of 1 markets: full problem and 2 problems" in text
    assert "HiGHS was left out in 1 of 2 markets" in text
    assert "the time was up after 2 of 3 markets" in text


def test_row_without_markets_has_no_figures():
    row = sum_up(VARIANT, [figures(1)])
    assert (row.highs_s, row.ratio, row.worst_ratio, row.objective_rel_diff) == (None, None, None, None)
    nothing = sum_up(VARIANT, [])
    assert (nothing.gpus, nothing.markets, nothing.ours_s) == (64, 0, None)
    assert "left out" not in table(AuctionBenchPlan(variants=(VARIANT,), highs=HighsUse.NEVER), [row])


def test_percentiles_are_measured_values():
    values = [float(value) for value in range(1, 17)]
    assert (percentile(values, 50), percentile(values, 95)) == (8.0, 16.0)
    assert percentile([7.0], 50) == 7.0


def test_growth_is_log_log_slope():
    sizes = [
        variant.size
        for variant in variants_of(list(SIZES.values()), [GangMix.ANY], [ClusterState.EMPTY], explicit=False)
    ]
    rows = [
        sum_up(Variant(size=size, gangs=GangMix.ANY, cluster=ClusterState.EMPTY, kind=RowKind.GANGS), [each])
        for size, each in zip(sizes, [figures(1e-6 * n**1.5, rows=n) for n in (10, 100, 1000, 5000)], strict=True)
    ]
    (growth,) = growths(rows)
    assert growth.slope == pytest.approx(1.5)
    assert growth.sizes == (64, 168, 1024, 10000)
    assert growths(rows[:1]) == []


def test_document_is_json_with_fixed_columns():
    read = json.loads(json.dumps(document(AuctionBenchPlan(variants=(VARIANT,)), [sum_up(VARIANT, [figures(1, 2)])])))
    fixed = "gpus machines bidders rows ours_s highs_s ratio worst_ratio objective_rel_diff p50_ms p95_ms"
    assert set(fixed.split()) <= read["rows"][0].keys()


# ---- plans ----------------------------------------------------------------------------------------------------------


def test_variants_are_all_combinations_by_size():
    both = variants_of([SIZES[168], SIZES[64]], list(GangMix), list(ClusterState), explicit=True)
    assert len(set(both)) == len(both) == 16
    assert [variant.size.gpus for variant in both] == [64] * 8 + [168] * 8


@pytest.mark.parametrize(
    "wrong", [{"markets": 0}, {"elastic_share": 1.5}, {"elastic_share": float("nan")}, {"budget_s": 0.0}]
)
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(InputError, match="--"):
        AuctionBenchPlan(variants=(VARIANT,), **wrong)


def test_exhausted_budget_leaves_rows_without_figures():
    items = list(run_plan(AuctionBenchPlan(variants=(VARIANT, VARIANT), budget_s=1e-9, solver="highs")))
    assert [item.markets for item in items if isinstance(item, ResultRow)] == [0, 0]
    assert not any(isinstance(item, Progress) for item in items)


# ---- HiGHS ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def slow(monkeypatch):
    """A clock by which every solve takes ten seconds."""
    monkeypatch.setattr(timing, "timed", lambda work: (Seconds(10.0, 9.0), work()))


def test_highs_runs_whole_if_budget_allows(slow):
    market = auction_market(SIZES[64], 0)
    found = time_highs(market, Random(0), whole=False, left_s=1000.0)
    assert found.sampled is None
    assert found.proven
    assert relative_difference(found.objectives, time_ours(market, "highs").objectives) == 0.0


def test_highs_is_sampled_if_whole_is_too_slow(slow):
    market = auction_market(SIZES[64], 0)
    found = time_highs(market, Random(0), whole=False, left_s=25.0)
    whole = time_ours(market, "highs")
    assert found.sampled == timing.SAMPLES
    # The full market, and a problem without each winner.
    assert found.seconds == Seconds(10.0 * len(whole.objectives), pytest.approx(9.0 * len(whole.objectives)))
    assert len(found.objectives) == 1 + timing.SAMPLES
    assert relative_difference(found.objectives, whole.objectives) == pytest.approx(0.0, abs=1e-9)


def test_highs_is_skipped_without_budget():
    assert time_highs(auction_market(SIZES[64], 0), Random(0), whole=False, left_s=0.0) is None
    assert time_highs(auction_market(SIZES[64], 0), Random(0), whole=False, left_s=1e-6) is None


# ---- the other process ----------------------------------------------------------------------------------------------


def count_to(number):
    yield from range(number)
    if number == 3:
        raise InputError("three is too many", value=number)
    if number == 4:
        raise SystemExit(1)


def test_generator_in_process_passes_on_values_and_errors():
    assert list(run_apart(count_to, 2)) == [0, 1]
    with pytest.raises(InputError, match="three is too many: 3"):
        list(run_apart(count_to, 3))
    with pytest.raises(InvariantError, match="died"):
        list(run_apart(count_to, 4))
