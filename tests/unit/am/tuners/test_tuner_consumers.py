"""Tuners without barriers in the hands of those that read their plans: views for rho, the search, the simulator."""

import pytest

from am.app_view import JobProgress, phase_views, work_gpu_s, work_seen_gpu_s
from am.jobs.search_state import SearchState
from am.journal import Journal
from am.profiler.profile import JobProfile
from am.profiler.records import StepLoss
from am.tuners.port import Phase, TunerPlan
from themis.apps import AppSpec, Estimate, JobShape, JobSpec, ProgramSpec, Slowdown, TunerSpec
from themis.cluster import Cluster, GpuId, Machine
from themis.lifecycle import JobState
from themis_lab.simulator.costs import Costs
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.simulation import Simulation
from themis_lab.simulator.workload import AppTrace, JobTrace, LossCurve, Workload

TUNERS = [
    ("hyperband", {}),
    ("asynchronous_halving", {}),
    ("median_stopping", {"min_jobs": 2}),
    ("performance_curve", {}),
    ("optuna", {"pruner": "successive_halving", "reduction_factor": 2}),
    ("optuna", {"sampler": "tpe", "trials": 3, "parallel": 2}),
]


FRESH = {
    job_id: JobProgress(
        spec=JobSpec(job_id=job_id, iterations_total=100), profile=JobProfile(Estimate(serial_iteration_s=2.0))
    )
    for job_id in ("a", "b", "c")
}


class TestViews:
    def plan(self, latest):
        return TunerPlan(
            phase=0,
            phases=(Phase(jobs=3, iterations=100),),
            targets=dict.fromkeys(FRESH, 100),
            stopped=frozenset(),
            finished=False,
            best=None,
            latest=latest,
        )

    def test_job_counts_to_latest_stop(self):
        views = phase_views(FRESH, self.plan({"b": 40}))
        assert [view.iterations_left for view in views] == [100, 40, 100]
        assert work_seen_gpu_s(FRESH, self.plan({"b": 40})) == 240 * 2.0

    def test_job_past_latest_stop_has_one_iteration_left(self):
        profile = JobProfile(Estimate(serial_iteration_s=2.0))
        profile.feed(StepLoss(step=45, loss=1.0))
        jobs = {**FRESH, "b": JobProgress(spec=FRESH["b"].spec, profile=profile)}
        assert phase_views(jobs, self.plan({"b": 40}))[1].iterations_left == 1

    def test_demand_is_that_of_first_plan(self):
        """It knows nothing of who will be stopped, and is never lowered."""
        assert work_gpu_s(FRESH, self.plan({}).phases) == 300 * 2.0


class Bench:
    """The search state of four jobs of 60 iterations under a tuner."""

    def __init__(self, folder, name, **settings):
        self.spec = AppSpec(
            name="a",
            tuner=TunerSpec(name=name, settings=settings),
            program=ProgramSpec(name="p"),
            jobs=tuple(JobSpec(job_id=f"j{place}", iterations_total=60) for place in range(4)),
            estimate=Estimate(serial_iteration_s=1.0),
        )
        self.folder = folder
        self.open()

    def open(self):
        self.journal = Journal(self.folder / "journal.jsonl")
        self.search = SearchState(self.spec, self.folder, 1.0, self.journal, lambda _: None)

    def reopen(self):
        self.journal.close()
        self.open()

    def start(self, job_id):
        job = self.search.jobs[job_id]
        job.gpus = (GpuId("m", int(job_id[1:])),)
        self.search.turn(job, JobState.STARTING)
        self.search.turn(job, JobState.RUNNING)

    def logs(self, job_id, step, loss):
        job = self.search.jobs[job_id]
        job.profile.feed(StepLoss(step=step, loss=loss))
        return self.search.progressed(job)

    def reach(self, job_id, loss):
        job = self.search.jobs[job_id]
        job.profile.feed(StepLoss(step=self.search.plan().targets[job_id], loss=loss))
        job.gpus = ()
        self.search.target_reached(job)
        self.search.settle_losers()
        self.search.next_phase()

    def states(self):
        return [job.state.value for job in self.search.jobs.values()]


@pytest.fixture
def bench(tmp_path):
    made = []

    def make(name, **settings):
        made.append(Bench(tmp_path, name, **settings))
        return made[-1]

    yield make
    for each in made:
        each.journal.close()


class TestBoard:
    def test_a_promoted_job_waits_for_gpus_while_others_still_run(self, bench):
        """Rungs at 15, 30, 60: work is 4 * 15 + 2 * 15 + 1 * 30 iterations."""
        one = bench("asynchronous_halving")
        assert one.search.work_total_gpu_s == 120.0
        for job_id in ("j0", "j1", "j2", "j3"):
            one.start(job_id)
        one.reach("j0", 0.5)
        assert one.states() == ["PHASE_DONE", "RUNNING", "RUNNING", "RUNNING"]
        one.reach("j1", 0.6)
        assert one.states() == ["WAITING", "PHASE_DONE", "RUNNING", "RUNNING"]
        assert work_seen_gpu_s(one.search.progress(), one.search.plan()) == 120.0

    def test_unpromoted_jobs_are_stopped_at_end(self, bench):
        one = bench("asynchronous_halving")
        shares = []
        while not one.search.plan().finished:
            job_id = min(one.search.plan().targets)
            one.start(job_id)
            one.reach(job_id, float(job_id[1:]))
            shares.append(one.search.done_share())
        one.search.finish(JobState.STOPPED)
        assert one.states() == ["FINISHED", "STOPPED", "STOPPED", "STOPPED"]
        assert (sorted(shares), shares[-1]) == (shares, 1.0)

    def test_a_job_that_is_stopped_while_it_runs(self, bench):
        one = bench("median_stopping", warmup=10, min_jobs=3)
        for place, job_id in enumerate(("j0", "j1", "j2", "j3")):
            one.start(job_id)
            assert one.logs(job_id, 10, 1.0 + place) == (job_id == "j3"), "the app master must act at once"
        loser = one.search.jobs["j3"]
        assert one.search.settle_losers() == [loser]
        assert "j3" not in one.search.plan().targets
        one.search.turn(loser, JobState.CHECKPOINTING)
        loser.gpus = ()
        one.search.turn(loser, JobState.WAITING)
        assert one.search.settle_losers() == []
        assert one.states() == ["RUNNING", "RUNNING", "RUNNING", "STOPPED"]
        one.reopen()
        assert one.search.plan().stopped == {"j3"}
        assert one.states() == ["WAITING", "WAITING", "WAITING", "STOPPED"]

    def test_jobs_are_tried_a_few_at_a_time_over_attempts(self, bench):
        one = bench("optuna", sampler="random", trials=3, parallel=2)
        assert one.search.work_total_gpu_s == 3 * 60.0
        for job_id in ("j0", "j1"):
            one.start(job_id)
        one.reach("j1", 0.5)
        one.reopen()
        assert one.search.plan().targets == {"j0": 60, "j2": 60}
        assert one.states() == ["WAITING", "PHASE_DONE", "WAITING", "WAITING"]
        shares = [one.search.done_share()]
        for job_id, loss in (("j2", 0.4), ("j0", 0.6)):
            one.start(job_id)
            one.reach(job_id, loss)
            shares.append(one.search.done_share())
        assert one.search.plan().finished
        assert one.search.plan().best == "j2"
        one.search.finish(JobState.STOPPED)
        assert one.states() == ["FINISHED", "FINISHED", "FINISHED", "STOPPED"]
        assert (sorted(shares), shares[-1]) == (shares, 1.0)


ONE_MACHINE = Cluster(name="small", machines=(Machine(machine_id="m0", rack_id="r0", slots=(2, 2)),))
COSTS = Costs(checkpoint_s=5.0, restore_s=5.0, container_s=10.0)


def searched(name, settings, gpus=1):
    """A search of eight jobs of 400 s each on four GPUs, their floors 0.0, 0.1, .. 0.7."""
    jobs = tuple(
        JobTrace(
            job_id=f"j{place}",
            iterations_total=400,
            serial_iteration_s=1.0,
            slowdown=Slowdown(1.0, 1.0, 1.0, 1.0),
            shape=JobShape(tasks=gpus),
            curve=LossCurve(floor=0.1 * place),
        )
        for place in range(8)
    )
    trace = AppTrace(name="a", arrival_s=0.0, jobs=jobs, tuner=TunerSpec(name=name, settings=settings))
    simulation = Simulation(
        Workload(name="w", apps=(trace,)), Settings(cluster=ONE_MACHINE, costs=COSTS, validate=True), None
    )
    record = simulation.run()
    return record, record.apps[0]


class TestSimulator:
    @pytest.mark.parametrize(("name", "settings"), TUNERS)
    @pytest.mark.parametrize("gpus", [1, 2])
    def test_searches_end_without_broken_invariants(self, name, settings, gpus):
        record, app = searched(name, settings, gpus)
        assert record.counts.violations == []
        assert record.counts.checks > 0
        assert app.ideal_gpu_s < 8 * 400.0, "at least one job is stopped"
        assert app.bound <= app.rho["themis"]
        assert app.rho["themis"] < 3.0

    @pytest.mark.parametrize(("name", "settings"), TUNERS)
    def test_the_same_run_twice(self, name, settings):
        (one, app), (two, again) = searched(name, settings), searched(name, settings)
        assert (app.rho, app.ideal_gpu_s, app.ended_at_s) == (again.rho, again.ideal_gpu_s, again.ended_at_s)
        assert one.makespan_s == two.makespan_s

    def test_single_runs_all(self):
        assert searched("single", {})[1].ideal_gpu_s == 8 * 400.0
