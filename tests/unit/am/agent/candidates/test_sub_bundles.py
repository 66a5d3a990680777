"""What is left of an offer when others win machines of it: by hand."""

from agent_cases import STRICT, app_of, cluster_of, cluster_view_of, job, space_of, whole_offer

from am.agent.candidates.gang_kinds import gang_kinds
from am.agent.candidates.sub_bundles import sub_bundle_candidates
from themis.apps import JobShape
from themis.placement.gang_capacity import GangCapacity

PAIRS = JobShape(tasks=2, min_tasks=2)
# Two machines with a pair in one slot, two with single slots, three of one GPU in one rack with them.
CLUSTER = cluster_of((2,), (2,), (1, 1), (1, 1), (1,), (1,), (1,), racks=("r0",) * 7)


def sub_bundles(shape=PAIRS, max_gangs=20, slowdown=STRICT, cluster=CLUSTER):
    app = app_of([job(f"j{place}", 100.0, shape, slowdown) for place in range(20)])
    offer = whole_offer(cluster)
    capacity = GangCapacity(offer.free.by_machine(), offer.slots, cluster_view_of(cluster).rack_of)
    kinds = gang_kinds(app, capacity)
    return [kind.within.name for kind in kinds], sub_bundle_candidates(
        space_of(kinds, max_gangs, capacity.gpus, app.jobs, capacity=capacity)
    )


def test_the_whole_offer_is_placed_as_tightly_as_possible():
    levels, found = sub_bundles()
    assert levels == ["SLOT", "MACHINE", "CLUSTER"]
    # Two pairs in slots, two on machines, one over two of the three single GPUs.
    assert found[0] == (2, 2, 1)


def test_all_combinations_of_identical_machines_are_found():
    _, found = sub_bundles()
    assert {(slots, machines, singles // 2) for slots in range(3) for machines in range(3) for singles in range(4)} - {
        (0, 0, 0)
    } == set(found)


def test_no_more_gangs_than_are_wanted_the_farthest_left_out():
    _, found = sub_bundles(max_gangs=3)
    assert found[0] == (2, 1, 0)
    assert all(0 < sum(candidate) <= 3 for candidate in found)


def test_where_not_all_parts_are_tried_those_are_finest_that_hold_most_gpus(monkeypatch):
    """Of four machines of four GPUs every number, of four single GPUs none and all."""
    monkeypatch.setattr("am.agent.candidates.sub_bundles._MAX_COMBINATIONS", 14)
    _, found = sub_bundles(cluster=cluster_of(*[(4,)] * 4, *[(1,)] * 4, racks=("r0",) * 8))
    assert set(found) == {(pairs, others) for pairs in (0, 2, 4, 6, 8) for others in (0, 2)} - {(0, 0)}


def test_none_for_gangs_of_several_sizes_or_at_one_level():
    assert sub_bundles(JobShape(tasks=2))[1] == []
    assert sub_bundles(JobShape())[1] == []
