"""The use of the cluster over time keeps its shape in bounded memory."""

import math
from itertools import pairwise

from rm_plugin.service.web.usage_history import MAX_SAMPLES, UsageHistory, UsageSample


def filled(count):
    history = UsageHistory()
    for at in range(count):
        history.add(UsageSample(float(at), at % 2 * 10.0, 10.0, math.nan if at % 4 < 2 else float(at)))
    return history


def test_first_samples_are_kept_as_they_are():
    history = filled(5)
    assert [sample.time_s for sample in history.samples] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [sample.leased for sample in history.samples] == [0.0, 10.0, 0.0, 10.0, 0.0]


def test_full_history_merges_pairs():
    history = filled(MAX_SAMPLES)
    first, second, *_ = history.samples
    assert len(history.samples) == MAX_SAMPLES // 2
    assert first[:3] == (0.0, 5.0, 10.0)
    assert math.isnan(first.max_rho)
    assert second == (2.0, 5.0, 10.0, 3.0)


def test_history_stays_bounded_and_covers_all_time():
    history = filled(10 * MAX_SAMPLES + 3)
    samples = history.samples
    assert len(samples) <= MAX_SAMPLES
    assert samples[0].time_s == 0.0
    steps = {later.time_s - earlier.time_s for earlier, later in pairwise(samples)}
    assert steps == {16.0}
    assert samples[-1].time_s > 10 * MAX_SAMPLES - 16
    assert samples[-1].max_rho == 10 * MAX_SAMPLES + 2
