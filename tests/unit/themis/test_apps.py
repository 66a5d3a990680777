"""Specifications of apps and jobs: what they refuse, and how many GPUs a job can use."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import SHAPES

from themis.apps import CRUDE_SLOWDOWN, AppSpec, JobShape, JobSpec, ProgramSpec, Slowdown, TunerSpec
from themis.cluster import Level
from themis.errors import InputError


class TestSlowdown:
    def test_the_crude_one_is_the_papers(self):
        assert [CRUDE_SLOWDOWN.at(level) for level in Level] == [1.0, 1.0, 1.1, 1.3]

    @pytest.mark.parametrize("factors", [(0.9, 1, 1, 1), (1, 1, 1, math.nan), (1, 1.2, 1.1, 1.3), (2, 1, 1, 1)])
    def test_below_one_shrinking_and_nan_are_refused(self, factors):
        with pytest.raises(InputError):
            Slowdown(*factors)

    def test_infinity_far_away_is_allowed(self):
        assert Slowdown(1, 1, 1, math.inf).at(Level.CLUSTER) == math.inf


class TestJobShape:
    @pytest.mark.parametrize(
        "shape", [{"tasks": 0}, {"min_tasks": 0}, {"gpus_per_task": 0}, {"tasks": 1, "min_tasks": 2}]
    )
    def test_nonsense_is_refused(self, shape):
        with pytest.raises(InputError):
            JobShape(**shape)

    @pytest.mark.parametrize(
        ("gpus", "usable"), [(0, 0), (1, 0), (3, 0), (4, 4), (5, 4), (6, 6), (7, 6), (8, 8), (9, 8), (100, 8)]
    )
    def test_usable_gpus_by_hand(self, gpus, usable):
        assert JobShape(tasks=4, min_tasks=2, gpus_per_task=2).usable_gpus(gpus) == usable

    @given(SHAPES, st.integers(0, 200))
    def test_usable_gpus_is_the_largest_whole_gang(self, shape, gpus):
        sizes = [tasks * shape.gpus_per_task for tasks in range(shape.min_tasks, shape.tasks + 1)]
        assert shape.usable_gpus(gpus) == max((size for size in sizes if size <= gpus), default=0)
        assert (shape.demand_min_gpus, shape.demand_max_gpus) == (sizes[0], sizes[-1])


def app(*jobs):
    return AppSpec(name="a", tuner=TunerSpec(name="single"), program=ProgramSpec(name="p"), jobs=jobs)


class TestAppSpec:
    def test_the_demand_is_that_of_all_jobs(self):
        jobs = [JobSpec(job_id=f"j{n}", iterations_total=1, shape=JobShape(tasks=n, gpus_per_task=2)) for n in (1, 3)]
        assert app(*jobs).demand_max_gpus == 8

    def test_an_app_has_jobs_with_ids_of_their_own(self):
        job = JobSpec(job_id="j", iterations_total=1)
        for jobs in ((), (job, job)):
            with pytest.raises(InputError):
                app(*jobs)

    def test_a_job_has_an_iteration(self):
        with pytest.raises(InputError):
            JobSpec(job_id="j", iterations_total=0)

    @pytest.mark.parametrize("program", [{}, {"name": "p", "command": "c"}])
    def test_a_program_is_a_name_or_a_command(self, program):
        with pytest.raises(InputError, match="exactly one"):
            ProgramSpec(**program)

    def test_a_program_with_an_unknown_framework_is_refused(self):
        with pytest.raises(InputError, match="did you mean 'pytorch'"):
            ProgramSpec(name="p", framework="pytorh")
