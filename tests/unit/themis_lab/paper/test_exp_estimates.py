"""How estimates are compared with what happened."""

from collections import Counter

import pytest

from rm_plugin.arbiter.estimates import Estimate, Forecast, Interval, Situation
from themis_lab.paper.estimates import NOISE, PER_APP, Sample, _distances_s, _rows, end_errors, samples


def sample(end_s, expected_s=1200.0, *, situation=Situation.FULL, first_gpu_s=None, later=False):
    return Sample(
        app_id="a",
        later_phases=later,
        forecast=Forecast(first_gpu_at_s=700.0, ends_at_s=100.0 + expected_s, situation=situation),
        estimate=Estimate(
            first_gpu_s=Interval(median=600.0, low=300.0, high=900.0),
            end_s=Interval(median=expected_s, low=0.5 * expected_s, high=2.0 * expected_s),
        ),
        at_s=100.0,
        lease_s=600.0,
        first_gpu_s=first_gpu_s,
        end_s=end_s,
    )


def test_interval_holds_if_the_end_lies_in_it():
    assert [sample(end_s).end_holds for end_s in (599.0, 600.0, 2400.0, 2401.0)] == [False, True, True, False]
    assert sample(9.0, first_gpu_s=900.0).first_gpu_holds
    assert not sample(9.0, first_gpu_s=901.0).first_gpu_holds
    assert not sample(9.0).first_gpu_holds


def test_errors_are_ratios_with_a_lease_added():
    assert sample(3000.0).end_error == pytest.approx(3600.0 / 1800.0)
    assert sample(3000.0, first_gpu_s=0.0).first_gpu_error == pytest.approx(600.0 / 1200.0)


def test_errors_are_collected_by_situation_and_later_phases():
    found = [sample(1200.0), sample(3000.0), sample(9.0, later=True), sample(9.0, later=True)]
    assert end_errors(found) == {
        (Situation.FULL, False): pytest.approx((1.1, 1.5, 1.9)),
        (Situation.FULL, True): pytest.approx((609.0 / 1800.0,) * 3),
    }


def test_distances_are_by_the_expected_time_to_the_end():
    found = [sample(1000.0), sample(1800.0), sample(4000.0, 3600.0)]
    assert _distances_s(found) == [pytest.approx(400.0), pytest.approx(400.0), None, None]
    panels = Counter(row["panel"] for row in _rows("w, p", 1, found))
    assert panels == {"ends that hold": 1, "median error of the end (s)": 2}


def test_run_without_noise_is_exact_where_gpus_suffice():
    found = samples("w1-small", "fair_finish", 1)
    assert max(Counter(each.app_id for each in found[0.0]).values()) <= PER_APP
    calm = [each for each in found[0.0] if each.forecast.situation is Situation.CALM]
    close = sum(abs(each.end_error - 1.0) < 0.01 for each in calm)
    assert calm and close > 0.9 * len(calm)
    assert all(each.end_s >= 0.0 for each in found[NOISE])
