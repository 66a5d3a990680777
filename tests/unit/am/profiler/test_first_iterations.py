"""Two samples of a job within one run, from the lines of its log."""

import pytest

from am.profiler.first_iterations import FirstIterations
from am.profiler.profile import JobProfile
from am.profiler.records import StepLoss
from rm_plugin.policies.allox.estimator import extrapolate
from themis.bids import SampleTimes
from themis.cluster import Level
from themis.speeds import Speeds


def logged(*lines, device="gpu"):
    runs = FirstIterations()
    runs.begin(device)
    for step, seconds in lines:
        runs.add(step, seconds)
    return runs


def test_one_run_has_both_samples_and_the_paper_s_estimate():
    runs = logged((0, None), (10, 25.0), (20, 5.0), (30, 5.0))
    (sample,) = runs.samples(1000, 1.0)
    assert sample == SampleTimes(device="gpu", work_gpu_s=(10.0, 20.0), seconds=(25.0, 30.0))
    assert extrapolate(*zip(sample.work_gpu_s, sample.seconds, strict=True), 1000.0) == 520.0


def test_sample_has_the_most_memory_that_its_run_was_seen_to_use():
    runs = logged((0, None), (10, 25.0))
    for peak_mb in (0.0, 300.0, 200.0):
        runs.used_memory(peak_mb)
    runs.add(20, 5.0)
    assert [sample.memory_mb for sample in runs.samples(1000, 1.0)] == [300.0]
    runs.begin("gpu")
    runs.used_memory(900.0)
    assert [sample.memory_mb for sample in runs.samples(1000, 1.0)] == [300.0]


def test_samples_count_work_on_the_reference_gpu():
    (sample,) = logged((0, None), (10, 25.0), (20, 5.0)).samples(1000, 0.5)
    assert sample.work_gpu_s == (5.0, 10.0)


def test_samples_begin_where_the_run_begins():
    (sample,) = logged((500, None), (510, 25.0), (520, 5.0)).samples(1000, 1.0)
    assert sample.work_gpu_s == (10.0, 20.0)


def test_run_of_less_than_2_percent_has_no_samples():
    assert logged((0, None), (10, 25.0), (19, 5.0)).samples(1000, 1.0) == ()


def test_log_of_few_lines_gives_later_samples():
    (sample,) = logged((0, None), (300, 60.0), (600, 40.0)).samples(1000, 1.0)
    assert (sample.work_gpu_s, sample.seconds) == ((300.0, 600.0), (60.0, 100.0))


def test_long_log_keeps_few_points_in_equal_steps():
    runs = logged((0, None), *((step, 0.5) for step in range(1, 10_001)))
    (sample,) = runs.samples(20_000, 1.0)
    # 39 to 64 points remain of 10,000 lines.
    assert sample.work_gpu_s == (256.0, 512.0)
    assert sample.seconds == (128.0, 256.0)


def test_every_type_has_the_samples_of_its_longest_run():
    runs = logged((0, None), (10, 25.0), (20, 5.0))
    runs.begin("cpu")
    for step, seconds in ((20, None), (30, 50.0), (40, 40.0)):
        runs.add(step, seconds)
    runs.begin("gpu")
    for step, seconds in ((40, None), (50, 99.0)):
        runs.add(step, seconds)
    assert {each.device: each.seconds for each in runs.samples(1000, 1.0)} == {"cpu": (50.0, 90.0), "gpu": (25.0, 30.0)}


def test_longer_run_of_an_earlier_attempt_is_kept_and_a_shorter_one_replaced():
    earlier = logged((0, None), (10, 25.0), (20, 5.0)).points(1000)
    for last, expected in ((15, (25.0, 30.0)), (25, (26.0, 32.0))):
        runs = logged()
        runs.remember(earlier)
        for step, seconds in ((0, None), (10, 26.0), (last, 6.0)):
            runs.add(step, seconds)
        assert [sample.seconds for sample in runs.samples(1000, 1.0)] == [expected]


@pytest.mark.parametrize("line", [(5, 1.0), (30, None), (15, 0.0), (30, float("nan")), (30, float("inf"))])
def test_run_whose_log_has_no_times_of_steps_ends_there(line):
    assert logged((0, None), (10, 25.0), line, (40, 5.0), (50, 5.0)).samples(1000, 1.0) == ()


@pytest.mark.parametrize(
    ("gpus", "speeds", "count"), [(1, {"gpu": 1.0, "cpu": 0.5}, 1), (2, {"gpu": 1.0}, 0), (1, {}, 0)]
)
def test_only_runs_on_one_device_of_a_named_type_count(gpus, speeds, count):
    profile = JobProfile()
    profile.assume_pace(Speeds.of(speeds.items()))
    profile.started(gpus, Level.SLOT, "gpu")
    for step, seconds in ((0, None), (10, 25.0), (20, 5.0)):
        profile.feed(StepLoss(step=step, loss=1.0, seconds=seconds))
    assert len(profile.samples(1000, 1.0)) == count


def test_profile_notes_the_memory_of_its_run():
    profile = JobProfile()
    profile.assume_pace(Speeds.of([("gpu", 1.0)]))
    profile.started(1, Level.SLOT, "gpu")
    profile.feed(StepLoss(step=0, loss=1.0))
    profile.used_memory(300.0)
    for step, seconds in ((10, 25.0), (20, 5.0)):
        profile.feed(StepLoss(step=step, loss=1.0, seconds=seconds))
    assert [sample.memory_mb for sample in profile.samples(1000, 1.0)] == [300.0]
