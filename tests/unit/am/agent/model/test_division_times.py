"""Many divisions at once are timed as one by one, to the last bit."""

import math
from random import Random

import numpy as np
import pytest
from agent_cases import app_of, cluster_of, cluster_view_of, job

from am.agent.model import division_times as batch
from am.agent.model.division_times import earliest, finish_times_s, phase_times_s
from am.agent.model.finish_time import finish_time_s, phase_time_s
from am.agent.model.views import GangAt
from am.tuners.port import Phase
from themis.apps import JobShape, Slowdown
from themis.cluster import Level

NARROW, WIDE = Slowdown(1.0, 1.13, 1.42, 1.56), Slowdown(1.0, 1.23, 3.6, 4.9)
LEVELS = tuple(GangAt(2, level, 1 if level > Level.MACHINE else 0) for level in Level)
SIZES = tuple(GangAt(gpus, Level.MACHINE) for gpus in (1, 2, 4, 8))


def jobs_like(rng, count, slowdowns, shapes, works=None):
    return tuple(
        job(
            f"j{number:03d}",
            work=rng.choice(works) if works else rng.lognormvariate(3.0, 0.8),
            slowdown=rng.choice(slowdowns),
            shape=rng.choice(shapes),
        )
        for number in range(count)
    )


def divisions_of(rng, gangs, rows, most):
    counts = np.array([[rng.choice((0, rng.randint(0, most))) for _ in gangs] for _ in range(rows)], dtype=np.int64)
    counts[0] = 0
    return counts


def one_by_one(counts, gangs):
    return [[gang for gang, many in zip(gangs, row, strict=True) for _ in range(many)] for row in counts.tolist()]


CASES = {
    "alike, one kind": ((NARROW,), (JobShape(),), (GangAt(1, Level.SLOT),), None),
    "different S, one kind": ((NARROW, WIDE), (JobShape(),), (GangAt(1, Level.RACK),), None),
    "waiting never pays": ((NARROW,), (JobShape(tasks=2, min_tasks=2),), LEVELS, None),
    "waiting for a near gang pays": ((WIDE,), (JobShape(tasks=2, min_tasks=2),), LEVELS, None),
    "equal jobs": ((WIDE,), (JobShape(tasks=2, min_tasks=2),), LEVELS, (10.0, 30.0)),
    "elastic jobs": ((NARROW,), (JobShape(tasks=8, min_tasks=1),), (*LEVELS, *SIZES), None),
    "jobs of all sorts": (
        (NARROW, WIDE),
        (JobShape(), JobShape(tasks=4, min_tasks=2), JobShape(gpus_per_task=2)),
        (*LEVELS, *SIZES),
        None,
    ),
    "gangs too small for some": ((NARROW,), (JobShape(tasks=2, min_tasks=2), JobShape()), SIZES, None),
    "as fast at two levels": ((Slowdown(1.0, 1.0, 1.4, 1.4),), (JobShape(tasks=2, min_tasks=2),), LEVELS, None),
}


@pytest.mark.parametrize("rows", [3, 60])
@pytest.mark.parametrize("jobs", [1, 7, 40])
@pytest.mark.parametrize("case", CASES)
def test_a_phase_is_timed_as_one_by_one(case, jobs, rows):
    slowdowns, shapes, gangs, works = CASES[case]
    rng = Random(f"{case} {jobs} {rows}")
    phase = jobs_like(rng, jobs, slowdowns, shapes, works)
    counts = divisions_of(rng, gangs, rows, 12)
    expected = [phase_time_s(phase, division) for division in one_by_one(counts, gangs)]
    assert phase_times_s(phase, gangs, counts).tolist() == expected


@pytest.mark.parametrize("rows", [3, 60, 300])
@pytest.mark.parametrize("jobs", [1, 7, 40])
@pytest.mark.parametrize("case", CASES)
def test_earliest_times_are_the_smallest_of_all_times(case, jobs, rows):
    slowdowns, shapes, gangs, works = CASES[case]
    rng = Random(f"{case} {jobs} {rows}")
    phase = jobs_like(rng, jobs, slowdowns, shapes, works)
    counts = divisions_of(rng, gangs, rows, 12)
    counts[1, 0] = 1
    order = np.argsort(phase_times_s(phase, gangs, counts), kind="stable").tolist()
    for most in (1, 5, 17):
        assert earliest(phase, gangs, counts, most) == order[:most]


def test_most_divisions_of_which_the_earliest_are_looked_for_are_not_packed(monkeypatch):
    rng, packed = Random(3), []
    phase = jobs_like(rng, 40, (NARROW,), (JobShape(tasks=8, min_tasks=1),))
    counts = divisions_of(rng, SIZES, 300, 12)
    end_times_s = batch.end_times_s
    monkeypatch.setattr(batch, "end_times_s", lambda alone, some: packed.append(len(some)) or end_times_s(alone, some))
    earliest(phase, SIZES, counts, 5)
    assert 5 <= sum(packed) < 150


def test_more_divisions_than_are_timed_together():
    rng = Random(5)
    phase = jobs_like(rng, 12, (WIDE,), (JobShape(tasks=2, min_tasks=2),))
    counts = divisions_of(rng, LEVELS, 1200, 9)
    expected = [phase_time_s(phase, division) for division in one_by_one(counts, LEVELS)]
    assert phase_times_s(phase, LEVELS, counts).tolist() == expected


def test_counts_too_large_for_one_key():
    gangs = tuple(GangAt(gpus, level) for gpus in (2, 3, 4, 5) for level in (Level.SLOT, Level.MACHINE))
    rng = Random(6)
    phase = jobs_like(rng, 5, (WIDE,), (JobShape(tasks=8, min_tasks=1),))
    counts = divisions_of(rng, gangs, 20, 400)
    expected = [phase_time_s(phase, division) for division in one_by_one(counts, gangs)]
    assert phase_times_s(phase, gangs, counts).tolist() == expected


@pytest.mark.parametrize("shape", [JobShape(tasks=2, min_tasks=2), JobShape(tasks=8), JobShape(tasks=4, min_tasks=1)])
def test_later_phases_are_timed_as_one_by_one(shape):
    rng = Random(7)
    cluster_view = cluster_view_of(cluster_of((2, 2), (2, 2), (4,), (4,), racks=("r0", "r1")))
    later = (Phase(jobs=9, iterations=33), Phase(jobs=4, iterations=70), Phase(jobs=1, iterations=111))
    app = app_of(jobs_like(rng, 14, (WIDE,), (shape,)), later_phases=later)
    counts = divisions_of(rng, (*LEVELS, *SIZES), 40, 3)
    expected = [finish_time_s(app, division, cluster_view) for division in one_by_one(counts, (*LEVELS, *SIZES))]
    assert finish_times_s(app, (*LEVELS, *SIZES), counts, cluster_view).tolist() == expected


def test_without_jobs_or_gangs():
    gangs, counts = (GangAt(1, Level.SLOT),), np.zeros((2, 1), dtype=np.int64)
    assert phase_times_s((), gangs, counts).tolist() == [0.0, 0.0]
    assert phase_times_s((job(),), gangs, counts).tolist() == [math.inf, math.inf]
