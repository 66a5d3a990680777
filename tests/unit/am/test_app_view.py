"""From what runs to what the agent reasons about: work, the median job, gangs, surroundings; by hand."""

import pytest
from agent_cases import cluster_of

from am.app_view import (
    PRIOR_SERIAL_ITERATION_S,
    JobProgress,
    app_view,
    at_once_gpus,
    held_gang,
    phase_views,
    reference_job,
    surroundings,
    whole_view,
    work_gpu_s,
    work_seen_gpu_s,
)
from am.profiler.profile import JobProfile
from am.profiler.records import StepLoss
from am.tuners.port import Phase, TunerPlan
from themis.apps import AppSpec, Estimate, JobShape, JobSpec, ProgramSpec, TunerSpec
from themis.choices import BundleRule
from themis.cluster import Allocation, GpuId, Level

SHAPE = JobShape(tasks=2)
PHASES = (Phase(jobs=3, iterations=10), Phase(jobs=1, iterations=20))


def progress(job_id, serial_s, iteration=0):
    profile = JobProfile(Estimate(serial_iteration_s=serial_s))
    if iteration:
        profile.feed(StepLoss(step=iteration, loss=1.0))
    return JobProgress(spec=JobSpec(job_id=job_id, iterations_total=30, shape=SHAPE), profile=profile)


JOBS = {"a": progress("a", 1.0, 10), "b": progress("b", 2.0, 4), "c": progress("c", 9.0)}
SPEC = AppSpec(
    name="x", tuner=TunerSpec(name="t"), program=ProgramSpec(name="p"), jobs=tuple(job.spec for job in JOBS.values())
)


def plan(targets, phases=PHASES, stopped=()):
    return TunerPlan(
        phase=0, phases=phases, targets=targets, stopped=frozenset(stopped), finished=not phases, best=None
    )


TIMES = {"elapsed_s": 5.0, "contention": 2.5, "work_total_gpu_s": 99.0, "restart_s": 8.0}


def view(the_plan, held=(), **changes):
    return app_view(SPEC, "app", JOBS, the_plan, held=held, **{**TIMES, **changes})


class TestWork:
    def test_the_first_phase_counts_its_own_jobs_and_later_ones_the_median(self):
        assert work_gpu_s(JOBS, PHASES) == (1 + 2 + 9) * 10 + 20 * 2.0

    def test_what_is_done_what_is_left_and_what_is_to_come(self):
        seen = work_seen_gpu_s(JOBS, plan({"b": 10, "c": 10}))
        assert seen == (10 * 1 + 4 * 2) + (6 * 2 + 10 * 9) + 20 * 2

    def test_jobs_that_are_tried_a_few_at_a_time(self):
        """Two at once, of those with the first ids, then the third; nor can the app use more GPUs than two jobs do."""
        waves = (Phase(jobs=2, iterations=30), Phase(jobs=1, iterations=30))
        assert work_gpu_s(JOBS, waves) == (1 + 2) * 30 + 30 * 2.0
        one = whole_view(SPEC, "app", JOBS, waves, 99.0, 8.0, 2.5)
        assert [job.job_id for job in one.jobs] == ["a", "b"]
        assert one.demand_max_gpus == at_once_gpus(SPEC.jobs, waves[0]) == 2 * SHAPE.demand_max_gpus
        now = view(plan({"b": 30}, waves[:1]), first=waves[0])
        assert now.demand_max_gpus == one.demand_max_gpus
        assert view(plan({"b": 30})).demand_max_gpus == SPEC.demand_max_gpus == 3 * SHAPE.demand_max_gpus

    def test_of_an_untouched_app_both_agree(self):
        fresh = {job_id: progress(job_id, serial_s) for job_id, serial_s in (("a", 1.0), ("b", 2.0), ("c", 9.0))}
        assert work_seen_gpu_s(fresh, plan(dict.fromkeys(fresh, 10))) == work_gpu_s(fresh, PHASES)

    def test_a_pace_that_nobody_knows_has_a_prior(self):
        unknown = JobProgress(spec=SPEC.jobs[0], profile=JobProfile())
        assert unknown.serial_iteration_s == PRIOR_SERIAL_ITERATION_S


class TestViews:
    def test_jobs_of_the_phase_with_what_is_left_of_it(self):
        views = phase_views(JOBS, plan({"c": 10, "b": 10}))
        assert [(each.job_id, each.iterations_left) for each in views] == [("b", 6), ("c", 10)]

    def test_a_job_at_its_target_has_an_iteration_left_until_the_tuner_knows(self):
        assert phase_views(JOBS, plan({"a": 10}))[0].iterations_left == 1

    def test_later_phases_go_by_the_median_of_all_that_are_still_in_the_search(self):
        """Two of three are done with the phase: the slow one that is left is not the median."""
        assert view(plan({"c": 10})).median_job.serial_iteration_s == 2.0
        assert reference_job(JOBS).serial_iteration_s == 2.0

    def test_losers_do_not_count(self):
        assert view(plan({"b": 30, "c": 30}, stopped=["a"])).median_job.serial_iteration_s == 9.0

    def test_the_view_says_what_it_was_told(self):
        one = view(plan({"b": 10, "c": 10}))
        assert (one.elapsed_s, one.contention, one.work_total_gpu_s) == (5.0, 2.5, 99.0)
        assert (one.demand_max_gpus, one.restart_s, one.later_phases) == (6, 8.0, PHASES[1:])

    def test_an_app_is_never_alone_with_less_than_itself(self):
        """Where clocks disagree a little, a mean of less than one app may be told of an app that just came."""
        assert view(plan({"b": 10}), contention=0.2).contention == 1.0
        assert whole_view(SPEC, "app", JOBS, PHASES, 99.0, 8.0, 0.0).contention == 1.0

    def test_an_app_between_phases_has_a_median_job_all_the_same(self):
        assert view(plan({}, phases=PHASES[1:])).median_job.serial_iteration_s == 2.0

    def test_the_whole_app_has_all_its_work_to_do(self):
        one = whole_view(SPEC, "app", JOBS, PHASES, 99.0, 8.0, 2.5)
        assert [each.iterations_left for each in one.jobs] == [10, 10, 10]
        assert (one.elapsed_s, one.contention) == (0.0, 2.5)
        assert one.later_phases == PHASES[1:]


class TestSurroundings:
    CLUSTER = cluster_of((2, 2), (2,), racks=("r0", "r1"))

    def test_gangs_by_machine_with_what_is_up_of_them(self):
        mine = [GpuId("m0", 0), GpuId("m0", 2), GpuId("m1", 0)]
        gang = held_gang("a", mine, {GpuId("m0", 2), GpuId("m1", 1)}, self.CLUSTER)
        assert gang.gpus == Allocation.of({"m0": 2, "m1": 1})
        assert gang.renewable_gpus == Allocation.of({"m0": 1})
        assert gang.level is Level.CLUSTER
        assert gang.renewable

    @pytest.mark.parametrize(("active", "share"), [(2, 3.0), (0, 6.0)])
    def test_what_the_resource_manager_told(self, active, share):
        one = surroundings(self.CLUSTER, active_apps=active, lease_s=60.0, rule=BundleRule.CONTINUATION)
        assert one.share_gpus == share
        assert [one.nearest_level(gpus) for gpus in (1, 2, 3, 5, 99)] == [
            Level.SLOT,
            Level.SLOT,
            Level.MACHINE,
            Level.CLUSTER,
            Level.CLUSTER,
        ]
        assert one.rack_of == {"m0": "r0", "m1": "r1"}
