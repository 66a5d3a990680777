"""MULTIFIT candidates: they stay within the free capacity, and need no more GPUs than the end time takes."""

import pytest
from agent_cases import FLAT, STRICT, app_of, cluster_of, cluster_view_of, job, jobs_of, space_of, whole_offer

from am.agent.candidates.gang_kinds import gang_kinds
from am.agent.candidates.multifit import capacity_taken, multifit_candidates
from am.agent.model.finish_time import phase_time_s
from themis.apps import JobShape
from themis.cluster import Level
from themis.placement.gang_capacity import GangCapacity

CLUSTER = cluster_of(*[(2, 2)] * 8, *[(1, 1)] * 4, racks=("r0", "r1"))
RIGID, ELASTIC, WIDE = JobShape(tasks=2, min_tasks=2), JobShape(tasks=4), JobShape(tasks=2, gpus_per_task=2)


def kinds_of(app, cluster=CLUSTER):
    offer = whole_offer(cluster)
    return gang_kinds(app, GangCapacity(offer.free.by_machine(), offer.slots, cluster_view_of(cluster).rack_of))


def mixed(*shapes, slowdown=STRICT):
    return app_of([job(f"j{place:02d}", 50 + 7 * place, shape, slowdown) for place, shape in enumerate(shapes)])


def time_of(app, kinds, candidate):
    return phase_time_s(app.jobs, [kind.at for kind, count in zip(kinds, candidate, strict=True) for _ in range(count)])


@pytest.mark.parametrize("shapes", [[RIGID] * 20, [ELASTIC] * 30, [RIGID, ELASTIC, WIDE] * 8])
@pytest.mark.parametrize("slowdown", [FLAT, STRICT], ids=["flat", "strict"])
def test_they_keep_to_the_limits_and_come_in_one_order(shapes, slowdown):
    app = mixed(*shapes, slowdown=slowdown)
    kinds = kinds_of(app)
    candidates = list(multifit_candidates(space_of(kinds, 12, 30, app.jobs)))
    assert candidates == list(multifit_candidates(space_of(kinds, 12, 30, tuple(reversed(app.jobs)))))
    assert len(candidates) > 10
    for counts in candidates:
        assert all(0 <= count <= kind.most for count, kind in zip(counts, kinds, strict=True))
        assert 0 < sum(counts) <= 12
        assert 0 < sum(count * kind.at.gpus for count, kind in zip(counts, kinds, strict=True)) <= 30


def test_long_jobs_get_large_gangs_and_short_ones_queue():
    """40 s on two GPUs, and twice two of 10 s on one: no GPU is idle before the end."""
    app = app_of(jobs_of([40.0, 10.0, 10.0, 10.0, 10.0], ELASTIC))
    kinds = kinds_of(app, cluster_of((4,)))
    candidates = list(multifit_candidates(space_of(kinds, 5, 4, app.jobs)))
    assert min(time_of(app, kinds, candidate) for candidate in candidates) == 20.0
    assert candidates[-1] == tuple(int(kind.at.gpus == 1) for kind in kinds)


def test_ends_go_on_until_one_gang_is_left():
    """As many GPUs as each end takes: fewer and fewer."""
    app = app_of(jobs_of([3.0, 3.0, 2.0, 2.0, 2.0], JobShape(tasks=1)))
    kinds = kinds_of(app, cluster_of((4,)))
    assert {sum(candidate) for candidate in multifit_candidates(space_of(kinds, 5, 4, app.jobs))} == {1, 2, 3, 4}


def test_a_job_without_a_usable_kind_gives_no_candidates():
    app = app_of([job("a", 10.0, JobShape(tasks=1)), job("b", 10.0, JobShape(tasks=8, min_tasks=8))])
    kinds = kinds_of(app, cluster_of((4,)))
    assert kinds
    assert list(multifit_candidates(space_of(kinds, 2, 4, app.jobs))) == []


def test_larger_gangs_take_the_room_of_smaller_ones():
    """Machines of two slots of two: a gang of three breaks both slots, one of four takes no more."""
    app = mixed(*[ELASTIC] * 4)
    kinds = kinds_of(app, cluster_of((2, 2), (2, 2)))
    taken = capacity_taken(kinds)
    place = {(kind.at.gpus, kind.within): number for number, kind in enumerate(kinds)}
    four, three, pair = (place[gpus, Level.MACHINE] for gpus in (4, 3, 2))
    slot = place[2, Level.SLOT]
    assert [taken[pair][taker] for taker in (four, three, pair, slot)] == [2.0, 2.0, 1.0, 1.0]
    assert [taken[three][taker] for taker in (four, three, pair)] == [1.0, 1.0, 0.0]
    assert [taken[slot][taker] for taker in (four, pair, slot)] == [0.0, 0.0, 1.0]
