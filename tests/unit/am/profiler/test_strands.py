"""Seconds an iteration from lines of one or several writers."""

import math

import pytest

from am.profiler.records import StepLoss
from am.profiler.strands import MOST_STRANDS, Strands


def fed(*lines):
    """Intervals of lines (step, seconds, rate), as (seconds an iteration, first)."""
    strands = Strands()
    found = [
        strands.interval(StepLoss(step=step, loss=1.0, seconds=seconds), rate[0] if rate else None)
        for step, seconds, *rate in lines
    ]
    return [(pytest.approx(each.iteration_s), each.first) for each in found if each is not None]


def test_one_writer():
    assert fed((0, None), (10, 2.0), (20, 1.0), (30, 1.0)) == [(0.2, True), (0.1, False), (0.1, False)]


def test_workers_in_step_count_once():
    lines = [(step, seconds) for step, seconds in ((0, None), (10, 1.0), (20, 1.0)) for _ in range(3)]
    assert fed(*lines) == [(0.1, True), (0.1, False)]


def test_a_worker_that_lags_has_a_strand_of_its_own():
    lines = [(20, None), (10, None), (30, 1.0), (20, 1.0), (40, 1.0), (30, 1.0), (50, 1.0), (40, 1.0)]
    assert all(interval[0] == 0.1 for interval in fed(*lines))
    assert len(fed(*lines)) == 6


def test_asynchronous_workers_are_told_apart_by_their_rates():
    # They share one count of steps, so that the nearest line below is another worker's.
    lines = [(0, None), (3, None), (100, 1.0, 100.0), (104, 1.01, 100.0), (200, 1.0, 100.0), (204, 1.0, 100.0)]
    assert [interval[0] for interval in fed(*lines)] == [0.01] * 4


def test_a_program_that_goes_back_begins_anew():
    lines = [(0, None), (10, 1.0), (20, 1.0), (5, 99.0), (15, 50.0), (25, 1.0)]
    assert fed(*lines) == [(0.1, True), (0.1, False), (5.0, True), (0.1, False)]


def test_rates_alone():
    assert fed((10, None, 4.0), (20, None, 5.0)) == [(0.25, True), (0.2, False)]
    assert fed((10, None, 0.0), (20, None, math.nan), (30, None, -1.0), (40, None, math.inf)) == []


def test_a_rate_that_fits_nothing_is_left_aside():
    assert fed((0, None), (10, 1.0, 77.0)) == [(0.1, True)]
    # A tenth is no rounding.
    assert fed((0, None), (10, 1.0, 11.0)) == [(0.1, True)]
    assert fed((0, None), (10, 1.0, 10.1)) == [(pytest.approx(1 / 10.1), True)]


@pytest.mark.parametrize("seconds", [0.0, -3.0, math.nan, math.inf])
def test_times_that_are_none(seconds):
    assert fed((0, None), (10, seconds), (20, 1.0)) == [(0.1, True)]


def test_writers_are_not_remembered_for_ever():
    strands = Strands()
    for step in range(10_000, 0, -1):
        strands.interval(StepLoss(step=step, loss=1.0), None)
    assert len(strands._strands) == MOST_STRANDS
