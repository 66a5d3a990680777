"""Stalls and divergence by hand."""

import math

import pytest

from am.profiler import health
from am.profiler.health import ProgressClock
from am.profiler.profile import JobProfile
from am.profiler.records import LossOnly, Restored, StepLoss
from themis.cluster import Level


def stepped(profile, step, loss=1.0):
    profile.feed(StepLoss(step=step, loss=loss))


class TestDivergence:
    def test_one_loss_that_is_no_number_is_none(self):
        profile = JobProfile()
        stepped(profile, 10, math.nan)
        assert profile.diverged is None
        stepped(profile, 20, math.inf)
        assert (profile.diverged.since_iteration, profile.diverged.losses) == (10, 2)

    def test_it_ends_with_the_next_number(self):
        profile = JobProfile()
        for step in (10, 20):
            stepped(profile, step, math.nan)
        stepped(profile, 30, 1.0)
        stepped(profile, 40, math.nan)
        assert profile.diverged is None

    def test_losses_without_steps_count(self):
        profile = JobProfile()
        stepped(profile, 7)
        profile.feed(LossOnly(loss=math.nan))
        profile.feed(LossOnly(loss=math.nan))
        assert profile.diverged.since_iteration == 7

    def test_a_step_without_a_loss_changes_nothing(self):
        profile = JobProfile()
        stepped(profile, 10, 0.5)
        stepped(profile, 20, None)
        assert (profile.iteration, profile.loss, profile.diverged) == (20, 0.5, None)


class Watched:
    """A clock that is looked at every second, with progress at some of them."""

    def __init__(self, at_s=0.0):
        self.clock, self.now_s, self.progress = ProgressClock(), at_s, 0
        self.wait(0)

    def wait(self, seconds):
        for _ in range(seconds):
            self.now_s += 1.0
            self.clock.look(self.now_s, self.progress)
        return self.clock.stall

    def steps(self, count, every_s):
        for _ in range(count):
            self.progress += 1
            self.wait(every_s)
        return self


class TestStalls:
    def test_a_job_that_steps_does_not_stall(self):
        watched = Watched().steps(30, 1)
        assert watched.wait(int(health.STALL_LEAST_S) - 2) is None
        assert watched.wait(3).waited_s > health.STALL_LEAST_S
        assert watched.steps(1, 1).clock.stall is None

    def test_slow_steps_are_given_longer(self):
        watched = Watched().steps(10, 30)
        assert watched.wait(int(health.STALL_USUAL * 30) - 31) is None
        assert watched.wait(3).allowed_s == health.STALL_USUAL * 30

    def test_what_took_long_once_may_take_long_again(self):
        watched = Watched().steps(10, 1).steps(1, 300).steps(10, 1)
        assert watched.wait(int(health.STALL_LONGEST * 300) - 2) is None
        assert watched.wait(3).allowed_s == health.STALL_LONGEST * 300

    def test_the_start_is_given_half_an_hour(self):
        watched = Watched()
        assert watched.wait(int(health.STALL_FIRST_S)) is None
        assert watched.wait(10).allowed_s == health.STALL_FIRST_S

    def test_the_first_wait_after_a_restart_is_a_start(self):
        watched = Watched().steps(10, 1)
        watched.clock.begin()
        assert watched.wait(600) is None

    @pytest.mark.parametrize("jump_s", [1e9, -1e9, 3600.0])
    def test_clocks_that_jump_make_no_stall(self, jump_s):
        watched = Watched(at_s=2e9).steps(10, 1)
        watched.now_s += jump_s
        assert watched.wait(20) is None
        assert watched.wait(60) is not None

    def test_a_job_that_repeats_lost_steps_moves(self):
        profile = JobProfile()
        profile.started(1, Level.SLOT)
        for step in range(1, 20):
            stepped(profile, step)
            profile.look(float(step))
        profile.started(1, Level.SLOT)
        profile.feed(Restored(iteration=0, seconds=0.1))
        now_s = 20.0
        for step in range(1, 10):
            stepped(profile, step)
            for _ in range(20):
                now_s += 1.0
                profile.look(now_s)
            assert profile.stall is None
        for _ in range(500):
            now_s += 1.0
            profile.look(now_s)
        assert profile.iteration == 19
        assert profile.stall is not None
