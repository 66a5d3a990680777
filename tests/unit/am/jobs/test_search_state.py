"""The state of a search: phases, losers, the app's work, and taking up a journal at any line."""

import asyncio
import math
import random
import shutil

import pytest
from msgspec.structs import replace

from am.jobs.search_state import SearchState
from am.journal import Journal
from am.profiler.records import StepLoss
from themis.apps import AppSpec, Estimate, JobSpec, ProgramSpec, TunerSpec
from themis.cluster import Cluster, DeviceType, GpuId, Level, Machine
from themis.errors import InvariantError
from themis.lifecycle import JOB_LIFECYCLE, JobState
from themis.speeds import SAME_SPEED

PHASES = "4x10,2x20,1x30"


def spec(jobs=4, *, tuner="successive_halving", serial_s=2.0, replay=False, **changes):
    settings = {"phases": PHASES} if tuner == "successive_halving" else {}
    return AppSpec(
        **{
            "name": "a",
            "tuner": TunerSpec(name=tuner, settings=settings),
            "program": ProgramSpec(name="p"),
            "jobs": tuple(JobSpec(job_id=f"j{place}", iterations_total=60) for place in range(jobs)),
            "estimate": Estimate(serial_iteration_s=serial_s),
            "replay": replay,
            **changes,
        }
    )


class Bench:
    """A search state with its journal in a folder; `reopen` makes the next attempt's."""

    def __init__(self, folder, app=None, time_scale=1.0):
        self.folder, self.app, self.time_scale = folder, app or spec(), time_scale
        self.saved = {}
        self.open()

    def open(self):
        self.journal = Journal(self.folder / "journal.jsonl")
        self.search = SearchState(self.app, self.folder, self.time_scale, self.journal, self.saved.get)

    def reopen(self):
        self.journal.close()
        self.open()

    def states(self):
        return {job_id: job.state for job_id, job in self.search.jobs.items()}

    def start(self, job_id):
        job = self.search.jobs[job_id]
        job.gpus = (GpuId("m", int(job_id[1:])),)
        job.incarnation += 1
        self.search.turn(job, JobState.STARTING)
        self.search.turn(job, JobState.RUNNING)
        return job

    def reach(self, job_id, loss=0.5):
        job = self.search.jobs[job_id]
        job.profile.feed(StepLoss(step=self.search.plan().targets[job_id], loss=loss))
        job.gpus = ()
        self.search.target_reached(job)

    def run_phase(self, losses):
        for job_id in sorted(self.search.plan().targets):
            self.start(job_id)
        for job_id in sorted(self.search.plan().targets):
            self.reach(job_id, losses[job_id])

    def measure(self, job_id, iteration_s, steps=8):
        """Let the job log steps at this pace on one GPU."""
        job = self.search.jobs[job_id]
        job.profile.started(1, Level.SLOT)
        done = job.profile.iteration
        for step in range(done + 1, done + 1 + steps):
            job.profile.feed(StepLoss(step=step, loss=1.0, seconds=iteration_s))


@pytest.fixture
def bench(tmp_path):
    made = []

    def make(*arguments, **changes):
        made.append(Bench(tmp_path, *arguments, **changes))
        return made[-1]

    yield make
    for each in made:
        each.journal.close()


LOSSES = {"j0": 0.4, "j1": 0.1, "j2": 0.3, "j3": 0.2}


class TestPhases:
    def test_everything_waits_at_first(self, bench):
        one = bench()
        assert set(one.states().values()) == {JobState.WAITING}
        assert one.search.plan().targets == dict.fromkeys(one.states(), 10)
        assert one.search.done_share() == 0.0
        assert [phase.jobs for phase in one.search.first_phases] == [4, 2, 1]

    def test_losers_stop_and_winners_go_on(self, bench):
        one = bench()
        one.run_phase(LOSSES)
        assert one.search.plan().targets == {"j1": 30, "j3": 30}
        assert one.search.settle_losers() == []
        one.search.next_phase()
        assert one.states() == {
            "j0": JobState.STOPPED,
            "j1": JobState.WAITING,
            "j2": JobState.STOPPED,
            "j3": JobState.WAITING,
        }
        assert one.search.settle_losers() == []

    def test_the_tuner_is_asked_for_its_plan_once_for_each_observation(self, bench, monkeypatch):
        one = bench()
        asked = []
        plan = one.search.tuner.plan
        monkeypatch.setattr(one.search.tuner, "plan", lambda: asked.append(None) or plan())
        for place, job_id in enumerate(LOSSES, 1):
            one.start(job_id)
            one.reach(job_id, LOSSES[job_id])
            one.search.done_share()
            assert len(asked) == place
            assert one.search.plan() == plan()

    def test_search_whose_jobs_all_failed_is_not_done_and_the_next_attempt_knows_why(self, bench):
        one = bench(spec(1, tuner="single"))
        job = one.start("j0")
        job.profile.feed(StepLoss(step=15, loss=1.0))
        one.search.failed(job, "tasks ended with [3]")
        assert one.search.plan().finished
        assert one.search.done_share() == 0.25
        one.saved["j0"] = 15
        one.reopen()
        assert one.states() == {"j0": JobState.FAILED}
        assert one.search.jobs["j0"].diagnostics == "tasks ended with [3]"
        assert one.search.done_share() == 0.25

    def test_losers_count_as_done_and_failed_jobs_do_not(self, bench):
        one = bench()
        one.start("j0").profile.feed(StepLoss(step=4, loss=1.0))
        assert one.search.target_of(one.search.jobs["j0"], one.search.plan()) == 10
        one.search.failed(one.search.jobs["j0"], "it crashed")
        for job_id in ("j1", "j2", "j3"):
            one.start(job_id)
            one.reach(job_id, LOSSES[job_id])
        one.search.settle_losers()
        reported = {job_id: one.search.target_of(job, one.search.plan()) for job_id, job in one.search.jobs.items()}
        assert reported["j0"] == 60
        assert sorted(reported[job_id] for job_id in ("j1", "j2", "j3")) == [10, 30, 30]

    def test_a_running_loser_is_listed_until_it_stops(self, bench):
        one = bench()
        for job_id in "j0", "j1", "j2", "j3":
            one.start(job_id)
        for job_id in "j1", "j3", "j0":
            one.reach(job_id, LOSSES[job_id])
        late = one.search.jobs["j2"]
        late.profile.feed(StepLoss(step=10, loss=0.9))
        one.search.target_reached(late)
        assert late.state is JobState.PHASE_DONE
        assert one.search.settle_losers() == [late]
        late.gpus = ()
        assert one.search.settle_losers() == []
        assert late.state is JobState.STOPPED

    def test_the_whole_search(self, bench):
        one = bench()
        while not one.search.plan().finished:
            one.search.next_phase()
            one.run_phase(LOSSES)
            one.search.settle_losers()
        assert one.search.plan().best == "j1"
        one.search.finish(JobState.STOPPED)
        assert one.states() == {
            "j0": JobState.STOPPED,
            "j1": JobState.FINISHED,
            "j2": JobState.STOPPED,
            "j3": JobState.STOPPED,
        }
        assert one.search.done_share() == 1.0

    def test_a_failed_job_gives_its_place_to_a_loser(self, bench):
        one = bench()
        one.start("j1")
        one.search.failed(one.search.jobs["j1"], "it broke")
        for job_id in "j0", "j2", "j3":
            one.start(job_id)
            one.reach(job_id, LOSSES[job_id])
        assert set(one.search.plan().targets) == {"j2", "j3"}
        assert one.search.jobs["j1"].diagnostics == "it broke"
        one.search.finish(JobState.KILLED)
        assert one.states()["j1"] is JobState.FAILED

    def test_a_loser_is_reinstated_if_all_survivors_fail(self, bench):
        one = bench()
        one.run_phase(LOSSES)
        one.search.settle_losers()
        one.search.next_phase()
        for job_id in "j1", "j3":
            one.start(job_id).gpus = ()
            one.search.failed(one.search.jobs[job_id], "it broke")
        assert one.search.settle_losers() == []
        one.search.next_phase()
        assert (one.states()["j0"], one.states()["j2"]) == (JobState.STOPPED, JobState.WAITING)
        one.reopen()
        while not one.search.plan().finished:
            one.search.next_phase()
            one.run_phase(LOSSES)
        one.search.finish(JobState.STOPPED)
        assert one.search.plan().best == "j2"
        assert (one.states()["j0"], one.states()["j2"]) == (JobState.STOPPED, JobState.FINISHED)

    def test_a_killed_search_leaves_its_losers_stopped(self, bench):
        one = bench()
        one.run_phase(LOSSES)
        one.search.finish(JobState.KILLED)
        assert [one.states()[job_id] for job_id in ("j0", "j2")] == [JobState.STOPPED] * 2

    def test_every_transition_is_reported_and_journalled(self, bench):
        one = bench()
        seen = []
        one.search.on_turn = lambda job: seen.append((job.job_id, job.state))
        one.start("j2")
        assert seen == [("j2", JobState.STARTING), ("j2", JobState.RUNNING)]
        one.reopen()
        assert one.journal.content.jobs["j2"].state is JobState.RUNNING

    def test_a_step_that_no_job_can_take_is_a_defect(self, bench):
        one = bench()
        with pytest.raises(InvariantError):
            one.search.turn(one.search.jobs["j0"], JobState.RUNNING)


class TestWork:
    """B in GPU seconds: 4 jobs * 10 + 2 * 20 + 1 * 30 iterations = 110."""

    def test_it_is_estimated_at_submission(self, bench):
        assert bench().search.work_total_gpu_s == 110 * 2.0

    def test_a_replay_divides_its_work_by_the_time_scale(self, bench):
        assert bench(spec(replay=True), time_scale=4.0).search.work_total_gpu_s == 110 * 0.5

    def test_but_training_does_not(self, bench):
        assert bench(time_scale=4.0).search.work_total_gpu_s == 110 * 2.0

    def test_the_first_measured_pace_fixes_it_and_from_then_on_it_only_grows(self, bench):
        one = bench()
        one.measure("j0", 1.0)
        one.search.remeasure()
        first = one.search.work_total_gpu_s
        assert first < 220.0
        seen = [first]
        for job_id, pace in [("j1", 0.5), ("j2", 3.0), ("j3", 0.1), ("j1", 9.0), ("j0", 20.0)]:
            one.measure(job_id, pace, steps=30)
            one.search.remeasure()
            seen.append(one.search.work_total_gpu_s)
        assert seen == sorted(seen)
        assert seen[-1] > 1.05 * first

    def test_noise_does_not_make_it_creep(self, bench):
        one = bench(spec(1, tuner="single"))
        one.measure("j0", 1.0)
        one.search.remeasure()
        first = one.search.work_total_gpu_s
        for pace in (1.01, 1.02, 1.03, 1.04):
            one.measure("j0", pace, steps=2)
            one.search.remeasure()
        assert one.search.work_total_gpu_s == first

    def test_it_outlives_the_app_master(self, bench):
        one = bench()
        one.measure("j0", 5.0)
        one.search.remeasure()
        before = one.search.work_total_gpu_s
        assert before > 220.0
        one.reopen()
        assert one.search.work_total_gpu_s == before
        one.measure("j0", 0.01)
        one.search.remeasure()
        assert one.search.work_total_gpu_s == before

    def test_nothing_is_left_of_a_job_past_its_target(self, bench):
        one = bench(spec(jobs=1, tuner="single"))
        one.start("j0")
        one.search.jobs["j0"].profile.feed(StepLoss(step=150, loss=0.5))
        assert not one.search.plan().finished
        assert one.search.done_share() == 1.0

    def test_steps_of_a_job_without_a_length_are_no_work_done(self, bench):
        """Its length is 1, and its log counts other iterations. It has work left while it runs."""
        one = bench(replace(spec(tuner="single"), jobs=(JobSpec(job_id="j0", iterations_total=1),)))
        one.start("j0")
        one.search.jobs["j0"].profile.feed(StepLoss(step=150, loss=0.5))
        assert one.search.done_share() < 1.0

    def test_the_share_done_grows_to_one(self, bench):
        one = bench()
        shares = [one.search.done_share()]
        while not one.search.plan().finished:
            one.search.next_phase()
            for job_id in sorted(one.search.plan().targets):
                one.start(job_id)
                one.reach(job_id, LOSSES[job_id])
                shares.append(one.search.done_share())
            one.search.settle_losers()
        assert shares == sorted(shares)
        assert shares[-1] == 1.0


# ---- the next attempt -----------------------------------------------------------------------------------------------

_HELD = (JobState.STARTING, JobState.RUNNING, JobState.CHECKPOINTING)


def search(one, rng, steps):
    """Random steps that an app master could take; `steps` is called before each line of the journal."""
    write = one.journal._append
    one.journal._append = lambda line: (steps(), write(line))
    search = one.search
    for _ in range(60):
        if search.plan().finished:
            break
        search.settle_losers()
        search.next_phase()
        job = search.jobs[rng.choice(sorted(search.plan().targets))]
        if job.state is JobState.WAITING:
            one.start(job.job_id)
        elif rng.random() < 0.5:
            one.reach(job.job_id, rng.choice([rng.random(), math.nan]))
        elif rng.random() < 0.3:
            job.gpus = ()
            job.restarts += 1
            search.turn(job, JobState.WAITING)
        elif rng.random() < 0.3:
            job.gpus = ()
            search.failed(job, "it broke")
        else:
            job.profile.feed(StepLoss(step=job.profile.iteration + 1, loss=rng.random()))
            search.progressed(job)
    for job in search.jobs.values():
        job.gpus = ()
    search.finish(rng.choice([JobState.KILLED, JobState.STOPPED]))
    steps()


TYPES = Cluster(
    name="two types",
    machines=(
        Machine(machine_id="k", rack_id="r", slots=(1,), device="k80"),
        Machine(machine_id="v", rack_id="r", slots=(1,), device="v100"),
    ),
    devices={"k80": DeviceType(name="k80"), "v100": DeviceType(name="v100", speed=9.0)},
)


def run_on(job, device, iteration_s, lines=5):
    """A job starts on a type and logs, a line every 10 iterations."""
    job.profile.started(1, Level.SLOT, device)
    begun = job.profile.iteration
    for line in range(1, lines + 1):
        job.profile.feed(StepLoss(step=begun + 10 * line, loss=1.0, seconds=10 * iteration_s if line > 1 else None))


def test_jobs_that_wait_assume_the_speeds_that_another_job_measured(tmp_path):
    search = Bench(tmp_path).search
    search.fit_cluster(TYPES)
    run_on(search.jobs["j0"], "k80", 0.6)
    search.progressed(search.jobs["j0"])
    assert [job.profile.speeds().on("v100") for job in search.jobs.values()] == [9.0] * 4
    run_on(search.jobs["j0"], "v100", 0.2)
    search.progressed(search.jobs["j0"])
    assert [job.profile.speeds().on("v100") for job in search.jobs.values()] == pytest.approx([3.0] * 4)
    search.fit_cluster(TYPES)
    assert [job.profile.speeds().on("v100") for job in search.jobs.values()] == pytest.approx([3.0] * 4)


def test_speed_that_a_job_measured_replaces_that_of_types_said_to_be_alike(tmp_path):
    alike = replace(TYPES, devices={name: DeviceType(name=name) for name in TYPES.devices})
    search = Bench(tmp_path).search
    search.fit_cluster(alike)
    assert [job.profile.speeds().on("v100") for job in search.jobs.values()] == [1.0] * 4
    run_on(search.jobs["j0"], "k80", 0.6)
    search.progressed(search.jobs["j0"])
    run_on(search.jobs["j0"], "v100", 0.2)
    search.progressed(search.jobs["j0"])
    for job in search.jobs.values():
        assert [job.profile.speeds().on(name) for name in ("k80", "v100")] == pytest.approx([1.0, 3.0])


def test_on_one_type_no_speed_names_it(tmp_path):
    search = Bench(tmp_path).search
    search.fit_cluster(Cluster(name="one", machines=TYPES.machines[:1], devices=TYPES.devices))
    assert {job.profile.speeds() for job in search.jobs.values()} == {SAME_SPEED}


def test_jobs_that_wait_assume_the_pace_that_another_job_measured_also_on_one_type(tmp_path):
    """Their user states 2 s an iteration; it takes 0.5 s."""
    search = Bench(tmp_path).search
    run_on(search.jobs["j1"], "", 0.5, lines=2)
    search.progressed(search.jobs["j1"])
    assert {job.serial_iteration_s for job in search.progress().values()} == {0.5, 2.0}
    run_on(search.jobs["j1"], "", 0.5, lines=3)
    search.progressed(search.jobs["j1"])
    assert [job.serial_iteration_s for job in search.progress().values()] == [0.5] * 4
    # j1 is past its target: it has done 50 iterations and counts 1 left; the others have 30, later phases 70.
    assert search.work_total_gpu_s == (50 + 1 + 30 + 70) * 0.5


def test_a_silent_job_and_one_without_a_length_take_no_pace_from_others(tmp_path):
    jobs = spec().jobs
    app = replace(spec(), jobs=(*jobs[:3], replace(jobs[3], iterations_total=1)), estimate=Estimate())
    search = Bench(tmp_path, replace(app, tuner=TunerSpec(name="single"))).search
    silent = search.jobs["j1"].profile
    silent.started(1, Level.SLOT)
    for now_s in range(0, 300, 10):
        silent.look(float(now_s))
    run_on(search.jobs["j0"], "", 0.5)
    search.progressed(search.jobs["j0"])
    progress = search.progress()
    assert [progress[job_id].serial_iteration_s for job_id in ("j0", "j1", "j2", "j3")] == [0.5, 1440.0, 0.5, 600.0]
    assert [progress[job_id].pace_known for job_id in ("j0", "j1", "j2", "j3")] == [True, False, False, False]


def test_jobs_that_ended_say_what_silent_ones_of_their_app_will_take(tmp_path):
    app = spec(tuner="single", estimate=Estimate())
    one = Bench(tmp_path, replace(app, jobs=tuple(replace(job, iterations_total=1) for job in app.jobs)))

    def run_for(job_id, seconds):
        profile = one.start(job_id).profile
        profile.started(1, Level.SLOT)
        for now_s in range(0, seconds + 1, 5):
            profile.look(float(now_s))

    assert all(job.pace_guessed for job in one.search.progress().values())
    for job_id, seconds in (("j0", 20), ("j1", 40), ("j2", 25)):
        run_for(job_id, seconds)
    for job_id in ("j0", "j1"):
        one.search.jobs[job_id].gpus = ()
        one.search.target_reached(one.search.jobs[job_id])
    progress = one.search.progress()
    # The third has run for twice 25 s already, the fourth waits.
    assert [progress[job_id].serial_iteration_s for job_id in ("j0", "j1", "j2", "j3")] == [20.0, 40.0, 50.0, 30.0]
    assert not any(job.pace_guessed for job in progress.values())
    assert one.search.work_total_gpu_s == 20 + 40 + 50 + 30

    # One that has run for twice as long as they did is unlike them.
    for now_s in range(30, 71, 5):
        one.search.jobs["j2"].profile.look(float(now_s))
    progress = one.search.progress()
    assert [progress[job_id].pace_guessed for job_id in ("j2", "j3")] == [True, False]
    assert progress["j2"].serial_iteration_s == 86_400.0


def test_steps_of_an_ended_job_without_a_length_say_nothing_of_its_siblings(tmp_path):
    app = spec(tuner="single", estimate=Estimate())
    one = Bench(tmp_path, replace(app, jobs=tuple(replace(job, iterations_total=1) for job in app.jobs)))
    job = one.start("j0")
    run_on(job, "", 0.5, lines=100)
    for now_s in range(0, 61, 5):
        job.profile.look(float(now_s))
    job.gpus = ()
    one.search.target_reached(job)
    progress = one.search.progress()
    assert [progress[job_id].serial_iteration_s for job_id in ("j0", "j1")] == [60.0, 60.0]


@pytest.mark.parametrize(("lease_s", "silent_from_s"), [(20.0, 10), (600.0, 45)])
def test_a_job_is_silent_after_half_a_lease_at_most(bench, lease_s, silent_from_s):
    one = bench(replace(spec(), estimate=Estimate()))
    one.search.lease_s = lease_s
    profile = one.search.jobs["j0"].profile
    profile.started(1, Level.SLOT)
    seen = []
    for now_s in range(60):
        profile.look(float(now_s))
        seen.append(one.search.progress()["j0"].silent)
    assert seen.index(True) == silent_from_s + 1


def test_a_job_that_states_other_speeds_keeps_them(tmp_path):
    jobs = spec().jobs
    other = replace(jobs[3], speed_by_device={"v100": 5.0})
    search = Bench(tmp_path, replace(spec(), jobs=(*jobs[:3], other))).search
    search.fit_cluster(TYPES)
    for device, iteration_s in (("k80", 0.6), ("v100", 0.2)):
        run_on(search.jobs["j0"], device, iteration_s)
    search.progressed(search.jobs["j0"])
    assert search.jobs["j1"].profile.speeds().on("v100") == pytest.approx(3.0)
    assert search.jobs["j3"].profile.speeds().on("v100") == 5.0


def test_a_job_that_measured_its_own_speeds_keeps_them(tmp_path):
    search = Bench(tmp_path).search
    search.fit_cluster(TYPES)
    for job_id, fast_s in (("j0", 0.2), ("j1", 0.3)):
        run_on(search.jobs[job_id], "k80", 0.6)
        run_on(search.jobs[job_id], "v100", fast_s)
        search.progressed(search.jobs[job_id])
    speeds = {job_id: job.profile.speeds().on("v100") for job_id, job in search.jobs.items()}
    assert speeds == pytest.approx({"j0": 3.0, "j1": 2.0, "j2": 3.0, "j3": 3.0})


def paces(search):
    """Seconds an iteration by job and type, S and samples of each job."""
    progress = search.progress()
    views = {job_id: job.view_with(job.iterations_total) for job_id, job in progress.items()}
    return {
        job_id: (view.serial_iteration_s, view.speeds, view.slowdown, view.samples, view.measured)
        for job_id, view in views.items()
    }


@pytest.mark.parametrize("iterations", [60, 1000])
def test_the_next_attempt_knows_every_pace_that_was_measured(bench, iterations):
    """Also of the jobs that took it over. A job of 1000 iterations has samples of 10 and 20 on each type."""
    jobs = tuple(replace(job, iterations_total=iterations) for job in spec().jobs)
    one = bench(replace(spec(), jobs=jobs))
    one.search.fit_cluster(TYPES)
    for device, iteration_s in (("k80", 0.6), ("v100", 0.2)):
        run_on(one.search.jobs["j1"], device, iteration_s)
        one.search.progressed(one.search.jobs["j1"])
        one.search.keep_measurements(one.search.jobs["j1"])
    before = paces(one.search)
    assert before["j2"][:2] == (pytest.approx(0.6), before["j1"][1])
    assert [len(measured[3]) for measured in before.values()] == [0, 2, 0, 0]
    one.reopen()
    one.search.fit_cluster(TYPES)
    assert paces(one.search) == before


def test_newer_intervals_replace_the_pace_of_an_earlier_attempt(bench):
    one = bench()
    run_on(one.search.jobs["j0"], "", 0.5)
    one.search.keep_measurements(one.search.jobs["j0"])
    one.reopen()
    profile = one.search.jobs["j0"].profile
    run_on(one.search.jobs["j0"], "", 0.1, lines=3)
    assert profile.iteration_s == 0.5
    run_on(one.search.jobs["j0"], "", 0.1, lines=5)
    assert profile.iteration_s == pytest.approx(0.1)


def test_a_pace_is_journaled_when_it_is_new_or_changed_by_a_tenth(bench):
    one = bench()
    lines = []
    write = one.journal._append
    one.journal._append = lambda line: (lines.append(line) if "measured" in line else None, write(line))
    for iteration_s, total in ((0.5, 1), (0.52, 1), (0.3, 2)):
        run_on(one.search.jobs["j0"], "", iteration_s, lines=60)
        one.search.keep_measurements(one.search.jobs["j0"])
        assert len(lines) == total
    run_on(one.search.jobs["j1"], "", 0.5, lines=3)
    one.search.keep_measurements(one.search.jobs["j1"])
    assert len(lines) == total


def test_a_pace_that_swings_for_months_takes_few_lines_of_the_journal(bench):
    """A line for each change would grow with the job's time. After a line the job must be a tenth further."""
    one = bench()
    lines = []
    one.journal._append = lines.append
    job = one.search.jobs["j0"]
    for turn in range(200):
        run_on(job, "", (0.5, 0.1)[turn % 2], lines=60)
        one.search.keep_measurements(job)
    assert 10 < len(lines) < 60
    # The newest line is about as new as the job is long.
    assert lines[-1]["measured"]["iteration"] > 0.8 * job.profile.iteration


def test_a_silent_job_is_silent_in_the_next_attempt_too(bench):
    one = bench(replace(spec(), estimate=Estimate()))
    profile = one.search.jobs["j0"].profile
    profile.started(2, Level.SLOT)
    for now_s in range(0, 100, 5):
        profile.look(float(now_s))
        one.search.keep_measurements(one.search.jobs["j0"])
    assert one.search.progress()["j0"].silent
    one.reopen()
    assert one.search.jobs["j0"].profile.ran_gpu_s > 0.8 * profile.ran_gpu_s
    assert one.search.progress()["j0"].silent


def test_pace_that_the_log_showed_before_the_app_master_died_is_known_to_the_next(attempt):
    async def run(one):
        await one.start("j0")
        one.log("j0", *[0.5] * 6)

    asyncio.run(run(attempt()))
    profile = attempt().jobs["j0"].profile
    assert profile.serial_iteration_s == pytest.approx(1.0)


def facts(search):
    plan = search.plan()
    return plan.phase, plan.phases, dict(plan.targets), plan.stopped, plan.finished, plan.best


def go_on(search):
    """What an app master does first with a search that it took up; every job of the plan must be startable."""
    search.settle_losers()
    search.next_phase()
    for job_id in search.plan().targets:
        assert JOB_LIFECYCLE.allows(search.jobs[job_id].state, JobState.STARTING), search.jobs[job_id].state


@pytest.mark.parametrize("seed", range(12))
def test_the_next_attempt_goes_on_from_any_line(tmp_path, seed):
    """Killed before any line of the journal: the same search, and every job can be started or has ended."""
    (tmp_path / "one").mkdir()
    one = Bench(tmp_path / "one")
    moments = []

    def remember():
        size = (one.folder / "journal.jsonl").stat().st_size
        jobs = {job_id: (job.incarnation, job.restarts) for job_id, job in one.search.jobs.items()}
        moments.append((size, facts(one.search), jobs))

    search(one, random.Random(seed), remember)
    one.journal.close()
    assert len(moments) > 20
    data = (one.folder / "journal.jsonl").read_bytes()
    for size, plan, _ in moments:
        folder = tmp_path / "two"
        folder.mkdir()
        (folder / "journal.jsonl").write_bytes(data[:size])
        two = Bench(folder)
        assert facts(two.search) == plan
        assert not {job_id for job_id, job in two.search.jobs.items() if job.state is JobState.FAILED} & set(plan[2])
        assert not set(two.states().values()) & set(_HELD)
        go_on(two.search)
        two.journal.close()
        shutil.rmtree(folder)


@pytest.mark.parametrize("tuner", ["single", "successive_halving"])
def test_a_search_goes_on_after_an_end_that_the_service_did_not_hear_of(bench, tuner):
    """An app master that is asked to end writes the last states of its jobs, and may be killed before it reports."""
    one = bench(spec(tuner=tuner))
    one.start("j0")
    one.reach("j0", LOSSES["j0"])
    one.search.finish(JobState.KILLED)
    assert set(one.states().values()) == {JobState.FINISHED, JobState.KILLED}
    one.reopen()
    assert one.states() == {"j0": JobState.PHASE_DONE, **dict.fromkeys(("j1", "j2", "j3"), JobState.WAITING)}
    for job_id in "j1", "j2", "j3":
        one.start(job_id)
        one.reach(job_id, LOSSES[job_id])
    while not one.search.plan().finished:
        one.search.settle_losers()
        one.search.next_phase()
        one.run_phase(LOSSES)
    one.search.finish(JobState.STOPPED)
    assert one.states()["j1"] is JobState.FINISHED


def test_counters_and_checkpoints_are_taken_up(bench):
    one = bench()
    job = one.start("j0")
    job.restarts = 2
    job.gpus = ()
    one.search.turn(job, JobState.WAITING)
    one.start("j0")
    one.saved = {"j0": 7}
    one.reopen()
    again = one.search.jobs["j0"]
    assert (again.state, again.incarnation, again.restarts, again.saved_iteration) == (JobState.WAITING, 2, 2, 7)
    assert again.gpus == ()


def cut_last_line(one):
    """The app master died before the newest line of its journal."""
    path = one.folder / "journal.jsonl"
    one.journal.close()
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    one.open()


def test_a_failed_job_stays_failed_if_the_app_master_dies_before_the_write(bench):
    """Between the two lines that a failure writes: first the observation, then the state."""
    one = bench()
    one.search.failed(one.start("j1"), "it broke")
    cut_last_line(one)
    assert one.states()["j1"] is JobState.FAILED
    assert "j1" not in one.search.plan().targets


def test_a_job_that_reached_its_target_does_not_run_to_it_again(bench):
    """Between the two lines that reaching a target writes: it keeps the loss that it had there."""
    one = bench()
    one.start("j1")
    one.reach("j1", 0.01)
    cut_last_line(one)
    assert one.states()["j1"] is JobState.PHASE_DONE
    assert set(one.search.plan().targets) == {"j0", "j2", "j3"}
    for job_id in "j0", "j2", "j3":
        one.start(job_id)
        one.reach(job_id, LOSSES[job_id])
    assert one.search.plan().targets == {"j1": 30, "j3": 30}


def test_the_last_to_reach_the_end_has_finished_though_its_state_was_not_written(bench):
    one = bench(spec(1, tuner="single"))
    one.start("j0")
    one.reach("j0")
    cut_last_line(one)
    assert one.search.plan().finished
    one.search.finish(JobState.STOPPED)
    assert one.states()["j0"] is JobState.FINISHED
