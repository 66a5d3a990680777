"""What the end of a job's tasks means: an exit code is believed as far as log and checkpoints bear it out."""

import asyncio
import math
import os

import pytest
from attempt_cases import SLOT
from taken_threads import all_common_threads_taken

from am.checkpoints.folder import FolderStore
from am.jobs.gang import PEER_GRACE_S
from am.master import _outcome
from am.runtimes.port import ExitReason
from am.status import finish_message, job_status
from am.tuners.port import ObservationKind
from themis.lifecycle import AppState, JobState

REAL_SLEEP = asyncio.sleep


@pytest.mark.parametrize(("exit_code", "state"), [(0, JobState.PHASE_DONE), (75, JobState.WAITING)])
def test_job_that_ends_by_itself_while_it_is_stopped_is_done(attempt, exit_code, state):
    """A lease ends while the program writes its model: its last word is its exit code, not our wish."""
    one = attempt(tuner="single", iterations=1, jobs=("j0",))

    async def scenario():
        await one.start("j0")
        job = one.jobs["j0"]
        one.runner.stop(job, "its lease ends")
        assert job.state is JobState.CHECKPOINTING
        job.handles[0].end(exit_code)
        await one.ended("j0")

    asyncio.run(scenario())
    assert one.jobs["j0"].state is state


def test_looks_at_checkpoints_have_threads_of_their_own(attempt):
    """The checkpoints may be on HDFS, which may be away."""
    one = attempt(tuner="single", iterations=1, jobs=("j0",))

    async def scenario():
        async with all_common_threads_taken():
            await one.start("j0")
            one.runner.stop(one.jobs["j0"], "its lease ends")
            one.jobs["j0"].handles[0].end(75)
            await one.ended("j0")

    asyncio.run(scenario())
    assert one.jobs["j0"].state is JobState.WAITING


def test_job_that_is_stopped_while_it_waits_for_room_can_start_again(attempt, monkeypatch):
    """Its lease ends before the engine has room for its tasks."""
    one = attempt()
    job = one.jobs["j0"]
    job.folder.mkdir(parents=True)

    async def scenario():
        waits = asyncio.Event()

        async def no_room_yet(requests):
            waits.set()
            await asyncio.Event().wait()

        with monkeypatch.context() as full:
            full.setattr(one.runtime, "reserve", no_room_yet)
            one.runner.start(job, (SLOT["j0"],))
            await waits.wait()
            one.runner.stop(job, "its lease ends")
            await one.ended("j0")
        assert (job.state, job.restarts, one.runner.broken) == (JobState.WAITING, 0, None)
        await one.start("j0")
        assert job.state is JobState.STARTING

    asyncio.run(scenario())


class TestExitCodeZero:
    """An exit code of 0 ends the run, but only log and checkpoints say how far the job came."""

    @staticmethod
    def end(one, job_id="j0", exit_code=0):
        """End the job's only task, and wait until that is settled."""

        async def scenario():
            await one.start(job_id)
            one.jobs[job_id].handles[0].end(exit_code)
            await one.ended(job_id)

        asyncio.run(scenario())
        return one.jobs[job_id]

    @staticmethod
    def logged(one, *lines, job_id="j0"):
        folder = one.jobs[job_id].folder
        folder.mkdir(parents=True, exist_ok=True)
        one.jobs[job_id].log_path.write_text("".join(f"{line}\n" for line in lines))

    def test_job_keeps_the_iteration_that_its_log_reports(self, attempt):
        one = attempt(tuner="single", iterations=1000, jobs=("j0",))
        self.logged(one, "INFO:tensorflow:loss = 0.5, step = 10", "CUDA out of memory")
        job = self.end(one)
        shown = job_status(one.app, job, one.app.search.plan())
        assert (job.state, shown.iteration, shown.target_iteration) == (JobState.PHASE_DONE, 10, 1000)
        assert shown.health == "ended with exit code 0 at iteration 10 of 1000"
        state, doubts = _outcome(one.app)
        assert (state, doubts) == (AppState.FINISHED, f"j0 {shown.health}")
        assert not finish_message(one.app, state, doubts).rho, "its work is not known to be done"

    def test_events_have_the_start_and_the_end(self, attempt):
        one = attempt(tuner="single", iterations=1000, jobs=("j0",), restarts=0)
        job = self.end(one, exit_code=3)
        started, ended, given_up = (one.details(kind) for kind in ("tasks_started", "tasks_ended", "job_given_up"))
        gpus = ["m0/0"]
        assert started == [
            (
                "j0",
                {
                    "incarnation": 1, "gpus": gpus, "tasks": 1, "level": "slot", "iteration": 0, "target": 1000,
                    "pids": [started[0][1]["pids"][0]], "reused": 0, "seconds": {},
                },
            )
        ]  # fmt: skip
        end = {"incarnation": 1, "gpus": gpus, "exit_codes": [3], "requested": False, "iteration": 0}
        assert ended == [("j0", end)]
        assert given_up == [("j0", {"reason": "tasks ended with [3]", "restarts": 0})]
        assert job.state is JobState.FAILED

    def test_job_whose_last_line_is_less_than_a_stride_away_is_at_its_target(self, attempt):
        one = attempt(tuner="single", iterations=1000, jobs=("j0",))
        self.logged(one, *(f"INFO:tensorflow:loss = 0.5, step = {step}" for step in range(0, 1000, 50)))
        job = self.end(one)
        assert (job.profile.iteration, job.health) == (1000, "")
        assert "themis" in finish_message(one.app, AppState.FINISHED, "").rho

    def test_job_one_stride_short_is_short(self, attempt):
        one = attempt(tuner="single", iterations=1001, jobs=("j0",))
        self.logged(one, *(f"INFO:tensorflow:loss = 0.5, step = {step}" for step in range(0, 1000, 50)))
        assert self.end(one).health == "ended with exit code 0 at iteration 950 of 1001"

    def test_checkpoint_at_the_target_is_believed(self, attempt):
        one = attempt(tuner="single", iterations=1000, jobs=("j0",))
        model = one.path.parent / "model"
        model.write_text("x")
        FolderStore(one.path.parent / "checkpoints").save("j0", 1000, {"model": model}, {})
        assert self.end(one).profile.iteration == 1000

    def test_silent_job_has_ended_with_unknown_progress_and_is_never_the_best(self, attempt):
        one = attempt(tuner="single", iterations=1000, jobs=("j0",))
        job = self.end(one)
        assert (job.state, job.profile.iteration) == (JobState.PHASE_DONE, 0)
        assert job.health == "ended with exit code 0, progress unknown"
        assert one.app.search.best() == ""
        assert finish_message(one.app, AppState.FINISHED, "").best == ""

    def test_end_of_a_command_without_iterations_is_its_one_iteration(self, attempt):
        one = attempt(tuner="single", iterations=1, jobs=("j0",))
        job = self.end(one)
        assert (job.profile.iteration, job.health) == (1, "")
        assert one.app.search.best() == ""

    def test_newest_loss_that_is_not_finite_counts_although_it_is_the_only_one(self, attempt):
        one = attempt(tuner="single", iterations=100, jobs=("j0", "j1"))
        lines = [f"INFO:tensorflow:loss = {1 / step}, step = {step}" for step in (10, 20)]
        validation = "INFO:tensorflow:Saving dict for global step 20: global_step = 20, loss = 0.0001"
        self.logged(one, *lines, validation, "INFO:tensorflow:loss = nan, step = 30")
        self.logged(one, *(f"INFO:tensorflow:loss = 0.9, step = {step}" for step in range(10, 101, 10)), job_id="j1")
        job = self.end(one)
        assert math.isnan(job.loss)
        assert not job_status(one.app, job, one.app.search.plan()).has_loss
        self.end(one, "j1")
        assert one.app.search.best() == "j1"

    def test_finite_validation_after_it_makes_up_for_it(self, attempt):
        one = attempt(tuner="single", iterations=30, jobs=("j0",))
        validation = "INFO:tensorflow:Saving dict for global step 30: global_step = 30, loss = 0.2"
        self.logged(one, "INFO:tensorflow:loss = nan, step = 30", validation)
        assert self.end(one).loss == 0.2

    def test_search_without_any_finite_loss_says_that_none_is_the_best(self, attempt):
        one = attempt(tuner="single", iterations=30, jobs=("j0", "j1"))
        self.logged(one, "INFO:tensorflow:loss = nan, step = 30")
        for job_id in ("j0", "j1"):
            self.end(one, job_id)
        assert one.app.search.best() == ""
        state, doubts = _outcome(one.app)
        assert state is AppState.FINISHED
        assert doubts.startswith("the newest loss of j0 is NaN or infinite; it ranks first")

    @pytest.mark.parametrize("jobs", [("j0",), ("j0", "j1")])
    def test_search_that_ends_with_nan_says_so_and_none_is_the_best(self, attempt, jobs):
        one = attempt(tuner="single", iterations=20, jobs=jobs)
        for job_id in jobs:
            self.logged(one, "step=10 loss=0.5", "step=20 loss=nan", job_id=job_id)
            self.end(one, job_id)
        assert one.app.search.best() == ""
        doubt = "the newest loss of j0 is NaN or infinite"
        if len(jobs) > 1:
            doubt += "; it ranks first, so no job is known to be the best"
        assert _outcome(one.app) == (AppState.FINISHED, doubt)

    def test_only_job_that_logs_steps_without_losses_is_the_best(self, attempt):
        one = attempt(tuner="single", iterations=20, jobs=("j0",))
        self.logged(
            one,
            "INFO:tensorflow:global_step/sec: 39.06",
            "INFO:themis:checkpoint iteration = 20, seconds = 1.0, bytes = 1",
        )
        self.end(one)
        assert one.app.search.best() == "j0"
        assert _outcome(one.app) == (AppState.FINISHED, "")

    def test_next_attempt_knows_the_short_end(self, attempt):
        one = attempt(tuner="single", iterations=1000, jobs=("j0", "j1"))
        self.logged(one, "INFO:tensorflow:loss = 0.5, step = 10")
        health = self.end(one).health
        other = attempt(tuner="single", iterations=1000, jobs=("j0", "j1"))
        shown = job_status(other.app, other.jobs["j0"], other.app.search.plan())
        assert (shown.health, shown.iteration, shown.target_iteration) == (health, 10, 1000)
        assert set(other.app.search.plan().targets) == {"j1"}

    def test_search_goes_on_with_it_in_the_next_phase(self, attempt):
        one = attempt()
        for job_id in ("j0", "j1", "j2", "j3"):
            self.logged(one, "INFO:tensorflow:loss = 0.5, step = 4", job_id=job_id)
            self.end(one, job_id)
        assert one.app.search.plan().targets == {"j0": 30, "j1": 30}
        one.app.search.next_phase()

        async def start():
            await one.start("j0")

        asyncio.run(start())
        assert (one.jobs["j0"].short_of, one.jobs["j0"].health) == (0, "")


class TestStopsWithoutCheckpoint:
    """A stop that leaves no newer checkpoint loses a lease's work. The second in a row shows in the job's health."""

    @staticmethod
    def stop(one, *, first=1, save=None):
        """Start j0, let it log five steps, and stop it for its lease. `save` is called while it runs."""

        async def scenario():
            await one.start("j0")
            one.log("j0", *(0.5,) * 5, first=first)
            if save is not None:
                save()
            one.runner.stop(one.jobs["j0"], "its lease ends")
            await one.ended("j0")

        asyncio.run(scenario())
        return one.jobs["j0"]

    def test_it_is_counted_reported_and_shown(self, attempt):
        one = attempt()
        assert self.stop(one).health == ""
        assert self.stop(one).health == (
            "2 stops in a row without a newer checkpoint: it starts from iteration 0 each time; save on SIGTERM, or"
            " more often"
        )
        assert [detail["stops"] for _, detail in one.details("stop_unsaved")] == [1, 2]
        one.jobs["j0"].state = JobState.FINISHED
        assert one.jobs["j0"].health == ""

    def test_next_attempt_counts_on(self, attempt):
        self.stop(attempt())
        other = attempt()
        self.stop(other)
        assert [detail["stops"] for _, detail in other.details("stop_unsaved")] == [2]

    def test_stop_before_the_first_step_is_not_counted(self, attempt):
        """Of a program that logs steps, also if only an earlier attempt has seen some."""

        async def stop_at_once(one):
            await one.start("j0")
            one.runner.stop(one.jobs["j0"], "its lease ends")
            await one.ended("j0")

        one = attempt()
        self.stop(one)
        asyncio.run(stop_at_once(one))
        next_attempt = attempt()
        asyncio.run(stop_at_once(next_attempt))
        for each in (one, next_attempt):
            assert each.jobs["j0"].unsaved_stops == 1
            assert len(each.details("start_cut_short")) == 1

    def test_newer_checkpoint_of_ours_ends_the_count(self, attempt):
        one = attempt()
        self.stop(one)
        model = one.path.parent / "model"
        model.write_text("x")
        store = FolderStore(one.path.parent / "checkpoints")
        assert self.stop(one, save=lambda: store.save("j0", 5, {"model": model}, {})).unsaved_stops == 0
        assert self.stop(one, first=6).unsaved_stops == 1

    def test_new_file_in_the_checkpoint_folder_is_a_checkpoint(self, attempt):
        one = attempt()
        folder = one.path.parent / "checkpoints" / "j0"
        folder.mkdir(parents=True)
        assert self.stop(one, save=lambda: (folder / "model.pt").write_text("x")).unsaved_stops == 0
        assert self.stop(one).unsaved_stops == 1

    def test_stop_that_left_a_new_file_beside_older_ones_is_not_counted(self, attempt):
        one = attempt()
        folder = one.path.parent / "checkpoints" / "j0"
        folder.mkdir(parents=True)
        (folder / "model-1.pt").write_text("x")
        os.utime(folder / "model-1.pt", (1000.0, 1000.0))
        assert self.stop(one).unsaved_stops == 1
        assert self.stop(one, save=lambda: (folder / "model-2.pt").write_text("x")).unsaved_stops == 1

    def test_job_that_goes_on_from_state_elsewhere_ends_the_count_with_its_first_step(self, attempt):
        one = attempt()
        self.stop(one)
        assert self.stop(one, first=6).unsaved_stops == 1

    def test_stop_of_a_loser_does_not_count(self, attempt):
        one = attempt(tuner="single", iterations=5, jobs=("j0",))

        async def scenario():
            await one.start("j0")
            one.runner.stop(one.jobs["j0"], "it lost")
            one.app.search._observe(one.jobs["j0"], ObservationKind.FAILED)
            await one.ended("j0")

        asyncio.run(scenario())
        assert one.details("stop_unsaved") == []


@pytest.fixture
def pauses(monkeypatch):
    """The pauses before restarts, in seconds; none is waited for."""
    waited = []

    async def pause(seconds):
        if seconds > 0.01:
            waited.append(seconds)
        await REAL_SLEEP(0 if seconds > 0.01 else seconds)

    monkeypatch.setattr("am.jobs.job_runner.asyncio.sleep", pause)
    return waited


class TestUnaskedEnds:
    @staticmethod
    async def one_end(one, exit_code, *steps, seconds=0):
        await one.start("j0")
        one.look(seconds)
        for step in steps:
            one.log("j0", 0.5, first=step)
        one.jobs["j0"].handles[0].end(exit_code)
        await one.ended("j0")

    def test_exit_75_again_and_again_is_given_up(self, attempt, pauses):
        one = attempt(restarts=3)

        async def scenario():
            for _ in range(5):
                await self.one_end(one, 75, 1)

        asyncio.run(scenario())
        job = one.jobs["j0"]
        # The first one got further than before, so it does not count. The other four do.
        assert (job.state, job.restarts) == (JobState.FAILED, 3)
        assert pauses == [0.25, 0.5, 1.0, 2.0]

    def test_exit_75_after_each_step_waits_longer_each_time(self, attempt, pauses):
        one = attempt(restarts=0)

        async def scenario():
            for step in range(1, 10):
                await self.one_end(one, 75, step)

        asyncio.run(scenario())
        assert one.jobs["j0"].restarts == 0
        assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]

    def test_exit_75_with_progress_does_not_count(self, attempt, pauses):
        one = attempt(restarts=0)

        async def scenario():
            for step in range(1, 6):
                await self.one_end(one, 75, step, seconds=31)

        asyncio.run(scenario())
        assert (one.jobs["j0"].state, one.jobs["j0"].restarts) == (JobState.WAITING, 0)
        assert [detail["reason"] for _, detail in one.details("job_restarted")] == [
            "it ended unasked with exit code 75, but further than before"
        ] * 5
        assert pauses == [0.25] * 5

    def test_engine_that_takes_containers_away_waits_longer_each_time(self, attempt, pauses):
        one = attempt(restarts=0)

        async def scenario():
            for _ in range(9):
                await one.start("j0")
                one.jobs["j0"].handles[0].end(-100, ExitReason.TAKEN)
                await one.ended("j0")

        asyncio.run(scenario())
        assert one.jobs["j0"].restarts == 0
        assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]

    @pytest.mark.parametrize(
        ("seconds", "steps", "state"),
        [(0, (), JobState.FAILED), (31, (), JobState.WAITING), (0, (1,), JobState.WAITING)],
    )
    def test_exit_2_is_usage_only_at_once_and_without_progress(self, attempt, pauses, seconds, steps, state):
        one = attempt()

        async def scenario():
            await one.start("j0")
            one.look(seconds)
            for step in steps:
                one.log("j0", 0.5, first=step)
            one.jobs["j0"].handles[0].end(2)
            await one.ended("j0")

        asyncio.run(scenario())
        assert one.jobs["j0"].state is state


class TestGangOfWhichOneTaskEnds:
    @staticmethod
    def run(one, task_index, *steps):
        """A gang of two, one of whose tasks ends with 0. Meanwhile the chief logs its steps, one each 20 ms."""

        async def scenario():
            await one.start("j0")
            if task_index == 0:
                for step in steps:
                    one.log("j0", 0.5, first=step)
            one.jobs["j0"].handles[task_index].end(0)
            if task_index == 1:
                for step in steps:
                    await REAL_SLEEP(0.02)
                    one.log("j0", 0.5, first=step)
                if steps:
                    one.jobs["j0"].handles[0].end(0)
            await one.ended("j0")

        asyncio.run(scenario())
        return one.jobs["j0"]

    def test_job_is_done_although_a_peer_of_its_chief_never_ends(self, attempt):
        one = attempt(tuner="single", iterations=3, jobs=("j0",), tasks=2, peer_wait_s=0.05)
        job = self.run(one, 0, 1, 2, 3)
        assert (job.state, job.restarts) == (JobState.PHASE_DONE, 0)
        assert one.runtime.stops == [(2, PEER_GRACE_S)]
        assert one.app.search.plan().finished

    def test_chief_that_makes_no_progress_after_its_peer_ended_is_a_failure(self, attempt, pauses):
        one = attempt(tuner="single", iterations=3, jobs=("j0",), tasks=2, peer_wait_s=0.05)
        job = self.run(one, 1)
        assert (job.state, job.restarts) == (JobState.WAITING, 1)
        assert job.health == ("started again: a task ended with 0, and the others made no progress in the next 0.05 s")

    @pytest.mark.parametrize("other", [-15, 75])
    def test_gang_of_which_one_task_says_usage_is_not_started_again(self, attempt, pauses, other):
        """The other one ends by the signal that stops the gang, or saves first."""
        one = attempt(tuner="single", iterations=3, jobs=("j0",), tasks=2)

        async def scenario():
            await one.start("j0")
            for handle, exit_code in zip(one.jobs["j0"].handles, (2, other), strict=True):
                handle.end(exit_code)
            await one.ended("j0")

        asyncio.run(scenario())
        assert (one.jobs["j0"].state, one.jobs["j0"].restarts) == (JobState.FAILED, 0)

    def test_chief_that_makes_progress_is_waited_for(self, attempt):
        one = attempt(tuner="single", iterations=20, jobs=("j0",), tasks=2, peer_wait_s=0.1)
        job = self.run(one, 1, *range(1, 21))
        assert (job.state, job.restarts, one.runtime.stops) == (JobState.PHASE_DONE, 0, [])


class TestDivergenceInTheLastWords:
    def test_two_losses_that_are_no_number_count_although_the_tasks_have_ended(self, attempt):
        one = attempt(tuner="single", jobs=("j0",), iterations=1000)

        async def scenario():
            await one.start("j0")
            with one.jobs["j0"].log_path.open("a") as file:
                for loss, step in ((1.8, 100), ("NaN", 200), ("NaN", 300)):
                    file.write(f"INFO:tensorflow:loss = {loss}, step = {step}\n")
            one.jobs["j0"].handles[0].end(1)
            await one.ended("j0")

        asyncio.run(scenario())
        job = one.jobs["j0"]
        assert (job.state, job.restarts) == (JobState.FAILED, 0)
        assert "its loss is no number since iteration" in job.diagnostics
        assert math.isnan(job.loss)

    def test_programs_own_word_is_enough(self, attempt):
        one = attempt(tuner="single", jobs=("j0",), iterations=1000)

        async def scenario():
            await one.start("j0")
            with one.jobs["j0"].log_path.open("a") as file:
                file.write("INFO:tensorflow:loss = 1.8, step = 100\nERROR:tensorflow:Model diverged with loss = NaN.\n")
            one.jobs["j0"].handles[0].end(1)
            await one.ended("j0")

        asyncio.run(scenario())
        assert one.details("job_given_up") == [
            ("j0", {"reason": "its loss is no number since iteration 100", "restarts": 0})
        ]


def test_chief_that_waits_for_room_for_its_model_is_waited_for(attempt):
    one = attempt(tuner="single", iterations=3, jobs=("j0",), tasks=2, peer_wait_s=0.1)

    async def scenario():
        await one.start("j0")
        one.log("j0", 0.5, first=3)
        one.jobs["j0"].handles[1].end(0)
        for _ in range(20):
            await REAL_SLEEP(0.02)
            with one.jobs["j0"].log_path.open("a") as file:
                file.write("INFO:themis:unsaved iteration = 3, reason = No space left on device\n")
            one.look()
        one.jobs["j0"].handles[0].end(0)
        await one.ended("j0")

    asyncio.run(scenario())
    assert (one.jobs["j0"].state, one.runtime.stops) == (JobState.PHASE_DONE, [])
