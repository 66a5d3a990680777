"""Steps from a candidate to a better one: never worse, within the free capacity, and none if nothing can change."""

import pytest
from agent_cases import FLAT, STRICT, app_of, cluster_of, cluster_view_of, job, space_of, whole_offer

from am.agent.candidates.gang_kinds import gang_kinds
from am.agent.candidates.local_search import greedy_search
from am.agent.candidates.multifit import multifit_candidates
from am.agent.model.finish_time import phase_time_s
from themis.apps import JobShape
from themis.cluster import Level
from themis.placement.gang_capacity import GangCapacity

CLUSTER = cluster_of(*[(2, 2)] * 8, *[(1, 1)] * 4, racks=("r0", "r1"))
RIGID, ELASTIC, WIDE = JobShape(tasks=2, min_tasks=2), JobShape(tasks=4), JobShape(tasks=2, gpus_per_task=2)


def kinds_of(app, cluster=CLUSTER):
    offer = whole_offer(cluster)
    return gang_kinds(app, GangCapacity(offer.free.by_machine(), offer.slots, cluster_view_of(cluster).rack_of))


def time_of(app, kinds, candidate):
    return phase_time_s(app.jobs, [kind.at for kind, count in zip(kinds, candidate, strict=True) for _ in range(count)])


def gpus_of(kinds, candidate):
    return sum(count * kind.at.gpus for count, kind in zip(candidate, kinds, strict=True))


@pytest.mark.parametrize("shapes", [[ELASTIC] * 30, [RIGID, ELASTIC, WIDE] * 8])
@pytest.mark.parametrize("slowdown", [FLAT, STRICT], ids=["flat", "strict"])
def test_they_are_no_worse_than_where_they_start_and_keep_to_the_limits(shapes, slowdown):
    app = app_of([job(f"j{place:02d}", 50 + 7 * place, shape, slowdown) for place, shape in enumerate(shapes)])
    kinds = kinds_of(app)
    starts = list(multifit_candidates(space_of(kinds, 24, CLUSTER.gpus, app.jobs)))
    candidates = list(greedy_search(space_of(kinds, 24, CLUSTER.gpus, app.jobs), starts))
    assert candidates == list(greedy_search(space_of(kinds, 24, CLUSTER.gpus, app.jobs), starts))
    assert min(time_of(app, kinds, candidate) for candidate in candidates) <= min(
        time_of(app, kinds, candidate) for candidate in starts
    )
    assert set(candidates) - set(starts)
    for candidate in candidates:
        assert all(0 <= count <= kind.most for count, kind in zip(candidate, kinds, strict=True))
        assert 0 < sum(candidate) <= 24
        assert 0 < gpus_of(kinds, candidate) <= CLUSTER.gpus


def test_a_large_gang_is_split_step_by_step():
    """Four like jobs: S makes a gang of four slower than four GPUs each on its own."""
    app = app_of([job(f"j{place}", 60.0, ELASTIC, STRICT) for place in range(4)])
    kinds = kinds_of(app, cluster_of((2, 2)))
    start = tuple(int(kind.at.gpus == 4 and kind.within is Level.MACHINE) for kind in kinds)
    times_s = [time_of(app, kinds, candidate) for candidate in greedy_search(space_of(kinds, 4, 4, app.jobs), [start])]
    assert times_s[0] == time_of(app, kinds, start)
    assert times_s == sorted(times_s, reverse=True)
    assert times_s[-1] == 60.0 < times_s[0]


def test_gangs_of_one_size_are_not_changed():
    app = app_of([job(f"j{place}", 60.0, RIGID, STRICT) for place in range(4)])
    kinds = kinds_of(app)
    assert (
        list(greedy_search(space_of(kinds, 4, 8, app.jobs), list(multifit_candidates(space_of(kinds, 4, 8, app.jobs)))))
        == []
    )
