"""The reference, compared with the enumeration of tiny bundles and with hand-made cases."""

import math
import time

import numpy as np
import pytest

from themis_lab.bench.valuation_bound import kinds_of, limits_of, times_of
from themis_lab.bench.valuation_cases import bundle_of, large_case, small_case
from themis_lab.bench.valuation_exact import exact_time_s
from themis_lab.bench.valuation_reference import Answer, answer
from themis_lab.bench.valuation_run import NEAR, LargeGap, _reference_row, settled

SEEDS = range(40)


def least_of(seed):
    case = small_case(seed)
    return case, exact_time_s(case.app, case.machines)


@pytest.mark.parametrize("seed", SEEDS)
def test_reference_agrees_with_enumeration_on_tiny_bundles(seed):
    case, least_s = least_of(seed)
    if math.isinf(least_s):
        return
    is_near, shown = settled(case, case.machines, 1.5 * least_s, 0.2)
    assert is_near is not True
    assert shown <= 0.5 + 1e-6
    is_near, shown = settled(case, case.machines, least_s, 0.2)
    assert is_near is not False
    assert shown == 0.0


def test_reference_decides_nearly_all_tiny_bundles():
    """Given 1.5 times the least time, it finds a better packing; given the least time, it proves it."""
    reported = [(case, least_s) for case, least_s in map(least_of, SEEDS) if math.isfinite(least_s)]
    shown = [settled(case, case.machines, 1.5 * least_s, 0.2)[0] is False for case, least_s in reported]
    proven = [settled(case, case.machines, least_s, 0.2)[0] is True for case, least_s in reported]
    assert sum(shown) > 0.9 * len(reported) > 25
    assert sum(proven) > 0.9 * len(reported)


def test_found_gangs_hold_each_job_once_and_end_in_time():
    case = large_case(13)
    machines = bundle_of(case, 84, 13)
    capacity, kinds = kinds_of(case.app, machines)
    times_s, limits = times_of(case.app, kinds), limits_of(kinds, machines, capacity)
    found = answer(times_s, limits, 3300.0, 30.0)
    assert found.held is not None
    assert sorted(job for _, jobs in found.held for job in jobs) == list(range(len(times_s)))
    assert 0.97 * 3300.0 < found.end_s(times_s) <= 3300.0
    gangs = np.bincount([kind for kind, _ in found.held], minlength=len(kinds))
    assert all(np.dot(uses, gangs) <= most for uses, most in limits)


def test_reference_ends_at_time_limit():
    """Two equal jobs on one gang end at 8, which was not examined by then."""
    begun_s = time.process_time()
    assert answer(np.array([[4.0], [4.0]]), [([1.0], 1.0)], 8.5, 0.0) == Answer()
    assert time.process_time() - begun_s < 1.0


def test_end_at_exact_limit_is_undecided():
    """Two like jobs of 4 on one gang: 8 itself, at which both just end, is neither proven nor shown."""
    times_s, limits = np.array([[4.0], [4.0]]), [([1.0], 1.0)]
    assert answer(times_s, limits, 7.999, 5.0) == Answer(is_too_soon=True)
    assert answer(times_s, limits, 8.0, 0.2) == Answer()
    assert answer(times_s, limits, 8.001, 5.0).end_s(times_s) == 8.0


def test_row_counts_proven_and_shown_gaps():
    gaps = [
        LargeGap(0.0, 0.0, True),
        LargeGap(0.0, 2 * NEAR, True),
        LargeGap(0.0, 2 * NEAR, False, 0.015),
        LargeGap(0.0, 3 * NEAR, None),
    ]
    row = _reference_row("alone-21", gaps)
    assert (row.near, row.far, row.undecided, row.shown_gap) == (2, 1, 1, 0.015)
