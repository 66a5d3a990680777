"""Losses in bounded space, and the forecasts that they make."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from am.profiler.loss_history import MAX_POINTS, MIN_POINTS, LossHistory
from am.profiler.profile import JobProfile
from am.profiler.records import Restored, StepLoss


def fed(losses, every=1):
    history = LossHistory()
    for place, loss in enumerate(losses):
        history.add(place * every, loss)
    return history


def falling(count, floor=0.5, drop=2.0, scale=40.0, power=1.0, every=1):
    return [floor + drop * (1 + place * every / scale) ** -power for place in range(count)]


def loss_at(forecast, iteration):
    return forecast.floor + forecast.drop - forecast.decrease(0.0, iteration)


class TestFits:
    @pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0])
    @pytest.mark.parametrize("scale", [10.0, 40.0, 300.0])
    def test_a_curve_is_followed_into_the_future(self, power, scale):
        forecast = fed(falling(60, scale=scale, power=power, every=10), every=10).forecast(600, 1.0)
        truth = falling(3, scale=scale, power=power, every=600)
        assert truth[1] - truth[2] > 0
        assert forecast.decrease(600, 600) == pytest.approx(truth[1] - truth[2], rel=0.35)

    def test_scales_are_shares_of_all_iterations_also_if_the_last_loss_comes_late(self):
        history, scale = LossHistory(), 0.1 * 100
        for iteration in (*range(1, 11), 100):
            history.add(iteration, 0.5 + 2.0 * (1 + iteration / scale) ** -1.0)
        forecast = history.forecast(100, 1.0)
        assert (forecast.floor, forecast.drop) == (pytest.approx(0.5), pytest.approx(2.0))
        assert (forecast.scale, forecast.power) == (pytest.approx(scale), 1.0)

    def test_noise_and_outliers_change_forecast_little(self):
        rng = random.Random(1)
        losses = [loss + rng.gauss(0, 0.05) for loss in falling(200)]
        losses[50] = 1e6
        forecast = fed(losses).forecast(200, 1.0)
        truth = falling(401)
        for iteration in (20, 100, 400):
            assert loss_at(forecast, iteration) == pytest.approx(truth[iteration], abs=0.25)

    def test_forecast_has_iteration_and_speed(self):
        history = fed(falling(10))
        forecast = history.forecast(9, 0.5)
        assert (forecast.iteration, forecast.serial_iteration_s) == (9, 0.5)
        later = history.forecast(12, 0.25)
        assert (later.iteration, later.serial_iteration_s) == (12, 0.25)
        assert (later.floor, later.drop, later.scale) == (forecast.floor, forecast.drop, forecast.scale)

    def test_new_losses_change_forecast(self):
        history = fed(falling(10))
        before = history.forecast(9, 1.0)
        history.add(10, 0.0)
        assert history.forecast(9, 1.0) != before


class TestLittleOrNoSense:
    @pytest.mark.parametrize("count", range(MIN_POINTS))
    def test_too_few_points_give_no_forecast(self, count):
        assert fed(falling(count)).forecast(0, 1.0) is None

    def test_rising_or_constant_losses_forecast_no_drop(self):
        assert fed([1.0, 2.0, 3.0, 4.0, 5.0]).forecast(4, 1.0).drop == 0.0
        assert fed([3.0] * 9).forecast(8, 1.0).drop == pytest.approx(0.0)

    @pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
    def test_diverged_job_forecasts_no_drop(self, loss):
        history = fed([*falling(10), loss])
        assert history.forecast(10, 1.0).drop == 0.0
        history.add(11, 1.0)
        assert history.forecast(11, 1.0).drop > 0.0

    def test_only_nan_gives_no_forecast(self):
        assert fed([math.nan] * 9).forecast(0, 1.0) is None

    @given(st.lists(st.floats(), max_size=200), st.integers(1, 10**9))
    def test_any_losses_give_valid_forecast_or_none(self, losses, every):
        forecast = fed(losses, every).forecast(len(losses) * every, 0.1)
        assert forecast is None or forecast.decrease(forecast.iteration, 100.0) >= 0.0


class TestBounds:
    @pytest.mark.parametrize("count", [MAX_POINTS, 1000, 12345])
    def test_space_is_bounded_and_nothing_is_dropped(self, count):
        history = fed(falling(count))
        assert len(history.points) <= MAX_POINTS
        assert history.points[0][0] < count / MAX_POINTS * 4
        assert history.points[-1][0] > count * 0.9

    def test_each_point_is_the_mean_of_equally_many_losses(self):
        """The 64th loss merges the points by twos, and the 128th again: then each is of four losses."""
        history = fed([1.0, 2.0] * (MAX_POINTS + 2))
        assert history.points == tuple((4.0 * place + 1.5, 1.5) for place in range(MAX_POINTS // 2 + 1))


class TestProfiles:
    def test_profile_forecasts_from_its_log(self):
        profile = JobProfile()
        assert profile.forecast(1.0) is None
        for step, loss in enumerate(falling(10)):
            profile.feed(StepLoss(step=step, loss=loss))
        assert profile.forecast(1.0).iteration == 9
        assert profile.forecast(1.0).drop > 0.0

    def test_repeated_steps_count_once(self):
        one, two = JobProfile(), JobProfile()
        for step, loss in enumerate(falling(10)):
            one.feed(StepLoss(step=step, loss=loss))
            two.feed(StepLoss(step=step, loss=loss))
        two.feed(Restored(iteration=5, seconds=0.1))
        for step in range(6, 10):
            two.feed(StepLoss(step=step, loss=9.0))
        assert two.forecast(1.0) == one.forecast(1.0)
