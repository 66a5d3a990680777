"""Jobs that do not learn: diverged ones are given up, stalled ones start again, and the next attempt knows of it."""

import asyncio
import math

import pytest
from attempt_cases import JOBS, SLOT

from am.jobs.fault_policy import ACT_ON_STALL_S, fault_of
from am.jobs.job_runner import last_line
from am.page.state import page_state
from am.profiler.profile import JobProfile
from am.profiler.records import StepLoss, Validation
from am.runtimes.port import ExitReason
from am.searched_app import PRIOR_RESTART_S
from am.status import job_status
from am.tuners.port import ObservationKind
from themis.cluster import Level
from themis.lifecycle import JobState

STALLED_S = int(ACT_ON_STALL_S) + 5


class TestDivergence:
    def test_a_diverged_job_is_stopped_and_the_worst_to_its_tuner(self, attempt):
        one = attempt()

        async def scenario():
            await one.start("j0")
            one.log("j0", 0.5, 0.4, "nan", "nan")
            await one.ended("j0")

        asyncio.run(scenario())
        job = one.jobs["j0"]
        assert job.state is JobState.FAILED
        assert job.diagnostics == job.health == "its loss is no number since iteration 3"
        assert set(one.app.search.plan().targets) == {"j1", "j2", "j3"}
        assert one.details("job_given_up") == [
            ("j0", {"reason": "its loss is no number since iteration 3", "restarts": 0})
        ]
        assert [job_id for job_id, _ in one.details("job_diverged")] == ["j0"]
        assert one.details("job_restarted") == []

    def test_the_search_goes_on_without_it_and_the_next_attempt_plans_the_same(self, attempt):
        one = attempt()

        async def scenario():
            await one.start(*JOBS)
            one.log("j1", "inf", "nan", "inf")
            await one.ended("j1")
            for job_id, loss in (("j0", 0.3), ("j2", 0.2), ("j3", 0.1)):
                one.log(job_id, loss, first=10)
                for task in one.runtime.running:
                    if task.launch.job_id == job_id:
                        task.end(0)
                await one.ended(job_id)

        asyncio.run(scenario())
        assert set(one.app.search.plan().targets) == {"j2", "j3"}
        failed = [each for each in one.journal.content.observations if each.kind is ObservationKind.FAILED]
        assert failed == []
        other = attempt()
        (failed,) = [each for each in other.journal.content.observations if each.kind is ObservationKind.FAILED]
        assert failed.job_id == "j1"
        assert math.isnan(failed.loss)
        assert other.app.search.plan() == one.app.search.plan()
        assert {job_id: job.state for job_id, job in other.jobs.items()} == {
            job_id: job.state for job_id, job in one.jobs.items()
        }

    @pytest.mark.parametrize("tuner", ["asynchronous_halving", "median_stopping", "hyperband", "performance_curve"])
    def test_every_tuner_goes_on_without_it(self, attempt, tuner):
        one = attempt(tuner=tuner)

        async def scenario():
            await one.start("j0")
            one.log("j0", "nan", "nan")
            await one.ended("j0")

        asyncio.run(scenario())
        plan = one.app.search.plan()
        assert "j0" not in plan.targets
        assert set(plan.targets) == {"j1", "j2", "j3"}

    def test_a_single_loss_that_is_no_number_is_a_batchs_bad_luck(self, attempt):
        one = attempt()

        async def scenario():
            await one.start("j0")
            one.log("j0", 0.5, "nan", 0.4)

        asyncio.run(scenario())
        assert one.jobs["j0"].fault is None
        assert one.jobs["j0"].loss == 0.4

    def test_one_that_is_stopped_for_its_lease_does_not_start_again(self, attempt):
        one = attempt()

        async def scenario():
            await one.start("j0")
            one.runner.stop(one.jobs["j0"], "its GPUs are taken back")
            one.log("j0", "nan", "nan")
            await one.ended("j0")

        asyncio.run(scenario())
        assert one.jobs["j0"].state is JobState.FAILED

    def test_a_held_out_loss_from_before_does_not_hide_it(self, attempt):
        job = attempt().jobs["j0"]
        job.profile.feed(Validation(step=1, loss=0.1, accuracy=0.9))
        assert job.loss == 0.1
        for step in (2, 3):
            job.profile.feed(StepLoss(step=step, loss=math.nan))
        assert math.isnan(job.loss)


class TestTaken:
    def test_a_container_that_the_engine_took_away_does_not_count(self, attempt):
        one = attempt(restarts=0)

        async def scenario():
            await one.start("j0")
            one.jobs["j0"].handles[0].end(-100, ExitReason.TAKEN)
            await one.ended("j0")

        asyncio.run(scenario())
        job = one.jobs["j0"]
        assert (job.state, job.restarts) == (JobState.WAITING, 0)
        reason = "the engine took a container of it away"
        assert one.details("job_restarted") == [("j0", {"reason": reason, "restarts": 0})]
        assert job.health == f"started again: {reason}"


class TestStall:
    def stalled(self, one, *, first=1, seconds=STALLED_S):
        """A job starts, does five iterations, and stands still."""

        async def scenario():
            await one.start("j0")
            for step in range(first, first + 5):
                one.log("j0", 0.5, first=step)
            one.look(seconds)
            await one.ended("j0")

        asyncio.run(scenario())

    def test_it_is_stopped_and_started_again(self, attempt):
        one = attempt()
        self.stalled(one)
        job = one.jobs["j0"]
        assert (job.state, job.restarts, job.stalls) == (JobState.WAITING, 1, 1)
        ((job_id, detail),) = one.details("job_restarted")
        assert (job_id, detail["restarts"]) == ("j0", 1)
        assert detail["reason"].startswith("no iteration for 6")
        assert one.runtime.stops
        assert "j0" in one.app.search.plan().targets
        assert job_status(one.app, job, one.app.search.plan()).health == job.health == detail["reason"]
        assert page_state(one.app, 1).jobs[0].health == job.health

        async def again():
            await one.start("j0")
            one.log("j0", 0.4, first=6)

        asyncio.run(again())
        assert job.state is JobState.RUNNING
        assert job.health == f"started again: {detail['reason']}"
        assert one.details("resize") == []
        # It hung, so the duration of its start is unknown.
        assert one.details("start_cut_short") == []

    def test_one_restart_too_many_and_it_is_given_up(self, attempt):
        one = attempt(restarts=1)
        self.stalled(one)
        self.stalled(one, first=3, seconds=2 * STALLED_S)
        assert one.jobs["j0"].state is JobState.FAILED
        assert one.details("job_given_up")[0][1]["restarts"] == 1
        assert "j0" not in one.app.search.plan().targets

    def test_the_next_attempt_knows_how_often(self, attempt):
        one = attempt()
        self.stalled(one)
        other = attempt()
        assert other.jobs["j0"].restarts == 1
        assert other.jobs["j0"].state is JobState.WAITING
        assert other.app.search.plan() == one.app.search.plan()

    def test_a_program_that_evaluates_silently_at_each_epochs_end_heals_itself(self, attempt):
        one = attempt(restarts=1, tuner="median_stopping", iterations=1000)
        job, ends = one.jobs["j0"], []

        async def epoch(number):
            """Sixty iterations, then seven hundred seconds of evaluation without a word."""
            if not job.handles:
                await one.start("j0")
            for step in range(60 * number, 60 * number + 60):
                one.log("j0", 0.5, first=step)
            for _ in range(700):
                one.look()
                if job.fault is not None:
                    await one.ended("j0")
                    return
            ends.append(number)

        async def scenario():
            for number in (0, 0, 1, 2, 3):
                await epoch(number)

        asyncio.run(scenario())
        assert (ends, job.restarts) == ([0, 1, 2, 3], 1)
        assert len(one.details("job_stalled")) == 2, "when its length was not known yet"

    def test_attempts_that_follow_know_how_long_it_may_take(self, attempt):
        """The same program over attempts of the app master: the doubling goes on, then the length is known."""

        async def epoch(one, number):
            await one.start("j0")
            for step in range(60 * number, 60 * number + 60):
                one.log("j0", 0.5, first=step)
            one.look(700)
            if one.jobs["j0"].fault is not None:
                await one.ended("j0")
                return
            one.log("j0", 0.4, first=60 * number + 60)

        settings = {"restarts": 1, "tuner": "median_stopping", "iterations": 1000}
        first = attempt(**settings)
        asyncio.run(epoch(first, 0))
        assert [job_id for job_id, _ in first.details("job_restarted")] == ["j0"]
        second = attempt(**settings)
        asyncio.run(epoch(second, 0))
        assert second.jobs["j0"].stalls == 1
        assert second.jobs["j0"].fault is None
        assert 700.0 <= second.jobs["j0"].profile.longest_wait_s <= 702.0
        third = attempt(**settings)
        asyncio.run(epoch(third, 1))
        assert third.seen
        assert [kind for kind, *_ in third.seen if kind in ("job_stalled", "job_restarted", "job_given_up")] == []

    def test_waits_that_allow_for_nothing_more_are_not_journaled(self, attempt):
        one = attempt()

        async def scenario():
            await one.start("j0")
            one.log("j0", 0.5)
            counts = []
            for step, seconds in enumerate((5, 15, 30, 31, 40), 2):
                one.look(seconds)
                before = one.job_records()
                one.log("j0", 0.5, first=step)
                counts.append(one.job_records() - before)
            return counts

        assert asyncio.run(scenario()) == [0, 0, 1, 0, 1]

    def test_a_job_without_a_known_pace_is_not_restarted(self, attempt):
        one = attempt()

        async def scenario():
            await one.start("j0")
            one.look(2500)

        asyncio.run(scenario())
        assert [job_id for job_id, _ in one.details("job_stalled")] == ["j0"]
        assert one.jobs["j0"].fault is None
        assert one.runtime.stops == []


def test_no_stall_after_the_last_iteration():
    profile = JobProfile()
    profile.started(1, Level.SLOT)
    for step in range(1, 6):
        profile.feed(StepLoss(step=step, loss=0.5, seconds=1.0))
        profile.look(float(step))
    for second in range(6, 100):
        profile.look(float(second))
    assert profile.stall is not None
    assert fault_of(profile, 6) is None  # The fault is reported, but not handled yet.
    for second in range(100, 606):
        profile.look(float(second))
    assert fault_of(profile, 5) is None
    assert fault_of(profile, 6).reason == "no iteration for 600 s"


def test_s_by_level_is_measured_where_the_job_has_run():
    profile = JobProfile()
    for level, seconds in ((Level.SLOT, 1.0), (Level.RACK, 1.5)):
        profile.started(2, level)
        for _ in range(8):
            profile.feed(StepLoss(step=profile.iteration + 1, loss=0.5, seconds=seconds))
    by_level = {each.level: each for each in profile.slowdown_by_level()}
    assert list(by_level) == ["slot", "machine", "rack", "cluster"]
    assert [each.intervals > 0 for each in by_level.values()] == [True, False, True, False]
    assert (by_level["slot"].factor, by_level["rack"].factor) == (1.0, 1.5)
    assert by_level["cluster"].factor >= 1.5
    assert by_level["machine"].spread == 0.0


class TestAStartThatIsCutShort:
    """Tasks that are stopped before their first step."""

    @staticmethod
    async def cut_short(one, *lines):
        await one.start("j0")
        with one.jobs["j0"].log_path.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        one.look(17)
        one.runner.stop(one.jobs["j0"], "its lease ends")
        await one.ended("j0")

    def test_a_cut_short_start_is_reported_and_raises_the_restart_cost(self, attempt):
        one = attempt()

        async def scenario():
            for _ in range(2):
                await self.cut_short(one, "INFO:themis:imported seconds = 3.000, after = 0.100")
            await one.start("j0")
            one.log("j0", 0.5)

        asyncio.run(scenario())
        assert one.details("start_cut_short") == [("j0", {"incarnation": n, "seconds": 17.0}) for n in (1, 2)]
        assert one.app.restart_s == 17.0
        ((_, resize),) = one.details("resize")
        assert resize["seconds"] == pytest.approx(resize["stop_s"] + 1.0)

    def test_a_program_without_step_logs_has_no_cut_short_starts(self, attempt):
        one = attempt()
        asyncio.run(self.cut_short(one, "training ..", "Saving checkpoint"))
        assert one.details("start_cut_short") == []
        assert one.app.restart_s == PRIOR_RESTART_S[False]

    @staticmethod
    async def stepped_then_stopped(one):
        await one.start("j0")
        one.log("j0", 0.5)
        one.runner.stop(one.jobs["j0"], "its lease ends")
        await one.ended("j0")

    def test_a_program_with_an_earlier_step_can_have_cut_short_starts(self, attempt):
        one = attempt()

        async def scenario():
            await self.stepped_then_stopped(one)
            await self.cut_short(one)

        asyncio.run(scenario())
        assert [detail["incarnation"] for _, detail in one.details("start_cut_short")] == [2]

    def test_a_start_with_a_step_is_not_cut_short(self, attempt):
        one = attempt()
        asyncio.run(self.stepped_then_stopped(one))
        assert one.details("start_cut_short") == []
        assert one.app.restart_s == 1.0


def test_the_restart_mark_in_the_log_is_not_a_last_line(attempt):
    one = attempt()

    async def scenario():
        await one.start("j0")
        one.log("j0", 0.5)
        one.runner.stop(one.jobs["j0"], "its lease ends")
        await one.ended("j0")
        words = last_line(one.jobs["j0"])
        await one.start("j0")
        return words, last_line(one.jobs["j0"])

    assert asyncio.run(scenario()) == ("INFO:tensorflow:loss = 0.5, step = 1 (1.000 sec)", "")
    assert one.jobs["j0"].log_path.read_text().splitlines()[1:] == ["INFO:themis:begun incarnation = 2"]


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("the first's\nINFO:themis:begun incarnation = 3\nits own\n\n", "its own"),
        ("the first's\nINFO:themis:begun incarnation = 3\n \n\n", ""),
        ("INFO:themis:begun incarnation = 2\nthe second's\n", ""),
        ("INFO:themis:begun incarnation = 2  \n", ""),
        ("INFO:themis:begun incarnation = 3\n" + "x\n" * 5000 + "its own", "its own"),
        # No incarnation wrote before it, so the log is not marked.
        ("its own\n", "its own"),
    ],
)
def test_an_incarnations_last_words_lie_behind_its_own_mark(attempt, log, words):
    job = attempt().jobs["j0"]
    job.folder.mkdir(parents=True)
    job.incarnation = 3
    job.log_path.write_text(log)
    assert last_line(job) == words


def test_a_job_that_cannot_start_shows_no_earlier_last_line(attempt, monkeypatch):
    one = attempt(restarts=0)

    async def reserve(requests):
        raise OSError("no such image")

    async def scenario():
        await one.start("j0")
        one.log("j0", 0.5)
        one.runner.stop(one.jobs["j0"], "its lease ends")
        await one.ended("j0")
        monkeypatch.setattr(one.runtime, "reserve", reserve)
        one.runner.start(one.jobs["j0"], (SLOT["j0"],))
        await one.ended("j0")

    asyncio.run(scenario())
    assert one.jobs["j0"].diagnostics == "it could not be started: no such image"
