"""Both uses of local search: never worse than their start, and within the free capacity."""

import itertools
import math

import numpy as np
import pytest
from agent_cases import FLAT, STRICT, app_of, cluster_of, cluster_view_of, job, space_of, whole_offer

from am.agent.candidates.gang_kinds import gang_kinds, splits
from am.agent.candidates.local_search import greedy_search, target_search
from am.agent.candidates.multifit import multifit_candidates
from am.agent.model.finish_time import phase_time_s
from themis.apps import JobShape
from themis.bids import FreeMachine
from themis.cluster import Level
from themis.placement.gang_capacity import GangCapacity
from themis_lab.bench.valuation_exact import divisions

CLUSTER = cluster_of(*[(2, 2)] * 8, *[(1, 1)] * 4, racks=("r0", "r1"))
RIGID, ELASTIC, WIDE = JobShape(tasks=2, min_tasks=2), JobShape(tasks=4), JobShape(tasks=2, gpus_per_task=2)


def capacity_of(cluster):
    offer = whole_offer(cluster)
    return GangCapacity(offer.free.by_machine(), offer.slots, cluster_view_of(cluster).rack_of)


def gangs_of(kinds, candidate):
    return [kind.at for kind, count in zip(kinds, candidate, strict=True) for _ in range(count)]


def app_with(shapes, slowdown):
    return app_of([job(f"j{place:02d}", 50 + 7 * place, shape, slowdown) for place, shape in enumerate(shapes)])


# ---- greedy search ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", [[ELASTIC] * 30, [RIGID, ELASTIC, WIDE] * 8])
@pytest.mark.parametrize("slowdown", [FLAT, STRICT], ids=["flat", "strict"])
def test_greedy_steps_are_no_worse_than_their_starts_and_keep_to_the_limits(shapes, slowdown):
    app = app_with(shapes, slowdown)
    kinds = gang_kinds(app, capacity_of(CLUSTER))
    starts = list(multifit_candidates(space_of(kinds, 24, CLUSTER.gpus, app.jobs)))
    candidates = list(greedy_search(space_of(kinds, 24, CLUSTER.gpus, app.jobs), starts))
    assert candidates == list(greedy_search(space_of(kinds, 24, CLUSTER.gpus, app.jobs), starts))
    assert min(phase_time_s(app.jobs, gangs_of(kinds, candidate)) for candidate in candidates) <= min(
        phase_time_s(app.jobs, gangs_of(kinds, candidate)) for candidate in starts
    )
    assert set(candidates) - set(starts)
    for candidate in candidates:
        assert all(0 <= count <= kind.most for count, kind in zip(candidate, kinds, strict=True))
        assert 0 < sum(candidate) <= 24
        assert 0 < sum(gang.gpus for gang in gangs_of(kinds, candidate)) <= CLUSTER.gpus


def test_greedy_search_splits_a_large_gang_step_by_step():
    """Four like jobs: S makes a gang of four slower than four GPUs each on its own."""
    app = app_of([job(f"j{place}", 60.0, ELASTIC, STRICT) for place in range(4)])
    kinds = gang_kinds(app, capacity_of(cluster_of((2, 2))))
    start = tuple(int(kind.at.gpus == 4 and kind.within is Level.MACHINE) for kind in kinds)
    times_s = [
        phase_time_s(app.jobs, gangs_of(kinds, candidate))
        for candidate in greedy_search(space_of(kinds, 4, 4, app.jobs), [start])
    ]
    assert times_s[0] == phase_time_s(app.jobs, gangs_of(kinds, start))
    assert times_s == sorted(times_s, reverse=True)
    assert times_s[-1] == 60.0 < times_s[0]


def test_greedy_search_does_not_change_gangs_of_one_size():
    app = app_of([job(f"j{place}", 60.0, RIGID, STRICT) for place in range(4)])
    kinds = gang_kinds(app, capacity_of(CLUSTER))
    space = space_of(kinds, 4, 8, app.jobs)
    assert list(greedy_search(space, list(multifit_candidates(space)))) == []


# ---- target search ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", [[ELASTIC] * 30, [RIGID, ELASTIC, WIDE] * 8])
@pytest.mark.parametrize("slowdown", [FLAT, STRICT], ids=["flat", "strict"])
def test_target_search_finds_ever_earlier_ends_and_keeps_to_the_capacity(shapes, slowdown, monkeypatch):
    app, capacity = app_with(shapes, slowdown), capacity_of(CLUSTER)
    kinds = gang_kinds(app, capacity)
    starts = list(multifit_candidates(space_of(kinds, 24, CLUSTER.gpus, app.jobs)))
    candidates = list(target_search(space_of(kinds, 24, capacity.gpus, app.jobs, capacity=capacity), starts))
    assert candidates == list(target_search(space_of(kinds, 24, capacity.gpus, app.jobs, capacity=capacity), starts))
    monkeypatch.setattr("am.agent.candidates.local_search.MAX_PACKED_CLOSELY", 1)
    steps = list(target_search(space_of(kinds, 24, capacity.gpus, app.jobs, capacity=capacity), starts))
    assert candidates[: len(steps)] == steps
    assert len(steps) > 1 or WIDE in shapes
    limits = capacity.limits([kind.request for kind in kinds])
    in_room = [candidate for candidate in starts if all(np.dot(taken, candidate) <= most for taken, most in limits)]
    ends_s = [min(phase_time_s(app.jobs, gangs_of(kinds, candidate)) for candidate in in_room)]
    for candidate in candidates:
        assert all(np.dot(taken, candidate) <= most for taken, most in limits)
        assert 0 < sum(candidate) <= 24
        ends_s.append(phase_time_s(app.jobs, gangs_of(kinds, candidate)))
    # The last step may change nothing. The next best changes follow it.
    assert all(later < sooner for sooner, later in itertools.pairwise(ends_s[: len(steps)]))
    assert ends_s[len(steps) :] == sorted(ends_s[len(steps) :])
    assert ends_s[len(steps)] == min(ends_s)


def test_target_search_may_end_with_a_candidate_for_the_whole_offer(monkeypatch):
    app, capacity = app_with([ELASTIC] * 30, FLAT), capacity_of(CLUSTER)
    kinds = gang_kinds(app, capacity)
    poor = tuple(int(place == 0) for place in range(len(kinds)))
    whole = min(
        multifit_candidates(space_of(kinds, 24, CLUSTER.gpus, app.jobs)),
        key=lambda candidate: phase_time_s(app.jobs, gangs_of(kinds, candidate)),
    )
    monkeypatch.setattr("am.agent.candidates.local_search._TARGET_STEPS", 0)
    space, found = space_of(kinds, 24, capacity.gpus, app.jobs, capacity=capacity), []
    for more in ([], [whole]):
        monkeypatch.setattr("am.agent.candidates.local_search.whole_offer_candidates", lambda _, more=more: more)
        found.append(next(target_search(space, [poor])))
    without, beside = found
    ends_s = [phase_time_s(app.jobs, gangs_of(kinds, candidate)) for candidate in (whole, without, beside)]
    assert ends_s[2] <= ends_s[0] < ends_s[1]


@pytest.mark.parametrize("works", [[60, 60, 60, 60], [90, 50, 40, 20], [100, 30, 30, 30, 20]])
@pytest.mark.parametrize("slowdown", [FLAT, STRICT], ids=["flat", "strict"])
def test_target_search_finds_the_best_division_of_a_small_bundle(works, slowdown):
    cluster = cluster_of((2, 2), (2,))
    app, capacity = (
        app_of([job(f"j{n}", work, ELASTIC, slowdown) for n, work in enumerate(works)]),
        capacity_of(cluster),
    )
    kinds = gang_kinds(app, capacity)
    start = tuple(int(kind.at.gpus == 4 and place == 0) for place, kind in enumerate(kinds))
    found = [start, *target_search(space_of(kinds, len(works), capacity.gpus, app.jobs, capacity=capacity), [start])]
    free = [
        FreeMachine(machine_id=each.machine_id, rack_id=each.rack_id, free_slots=each.slots)
        for each in cluster.machines
    ]
    best_s = min(phase_time_s(app.jobs, gangs) for gangs in divisions(app, free))
    assert min(phase_time_s(app.jobs, gangs_of(kinds, candidate)) for candidate in found) == pytest.approx(best_s)


def test_target_search_does_not_change_gangs_of_one_size():
    app, capacity = app_with([RIGID] * 4, STRICT), capacity_of(CLUSTER)
    kinds = gang_kinds(app, capacity)
    start = tuple(int(place == 0) for place in range(len(kinds)))
    assert list(target_search(space_of(kinds, 4, capacity.gpus, app.jobs, capacity=capacity), [start])) == []


def test_target_search_ends_where_no_end_can_be_earlier():
    app, capacity = app_of([job(f"j{n}", 0.0, ELASTIC, STRICT) for n in range(5)]), capacity_of(CLUSTER)
    kinds = gang_kinds(app, capacity)
    start = tuple(int(place == 0) for place in range(len(kinds)))
    found = list(target_search(space_of(kinds, 5, capacity.gpus, app.jobs, capacity=capacity), [start]))
    assert {phase_time_s(app.jobs, gangs_of(kinds, candidate)) for candidate in found} == {0.0}


def test_target_search_yields_nothing_without_a_start_that_fits_and_ends():
    app, capacity = app_with([RIGID, WIDE], STRICT), capacity_of(CLUSTER)
    kinds = gang_kinds(app, capacity)
    space = space_of(kinds, 2, capacity.gpus, app.jobs, capacity=capacity)
    assert list(target_search(space, [])) == []
    assert list(target_search(space, [(99,) * len(kinds)])) == []
    assert math.isinf(phase_time_s(app.jobs, []))
    assert list(target_search(space, [(0,) * len(kinds)])) == []


def test_capacity_counts_gpus_on_machines_that_are_large_enough():
    """Machines of one GPU hold no pair: two machines of four hold two gangs of three, and not two pairs beside."""
    cluster = cluster_of(*[(2, 2)] * 2, *[(1,)] * 16)
    app, capacity = app_with([ELASTIC] * 24, STRICT), capacity_of(cluster)
    kinds = gang_kinds(app, capacity)
    limits = capacity.limits([kind.request for kind in kinds])

    def fits(*wanted):
        candidate = [
            sum(count for size, within, count in wanted if (kind.at.gpus, kind.within.name) == (size, within))
            for kind in kinds
        ]
        return all(np.dot(taken, candidate) <= most for taken, most in limits)

    assert fits((3, "MACHINE", 2))
    assert fits((3, "MACHINE", 2), (1, "CLUSTER", 18))
    assert not fits((3, "MACHINE", 2), (2, "MACHINE", 2))
    assert not fits((3, "MACHINE", 3))
    assert not fits((3, "MACHINE", 2), (1, "CLUSTER", 19))


def test_target_search_yields_nothing_if_kinds_and_jobs_are_too_many(monkeypatch):
    app, capacity = app_with([ELASTIC] * 30, STRICT), capacity_of(CLUSTER)
    kinds = gang_kinds(app, capacity)
    start = tuple(int(place == 0) for place in range(len(kinds)))
    monkeypatch.setattr("am.agent.candidates.local_search._MAX_WORK", len(kinds) ** 2 * 30)
    assert list(target_search(space_of(kinds, 24, capacity.gpus, app.jobs, capacity=capacity), [start]))
    monkeypatch.setattr("am.agent.candidates.local_search._MAX_WORK", len(kinds) ** 2 * 30 - 1)
    assert list(target_search(space_of(kinds, 24, capacity.gpus, app.jobs, capacity=capacity), [start])) == []


def test_splits_are_all_pairs_of_places_that_make_up_another():
    assert list(splits((4, 2, 2, 1), range(4))) == [(0, 1, 1), (0, 1, 2), (0, 2, 2), (1, 3, 3), (2, 3, 3)]
    assert list(splits((4, 2, 2, 1), (0, 2, 3))) == [(0, 2, 2), (2, 3, 3)]
