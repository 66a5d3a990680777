"""Seconds an iteration from lines of one or several writers."""

import math

import pytest

from am.profiler.records import StepLoss
from am.profiler.step_intervals import MAX_WRITERS, StepIntervals


def fed(*lines):
    """Intervals of lines (step, seconds, rate), as (seconds an iteration, first)."""
    intervals = StepIntervals()
    found = [
        intervals.interval(StepLoss(step=step, loss=1.0, seconds=seconds), rate[0] if rate else None)
        for step, seconds, *rate in lines
    ]
    return [(pytest.approx(each.iteration_s), each.first) for each in found if each is not None]


def test_one_writer():
    assert fed((0, None), (10, 2.0), (20, 1.0), (30, 1.0)) == [(0.2, True), (0.1, False), (0.1, False)]


def test_workers_in_step_count_once():
    lines = [(step, seconds) for step, seconds in ((0, None), (10, 1.0), (20, 1.0)) for _ in range(3)]
    assert fed(*lines) == [(0.1, True), (0.1, False)]


def test_lagging_worker_is_separate_writer():
    lines = [(20, None), (10, None), (30, 1.0), (20, 1.0), (40, 1.0), (30, 1.0), (50, 1.0), (40, 1.0)]
    assert all(interval[0] == 0.1 for interval in fed(*lines))
    assert len(fed(*lines)) == 6


def test_rates_distinguish_asynchronous_workers():
    # They share one count of steps, so that the nearest line below is another worker's.
    lines = [(0, None), (3, None), (100, 1.0, 100.0), (104, 1.01, 100.0), (200, 1.0, 100.0), (204, 1.0, 100.0)]
    assert [interval[0] for interval in fed(*lines)] == [0.01] * 4


def test_step_below_all_starts_new_writer():
    lines = [(0, None), (10, 1.0), (20, 1.0), (5, 99.0), (15, 50.0), (25, 1.0)]
    assert fed(*lines) == [(0.1, True), (0.1, False), (5.0, True), (0.1, False)]


def test_rates_alone():
    assert fed((10, None, 4.0), (20, None, 5.0)) == [(0.25, True), (0.2, False)]
    assert fed((10, None, 0.0), (20, None, math.nan), (30, None, -1.0), (40, None, math.inf)) == []


def test_rate_that_contradicts_seconds_is_ignored():
    assert fed((0, None), (10, 1.0, 77.0)) == [(0.1, True)]
    # A tenth is no rounding.
    assert fed((0, None), (10, 1.0, 11.0)) == [(0.1, True)]
    assert fed((0, None), (10, 1.0, 10.1)) == [(pytest.approx(1 / 10.1), True)]


@pytest.mark.parametrize("seconds", [0.0, -3.0, math.nan, math.inf])
def test_invalid_seconds_give_no_interval(seconds):
    assert fed((0, None), (10, seconds), (20, 1.0)) == [(0.1, True)]


def test_number_of_writers_is_limited():
    intervals = StepIntervals()
    for step in range(10_000, 0, -1):
        intervals.interval(StepLoss(step=step, loss=1.0), None)
    assert len(intervals._writers) == MAX_WRITERS
