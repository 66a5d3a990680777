"""Asynchronous halving by hand: promotions as results come, standstill, failures, what is left to do."""

import math

import pytest
from tuner_cases import failed, jobs, make, progress, reached

from am.tuners.port import Phase
from themis.apps import JobSpec
from themis.errors import InputError, UnknownNameError


def tuner_of(count, total=100, **settings):
    return make("asynchronous_halving", jobs(count, total), **settings)


def feed(tuner, *observations):
    for observation in observations:
        tuner.observe(observation)
    return tuner.plan()


class TestPromotion:
    def test_one_in_eta_of_reached_jobs_is_promoted(self):
        """Four jobs, rungs at 25, 50, 100: the better of the first two goes on while the others still run."""
        tuner = tuner_of(4)
        assert feed(tuner, reached("j00", 25, 0.5)).targets == {"j01": 25, "j02": 25, "j03": 25}
        plan = feed(tuner, reached("j01", 25, 0.6))
        assert plan.targets == {"j00": 50, "j02": 25, "j03": 25}
        assert plan.stopped == frozenset()
        # The new best of three takes the one place that they have, though the first has its promotion already.
        assert feed(tuner, reached("j02", 25, 0.2)).targets == {"j00": 50, "j02": 50, "j03": 25}
        plan = feed(tuner, reached("j03", 25, 0.3))
        assert plan.targets == {"j00": 50, "j02": 50, "j03": 50}

    def test_jobs_that_were_never_promoted_are_stopped_at_the_end(self):
        tuner = tuner_of(2)
        assert feed(tuner, reached("j00", 50, 0.5), reached("j01", 50, 0.6)).targets == {"j00": 100}
        plan = feed(tuner, reached("j00", 100, 0.4))
        assert (plan.finished, plan.best, plan.stopped) == (True, "j00", {"j01"})

    def test_best_job_is_promoted_if_none_runs(self):
        tuner = tuner_of(3, eta=4)
        assert [phase.jobs for phase in tuner.plan().phases] == [3, 1]
        plan = feed(tuner, reached("j00", 25, 0.5), reached("j01", 25, 0.4), reached("j02", 25, 0.6))
        assert plan.targets == {"j01": 100}

    def test_nan_is_worst_and_ties_go_by_id(self):
        tuner = tuner_of(2)
        assert feed(tuner, reached("j00", 50, math.nan), reached("j01", 50, math.inf)).targets == {"j01": 100}
        tuner = tuner_of(2)
        assert feed(tuner, reached("j01", 50, 0.5), reached("j00", 50, 0.5)).targets == {"j00": 100}

    def test_a_failed_job_counts_in_no_rung(self):
        tuner = tuner_of(3, first_iterations=50)
        feed(tuner, reached("j00", 50, 0.5), failed("j00"))
        assert feed(tuner, reached("j01", 50, 0.6)).targets == {"j02": 50}
        assert feed(tuner, reached("j02", 50, 0.7)).targets == {"j01": 100}

    def test_the_place_of_a_promoted_job_that_failed_is_free(self):
        tuner = tuner_of(2)
        feed(tuner, reached("j00", 50, 0.5), reached("j01", 50, 0.6))
        plan = feed(tuner, failed("j00"))
        assert (plan.targets, plan.best) == ({"j01": 100}, "j01")

    def test_shorter_jobs_pass_rungs_that_ask_nothing_of_them(self):
        arms = [JobSpec(job_id="a", iterations_total=30), JobSpec(job_id="b", iterations_total=100)]
        tuner = make("asynchronous_halving", arms)
        assert tuner.plan().targets == {"a": 30, "b": 50}
        plan = feed(tuner, reached("a", 30, 0.1), reached("b", 50, 0.2))
        assert (plan.finished, plan.best, plan.stopped) == (True, "a", {"b"})

    def test_rungs_without_iterations_are_merged(self):
        tuner = tuner_of(8, total=3)
        assert tuner.plan().phases == (Phase(jobs=8, iterations=1), Phase(jobs=4, iterations=2))

    @pytest.mark.parametrize("settings", [{"eta": 1}, {"first_iterations": 0}, {"first_iterations": 101}])
    def test_settings_that_cannot_be_used(self, settings):
        with pytest.raises(InputError):
            tuner_of(4, **settings)

    def test_unknown_jobs_are_refused(self):
        with pytest.raises(UnknownNameError):
            tuner_of(2).observe(progress("j99", 1, 1.0))


class TestPlan:
    def test_phases_are_running_jobs_and_planned_promotions(self):
        tuner = tuner_of(4)
        assert tuner.plan().phases == (
            Phase(jobs=4, iterations=25),
            Phase(jobs=2, iterations=25),
            Phase(jobs=1, iterations=50),
        )
        plan = feed(tuner, reached("j00", 25, 0.5), reached("j01", 25, 0.6))
        assert plan.phases == (
            Phase(jobs=3, iterations=25),
            Phase(jobs=1, iterations=25),
            Phase(jobs=1, iterations=50),
        )
        plan = feed(tuner, reached("j00", 50, 0.5), reached("j02", 25, 0.9), reached("j03", 25, 0.4))
        assert plan.targets == {"j03": 50}
        assert plan.phases == (Phase(jobs=1, iterations=25), Phase(jobs=1, iterations=50))

    def test_phase_stays_zero(self):
        """No barrier is passed: jobs of different rungs run at one time."""
        tuner = tuner_of(2)
        assert feed(tuner, reached("j00", 50, 0.5), reached("j01", 50, 0.6)).phase == 0

    def test_leader_is_best_of_highest_rung(self):
        tuner = tuner_of(4)
        assert feed(tuner, progress("j03", 5, 0.9)).best == "j03"
        assert feed(tuner, progress("j02", 5, 0.8)).best == "j02"
        assert feed(tuner, reached("j01", 25, 3.0)).best == "j01"
        assert feed(tuner, reached("j00", 25, 4.0), reached("j01", 50, 9.0)).best == "j01"
