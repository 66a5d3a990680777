"""The room of free GPUs is counted once for all that are offered the same; other slots are another room."""

from agent_cases import around_of, cluster_of, job, offer_of, whole_offer

from am.agent.kinds import room_of, telling_slowdown
from themis.apps import JobShape, Slowdown
from themis.cluster import Allocation, Level


def test_who_is_offered_the_same_is_told_of_one_room():
    cluster = cluster_of((2, 2), (2, 2))
    around = around_of(cluster)
    first, again = whole_offer(cluster), whole_offer(cluster, round_id=2)
    assert first.free is not again.free
    assert room_of(first.free, first, around) is room_of(again.free, again, around)


def test_other_slots_and_other_free_gpus_are_another_room():
    cluster = cluster_of((2, 2), (2, 2))
    around = around_of(cluster)
    offer = whole_offer(cluster)
    whole = room_of(offer.free, offer, around)
    broken = offer_of({"m0": (1, 3), "m1": (1, 3)})
    assert whole.most(2, 1, Level.SLOT) == 4
    assert room_of(broken.free, broken, around).most(2, 1, Level.SLOT) == 2
    assert whole.most(4, 1, Level.MACHINE) == 2
    less = offer.free - Allocation.of({"m1": 4})
    assert room_of(less, offer, around).most(4, 1, Level.MACHINE) == 1


def test_jobs_of_one_gpu_ask_for_the_same_whatever_s_is_across_slots():
    steep, flat = Slowdown(1.0, 2.0, 3.0, 4.0), Slowdown(1.0, 1.0, 1.0, 1.0)
    one, other = (job("j", 10, JobShape(tasks=1), slowdown) for slowdown in (steep, flat))
    assert telling_slowdown(one) is telling_slowdown(other)
    assert telling_slowdown(one).slot == 1.0
    assert telling_slowdown(job("j", 10, JobShape(tasks=2, min_tasks=1), steep)) is steep
    assert telling_slowdown(job("j", 10, JobShape(tasks=1), Slowdown(1.5, 2.0, 3.0, 4.0))).slot == 1.5
