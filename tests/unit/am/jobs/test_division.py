"""Which way to share idle GPUs is chosen; those that surely end later are not followed to their end."""

import math
from random import Random

import pytest
from agent_cases import CRUDE_SLOWDOWN, FLAT, STRICT, job

from am.agent.views import GangAt
from am.jobs import division
from am.jobs.division import best_starts
from themis.apps import JobShape
from themis.cluster import Level

SHAPES = (JobShape(), JobShape(tasks=4), JobShape(tasks=2, min_tasks=2), JobShape(tasks=2, gpus_per_task=2))


def laid(jobs, sizes):
    """Every gang as near as two GPUs a slot and four a machine allow."""
    return [
        GangAt(size, Level.SLOT if size <= 2 else Level.MACHINE if size <= 4 else Level.RACK)
        for _, size in zip(jobs, sizes, strict=False)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_the_choice_is_that_of_following_every_way_to_its_end(monkeypatch, seed):
    rng = Random(seed)
    shapes, slowdown = rng.sample(SHAPES, rng.randint(1, 3)), rng.choice((FLAT, STRICT, CRUDE_SLOWDOWN))
    drawn = [job(f"j{place:02}", rng.uniform(10, 900), rng.choice(shapes), slowdown) for place in range(12)]
    waiting = sorted(drawn[3:], key=lambda each: (-each.serial_work_s, each.job_id))
    running = [(each, GangAt(each.shape.demand_min_gpus, Level.MACHINE)) for each in drawn[:3]]
    arguments = (waiting, running, rng.randint(1, 12), laid, rng.choice((0.0, 40.0)))
    chosen = best_starts(*arguments)
    ended = []
    ends_s = division._ends_s

    def to_the_end(jobs, beside, gangs, best_s):
        ended.append(ends_s(jobs, beside, gangs, math.inf) != ends_s(jobs, beside, gangs, best_s))
        return ends_s(jobs, beside, gangs, math.inf)

    monkeypatch.setattr(division, "_ends_s", to_the_end)
    monkeypatch.setattr(division, "_later", lambda *_: False)
    assert best_starts(*arguments) == chosen
    assert ended


def test_of_two_ways_that_end_alike_the_one_with_more_jobs():
    """The first job ends last in both (4, 4) and (4, 4, 1); three threes end later."""
    waiting = [job(name, work, JobShape(tasks=4), FLAT) for name, work in (("a", 650.0), ("b", 512.0), ("c", 54.0))]
    chosen = best_starts(waiting, (), 9, laid, 8.0)
    assert [(each.job_id, size) for each, size in chosen] == [("a", 4), ("b", 4), ("c", 1)]
