"""Stalls and divergence by hand."""

import math

import pytest

from am.profiler import health
from am.profiler.health import LINES_OF_ONE_LOSS, ProgressClock
from am.profiler.parser import LogReader
from am.profiler.profile import JobProfile
from am.profiler.records import LossOnly, Restored, StepLoss, Validation
from themis.cluster import Level

TF = "INFO:tensorflow:"


def stepped(profile, step, loss=1.0):
    profile.feed(StepLoss(step=step, loss=loss))


def of_log(text):
    profile = JobProfile()
    for record in LogReader().read(text.encode()):
        profile.feed(record)
    return profile


class TestDivergence:
    def test_single_non_finite_loss_is_no_divergence(self):
        profile = JobProfile()
        stepped(profile, 10, math.nan)
        assert profile.diverged is None
        stepped(profile, 20, math.inf)
        assert (profile.diverged.since_iteration, profile.diverged.losses) == (10, 2)

    def test_divergence_ends_with_next_finite_loss(self):
        profile = JobProfile()
        for step in (10, 20):
            stepped(profile, step, math.nan)
        stepped(profile, 30, 1.0)
        stepped(profile, 40, math.nan)
        assert profile.diverged is None

    def test_losses_without_steps_count_if_log_has_no_steps(self):
        profile = JobProfile()
        for _ in range(LINES_OF_ONE_LOSS):
            profile.feed(LossOnly(loss=math.nan))
            assert profile.diverged is None
        profile.feed(LossOnly(loss=math.nan))
        assert (profile.diverged.since_iteration, profile.diverged.losses) == (0, 2)
        profile.feed(LossOnly(loss=0.5))
        for _ in range(LINES_OF_ONE_LOSS):
            profile.feed(LossOnly(loss=math.nan))
        assert profile.diverged is None

    def test_losses_without_steps_repeat_that_of_step_0(self):
        profile = JobProfile()
        stepped(profile, 0, math.nan)
        for _ in range(2 * LINES_OF_ONE_LOSS):
            profile.feed(LossOnly(loss=math.nan))
        assert profile.diverged is None

    def test_epoch_losses_count_once_per_epoch(self):
        profile = JobProfile()
        for epoch in (3, 3, 4):
            assert profile.diverged is None
            profile.feed(LossOnly(loss=math.nan, epoch=epoch))
        assert profile.diverged.losses == 2

    @pytest.mark.parametrize("again", [f"{TF}loss = nan, learning_rate = 0.1\n", f"{TF}loss = nan, step = 200\n"])
    def test_repeated_lines_of_one_step_count_once(self, again):
        start, bad = f"{TF}loss = 2.0, step = 100\n", f"{TF}loss = nan, step = 200\n"
        assert of_log(start + bad + again * 40).diverged is None
        diverged = of_log(start + bad + again + bad.replace("200", "300") + again).diverged
        assert (diverged.since_iteration, diverged.losses) == (200, 2)

    def test_nan_running_mean_counts_once_per_epoch(self):
        bars = "".join(f"{done}/100 [=>..] - ETA: 1s 24ms/step - loss: nan\n" for done in range(30, 101))
        assert of_log(f"Epoch 1/9\n{bars}").diverged is None
        assert of_log(f"Epoch 1/9\n{bars}Epoch 2/9\n1/100 [>..] - ETA: 1s - loss: 0.5\n{bars}").diverged is None
        diverged = of_log(f"Epoch 1/9\n{bars}Epoch 2/9\n1/100 [>..] - ETA: 1s - loss: nan\n").diverged
        assert (diverged.since_iteration, diverged.losses) == (30, 2)

    def test_finite_validation_loss_ends_divergence(self):
        epochs = "".join(
            f"Epoch {epoch}/9\n100/100 - 3s - 24ms/step - loss: nan - val_loss: 0.4\n" for epoch in range(1, 10)
        )
        assert of_log(epochs).diverged is None
        assert of_log(epochs.replace("0.4", "nan")).diverged.losses == 9

    def test_older_validation_loss_does_not_end_divergence(self):
        profile = JobProfile()
        stepped(profile, 10, math.nan)
        for step, loss in ((9, 0.5), (10, None)):
            profile.feed(Validation(step=step, loss=loss, accuracy=0.5))
        stepped(profile, 20, math.nan)
        assert profile.diverged.since_iteration == 10

    @pytest.mark.parametrize(
        ("lines", "since"),
        [
            ([f"{TF}loss = nan, step = {step}" for step in (300, 400)], 300),
            ([f"I0728 12:00:01.1 1 a.py:2] loss = nan, step = {step}" for step in (300, 400)], 300),
            ([f"[1,{task}]<stdout>:{TF}loss = nan, step = {step}" for step, task in ((3, 0), (3, 1), (4, 0))], 3),
            ([f"{step}\timages/sec: 103.6 +/- 0.0 (jitter = 0.0)\tnan" for step in (10, 20)], 10),
            ([line for n in (2, 3) for line in (f"Epoch {n}/9", "5/5 - 3s - 9ms/step - loss: inf")], 10),
            ([line for n in (2, 3) for line in (f"Epoch {n}/9", " 1/5 [>..] - ETA: 1s 9ms/step - loss: nan")], 6),
        ],
        ids=["estimator", "absl", "tagged", "cnn_benchmarks", "keras_lines", "keras_bars"],
    )
    def test_every_format_diverges_at_its_second_non_finite_loss(self, lines, since):
        before = "Epoch 1/9\n5/5 - 3s - 9ms/step - loss: 0.5\n" if "Epoch" in lines[0] else ""
        text = before + "".join(f"{line}\n" for line in lines)
        assert of_log(text[: text.rstrip().rindex("\n") + 1]).diverged is None
        assert of_log(text).diverged.since_iteration == since

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
        assert watched.wait(int(health.MIN_STALL_S) - 2) is None
        assert watched.wait(3).waited_s > health.MIN_STALL_S
        assert watched.steps(1, 1).clock.stall is None

    def test_slow_steps_extend_allowed_time(self):
        watched = Watched().steps(10, 30)
        assert watched.wait(int(health.STALL_USUAL * 30) - 31) is None
        assert watched.wait(3).allowed_s == health.STALL_USUAL * 30

    def test_longest_wait_extends_allowed_time(self):
        watched = Watched().steps(10, 1).steps(1, 300).steps(10, 1)
        assert watched.wait(int(health.STALL_LONGEST * 300) - 2) is None
        assert watched.wait(3).allowed_s == health.STALL_LONGEST * 300

    def test_longest_wait_survives_restarts(self):
        watched = Watched().steps(10, 1).steps(1, 300).steps(health._WINDOW, 1)
        watched.clock.begin()
        watched.steps(10 * health._WINDOW, 1)
        assert watched.wait(int(health.STALL_LONGEST * 300) - 2) is None
        assert watched.wait(3).allowed_s == health.STALL_LONGEST * 300
        watched.steps(1, 1000).clock.begin()
        assert watched.wait(2500) is None, "the first step may come after an evaluation, too"

    def test_recurring_evaluation_is_reported_once(self):
        watched, reported = Watched(), []
        for _ in range(4):
            watched.steps(200, 1)
            reported.append(watched.wait(90) is not None)
        assert reported == [True, False, False, False]

    def test_first_step_may_take_half_an_hour(self):
        watched = Watched()
        # The first look starts the clock.
        assert watched.wait(1 + int(health.STALL_FIRST_S)) is None
        assert watched.wait(10).allowed_s == health.STALL_FIRST_S

    def test_first_wait_after_restart_does_not_count(self):
        watched = Watched().steps(10, 1)
        watched.clock.begin()
        assert watched.wait(600) is None

    @pytest.mark.parametrize("jump_s", [1e9, -1e9, 3600.0])
    def test_clock_jump_is_no_stall(self, jump_s):
        watched = Watched(at_s=2e9).steps(10, 1)
        watched.now_s += jump_s
        assert watched.wait(20) is None
        assert watched.wait(60) is not None

    def test_repeating_lost_steps_is_progress(self):
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
