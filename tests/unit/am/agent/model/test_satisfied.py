"""Who holds all that it can use wants nothing more, however far its jobs are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from am.agent.model.demands import is_satisfied, unmet_demands
from tests.agent_cases import app_of, held, job
from themis.apps import JobShape

GANGS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 4), st.booleans(), st.sampled_from([0.1, 100.0, 1e5])),
    min_size=1,
    max_size=4,
)


@given(GANGS)
def test_a_satisfied_app_has_no_demand(reported):
    jobs = [
        job(f"j{place}", work, JobShape(tasks=tasks, min_tasks=1)) for place, (tasks, _, _, work) in enumerate(reported)
    ]
    gangs = [
        held(each.job_id, {f"m{place}": gpus}, up=up or None)
        for place, (each, (_, gpus, up, _)) in enumerate(zip(jobs, reported, strict=True))
        if gpus
    ]
    demands = unmet_demands(app_of(jobs, held=tuple(gangs), restart_s=40.0))
    if is_satisfied([each.shape for each in jobs], gangs):
        assert demands == ()
    else:
        # A job that would have to restart for more may well want nothing too.
        assert len(gangs) < len(jobs) or any(up or gpus < tasks for tasks, gpus, up, _ in reported)


@pytest.mark.parametrize(
    ("gangs", "content"),
    [
        ([("a", 2, False), ("b", 3, False)], True),
        ([("a", 1, False), ("b", 2, False)], False),
        ([("a", 2, False)], False),
        ([("a", 2, True), ("b", 2, False)], False),
        ([], False),
    ],
)
def test_an_app_with_largest_gangs_and_no_renewable_gpus_is_satisfied(gangs, content):
    holds = [held(name, {"m": gpus}, up=up or None) for name, gpus, up in gangs]
    assert is_satisfied([JobShape(tasks=2)] * 2, holds) is content


def test_a_job_on_a_bound_gang_wants_no_more_gpus():
    elastic = job("a", 1e5, JobShape(tasks=4, min_tasks=1))
    gang = replace(held("a", {"m": 1}), bound=True)
    assert is_satisfied([elastic.shape], [gang])
    assert unmet_demands(app_of([elastic], held=(gang,), restart_s=1.0)) == ()
    assert unmet_demands(app_of([elastic], held=(held("a", {"m": 1}),), restart_s=1.0))
