"""No way to put jobs on gangs ends before the floor, and where jobs fill gangs evenly they end at it."""

import math
from random import Random

import pytest
from agent_cases import CRUDE_SLOWDOWN, FLAT, STRICT, job

from am.agent.model.views import GangAt
from am.jobs import gpu_division
from am.jobs.finish_time_bound import FinishTimeBound
from am.jobs.gpu_division import DivisionContext
from themis.apps import JobShape
from themis.cluster import Level

SHAPES = (JobShape(), JobShape(tasks=4), JobShape(tasks=2, min_tasks=2), JobShape(tasks=2, gpus_per_task=2))
ROUNDING = 1.0 - 1e-9


@pytest.mark.parametrize("seed", range(60))
def test_nothing_ends_before_the_floor(seed):
    rng = Random(seed)
    slowdowns = rng.sample((FLAT, STRICT, CRUDE_SLOWDOWN), rng.randint(1, 3))
    drawn = [
        job(f"j{place:02}", rng.uniform(10, 900), rng.choice(SHAPES), rng.choice(slowdowns)) for place in range(14)
    ]
    running = [(each, GangAt(each.shape.demand_min_gpus, rng.choice(list(Level)))) for each in drawn[:3]]
    waiting = sorted(drawn[3:], key=lambda each: (-each.serial_work_s, each.job_id))
    new = [GangAt(rng.randint(1, 4), rng.choice(list(Level))) for _ in range(rng.randint(1, 6))]
    behind = [job(f"k{place}", rng.uniform(10, 900), rng.choice(SHAPES), slowdowns[0]) for place in range(3)]
    weighed = gpu_division._DivisionEvaluator(
        waiting, DivisionContext(running=running, behind=behind, within=rng.choice(list(Level))), 0.0
    )
    floor = FinishTimeBound(weighed.in_order, weighed.busy)
    packed_s, _ = weighed.packed(waiting, new)
    assert floor.packed_s(new) * ROUNDING <= packed_s
    assert floor.shared_s(waiting, new) * ROUNDING <= weighed.ends_s(waiting, new, math.inf)


def test_like_jobs_that_fill_their_gangs_end_at_the_floor():
    waiting = [job(f"j{place}", 100.0, JobShape(tasks=2, min_tasks=2), STRICT) for place in range(6)]
    weighed = gpu_division._DivisionEvaluator(
        waiting, DivisionContext(running=[(waiting[0], GangAt(2, Level.MACHINE))]), 0.0
    )
    new = [GangAt(2, Level.MACHINE)] * 6
    floor = FinishTimeBound(waiting, weighed.busy)
    ends_s = weighed.ends_s(waiting, new, math.inf)
    assert floor.shared_s(waiting, new) == pytest.approx(ends_s)
    assert FinishTimeBound(waiting * 2, ()).packed_s(new) == pytest.approx(2.0 * ends_s)


def test_the_longest_job_has_to_end_on_the_fastest_gang():
    waiting = [job("long", 900.0, JobShape(tasks=4), STRICT), job("short", 10.0, JobShape(tasks=4), STRICT)]
    new = [GangAt(4, Level.SLOT), GangAt(4, Level.RACK)]
    assert FinishTimeBound(waiting, ()).packed_s(new) == 900.0 * STRICT.at(Level.SLOT) / 4


def test_jobs_without_a_usable_gang_never_end():
    waiting = [job("wide", 100.0, JobShape(tasks=4, min_tasks=4), FLAT)]
    assert math.isinf(FinishTimeBound(waiting, ()).packed_s([GangAt(2, Level.SLOT)]))
    assert math.isinf(FinishTimeBound(waiting, ()).shared_s(waiting, []))


class TestBusyGangs:
    """Two single GPUs are free after 50 and 20 s."""

    ONE = GangAt(1, Level.SLOT)
    BUSY = ((ONE, 50.0), (ONE, 20.0))

    @staticmethod
    def waiting(*works):
        return [job(f"j{place}", work, JobShape(), FLAT) for place, work in enumerate(works)]

    def test_work_left_on_busy_gangs_comes_before_the_new_work(self):
        """70 s of running jobs and 90 s of new ones take the two GPUs 80 s; with a third one, 53.3 s."""
        waiting = self.waiting(45.0, 45.0)
        bound = FinishTimeBound(waiting, self.BUSY)
        assert bound.packed_s([]) == pytest.approx(80.0)
        assert bound.packed_s([self.ONE]) == pytest.approx(160.0 / 3)
        assert bound.shared_s(waiting, [self.ONE]) == pytest.approx(160.0 / 3)

    def test_nothing_ends_before_the_last_running_job(self):
        waiting = self.waiting(5.0)
        bound = FinishTimeBound(waiting, (*self.BUSY, (GangAt(2, Level.SLOT), 30.0)))
        assert (bound.packed_s([]), bound.shared_s(waiting, [self.ONE])) == (50.0, 50.0)


def test_work_takes_longer_at_a_looser_level():
    """800 GPU seconds of work on two GPUs, which at S = 1.3 are 520 s."""
    waiting = [job(f"j{place}", 200.0, JobShape(tasks=2, min_tasks=2), CRUDE_SLOWDOWN) for place in range(4)]
    slowdown = CRUDE_SLOWDOWN.at(Level.CLUSTER)
    assert slowdown > 1.0
    shared_s = FinishTimeBound(waiting, ()).shared_s(waiting, [GangAt(2, Level.CLUSTER)])
    assert shared_s == pytest.approx(800.0 * slowdown / 2)
