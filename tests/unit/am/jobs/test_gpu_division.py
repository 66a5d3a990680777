"""The choice of a division of idle GPUs. Divisions that provably end later are not simulated to their end."""

import heapq
import math
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from agent_cases import CRUDE_SLOWDOWN, FLAT, STRICT, job

from am.agent import _packing
from am.agent.model.division_times import CERTAIN
from am.agent.model.finish_time import job_time_s, longest_first
from am.agent.model.views import GangAt, JobView
from am.jobs import gpu_division
from am.jobs.gpu_division import DivisionContext, best_starts
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
    waiting = sorted(drawn[3:], key=longest_first)
    running = [(each, GangAt(each.shape.demand_min_gpus, Level.MACHINE)) for each in drawn[:3]]
    gpus, restart_s = rng.randint(1, 12), rng.choice((0.0, 40.0))
    behind = sorted(
        (job(f"k{place}", rng.uniform(10, 900), rng.choice(shapes), slowdown) for place in range(rng.randint(0, 4))),
        key=longest_first,
    )
    late = [job(f"l{place}", rng.uniform(10, 900), rng.choice(shapes), slowdown) for place in range(rng.randint(0, 2))]
    beside = DivisionContext(running=running, behind=behind, stragglers=late, within=rng.choice(list(Level)))
    arguments = (waiting, gpus, laid, restart_s, lambda: beside)
    chosen = best_starts(*arguments)
    ended = []
    ends_s = gpu_division._DivisionEvaluator.ends_s

    def to_the_end(weighed, jobs, gangs, best_s):
        ended.append(ends_s(weighed, jobs, gangs, math.inf) != ends_s(weighed, jobs, gangs, best_s))
        return ends_s(weighed, jobs, gangs, math.inf)

    monkeypatch.setattr(gpu_division._DivisionEvaluator, "ends_s", to_the_end)
    monkeypatch.setattr(gpu_division, "_ends_later", lambda *_: False)
    assert best_starts(*arguments) == chosen
    assert ended


def test_equal_ends_prefer_more_jobs():
    """The first job ends last in both (4, 4) and (4, 4, 1); three threes end later."""
    waiting = [job(name, work, JobShape(tasks=4), FLAT) for name, work in (("a", 650.0), ("b", 512.0), ("c", 54.0))]
    chosen = best_starts(waiting, 9, laid, 8.0)
    assert [(each.job_id, size) for each, size in chosen] == [("a", 4), ("b", 4), ("c", 1)]


def sizes_of(*arguments):
    return [(each.job_id, size) for each, size in best_starts(*arguments)]


def test_a_gang_that_a_job_left_goes_to_one_that_needs_all_of_it():
    """Two wide jobs wait, and the longest jobs are narrow: split into single GPUs the four would run no wide one."""
    wide = JobShape(tasks=4, min_tasks=4)
    waiting = [job("narrow0", 110.0, JobShape(), FLAT), job("narrow1", 105.0, JobShape(), FLAT)]
    waiting += [job(f"wide{place}", 100.0, wide, FLAT) for place in range(2)]
    running = ((job(f"r{place}", 10.0, JobShape(), FLAT), GangAt(1, Level.SLOT)) for place in range(2))
    beside = DivisionContext(running=tuple(running))
    assert sizes_of(waiting, 4, laid, 0.0, lambda: beside) == [("wide0", 4)]


def test_of_equally_large_gangs_the_one_of_smaller_tasks_is_filled_first():
    """As above, but one wide job has tasks of two GPUs. It comes first by its id, and both would end all jobs alike."""
    waiting = [job(f"narrow{place}", work, JobShape(), FLAT) for place, work in enumerate((110.0, 105.0))]
    waiting += [job("pairs", 100.0, JobShape(tasks=2, min_tasks=2, gpus_per_task=2), FLAT)]
    waiting += [job("singles", 100.0, JobShape(tasks=4, min_tasks=4), FLAT)]
    running = tuple((job(f"r{place}", 10.0, JobShape(), FLAT), GangAt(1, Level.SLOT)) for place in range(2))
    assert sizes_of(waiting, 4, laid, 0.0, lambda: DivisionContext(running=running)) == [("singles", 4)]


def test_jobs_that_wait_behind_count():
    """Alone the short job would wait for the gang of four in use; that has wide jobs to run until then."""
    wide, short = JobShape(tasks=4, min_tasks=4), JobShape(tasks=4)
    waiting = [job("long", 100.0, short, FLAT), job("short", 80.0, short, FLAT)]
    running = ((job("r", 40.0, wide, FLAT), GangAt(4, Level.MACHINE)),)
    behind = tuple(job(f"wide{place}", 400.0, wide, FLAT) for place in range(2))
    alone = sizes_of(waiting, 3, laid, 0.0, lambda: DivisionContext(running=running))
    crowded = sizes_of(waiting, 3, laid, 0.0, lambda: DivisionContext(running=running, behind=behind))
    assert alone == [("long", 3)]
    assert crowded == [("long", 2), ("short", 1)]


def test_the_division_of_the_bid_competes_with_the_plain_ones():
    """Only gangs of three lie near: six of them run three jobs each, where the plain ways make four of them at most."""
    waiting = [job(f"j{place:02}", 60.0, JobShape(tasks=4), STRICT) for place in range(18)]
    threes = [(f"j{place:02}", 3) for place in range(6)]

    def place_in_turn(jobs, sizes):
        return [GangAt(size, Level.SLOT if size == 3 else Level.CLUSTER) for _, size in zip(jobs, sizes, strict=False)]

    assert sizes_of(waiting, 18, place_in_turn, 0.0) != threes
    assert sizes_of(waiting, 18, place_in_turn, 0.0, lambda: DivisionContext(of_bid=(waiting, (3,) * 6))) == threes


def test_a_gang_meant_to_stay_idle_gets_the_job_that_ends_first():
    """Both would follow the job that runs in a slot; on GPUs that lie apart the shorter one overruns less."""
    pair = JobShape(tasks=2, min_tasks=2)
    waiting = [job("long", 90.0, pair, STRICT), job("short", 60.0, pair, STRICT)]
    running = ((job("r", 2.0, pair, STRICT), GangAt(2, Level.SLOT)),)

    def apart(jobs, sizes):
        return [GangAt(size, Level.CLUSTER) for _, size in zip(jobs, sizes, strict=False)]

    assert sizes_of(waiting, 2, apart, 0.0, lambda: DivisionContext(running=running)) == [("short", 2)]


def test_a_gang_is_begun_by_a_job_that_uses_all_of_it():
    """A job of tasks of two would leave one of three GPUs to another job, and the gang of three would be no more."""
    pairs = job("p", 300.0, JobShape(tasks=2, min_tasks=1, gpus_per_task=2), FLAT)
    elastic = [
        job(f"e{place}", work, JobShape(tasks=3, min_tasks=3), FLAT) for place, work in enumerate((240.0, 210.0))
    ]
    running = [(job("r", 600.0, JobShape(tasks=3, min_tasks=3), FLAT), GangAt(3, Level.SLOT))]
    waiting = sorted([pairs, *elastic], key=longest_first)
    chosen = best_starts(waiting, 3, laid, 0.0, lambda: DivisionContext(running=running))
    assert [(each.job_id, size) for each, size in chosen] == [("e0", 3)]


def test_a_late_job_starts_on_a_gang_that_is_best_left_to_it():
    """It takes 250 s there; the two that wait take no longer together with the one that is free at 180 s."""
    wide = JobShape(tasks=4, min_tasks=4)
    waiting = [job(f"w{place}", work, wide, FLAT) for place, work in enumerate((100.0, 90.0))]
    beside = DivisionContext(
        running=[(job("r", 720.0, wide, FLAT), GangAt(4, Level.SLOT))], stragglers=[job("late", 1000.0, wide, FLAT)]
    )
    chosen = best_starts(waiting, 4, laid, 8.0, lambda: beside)
    assert [(each.job_id, size) for each, size in chosen] == [("late", 4)]


def plain_ends_s(weighed, ends, queue, best_s):
    """What `core/schedule_simulation.c` computes, in plain Python."""
    ends = list(ends)
    heapq.heapify(ends)
    last_s, idle = 0.0, 0
    while ends:
        if not queue:
            return max(ends)[0]
        last_s, gpus, level = heapq.heappop(ends)
        if last_s * CERTAIN >= best_s:
            return last_s
        sizes = gpu_division.share_evenly(queue, idle + gpus)
        left = gpus
        for each, size in zip(queue, sizes, strict=False):
            left -= size
            here = Level.SLOT if size == 1 else level if left >= 0 else max(level, weighed._within)
            heapq.heappush(ends, (last_s + weighed._start_s + job_time_s(each, GangAt(size, here)), size, here))
        idle += gpus - sum(sizes)
        queue = queue[len(sizes) :]
    return math.inf if queue else last_s


@pytest.mark.parametrize("seed", range(60))
def test_jobs_are_followed_in_c_as_in_plain_python(seed):
    rng = Random(f"{seed} followed")
    shapes = (
        *(JobShape(tasks=1), JobShape(tasks=4), JobShape(tasks=3, min_tasks=2, gpus_per_task=2), JobShape(tasks=2)),
        *(JobShape(tasks=5, min_tasks=3), JobShape(tasks=2, gpus_per_task=3), JobShape(tasks=3, gpus_per_task=2)),
    )
    jobs = [
        job(
            f"j{number:02d}",
            rng.choice((40.0, 0.7, rng.uniform(1, 90))),
            rng.choice(shapes),
            rng.choice((FLAT, STRICT)),
        )
        for number in range(rng.randint(1, 30))
    ]
    jobs.sort(key=longest_first)
    gangs = [GangAt(rng.randint(1, 4), rng.choice(list(Level)[:2])) for _ in range(rng.randint(0, len(jobs)))]
    running = [
        (job(f"r{number}", rng.uniform(0, 60)), GangAt(rng.randint(1, 12), rng.choice(list(Level)[1:])))
        for number in range(seed % 4)
    ]
    behind = [job("b", 70.0, shapes[2])] if seed % 3 else []
    beside = DivisionContext(running=running, behind=behind, within=rng.choice(list(Level)))
    weighed = gpu_division._DivisionEvaluator(jobs, beside, rng.choice((0.0, 0.1, 0.2, 4.0)))
    at_ends_s = [free_s for _, free_s in weighed.busy]
    best_s = (math.inf, *(rng.uniform(0, 300) for _ in range(3)), *at_ends_s, *(end_s * CERTAIN for end_s in at_ends_s))
    found = [weighed.ends_s(jobs, gangs, each) for each in best_s]
    weighed._following = SimpleNamespace(
        ends_s=lambda ends, queue, within, start_s, best_s: plain_ends_s(weighed, ends, queue, best_s)
    )
    assert found == [weighed.ends_s(jobs, gangs, each) for each in best_s]


class TestFollowing:
    """Hand-made cases in which compiled and plain code could differ, which random cases rarely reach."""

    def told_s(self, running, waiting, within=Level.SLOT, start_s=0.0, best_s=math.inf):
        ends = [(end_s, gang.gpus, gang.level) for end_s, gang in running]
        weighed = gpu_division._DivisionEvaluator(waiting, DivisionContext(within=within), start_s)
        told_s = gpu_division._Following(waiting).ends_s(ends, waiting, within, start_s, best_s)
        assert told_s == plain_ends_s(weighed, ends, waiting, best_s)
        return told_s

    def test_times_are_added_up_in_one_order(self):
        assert (0.1 + 0.2) + 0.3 != 0.1 + (0.2 + 0.3)
        assert self.told_s([(0.1, GangAt(1, Level.SLOT))], [job("w", 0.3)], start_s=0.2) == (0.1 + 0.2) + 0.3

    @pytest.mark.parametrize(("best_s", "told_s"), [(7.0, 16.0), (7.0 * CERTAIN, 7.0)])
    def test_an_end_that_is_surely_no_sooner_is_the_last(self, best_s, told_s):
        assert self.told_s([(7.0, GangAt(1, Level.SLOT))], [job("w", 9.0)], best_s=best_s) == told_s

    def test_work_may_be_an_integer(self):
        whole = JobView(job_id="w", iterations_left=3, serial_iteration_s=3, slowdown=FLAT, shape=JobShape())
        assert self.told_s([(7, GangAt(1, Level.SLOT))], [whole]) == 16.0

    def test_a_task_that_is_too_large_leaves_gpus_to_smaller_ones(self):
        """Of six GPUs one is left after two and three, too few for another task of the smaller gang."""
        waiting = [job("w", 8.0, JobShape(tasks=2, gpus_per_task=2)), job("v", 120.0, JobShape(tasks=5, min_tasks=3))]
        assert self.told_s([(1.0, GangAt(6, Level.SLOT))], waiting) == 31.0

    def test_gpus_of_several_gangs_lie_as_far_as_the_farthest(self):
        """The job waits for both; within a machine it would be done after 1.2 s of its 2 s."""
        running = [(1.0, GangAt(1, Level.RACK)), (5.0, GangAt(1, Level.RACK))]
        assert self.told_s(running, [job("w", 2.0, JobShape(tasks=2, min_tasks=2), STRICT)], Level.MACHINE) == 7.0


class TestWhatCannotBeFollowed:
    GOOD = (np.array([[1, 1, 2]]), np.ones((1, 4)), np.array([0]), np.array([1.0]), np.array([[1, 0]]))

    def follow(self, *arrays, within=0):
        return _packing.follow_s(*arrays, within, 0.0, 1.0, math.inf)

    def test_valid_arguments_are_accepted(self):
        assert self.follow(*self.GOOD) == 2.0

    def test_a_job_may_have_ended_before(self):
        assert self.follow(*self.GOOD[:2], np.array([], dtype=np.int64), np.array([-1.0]), self.GOOD[4]) == -1.0

    @pytest.mark.parametrize("place", range(5))
    @pytest.mark.parametrize("change", [lambda a: a.astype(np.float32), lambda a: a[..., None]])
    def test_other_types_and_shapes(self, place, change):
        arrays = [change(each) if number == place else each for number, each in enumerate(self.GOOD)]
        with pytest.raises(ValueError, match="must be of"):
            self.follow(*arrays)

    @pytest.mark.parametrize("place", [0, 1, 3, 4])
    def test_arrays_that_do_not_agree(self, place):
        arrays = [each[..., :0].copy() if number == place else each for number, each in enumerate(self.GOOD)]
        with pytest.raises(ValueError, match="the arrays have"):
            self.follow(*arrays)

    @pytest.mark.parametrize(
        ("place", "wrong"),
        [
            (0, [[0, 1, 2]]),
            (0, [[1, 0, 2]]),
            (0, [[1, 1, 2**31]]),
            (2, [1]),
            (2, [-1]),
            (4, [[1, 4]]),
            (4, [[-1, 0]]),
            (4, [[2**31, 0]]),
        ],
    )
    def test_numbers_that_cannot_be(self, place, wrong):
        arrays = [np.array(wrong) if number == place else each for number, each in enumerate(self.GOOD)]
        with pytest.raises(ValueError, match=r"are not possible|is not one of|there is no gang"):
            self.follow(*arrays)

    @pytest.mark.parametrize("within", [-1, 4])
    def test_unknown_levels_are_refused(self, within):
        with pytest.raises(ValueError, match=f"no level {within}"):
            self.follow(*self.GOOD, within=within)


def test_gpus_are_also_divided_by_the_work_of_each_shape():
    """The long jobs are narrow. Otherwise they would take all gangs, and no wide job would run."""
    wide = JobShape(tasks=4, min_tasks=4)
    waiting = [job(f"narrow{place}", 300.0 - place, JobShape(), FLAT) for place in range(8)]
    waiting += [job(f"wide{place}", 200.0 - place, wide, FLAT) for place in range(3)]
    found = list(gpu_division._of_several_shapes(waiting, 8))
    assert any({"narrow0", "wide0"} <= {each.job_id for each in jobs[: len(sizes)]} for jobs, sizes in found)
    for jobs, sizes in found:
        assert sorted(each.job_id for each in jobs) == sorted(each.job_id for each in waiting)
        assert all(each.shape.usable_gpus(size) == size for each, size in zip(jobs, sizes, strict=False))
    assert not list(gpu_division._of_several_shapes(waiting[:8], 8))
