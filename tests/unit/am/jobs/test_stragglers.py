"""Which running jobs count as waiting: those that end after all others, and would end earlier if they waited."""

from agent_cases import FLAT, cluster_of, job

from am.agent.model.views import GangAt
from am.jobs.pool import Pool
from am.jobs.stragglers import find_stragglers
from themis.apps import JobShape
from themis.cluster import Level

ELASTIC, WIDE = JobShape(tasks=4), JobShape(tasks=4, min_tasks=4)
ONE, FOUR = GangAt(1, Level.SLOT), GangAt(4, Level.SLOT)


def pool_of(gpus):
    cluster = cluster_of((gpus,))
    return Pool(cluster.gpu_set, cluster)


def straggler_ids(running, waiting, gpus, restart_s=8.0):
    on_gangs = [(job(name, work, shape, FLAT), gang) for name, work, shape, gang in running]
    views = [job(f"w{place}", work, WIDE, FLAT) for place, work in enumerate(waiting)]
    return [view.job_id for view in find_stragglers(on_gangs, views, pool_of(gpus), restart_s)]


def test_a_job_on_one_gpu_that_four_would_end_in_time():
    assert straggler_ids([("a", 1000.0, ELASTIC, ONE)], [400.0], 4) == ["a"]


def test_none_while_others_end_later_anyway():
    assert straggler_ids([("a", 1000.0, ELASTIC, ONE)], [4000.0], 4) == []


def test_none_that_a_restart_makes_no_earlier():
    assert straggler_ids([("a", 1000.0, ELASTIC, ONE)], [400.0], 4, restart_s=380.0) == []


def test_none_that_could_be_no_faster():
    assert straggler_ids([("a", 4000.0, WIDE, FOUR)], [400.0], 4) == []


def test_several_stragglers_are_found_latest_first():
    """Each takes about 250 s on the four; three of them would end later than the last on its own GPU."""
    running = [("a", 1000.0, ELASTIC, ONE), ("b", 900.0, ELASTIC, ONE), ("c", 100.0, ELASTIC, ONE)]
    assert straggler_ids(running, [400.0], 4) == ["a", "b"]
    running = [("a", 1000.0, ELASTIC, ONE), ("b", 990.0, ELASTIC, ONE), ("c", 980.0, ELASTIC, ONE)]
    assert straggler_ids(running, [800.0], 4) == ["a", "b"]


def test_of_jobs_with_equal_last_ends_none_is_a_straggler():
    """The app ends no earlier if one of them waits. If `b` ends clearly later, both are stragglers."""
    running = [("a", 1000.0, ELASTIC, ONE), ("b", 1000.0, ELASTIC, ONE), ("c", 100.0, ELASTIC, ONE)]
    for some in (running, running[::-1]):
        assert straggler_ids(some, [400.0], 4) == []
    assert straggler_ids([running[0], ("b", 1300.0, ELASTIC, ONE), running[2]], [400.0], 4) == ["b", "a"]


def test_job_that_ends_after_a_straggler_but_could_be_no_faster_leaves_none():
    """The app ends no earlier, whatever the other job does."""
    straggler, single = ("a", 1000.0, ELASTIC, ONE), ("z", 5000.0, JobShape(tasks=1), ONE)
    assert straggler_ids([straggler], [400.0], 4) == ["a"]
    assert straggler_ids([straggler, single], [400.0], 4) == []


def test_job_that_no_division_ends_earlier_leaves_none():
    """Behind the wide job, `z` would end at 600 + 500 s on two GPUs. So the app ends no earlier if `a` moves."""
    z, a = ("z", 1000.0, JobShape(tasks=2), ONE), ("a", 950.0, ELASTIC, ONE)
    assert straggler_ids([a], [2400.0], 4) == ["a"]
    assert straggler_ids([z, a], [2400.0], 4) == []


def test_idle_gpus_are_there_at_once():
    """On the four, the waiting job takes 1 s and then this one 0.5 s, instead of 2 s on its own GPU."""
    assert straggler_ids([("a", 2.0, ELASTIC, ONE)], [4.0], 4, restart_s=0.0) == ["a"]
