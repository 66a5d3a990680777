"""Asks that fill a bundle: they keep to the room there is, and make large bids better."""

import itertools

import numpy as np
import pytest
from agent_cases import FLAT, STRICT, app_of, cluster_of, cluster_view_of, job, jobs_of, space_of, whole_offer

from am.agent.candidates.enumeration import enumerate_candidates
from am.agent.candidates.gang_kinds import gang_kinds
from am.agent.candidates.generation import generate_candidates
from am.agent.candidates.list_scheduling import Jobs, _leasts_of, list_scheduling_candidates, scheduled_by_shape
from am.agent.model.finish_time import phase_time_s
from am.agent.model.views import GangAt
from themis.apps import JobShape
from themis.cluster import Level
from themis.placement.gang_capacity import GangCapacity

CLUSTER = cluster_of(*[(2, 2)] * 8, *[(1, 1)] * 4, racks=("r0", "r1"))
RIGID, ELASTIC, WIDE = JobShape(tasks=2, min_tasks=2), JobShape(tasks=4), JobShape(tasks=2, gpus_per_task=2)


def kinds_of(app):
    offer = whole_offer(CLUSTER)
    return gang_kinds(app, GangCapacity(offer.free.by_machine(), offer.slots, cluster_view_of(CLUSTER).rack_of))


def mixed(*shapes, slowdown=STRICT):
    return app_of([job(f"j{place:02d}", 50 + 7 * place, shape, slowdown) for place, shape in enumerate(shapes)])


@pytest.mark.parametrize("shapes", [[RIGID] * 20, [ELASTIC] * 30, [RIGID, ELASTIC, WIDE] * 8])
@pytest.mark.parametrize("slowdown", [FLAT, STRICT], ids=["flat", "strict"])
def test_they_keep_to_the_limits_and_come_in_one_order(shapes, slowdown):
    app = mixed(*shapes, slowdown=slowdown)
    kinds = kinds_of(app)
    candidates = list(generate_candidates(space_of(kinds, 12, 30, app.jobs)))
    assert candidates == list(generate_candidates(space_of(kinds, 12, 30, app.jobs)))
    assert len(candidates) > 10
    for counts in candidates:
        assert all(count <= kind.most for count, kind in zip(counts, kinds, strict=True))
        assert 0 < sum(counts) <= 12
        assert 0 < sum(count * kind.at.gpus for count, kind in zip(counts, kinds, strict=True)) <= 30


def test_tight_places_are_filled_before_looser_ones():
    app = mixed(*[RIGID] * 30)
    kinds = kinds_of(app)
    levels = [kind.within for kind in kinds]
    full = max(
        generate_candidates(space_of(kinds, 30, CLUSTER.gpus, app.jobs)), key=lambda counts: (sum(counts), counts)
    )
    assert full[levels.index(Level.SLOT)] == 16
    assert full[levels.index(Level.MACHINE)] == 4


def test_list_scheduling_candidates_are_added_to_a_grid():
    app = mixed(*[ELASTIC] * 60)
    kinds = kinds_of(app)
    candidates, missing = enumerate_candidates(space_of(kinds, 60, CLUSTER.gpus, app.jobs))
    assert missing > 0
    known = set(map(tuple, candidates.tolist()))
    assert len(known) == len(candidates)
    assert known >= set(itertools.islice(generate_candidates(space_of(kinds, 60, CLUSTER.gpus, app.jobs)), 150))
    assert not np.array(candidates[0]).any()


def test_list_scheduling_candidates_come_in_coarse_totals_first_and_then_ascending():
    """A bid keeps the first candidates: eight GPUs, four, then the multiples of two, then the others."""
    app = app_of(jobs_of([100.0] * 8))
    (kind,) = kinds = kinds_of(app)
    found = [gangs * kind.at.gpus for (gangs,) in list_scheduling_candidates(space_of(kinds, 8, 8, app.jobs))]
    assert list(dict.fromkeys(found)) == [8, 4, 2, 6, 1, 3, 5, 7]


def test_jobs_that_need_the_largest_gangs_are_scheduled_first():
    """The short jobs, which any gang can run, would else fill the only one that is large enough for the others."""
    small = jobs_of([100.0, 100.0], JobShape())
    large = (job("l0", 80.0, RIGID), job("l1", 80.0, RIGID))
    gangs = [GangAt(2, Level.SLOT), GangAt(1, Level.SLOT), GangAt(1, Level.SLOT)]
    assert phase_time_s((*small, *large), gangs) == 100.0


def test_smallest_sizes_that_are_equal_are_scheduled_once():
    """At least half of one task or of two is one task; all of two are two."""
    assert _leasts_of(jobs_of((1.0,))) == [0.0]
    assert _leasts_of(jobs_of((1.0, 2.0), JobShape(tasks=2))) == [0.0, 1.0]
    assert _leasts_of((*jobs_of((1.0,)), *jobs_of((1.0,), JobShape(tasks=4)))) == [0.0, 0.5, 1.0]
    assert _leasts_of(jobs_of((1.0,), JobShape(tasks=4, min_tasks=4))) == [0.0]


@pytest.mark.parametrize("shapes", [[RIGID] * 20, [ELASTIC] * 30, [RIGID, ELASTIC, WIDE] * 8])
def test_gangs_have_the_gpus_of_their_total(shapes):
    app = mixed(*shapes)
    by_shape = [scheduled_by_shape(app.jobs, 12, 30, least) for least in (0.0, 0.5, 1.0)]
    by_job = Jobs(app.jobs, {(2, 1): Level.SLOT}).scheduled_by_job(len(app.jobs), 30)
    for scheduled in (*by_shape, by_job):
        totals = [gpus for gpus, _ in scheduled]
        assert len(totals) > 5
        assert totals == sorted(set(totals))
        assert totals == [sum(size * count for size, _, count in sizes) for _, sizes in scheduled]
