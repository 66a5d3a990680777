"""The agent's view of an app, checked by hand: work, median job, gangs, and cluster."""

import pytest
from agent_cases import cluster_of
from msgspec.structs import replace

from am.app_view import (
    UNKNOWN_PACE_S,
    JobProgress,
    app_view,
    at_once_gpus,
    held_gang,
    iterations_left,
    make_cluster_view,
    phase_views,
    reference_job,
    renewable_gpus,
    whole_view,
    work_gpu_s,
    work_seen_gpu_s,
)
from am.profiler.profile import JobProfile
from am.profiler.records import StepLoss
from am.tuners.port import Phase, TunerPlan
from themis.apps import Estimate, JobShape, JobSpec
from themis.choices import BundleRule
from themis.cluster import Allocation, GpuId, Level
from themis.leases import Lease
from themis.lifecycle import LeaseState

SHAPE = JobShape(tasks=2)
PHASES = (Phase(jobs=3, iterations=10), Phase(jobs=1, iterations=20))


def progress(job_id, serial_s, iteration=0):
    profile = JobProfile(Estimate(serial_iteration_s=serial_s))
    if iteration:
        profile.feed(StepLoss(step=iteration, loss=1.0))
    return JobProgress(spec=JobSpec(job_id=job_id, iterations_total=30, shape=SHAPE), profile=profile)


JOBS = {"a": progress("a", 1.0, 10), "b": progress("b", 2.0, 4), "c": progress("c", 9.0)}
SPECS = [job.spec for job in JOBS.values()]


def plan(targets, phases=PHASES, stopped=()):
    return TunerPlan(
        phase=0, phases=phases, targets=targets, stopped=frozenset(stopped), finished=not phases, best=None
    )


KNOWN = {"contention": 2.5, "work_total_gpu_s": 99.0, "demand_max_gpus": 6, "restart_s": 8.0}


def view(the_plan, **changes):
    jobs, reference = phase_views(JOBS, the_plan), reference_job(JOBS, the_plan.stopped)
    return app_view("app", the_plan, jobs, reference, **{**KNOWN, "elapsed_s": 5.0, "held": (), **changes})


def whole(phases=PHASES, **changes):
    return whole_view("app", JOBS, phases, **{**KNOWN, **changes})


class TestWork:
    def test_first_phase_counts_jobs_and_later_phases_the_median_job(self):
        assert work_gpu_s(JOBS, PHASES) == (1 + 2 + 9) * 10 + 20 * 2.0

    def test_work_is_split_into_done_left_and_future(self):
        seen = work_seen_gpu_s(JOBS, plan({"b": 10, "c": 10}))
        assert seen == (10 * 1 + 4 * 2) + (6 * 2 + 10 * 9) + 20 * 2

    def test_concurrency_limits_work_and_demand(self):
        """Two jobs run at once, first those with the smallest ids. So the app can use the GPUs of two jobs only."""
        waves = (Phase(jobs=2, iterations=30), Phase(jobs=1, iterations=30))
        assert work_gpu_s(JOBS, waves) == (1 + 2) * 30 + 30 * 2.0
        one = whole(waves)
        assert [job.job_id for job in one.jobs] == ["a", "b"]
        assert one.reference.serial_iteration_s == 2.0, "of all jobs, not of the first two"
        assert at_once_gpus(SPECS, waves[0]) == 2 * SHAPE.demand_max_gpus
        assert at_once_gpus(SPECS, PHASES[0]) == 3 * SHAPE.demand_max_gpus

    def test_untouched_app_has_same_work_left_as_total(self):
        fresh = {job_id: progress(job_id, serial_s) for job_id, serial_s in (("a", 1.0), ("b", 2.0), ("c", 9.0))}
        assert work_seen_gpu_s(fresh, plan(dict.fromkeys(fresh, 10))) == work_gpu_s(fresh, PHASES)

    def test_unknown_iteration_time_uses_prior(self):
        unknown = JobProgress(spec=SPECS[0], profile=JobProfile())
        gpus, iterations = SPECS[0].shape.demand_max_gpus, SPECS[0].iterations_total
        assert unknown.serial_iteration_s == 600.0 * gpus / iterations, "a lease on its largest gang"
        assert replace(unknown, silent=True).serial_iteration_s == UNKNOWN_PACE_S * gpus / iterations
        for each in (unknown, replace(unknown, silent=True)):
            assert each.pace_guessed
            assert each.view_with(1).pace_guessed
        assert not replace(unknown, siblings_iteration_s=2.0).pace_guessed
        assert not progress("a", 1.0).view_with(1).pace_guessed


class TestViews:
    def test_view_lists_jobs_of_phase_with_work_left(self):
        views = phase_views(JOBS, plan({"c": 10, "b": 10}))
        assert [(each.job_id, each.iterations_left) for each in views] == [("b", 6), ("c", 10)]

    def test_job_at_target_has_one_iteration_left_until_tuner_reacts(self):
        assert phase_views(JOBS, plan({"a": 10}))[0].iterations_left == 1

    def test_later_phases_use_median_of_remaining_jobs(self):
        """Two of three jobs have ended the phase: the slow one that is left is not the median."""
        assert view(plan({"c": 10})).median_job.serial_iteration_s == 2.0
        assert reference_job(JOBS).serial_iteration_s == 2.0

    def test_stopped_jobs_do_not_count(self):
        assert view(plan({"b": 30, "c": 30}, stopped=["a"])).median_job.serial_iteration_s == 9.0

    def test_app_of_stopped_jobs_has_median_of_all_as_reference(self):
        """If all jobs are stopped, as between a loss and a reinstatement, all of them count."""
        assert reference_job(JOBS, stopped=frozenset(JOBS)) == reference_job(JOBS)

    def test_silent_job_stands_for_candidates_that_were_never_tried(self):
        """Else the search would declare two seconds of work, and be late on every fair cluster."""
        untried = {job_id: JobProgress(spec=SPECS[0], profile=JobProfile()) for job_id in ("a", "b")}
        silent = JobProgress(spec=SPECS[2], profile=JobProfile(), silent=True)
        phases = (Phase(jobs=1, iterations=10), Phase(jobs=1, iterations=10))
        one = whole_view("app", {**untried, "c": silent}, phases, **KNOWN)
        assert [each.serial_iteration_s for each in one.jobs] == [silent.serial_iteration_s]
        assert one.median_job.serial_iteration_s == silent.serial_iteration_s

    @pytest.mark.parametrize(("latest", "left"), [(None, 10), (15, 5), (30, 10), (7, 1)])
    def test_job_counts_to_its_target_or_the_latest_stop_before(self, latest, left):
        assert iterations_left(10, 20, latest) == left

    def test_view_holds_contention_and_offer(self):
        one = view(plan({"b": 10, "c": 10}))
        assert (one.elapsed_s, one.contention, one.work_total_gpu_s) == (5.0, 2.5, 99.0)
        assert (one.demand_max_gpus, one.restart_s, one.later_phases) == (6, 8.0, PHASES[1:])

    def test_contention_is_at_least_one(self):
        """If clocks differ slightly, a new app may get a mean below one app."""
        assert view(plan({"b": 10}), contention=0.2).contention == 1.0
        assert whole(contention=0.0).contention == 1.0

    def test_app_between_phases_has_median_job(self):
        assert view(plan({}, phases=PHASES[1:])).median_job.serial_iteration_s == 2.0

    def test_whole_app_has_all_work_left(self):
        one = whole()
        assert [each.iterations_left for each in one.jobs] == [10, 10, 10]
        assert (one.elapsed_s, one.contention) == (0.0, 2.5)
        assert one.later_phases == PHASES[1:]


class TestSurroundings:
    CLUSTER = cluster_of((2, 2), (2,), racks=("r0", "r1"))

    def test_gangs_have_renewable_gpus_by_machine(self):
        mine = [GpuId("m0", 0), GpuId("m0", 2), GpuId("m1", 0)]
        gang = held_gang("a", mine, {GpuId("m0", 2), GpuId("m1", 1)}, self.CLUSTER)
        assert gang.gpus == Allocation.of({"m0": 2, "m1": 1})
        assert gang.renewable_gpus == Allocation.of({"m0": 1})
        assert gang.level is Level.CLUSTER
        assert gang.renewable

    @pytest.mark.parametrize(
        ("state", "expires_at_s", "renewable"),
        [("GRANTED", 60.0, True), ("GRANTED", 60.1, False), ("EXPIRING", 60.0, False)],
    )
    def test_granted_lease_that_ends_by_then_is_renewable(self, state, expires_at_s, renewable):
        held, reserved, foreign = (GpuId("m0", index) for index in range(3))
        lease = Lease(
            lease_id=1, gpu=held, app_id="app", granted_at_s=0.0, expires_at_s=expires_at_s, state=LeaseState(state)
        )
        assert renewable_gpus([held, reserved], {held: lease}, {reserved}, 60.0) == ([held] if renewable else [])
        assert renewable_gpus([held, foreign], {held: lease}, {reserved}, 60.0) is None

    @pytest.mark.parametrize(("active", "share"), [(2, 3.0), (0, 6.0)])
    def test_cluster_view_holds_facts_of_resource_manager(self, active, share):
        one = make_cluster_view(self.CLUSTER, active_apps=active, lease_s=60.0, rule=BundleRule.CONTINUATION)
        assert one.share_gpus == share
        assert [one.nearest_level(gpus) for gpus in (1, 2, 3, 5, 99)] == [
            Level.SLOT,
            Level.SLOT,
            Level.MACHINE,
            Level.CLUSTER,
            Level.CLUSTER,
        ]
        assert one.rack_of == {"m0": "r0", "m1": "r1"}
