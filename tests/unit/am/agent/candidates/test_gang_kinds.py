"""How many gangs fit into free GPUs, and which S matters to a job."""

from agent_cases import cluster_of, cluster_view_of, job, offer_of, whole_offer

from am.agent.candidates.gang_kinds import relevant_slowdown
from themis.apps import JobShape, Slowdown
from themis.cluster import Level
from themis.placement.gang_capacity import GangCapacity


def test_other_slots_are_other_free_capacity():
    cluster = cluster_of((2, 2), (2, 2))
    cluster_view, offer = cluster_view_of(cluster), whole_offer(cluster)
    whole = GangCapacity(offer.free.by_machine(), offer.slots, cluster_view.rack_of)
    broken = offer_of({"m0": (1, 3), "m1": (1, 3)})
    assert whole.most(2, 1, Level.SLOT) == 4
    assert GangCapacity(broken.free.by_machine(), broken.slots, cluster_view.rack_of).most(2, 1, Level.SLOT) == 2
    assert whole.most(4, 1, Level.MACHINE) == 2


def test_the_relevant_slowdown_of_one_gpu_is_that_of_a_slot():
    steep, flat = Slowdown(1.0, 2.0, 3.0, 4.0), Slowdown(1.0, 1.0, 1.0, 1.0)
    one, other = (job("j", 10, JobShape(tasks=1), slowdown) for slowdown in (steep, flat))
    assert relevant_slowdown(one) == relevant_slowdown(other)
    assert relevant_slowdown(one).slot == 1.0
    assert relevant_slowdown(job("j", 10, JobShape(tasks=2, min_tasks=1), steep)) is steep
    assert relevant_slowdown(job("j", 10, JobShape(tasks=1), Slowdown(1.5, 2.0, 3.0, 4.0))).slot == 1.5
