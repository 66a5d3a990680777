"""T(G) by hand: jobs on gangs, phases, and the even split."""

import math

import pytest
from agent_cases import FLAT, ONE, STRICT, app_of, at, cluster_of, cluster_view_of, even_gangs, job, jobs_of

from am.agent.model.finish_time import (
    finish_time_s,
    gang_order,
    job_order,
    job_time_s,
    phase_time_s,
    split_evenly,
    time_on_count_s,
)
from am.agent.model.views import GangAt, TypeView, median_job
from am.tuners.port import Phase
from themis.apps import JobShape, Slowdown
from themis.cluster import Level
from themis.errors import InputError

CRUDE = Slowdown(1.0, 1.0, 1.1, 1.3)


class TestJobTime:
    def test_equation_1(self):
        one = job(work=120.0, shape=JobShape(tasks=4), slowdown=CRUDE)
        assert job_time_s(one, GangAt(2, Level.RACK)) == pytest.approx(120.0 * 1.1 / 2)

    def test_more_gpus_than_the_job_can_use_do_not_help(self):
        one = job(work=120.0, shape=JobShape(tasks=4))
        assert job_time_s(one, GangAt(8, Level.SLOT)) == 30.0

    def test_part_of_a_task_does_not_help_either(self):
        one = job(work=120.0, shape=JobShape(tasks=4, gpus_per_task=2))
        assert job_time_s(one, GangAt(5, Level.SLOT)) == 30.0

    def test_a_gang_that_is_too_small_never_ends(self):
        assert math.isinf(job_time_s(job(shape=JobShape(tasks=4, min_tasks=3)), GangAt(2, Level.SLOT)))


class TestGangOrder:
    """A job leaves to others what it cannot use. So of gangs that end it at the same time, the first in this order."""

    def test_the_smaller_gang_comes_before_the_looser_one_of_more_gpus(self):
        assert gang_order(GangAt(2, Level.SLOT)) < gang_order(GangAt(4, Level.CLUSTER, 4))

    def test_of_gangs_of_one_size_the_looser_one_comes_first(self):
        gangs = [GangAt(4, Level.SLOT), GangAt(4, Level.MACHINE), GangAt(4, Level.RACK, 2), GangAt(4, Level.CLUSTER, 2)]
        assert sorted(gangs, key=gang_order) == gangs[::-1]

    def test_of_gangs_of_one_size_and_level_the_one_in_smaller_units_comes_first(self):
        gangs = [GangAt(4, Level.RACK, 1), GangAt(4, Level.RACK, 2)]
        assert sorted([gangs[1], gangs[0]], key=gang_order) == gangs

    def test_what_is_left_is_the_smaller_device_name(self):
        gangs = [GangAt(1, Level.SLOT, device="k80"), GangAt(1, Level.SLOT, device="v100")]
        assert sorted([gangs[1], gangs[0]], key=gang_order) == gangs


def test_jobs_come_by_smallest_gang_then_by_work_and_equal_ones_by_id():
    """Few gangs can run the first, and the second would end last. Equal jobs need some order, so that a run repeats."""
    jobs = [job("wide", 10, JobShape(tasks=2, min_tasks=2)), job("long", 90), job("a1", 50), job("a10", 50)]
    assert sorted([jobs[3], jobs[1], jobs[2], jobs[0]], key=job_order) == jobs


class TestPhaseTime:
    def test_few_jobs_end_as_early_as_they_can(self):
        # Longest first would be 7 + 4 + 3 beside 6 + 5; 7 + 6 beside 5 + 4 + 3 ends sooner.
        assert phase_time_s(jobs_of([3, 7, 5, 6, 4]), at(1, 1)) == 13.0

    def test_unlike_gangs_take_the_job_where_it_ends_first(self):
        jobs = jobs_of([12, 8, 4], JobShape(tasks=2))
        # 12 on the pair ends at 6; 8 there at 10 or alone at 8; 4 there at 8 or alone at 12
        assert phase_time_s(jobs, at(2, 1)) == 8.0

    def test_a_job_goes_only_where_it_fits(self):
        jobs = (job("big", 10, JobShape(tasks=2, min_tasks=2)), job("small", 10))
        assert phase_time_s(jobs, at(2, 1)) == 10.0
        assert math.isinf(phase_time_s(jobs, at(1, 1)))

    def test_no_jobs_need_no_time_and_no_gangs_never_end(self):
        assert phase_time_s((), ()) == 0.0
        assert math.isinf(phase_time_s(jobs_of([1]), ()))


class TestSplitEvenly:
    @pytest.mark.parametrize(
        ("gpus", "jobs", "shape", "sizes"),
        [
            (0, 3, ONE, ()),
            (5, 0, ONE, ()),
            (2, 3, ONE, (1, 1)),
            (5, 3, ONE, (1, 1, 1)),
            (5, 3, JobShape(tasks=4), (2, 2, 1)),
            (3, 2, JobShape(tasks=4, min_tasks=2), (3,)),
            (5, 2, JobShape(tasks=4, min_tasks=2), (3, 2)),
            (7, 2, JobShape(tasks=4, gpus_per_task=2), (4, 2)),
            (64, 2, JobShape(tasks=4, gpus_per_task=2), (8, 8)),
        ],
    )
    def test_gpus_are_split_as_evenly_as_the_shape_allows(self, gpus, jobs, shape, sizes):
        assert split_evenly(gpus, jobs, shape) == sizes


class TestEvenGangs:
    CLUSTER = cluster_of((2, 2), (2, 2), racks=("r0", "r1"))

    def test_each_gang_is_placed_at_its_tightest_level(self):
        gangs = even_gangs(7, 2, JobShape(tasks=8), cluster_view_of(self.CLUSTER))
        assert gangs == (GangAt(4, Level.MACHINE), GangAt(3, Level.MACHINE))
        assert even_gangs(5, 1, JobShape(tasks=8), cluster_view_of(self.CLUSTER)) == (GangAt(5, Level.CLUSTER),)

    def test_not_nearer_than_asked_but_for_single_gpus(self):
        gangs = even_gangs(3, 2, JobShape(tasks=8), cluster_view_of(self.CLUSTER), Level.RACK)
        assert gangs == (GangAt(2, Level.RACK), GangAt(1, Level.SLOT))

    def test_of_equally_fast_types_the_smaller_name_gives_its_gpus_first(self):
        types = [TypeView(device=name, gpus=4, fitting_level=(Level.SLOT,) * 4) for name in ("v100", "k80")]
        gangs = even_gangs(5, 2, JobShape(tasks=4), cluster_view_of(types=tuple(types)))
        assert [(gang.gpus, gang.device) for gang in gangs] == [(2, "k80"), (2, "k80")]


class TestFinishTime:
    def test_phases_add_up_and_later_jobs_are_the_median_one(self):
        app = app_of(
            jobs_of([80, 100, 120], JobShape(tasks=4)),
            later_phases=(Phase(jobs=2, iterations=3), Phase(jobs=1, iterations=5)),
        )
        # 120 alone, 80 then.. three gangs of one: 120; two gangs of (2, 1): 300 / 1; one gang of 3: 500 / 3
        assert finish_time_s(app, at(1, 1, 1), cluster_view_of()) == pytest.approx(120 + 300 + 500 / 3)

    def test_later_phases_keep_the_level_of_the_current_gang(self):
        cluster = cluster_of((2, 2), (2, 2))
        app = app_of(jobs_of([100], JobShape(tasks=2), STRICT), later_phases=(Phase(jobs=1, iterations=1),))
        near = finish_time_s(app, (GangAt(2, Level.SLOT),), cluster_view_of(cluster))
        far = finish_time_s(app, (GangAt(2, Level.RACK),), cluster_view_of(cluster))
        assert near == 100.0
        assert far == 200.0

    def test_single_gpus_are_never_scattered(self):
        app = app_of(jobs_of([100, 100]), later_phases=(Phase(jobs=1, iterations=1),))
        assert finish_time_s(app, at(1, 1, level=Level.CLUSTER), cluster_view_of()) == 200.0

    def test_a_phase_that_no_gang_serves_never_ends(self):
        shape = JobShape(tasks=4, min_tasks=4)
        app = app_of((), reference=job(shape=shape), later_phases=(Phase(jobs=1, iterations=1),), work_total_gpu_s=1.0)
        assert math.isinf(finish_time_s(app, at(2), cluster_view_of()))


class TestTimeOnCount:
    def test_less_than_the_smallest_gang_is_a_share_of_its_time(self):
        app = app_of(jobs_of([100], JobShape(tasks=2, min_tasks=2)))
        assert time_on_count_s(app, 2, cluster_view_of()) == 50.0
        assert time_on_count_s(app, 0.5, cluster_view_of()) == 200.0
        assert math.isinf(time_on_count_s(app, 0, cluster_view_of()))

    def test_fractions_beyond_it_are_not_used(self):
        app = app_of(jobs_of([100], JobShape(tasks=4)))
        assert time_on_count_s(app, 2.9, cluster_view_of()) == time_on_count_s(app, 2, cluster_view_of()) == 50.0

    def test_an_app_between_phases(self):
        app = app_of((), reference=job(work=10), later_phases=(Phase(jobs=2, iterations=3),), work_total_gpu_s=60.0)
        assert time_on_count_s(app, 2, cluster_view_of()) == 30.0


class TestMedianJob:
    def test_the_upper_one_of_two(self):
        assert median_job(jobs_of([10, 30, 20, 40])).serial_iteration_s == 30.0
        assert median_job(jobs_of([10, 30, 20])).serial_iteration_s == 20.0

    def test_no_jobs_have_no_median_job(self):
        with pytest.raises(InputError):
            median_job(())


def test_known_limit_a_second_gang_can_be_worse_than_a_larger_first_one():
    """Not monotone: as many jobs as possible run at once, also where the longest one alone would end earlier.

    It takes gangs with a smallest size of two tasks or more that can still grow (min_tasks < tasks).
    """
    shape = JobShape(tasks=5, min_tasks=3, gpus_per_task=2)
    app = app_of(jobs_of([72, 2], shape))
    assert time_on_count_s(app, 11, cluster_view_of()) == pytest.approx(7.4)
    assert time_on_count_s(app, 12, cluster_view_of()) == pytest.approx(12.0)


def test_known_limit_a_gang_that_spills_over_can_be_worse_than_one_that_does_not():
    """T on a count lays gangs out at their full size, also where a smaller one within a machine would be faster."""
    cluster = cluster_of((4,), (4,))
    app = app_of(jobs_of([100], JobShape(tasks=8), STRICT))
    assert time_on_count_s(app, 4, cluster_view_of(cluster)) == 25.0
    assert time_on_count_s(app, 5, cluster_view_of(cluster)) == 40.0


def test_flat_is_flat():
    assert [FLAT.at(level) for level in Level] == [1.0] * 4
