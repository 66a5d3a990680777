"""Profiles by hand: what counts as an interval, what survives a restart, and S from what was seen."""

import math

import pytest

from am.profiler.health import MAX_LOOK_GAP_S
from am.profiler.iteration_time import WINDOW, IterationTime, Placement
from am.profiler.profile import JobProfile
from am.profiler.records import (
    MAX_ITERATIONS,
    CheckpointSaved,
    ExamplesPerSecond,
    LossOnly,
    Metric,
    Replay,
    Restored,
    SavingCheckpoint,
    StepLoss,
    StepsPerSecond,
    Validation,
    believable,
)
from am.profiler.slowdowns import LevelSeen, by_level, measured_slowdown, serial_iteration_s, weighted_median
from themis.apps import CRUDE_SLOWDOWN, Estimate, Slowdown
from themis.cluster import Level


def steps(profile, *seconds, start=0, every=10, loss=1.0):
    """A first line without seconds, then one for each interval."""
    profile.feed(StepLoss(step=start, loss=loss))
    for count, interval in enumerate(seconds, start=1):
        profile.feed(StepLoss(step=start + count * every, loss=loss, seconds=interval))


def factors(paces):
    slowdown = measured_slowdown(paces, CRUDE_SLOWDOWN)
    return [slowdown.at(level) for level in Level]


def measured(iteration_s, count=10):
    return IterationTime(iteration_s=iteration_s, spread_s=0.0, count=count)


class TestIntervals:
    def test_new_profile_has_no_estimates(self):
        profile = JobProfile()
        assert profile.iteration == 0
        assert math.isnan(profile.loss)
        assert profile.iteration_s is None
        assert profile.serial_iteration_s is None
        assert profile.slowdown() == CRUDE_SLOWDOWN
        assert profile.paces == {}

    def test_the_median_of_an_iteration_with_its_spread(self):
        profile = JobProfile()
        profile.started(2, Level.SLOT)
        steps(profile, 9.0, 1.0, 1.0, 2.0, 1.2, 1.1)
        [pace] = profile.paces.values()
        assert pace.iteration_s == pytest.approx(0.11)
        assert pace.spread_s == pytest.approx(0.01)
        assert pace.count == 5
        assert profile.iteration_s == pytest.approx(0.11)

    def test_measured_placement_keeps_its_own_time(self):
        """Elsewhere the time follows from the median over all placements, of which neither of these is one."""
        profile = JobProfile()
        profile.started(1, Level.SLOT)
        steps(profile, 10.0, 10.0, 10.0)
        profile.started(2, Level.SLOT)
        steps(profile, 7.0, 7.0, 7.0, start=40)
        profile.started(4, Level.SLOT)
        steps(profile, 4.5, 4.5, 4.5, start=80)
        assert profile.iteration_s_at(1, Level.SLOT) == pytest.approx(1.0)
        assert profile.iteration_s_at(2, Level.SLOT) == pytest.approx(0.7)
        assert profile.iteration_s_at(4, Level.SLOT) == pytest.approx(0.45)
        assert profile.iteration_s == pytest.approx(0.45)
        assert profile.iteration_s_at(8, Level.SLOT) == pytest.approx(profile.serial_iteration_s / 8)

    def test_the_first_interval_counts_only_until_the_second(self):
        profile = JobProfile()
        profile.started(1, Level.SLOT)
        steps(profile, 5.0)
        assert profile.iteration_s == pytest.approx(0.5)
        pace = profile.paces[Placement(1, Level.SLOT)]
        assert (pace.count, pace.is_reliable) == (1, False)
        profile.feed(StepLoss(step=20, loss=1.0, seconds=1.0))
        assert profile.iteration_s == pytest.approx(0.1)

    def test_only_newest_intervals_count(self):
        profile = JobProfile()
        profile.started(1, Level.SLOT)
        steps(profile, *([10.0] * 100), *([1.0] * WINDOW))
        assert profile.paces[Placement(1, Level.SLOT)] == IterationTime(iteration_s=0.1, spread_s=0.0, count=WINDOW)

    def test_rates_are_more_precise_than_seconds(self):
        profile = JobProfile()
        profile.started(1, Level.SLOT)
        steps(profile, 0.004)
        for step in (20, 30, 40):
            profile.feed(StepsPerSecond(rate=2857.14))
            profile.feed(StepLoss(step=step, loss=1.0, seconds=0.004))
        assert profile.iteration_s == pytest.approx(0.00035, rel=1e-4)

    def test_rate_that_contradicts_seconds_is_ignored(self):
        profile = JobProfile()
        profile.started(1, Level.SLOT)
        steps(profile, 1.0)
        profile.feed(StepsPerSecond(rate=1.0))
        profile.feed(StepLoss(step=20, loss=1.0, seconds=1.0))
        assert profile.iteration_s == pytest.approx(0.1)

    @pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, 1e300])
    def test_invalid_seconds_give_no_interval(self, seconds):
        profile = JobProfile()
        profile.started(1, Level.SLOT)
        steps(profile, seconds, seconds, seconds)
        assert profile.iteration_s is None

    def test_steps_that_go_back_start_over(self):
        profile = JobProfile()
        profile.started(1, Level.SLOT)
        steps(profile, 7.0, 1.0, 1.0)
        profile.feed(StepLoss(step=5, loss=1.0, seconds=99.0))
        profile.feed(StepLoss(step=15, loss=1.0, seconds=50.0))
        profile.feed(StepLoss(step=25, loss=1.0, seconds=1.0))
        assert profile.paces[Placement(1, Level.SLOT)] == measured(0.1, count=3)

    def test_without_a_placement_nothing_is_measured(self):
        profile = JobProfile()
        steps(profile, 1.0, 1.0, 1.0)
        assert profile.paces == {}
        assert profile.iteration == 30


class TestRestarts:
    def test_paces_are_kept_by_placement(self):
        profile = JobProfile()
        profile.started(1, Level.SLOT)
        steps(profile, 9.0, 4.0, 4.0, 4.0)
        profile.started(4, Level.MACHINE)
        steps(profile, 9.0, 1.0, 1.0, 1.0, start=30)
        assert profile.paces == {
            Placement(1, Level.SLOT): measured(0.4, 3),
            Placement(4, Level.MACHINE): measured(0.1, 3),
        }
        assert profile.iteration_s == pytest.approx(0.1)
        profile.started(1, Level.SLOT)
        assert profile.iteration_s == pytest.approx(0.4)

    def test_a_restore_begins_a_new_incarnation(self):
        profile = JobProfile()
        profile.started(1, Level.SLOT)
        steps(profile, 9.0, 1.0, 1.0)
        profile.feed(Restored(iteration=20, seconds=0.5))
        profile.feed(StepLoss(step=30, loss=1.0, seconds=60.0))
        profile.feed(StepLoss(step=40, loss=1.0, seconds=60.0))
        profile.feed(StepLoss(step=50, loss=1.0, seconds=1.0))
        assert profile.paces[Placement(1, Level.SLOT)] == measured(0.1, 3)
        assert profile.restored == Restored(iteration=20, seconds=0.5)

    def test_validation_without_loss_keeps_known_loss(self):
        profile = JobProfile()
        profile.feed(Validation(step=10, loss=0.5, accuracy=0.75))
        profile.feed(Validation(step=20, accuracy=0.875))
        assert (profile.validation_loss, profile.accuracy) == (0.5, 0.875)
        profile.feed(Validation(step=30, loss=0.25))
        assert (profile.validation_loss, profile.accuracy) == (0.25, 0.875)

    def test_progress_never_decreases(self):
        profile = JobProfile()
        profile.started(1, Level.SLOT)
        profile.feed(StepLoss(step=118, loss=0.5))
        profile.feed(Validation(step=118, loss=0.6, accuracy=0.9))
        profile.started(1, Level.SLOT)
        profile.feed(Restored(iteration=100, seconds=0.1))
        profile.feed(StepLoss(step=105, loss=0.7))
        profile.feed(Validation(step=105, loss=0.7, accuracy=0.8))
        assert (profile.iteration, profile.loss, profile.accuracy) == (118, 0.5, 0.9)
        profile.feed(StepLoss(step=120, loss=math.nan))
        assert profile.iteration == 120
        assert math.isnan(profile.loss)

    @pytest.mark.parametrize("record", [Validation(step=40, loss=0.5), Restored(iteration=40, seconds=0.1)])
    def test_record_of_a_later_iteration_is_progress(self, record):
        profile = JobProfile()
        profile.feed(record)
        assert profile.iteration == 40

    def test_declared_metric_of_the_newest_step_counts_and_one_without_a_step_always(self):
        profile = JobProfile()
        shown = []
        for record in (
            Metric(value=0.5, step=10),
            Metric(value=0.7, step=5),
            Metric(value=0.6),
            Metric(value=0.9, step=10),
        ):
            profile.feed(record)
            shown.append(profile.metric)
        assert shown == [0.5, 0.5, 0.6, 0.9]

    def test_other_records(self):
        profile = JobProfile()
        profile.feed(Replay(model="vgg16", time_scale=30.0))
        profile.feed(ExamplesPerSecond(step=10, mean_rate=3.0))
        profile.feed(SavingCheckpoint(iteration=20))
        profile.feed(CheckpointSaved(iteration=30, seconds=0.1, bytes=5))
        profile.feed(CheckpointSaved(iteration=25, seconds=0.1, bytes=6))
        profile.feed(LossOnly(loss=0.25))
        profile.feed(Validation(step=30, loss=0.5))
        assert profile.iteration == 30
        assert profile.loss == 0.25
        assert profile.checkpoint == CheckpointSaved(iteration=30, seconds=0.1, bytes=5)
        assert (profile.validation_loss, profile.accuracy) == (0.5, None)
        assert profile.replay == Replay(model="vgg16", time_scale=30.0)


class TestEstimates:
    def test_estimate_is_used_before_measurements(self):
        strict = Slowdown(1.0, 1.2, 2.0, 3.0)
        profile = JobProfile(Estimate(serial_iteration_s=8.0, slowdown=strict))
        assert profile.serial_iteration_s == 8.0
        assert profile.slowdown() == strict
        assert profile.iteration_s_at(4, Level.RACK) == pytest.approx(4.0)
        profile.started(2, Level.SLOT)
        assert profile.iteration_s == pytest.approx(4.0)

    def test_measurement_replaces_estimate(self):
        profile = JobProfile(Estimate(serial_iteration_s=8.0))
        profile.started(4, Level.CLUSTER)
        steps(profile, 9.0, 13.0, 13.0, 13.0)
        # The only level seen keeps the S assumed for it, 1.3.
        assert profile.serial_iteration_s == pytest.approx(4.0)
        assert profile.iteration_s_at(4, Level.CLUSTER) == pytest.approx(1.3)
        assert profile.iteration_s_at(2, Level.SLOT) == pytest.approx(2.0)
        assert profile.slowdown() == CRUDE_SLOWDOWN

    def test_gpu_time_without_a_pace_is_kept_for_the_next_attempt(self):
        """So that a job which never logs a step is found silent, however often its app master starts again."""
        profile = JobProfile()
        profile.started(2, Level.SLOT)
        for now_s in (100.0, 103.0, 107.0):
            profile.look(now_s)
        assert (profile.ran_gpu_s, profile.measurements(100).ran_gpu_s) == (14.0, 14.0)
        other = JobProfile()
        other.remember(profile.measurements(100))
        assert other.ran_gpu_s == 14.0
        steps(profile, *([10.0] * 5))
        assert profile.measurements(100).ran_gpu_s == 0.0

    @pytest.mark.parametrize(("jump_s", "counted_s"), [(3600.0, MAX_LOOK_GAP_S), (-3600.0, 0.0)])
    def test_clock_jump_is_no_run_time(self, jump_s, counted_s):
        profile = JobProfile()
        profile.started(2, Level.SLOT)
        for now_s in (100.0, 101.0, 101.0 + jump_s, 102.0 + jump_s):
            profile.look(now_s)
        assert profile.ran_s == 2.0 + counted_s
        assert profile.ran_gpu_s == 2 * profile.ran_s


class TestSlowdown:
    def test_equal_gpu_counts_are_compared_first(self):
        paces = {
            Placement(2, Level.MACHINE): measured(2.0),
            Placement(4, Level.MACHINE): measured(0.8),
            Placement(4, Level.RACK): measured(1.2),
        }
        # By the unlike pair it would be 1.2, and by both the lower of the two.
        assert factors(paces) == pytest.approx([1.0, 1.0, 1.5, 1.5])

    def test_different_gpu_counts_are_compared_if_none_equal(self):
        paces = {Placement(1, Level.SLOT): measured(8.0), Placement(4, Level.CLUSTER): measured(4.0)}
        assert factors(paces) == pytest.approx([1.0, 1.0, 1.1, 2.0])

    def test_measured_level_limits_tighter_levels(self):
        paces = {Placement(1, Level.SLOT): measured(8.0), Placement(4, Level.CLUSTER): measured(2.1)}
        assert factors(paces) == pytest.approx([1.0, 1.0, 1.05, 1.05])

    def test_levels_out_of_order_are_averaged(self):
        paces = {
            Placement(4, Level.SLOT): measured(1.0),
            Placement(4, Level.MACHINE): measured(1.4, count=10),
            Placement(4, Level.RACK): measured(1.2, count=30),
        }
        assert factors(paces) == pytest.approx([1.0, 1.25, 1.25, 1.3])

    def test_few_intervals_are_ignored(self):
        paces = {Placement(1, Level.SLOT): measured(8.0), Placement(4, Level.CLUSTER): measured(9.0, count=2)}
        assert measured_slowdown(paces, CRUDE_SLOWDOWN) == CRUDE_SLOWDOWN

    def test_slowdown_is_at_least_one(self):
        paces = {Placement(2, Level.SLOT): measured(1.0), Placement(2, Level.CLUSTER): measured(0.9)}
        assert measured_slowdown(paces, CRUDE_SLOWDOWN) == Slowdown(1.0, 1.0, 1.0, 1.0)

    def test_serial_from_any_number_of_gpus(self):
        paces = {Placement(4, Level.CLUSTER): measured(1.3), Placement(2, Level.SLOT): measured(2.0)}
        assert serial_iteration_s(paces, CRUDE_SLOWDOWN) == pytest.approx(4.0)

    def test_weighted_median(self):
        assert weighted_median([(3.0, 1), (1.0, 1), (2.0, 1)]) == 2.0
        assert weighted_median([(1.0, 5), (9.0, 4)]) == 1.0
        assert weighted_median([(7.0, 1)]) == 7.0
        assert weighted_median([(1.0, 2), (9.0, 2)]) == 1.0


@pytest.mark.parametrize(
    "record",
    [
        StepLoss(step=MAX_ITERATIONS + 1, loss=0.5),
        Validation(step=MAX_ITERATIONS + 1, loss=0.5, accuracy=0.5),
        CheckpointSaved(iteration=MAX_ITERATIONS + 1, seconds=1.0, bytes=1),
        SavingCheckpoint(iteration=MAX_ITERATIONS + 1),
        Restored(iteration=MAX_ITERATIONS + 1, seconds=1.0),
        ExamplesPerSecond(step=MAX_ITERATIONS + 1, mean_rate=1.0),
        Metric(step=MAX_ITERATIONS + 1, value=1.0),
    ],
    ids=lambda record: type(record).__name__,
)
def test_impossible_iteration_counts_are_dropped(record):
    assert believable([record, StepLoss(step=MAX_ITERATIONS, loss=1.0)]) == [StepLoss(step=MAX_ITERATIONS, loss=1.0)]


def test_records_without_an_iteration_are_kept():
    records = [LossOnly(loss=0.5), Metric(value=0.5)]
    assert believable(records) == records


def test_s_by_level_says_what_was_measured():
    found = by_level(Slowdown(1.0, 1.1, 1.3, 1.5), {Level.RACK: LevelSeen(factor=1.3, count=7, spread=0.2)})
    assert [(each.level, each.factor, each.intervals, each.spread) for each in found] == [
        ("slot", 1.0, 0, 0.0),
        ("machine", 1.1, 0, 0.0),
        ("rack", 1.3, 7, 0.2),
        ("cluster", 1.5, 0, 0.0),
    ]


class TestCurves:
    def test_declared_metric_has_a_curve_of_its_own(self):
        profile = JobProfile()
        for record in (
            StepLoss(step=10, loss=2.0),
            Metric(value=0.3, step=10),
            StepLoss(step=20, loss=1.0),
            Metric(value=0.5, step=None),
        ):
            profile.feed(record)
        assert profile.metric_points == ((10.0, 0.3), (20.0, 0.5))
        assert profile.loss_points == ((10.0, 2.0), (20.0, 1.0))

    def test_metric_of_repeated_steps_is_drawn_once(self):
        profile = JobProfile()
        for step, value in ((10, 0.3), (20, 0.4), (10, 0.3), (20, 0.4), (30, 0.5)):
            profile.feed(Metric(value=value, step=step))
        assert profile.metric_points == ((10.0, 0.3), (20.0, 0.4), (30.0, 0.5))

    def test_held_out_losses_are_the_curve_of_a_job_without_others(self):
        profile = JobProfile()
        profile.feed(Validation(step=1, loss=0.9))
        profile.feed(Validation(step=2, loss=0.7))
        assert profile.loss_points == ((1.0, 0.9), (2.0, 0.7))
        profile.feed(StepLoss(step=3, loss=0.5))
        assert profile.loss_points == ((3.0, 0.5),)
