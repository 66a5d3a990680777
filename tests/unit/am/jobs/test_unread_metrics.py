"""A search without metrics is no search, and a job that reports nothing is marked."""

import asyncio
import math

import pytest

from am.app_view import UNKNOWN_PACE_S
from am.log_watch import UNREAD_AFTER_S
from am.master import _outcome
from am.status import job_status
from themis.apps import Estimate, MetricSpec
from themis.lifecycle import AppState, JobState


def test_search_without_a_metric_at_its_target_is_unreadable(attempt):
    one = attempt()
    one.run("j2", "hello", "[10] perplexity of 3")
    assert one.app.search.unreadable == (
        "no metric was read by the target of j2: 2 lines seen, none understood; first line: 'hello';"
        " declare `metric`, print `step=.. loss=..`, or call themis.report"
    )
    assert one.jobs["j2"].state is JobState.PHASE_DONE
    # The tuner has not observed the job, so it promotes none.
    assert len(one.app.search.plan().targets) == 4
    assert one.app.search.best() == ""


def test_search_with_lines_of_any_program_promotes_the_lower_losses(attempt):
    one = attempt()
    for loss, job_id in enumerate(("j3", "j1", "j0", "j2")):
        one.run(job_id, *(f"step={step} loss={loss + 1 / step}" for step in (5, 10)))
    assert set(one.app.search.plan().targets) == {"j3", "j1"}
    assert one.app.search.unreadable == ""


def test_metric_of_mode_max_promotes_the_higher_values_and_shows_them(attempt):
    one = attempt(metric=MetricSpec(name="auc", mode="max"))
    for value, job_id in enumerate(("j3", "j1", "j0", "j2")):
        one.run(job_id, f"step=10 loss={value} auc={value}")
    assert set(one.app.search.plan().targets) == {"j2", "j0"}
    assert job_status(one.app, one.jobs["j2"], one.app.search.plan()).loss == 3.0


def test_unread_declared_metric_makes_the_search_unreadable_although_losses_are_read(attempt):
    one = attempt(metric=MetricSpec(name="auc"))
    one.run("j0", "step=10 loss=0.5")
    assert "1 line seen, no auc yet; first line" in one.app.search.unreadable


def test_losses_that_are_no_numbers_are_read(attempt):
    one = attempt()
    one.run("j0", "step=10 loss=nan")
    assert one.app.search.unreadable == ""


@pytest.mark.parametrize(
    "settings", [{"metric": MetricSpec(wanted=False)}, {"tuner": "single"}, {"tuner": "single", "jobs": ("j0",)}]
)
def test_metric_is_not_missed_where_no_tuner_compares(attempt, settings):
    one = attempt(**settings)
    one.run("j0", "hello")
    assert one.app.search.unreadable == ""


def test_search_without_a_wanted_metric_ends_without_doubt_about_it(attempt):
    one = attempt(tuner="single", iterations=1, jobs=("j0", "j1"), metric=MetricSpec(wanted=False))
    for job_id in ("j0", "j1"):
        one.run(job_id, "hello")
    state, doubts = _outcome(one.app)
    assert state is AppState.FINISHED
    assert "no metric" not in doubts


def test_search_of_jobs_that_run_to_their_end_without_a_metric_fails_with_the_remedy(attempt):
    one = attempt(tuner="single", iterations=1, jobs=("j0", "j1"))
    one.run("j0")
    one.run("j1", "hello")
    assert one.app.search.unreadable == "", "no job is stopped for it"
    assert _outcome(one.app) == (
        AppState.FAILED,
        "no metric was read, so no job is known to be the best: j1: 1 line seen, none understood; first line: 'hello';"
        " declare `metric`, print `step=.. loss=..`, or call themis.report; or write `metric: none`",
    )


def test_one_metric_that_is_read_is_enough(attempt):
    one = attempt(tuner="single", iterations=10, jobs=("j0", "j1"))
    one.run("j0", "hello")
    one.run("j1", "step=10 loss=0.5")
    assert _outcome(one.app)[0] is AppState.FINISHED
    assert one.app.search.best() == "j1"


def test_lone_job_without_a_metric_finishes(attempt):
    one = attempt(tuner="single", iterations=1, jobs=("j0",))
    one.run("j0", "hello")
    assert _outcome(one.app)[0] is AppState.FINISHED


def watched(one, job_id, seconds, *lines):
    async def scenario():
        await one.start(job_id)
        with one.jobs[job_id].log_path.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))
        one.look(seconds)
        health = one.jobs[job_id].health
        one.jobs[job_id].handles[0].end(0)
        await one.ended(job_id)
        return health

    return asyncio.run(scenario())


def test_job_without_pace_and_metric_is_marked_within_a_minute(attempt):
    one = attempt()
    assert UNREAD_AFTER_S < 60
    health = watched(one, "j0", 60, "hello")
    assert health.startswith("pace unknown and no metric: 1 line seen, none understood; first line: 'hello'")
    [(job_id, detail)] = one.details("metric_unread")
    assert (job_id, detail) == ("j0", {"lines_seen": 1, "first_line": "hello"})
    assert not job_status(one.app, one.jobs["j0"], one.app.search.plan()).pace_known


def test_lone_job_of_unknown_pace_is_told_of_the_estimate_and_not_of_the_shells_words(attempt):
    one = attempt(tuner="single", jobs=("j0",))
    health = watched(one, "j0", 60, "Terminated", "hello", "Killed")
    assert health.startswith("pace unknown: 1 line seen, none understood; first line: 'hello'; print `step=")
    assert health.endswith(", or set estimate.serial_iteration_s")


def test_jobs_that_run_to_their_end_are_marked_too(attempt):
    assert watched(attempt(tuner="single"), "j0", 60, "hello").startswith("pace unknown and no metric: 1 line seen")


def test_job_whose_losses_are_read_is_not_told_that_nothing_was_understood(attempt):
    health = watched(attempt(), "j0", 60, "hello", "loss: 0.5")
    assert health.startswith("pace unknown: 2 lines seen, 1 of them with a loss; print a step with each")


def test_job_with_an_estimate_has_a_known_pace(attempt):
    one = attempt(tuner="single", jobs=("j0",), estimate=Estimate(serial_iteration_s=0.1))
    assert watched(one, "j0", 60, "hello") == ""
    assert job_status(one.app, one.jobs["j0"], one.app.search.plan()).pace_known


def test_pace_of_lines_without_times_is_measured_by_reading_them(attempt):
    one = attempt(tuner="single", jobs=("j0",), iterations=100)

    async def scenario():
        await one.start("j0")
        for step in (10, 20, 30, 40):
            with one.jobs["j0"].log_path.open("a") as file:
                file.write(f"step={step} loss=0.5\n")
            one.look(2)
        one.jobs["j0"].handles[0].end(0)
        await one.ended("j0")

    asyncio.run(scenario())
    assert one.jobs["j0"].profile.iteration_s == pytest.approx(0.2)
    assert not math.isnan(one.jobs["j0"].loss)


class TestLimits:
    """A job that passes a limit is stopped, so that it can save, and is not started again."""

    @staticmethod
    def stopped(one, seconds, *lines):
        async def scenario():
            await one.start("j0")
            with one.jobs["j0"].log_path.open("a") as file:
                file.write("".join(f"{line}\n" for line in lines))
            one.look(seconds)
            reason = one.jobs["j0"].stop_reason
            one.jobs["j0"].handles[0].end(75)
            await one.ended("j0")
            return reason

        return asyncio.run(scenario())

    def test_run_time(self, attempt):
        one = attempt(tuner="single", jobs=("j0",), max_runtime_s=20.0)
        assert self.stopped(one, 30) == "it has run for 21 s, job.max_runtime_s is 20"
        assert one.jobs["j0"].state is JobState.FAILED
        assert "job.max_runtime_s is 20" in one.jobs["j0"].diagnostics

    def test_iterations(self, attempt):
        one = attempt(tuner="single", jobs=("j0",), iterations=20, max_iterations=50)
        assert self.stopped(one, 2, "step=50 loss=0.1") == ""
        assert one.jobs["j0"].state is not JobState.FAILED
        assert self.stopped(one, 2, "step=59 loss=0.1") == "it logged iteration 59, job.max_iterations is 50"
        assert one.jobs["j0"].state is JobState.FAILED


def test_job_past_its_target_is_remarked(attempt):
    one = attempt(tuner="single", jobs=("j0",), iterations=20)
    assert "it logs iteration 59, past its target 20" in watched(one, "j0", 2, "step=59 loss=0.1")


def test_job_that_ended_past_its_target_keeps_it(attempt):
    one = attempt(tuner="single", jobs=("j0",), iterations=20)
    watched(one, "j0", 2, "step=300 loss=0.1")
    status = job_status(one.app, one.jobs["j0"], one.app.search.plan())
    assert (status.iteration, status.target_iteration) == (300, 20)


def test_steps_of_a_command_without_iterations_are_no_remark(attempt):
    one = attempt(tuner="single", jobs=("j0",), iterations=1)
    assert watched(one, "j0", 2, "step=59 loss=0.1") == ""
    assert job_status(one.app, one.jobs["j0"], one.app.search.plan()).target_iteration == 59


def test_steps_of_a_command_without_iterations_do_not_make_it_short(attempt):
    one = attempt(tuner="single", jobs=("j0",), iterations=1)

    async def scenario():
        await one.start("j0")
        for step in (10, 20, 30):
            with one.jobs["j0"].log_path.open("a") as file:
                file.write(f"step={step} loss=0.5\n")
            one.look(2)
        work_s = one.app.search.progress()["j0"].serial_iteration_s
        one.jobs["j0"].handles[0].end(0)
        await one.ended("j0")
        return work_s

    assert asyncio.run(scenario()) == UNKNOWN_PACE_S


def test_job_that_had_no_time_to_report_is_not_silent(attempt):
    """Else an app that is new would count as a long one, and wait until all others have ended."""
    one = attempt(tuner="single", jobs=("j0",), iterations=100)

    def silent_after(seconds):
        for _ in range(seconds):
            one.look(1)
        return one.app.search.progress()["j0"].silent

    async def scenario():
        before = one.app.search.progress()["j0"].silent
        await one.start("j0")
        return before, silent_after(40), silent_after(20)

    assert asyncio.run(scenario()) == (False, False, True)
