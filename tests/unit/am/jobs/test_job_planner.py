"""Which job runs on which GPUs: by hand, and what holds for any holdings."""

import itertools
from collections import Counter

import pytest
from agent_cases import CRUDE_SLOWDOWN, FLAT, STRICT, cluster_of, job
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from am.jobs import planner
from am.jobs.planner import Holdings, Plan, PlannedJob, make_plan
from am.jobs.pool import tasks_of
from themis.apps import JobShape
from themis.cluster import Cluster, DeviceType, GpuId, Level
from themis.leases import Lease
from themis.lifecycle import LeaseState
from themis.speeds import Speeds

CLUSTER = cluster_of((2, 2), (2, 2), (2,), (2,), racks=("r0", "r1"))
ELASTIC = JobShape(tasks=4)
PAIRS = JobShape(tasks=2, min_tasks=2)


def gpus(*texts):
    return tuple(GpuId.parse(text) for text in texts)


def run(*jobs, granted=(), reserved=(), expiring=(), others=None, restart_s=8.0, **moving):
    holdings = Holdings(
        granted=frozenset(gpus(*granted)), reserved=frozenset(gpus(*reserved)), expiring=frozenset(gpus(*expiring))
    )
    goals = {name: gpus(*goal) for name, goal in moving.items()}
    return make_plan(jobs, others or {}, holdings, CLUSTER, restart_s, goals)


def planned(name, work=1000.0, on=(), stopping=False, shape=ELASTIC, slowdown=CRUDE_SLOWDOWN):
    return PlannedJob(view=job(name, work, shape, slowdown), gpus=gpus(*on), stopping=stopping)


class TestStop:
    def test_a_job_stops_when_one_of_its_gpus_expires(self):
        plan = run(planned("a", on=("m0/0", "m0/1")), granted=("m0/0",), expiring=("m0/1",))
        assert plan.stop == {"a": "its GPUs are taken back"}
        assert plan.release == ()

    def test_or_is_gone_altogether(self):
        assert run(planned("a", on=("m0/0",))).stop == {"a": "its GPUs are taken back"}

    def test_a_stopping_job_is_not_stopped_again(self):
        plan = run(planned("a", on=("m0/0",), stopping=True), expiring=("m0/0",))
        assert plan == Plan()

    def test_losers_stop_and_their_gpus_wait_for_them(self):
        plan = run(planned("a"), granted=("m0/0",), others={"loser": gpus("m0/0")})
        assert plan == Plan(stop={"loser": "the tuner stopped it"})

    def test_a_job_grows_while_a_loser_still_saves(self):
        plan = run(planned("a", on=("m0/0",)), granted=("m0/0", "m0/1", "m0/2"), others={"loser": gpus("m0/2")})
        assert plan.stop == {"loser": "the tuner stopped it", "a": "it grows"}
        assert plan.release == ()

    def test_a_job_whose_leases_go_on_is_left_alone(self):
        assert run(planned("a", on=("m0/0", "m0/1")), granted=("m0/0", "m0/1")) == Plan()


class TestStart:
    def test_the_longest_job_gets_the_largest_gang(self):
        plan = run(planned("short", 10.0), planned("long", 60.0), granted=("m0/0", "m0/1", "m2/0"))
        assert plan.start == {"long": gpus("m0/0", "m0/1"), "short": gpus("m2/0")}

    def test_of_equal_jobs_the_smaller_id_gets_the_larger_gang(self):
        plan = run(planned("beta", 60.0), planned("alpha", 60.0), granted=("m0/0", "m0/1", "m2/0"))
        assert plan.start == {"alpha": gpus("m0/0", "m0/1"), "beta": gpus("m2/0")}

    def test_as_many_jobs_as_possible_run(self):
        jobs = [planned(name, 10.0) for name in "abc"]
        assert len(run(*jobs, granted=("m0/0", "m0/1")).start) == 2

    def test_but_fewer_where_that_ends_them_earlier_by_more_than_a_restart(self):
        """Three jobs of 100 s on five GPUs: 3 + 2 end at 66.7 s, 2 + 2 + 1 at 100 s; the bid valued the former."""
        jobs = [planned(name, 100.0, slowdown=FLAT) for name in "abc"]
        five = ("m0/0", "m0/1", "m0/2", "m1/0", "m1/1")
        assert [len(mine) for mine in run(*jobs, granted=five).start.values()] == [3, 2]
        assert [len(mine) for mine in run(*jobs, granted=five, restart_s=40.0).start.values()] == [2, 2, 1]

    def test_jobs_of_several_shapes_each_get_a_gang_that_they_can_run_on(self):
        jobs = (
            planned("a", 900.0, shape=JobShape(tasks=2, min_tasks=2)),
            planned("b", 500.0, shape=JobShape()),
            planned("c", 400.0, shape=JobShape(gpus_per_task=2)),
        )
        plan = run(*jobs, granted=("m0/0", "m0/1", "m0/2", "m2/0", "m2/1"))
        assert {name: len(mine) for name, mine in plan.start.items()} == {"a": 2, "b": 1, "c": 2}

    def test_a_gang_gets_the_tightest_level_and_the_best_fit(self):
        plan = run(planned("a", shape=PAIRS), granted=("m0/1", "m0/2", "m1/0", "m1/1", "m3/0", "m3/1"))
        assert plan.start == {"a": gpus("m1/0", "m1/1")}
        plan = run(planned("a", shape=PAIRS), granted=("m0/1", "m0/2", "m3/0"))
        assert plan.start == {"a": gpus("m0/1", "m0/2")}
        plan = run(planned("a", shape=PAIRS), granted=("m0/1", "m1/2", "m3/0"))
        assert plan.start == {"a": gpus("m1/2", "m3/0")}

    def test_a_gang_breaks_as_little_as_it_can(self):
        plan = run(planned("a", shape=JobShape()), granted=("m0/0", "m0/1", "m3/0"))
        assert plan.start == {"a": gpus("m3/0")}

    def test_a_gang_over_machines_takes_few_of_them(self):
        plan = run(planned("a"), granted=("m2/0", "m2/1", "m0/0", "m0/1", "m0/2"))
        assert plan.start == {"a": gpus("m0/0", "m0/1", "m0/2", "m2/0")}

    def test_a_task_never_spans_machines(self):
        shape = JobShape(tasks=2, gpus_per_task=2)
        plan = run(planned("a", shape=shape), granted=("m0/0", "m1/0", "m2/0", "m2/1"))
        assert plan.start == {"a": gpus("m2/0", "m2/1")}
        assert plan.release == gpus("m0/0", "m1/0")

    def test_gpus_that_make_no_task_do_not_make_another_job_wait(self):
        shape = JobShape(tasks=2, gpus_per_task=2)
        jobs = (planned("a", 9.0, shape=shape), planned("b", 5.0, shape=shape))
        plan = run(*jobs, granted=("m0/0", "m0/1", "m0/2", "m0/3", "m1/0", "m2/0"))
        assert plan.start == {"a": gpus("m0/0", "m0/1"), "b": gpus("m0/2", "m0/3")}

    def test_too_few_for_any_gang_go_back(self):
        plan = run(planned("a", shape=PAIRS), granted=("m0/0",))
        assert plan == Plan(release=gpus("m0/0"))

    def test_a_job_on_its_way_out_leaves_its_gpus_to_no_one_yet(self):
        plan = run(planned("a", on=("m0/0",), stopping=True), planned("b"), granted=("m0/0",))
        assert plan == Plan()


class TestLeftOver:
    """A job that could run on what the others leave does not wait."""

    def test_a_job_whose_task_fits_on_no_machine_keeps_no_other_from_running(self):
        jobs = (planned("pair", 900.0, shape=JobShape(gpus_per_task=2)), planned("one", 100.0, shape=JobShape()))
        plan = run(*jobs, granted=("m0/0", "m1/0"))
        assert plan == Plan(start={"one": gpus("m0/0")}, release=gpus("m1/0"))

    def test_a_job_that_needs_more_gpus_than_are_held_does_not_delay_others(self):
        jobs = (
            planned("a", 900.0, shape=PAIRS),
            planned("b", 800.0, shape=JobShape(tasks=4, min_tasks=4)),
            planned("c", 1.0, shape=JobShape()),
        )
        assert run(*jobs, granted=("m0/0", "m0/1", "m1/0")) == Plan(
            start={"a": gpus("m0/0", "m0/1"), "c": gpus("m1/0")}
        )

    def test_nor_a_gang_whose_tasks_the_gpus_do_not_make(self):
        """Six GPUs are more than a needs, but no machine has four of them."""
        jobs = (planned("a", 900.0, shape=JobShape(gpus_per_task=4)), planned("b", 800.0, shape=JobShape(tasks=2)))
        plan = run(*jobs, granted=("m0/0", "m0/1", "m1/0", "m1/1", "m2/0", "m2/1"))
        assert set(plan.start) == {"b"}

    def test_a_short_job_takes_the_gpu_that_two_long_ones_cannot_use(self):
        jobs = [planned(name, work, slowdown=FLAT) for name, work in (("a", 650.0), ("b", 512.0), ("c", 54.0))]
        plan = run(*jobs, granted=("m0/0", "m0/1", "m0/2", "m0/3", "m1/0", "m1/1", "m1/2", "m1/3", "m2/0"))
        assert {name: len(mine) for name, mine in plan.start.items()} == {"a": 4, "b": 4, "c": 1}

    def test_tasks_of_three_and_of_four_gpus_each_find_their_machine(self):
        """Four GPUs make one task of three; counted as that they would be too few for the task of four."""
        jobs = (planned("a", 9.0, shape=JobShape(gpus_per_task=4)), planned("b", 5.0, shape=JobShape(gpus_per_task=3)))
        assert set(run(*jobs, granted=("m0/0", "m0/1", "m0/2", "m0/3")).start) == {"a"}

    def test_of_the_jobs_left_the_one_that_ends_before_a_gang_is_free(self):
        """On one GPU b would end last of all, at 900 s; c ends before a leaves its four GPUs to b."""
        jobs = [planned("a", 1000.0, on=("m0/0", "m0/1", "m0/2", "m0/3"), shape=JobShape(tasks=4, min_tasks=4))]
        jobs += [planned(name, work, slowdown=FLAT) for name, work in (("b", 900.0), ("c", 90.0))]
        plan = run(*jobs, granted=("m0/0", "m0/1", "m0/2", "m0/3", "m2/0"))
        assert plan.start == {"c": gpus("m2/0")}

    def test_nor_where_all_would_better_follow_a_job_that_runs(self):
        """Packed, a and b both follow r on m0; of the two b is out of the way sooner, and uses all that is idle."""
        m0 = ("m0/0", "m0/1", "m0/2", "m0/3")
        jobs = (
            planned("r", 1.0, on=m0, shape=JobShape(tasks=4, min_tasks=4), slowdown=STRICT),
            planned("a", 900.0, shape=PAIRS, slowdown=STRICT),
            planned("b", 600.0, shape=JobShape(tasks=3, min_tasks=3), slowdown=STRICT),
        )
        plan = run(*jobs, granted=(*m0, "m1/0", "m2/0", "m3/0"))
        assert plan == Plan(start={"b": gpus("m1/0", "m2/0", "m3/0")})


class TestWait:
    def test_a_gang_with_a_reserved_gpu_waits_for_it(self):
        plan = run(planned("a", shape=PAIRS), granted=("m0/0",), reserved=("m0/1",))
        assert plan == Plan(wait={"a": gpus("m0/0", "m0/1")})

    def test_granted_gpus_are_kept_while_others_are_reserved(self):
        plan = run(planned("a", shape=PAIRS), granted=("m0/0", "m3/0"), reserved=("m0/1",))
        assert plan.release == ()
        assert plan.wait

    def test_unwanted_reserved_gpus_do_not_delay_a_release(self):
        plan = run(planned("a", on=("m0/0",), shape=JobShape()), granted=("m0/0", "m0/1"), reserved=("m1/0",))
        assert plan == Plan(release=gpus("m0/1"))


class TestGrow:
    def test_a_job_that_gains_more_than_two_restarts_starts_again_on_more(self):
        plan = run(planned("a", 1000.0, on=("m0/0", "m0/1")), granted=("m0/0", "m0/1", "m0/2", "m0/3"))
        assert plan.stop == {"a": "it grows"}
        assert plan.prepare == {"a": gpus("m0/0", "m0/1", "m0/2", "m0/3")}
        assert plan.release == ()

    def test_a_job_that_does_not_gives_the_rest_back(self):
        plan = run(planned("a", 60.0, on=("m0/0", "m0/1")), granted=("m0/0", "m0/1", "m0/2", "m0/3"))
        assert plan == Plan(release=gpus("m0/2", "m0/3"))

    def test_not_for_gpus_that_do_not_make_a_task(self):
        shape = JobShape(tasks=2, gpus_per_task=2)
        plan = run(planned("a", 1e5, on=("m2/0", "m2/1"), shape=shape), granted=("m2/0", "m2/1", "m0/0", "m1/0"))
        assert plan == Plan(release=gpus("m0/0", "m1/0"))

    def test_not_where_the_gang_would_lie_too_far_apart(self):
        held = {"on": ("m0/0", "m0/1"), "slowdown": STRICT}
        assert run(planned("a", 1e5, **held), granted=("m0/0", "m0/1", "m1/0")).stop == {}
        assert run(planned("a", 1e5, **held), granted=("m0/0", "m0/1", "m0/2")).stop == {"a": "it grows"}

    def test_not_while_a_job_waits_or_stops(self):
        jobs = (planned("a", 1e5, on=("m0/0",)), planned("b", shape=PAIRS))
        plan = run(*jobs, granted=("m0/0", "m0/1"), reserved=("m0/2", "m0/3"))
        assert plan == Plan(wait={"b": gpus("m0/2", "m0/3")})
        moving = (planned("a", 1e5, on=("m0/0",)), planned("b", on=("m0/1",), stopping=True))
        assert run(*moving, granted=("m0/0", "m0/1", "m0/2", "m0/3")).stop == {}

    def test_the_longest_job_grows_first(self):
        jobs = (planned("short", 500.0, on=("m0/0",)), planned("long", 5000.0, on=("m0/1",)))
        plan = run(*jobs, granted=("m0/0", "m0/1", "m0/2", "m0/3"))
        assert plan.stop == {"long": "it grows"}

    def test_a_growing_job_restarts_on_more_gpus(self):
        held = ("m0/0", "m0/1", "m0/2", "m0/3")
        plan = run(planned("a", 1000.0, on=held[:2]), granted=held)
        assert run(planned("a", 1000.0), granted=held).start == plan.prepare == {"a": gpus(*held)}


class TestMove:
    """A job of 1,000 s on one GPU, others wait, and a gang of four is idle."""

    FOUR = ("m0/0", "m0/1", "m0/2", "m0/3")
    FOUR_MORE = ("m1/0", "m1/1", "m1/2", "m1/3")

    def of_late(self, on=("m2/0",), stopping=False):
        return planned("late", 1000.0, on=on, slowdown=FLAT, stopping=stopping)

    def waiting(self, *works):
        shape = JobShape(tasks=4, min_tasks=4)
        return [planned(f"w{place}", work, slowdown=FLAT, shape=shape) for place, work in enumerate(works)]

    def test_a_job_that_ends_after_all_others_moves_though_one_waits(self):
        """All end by 258 s where they wait for the gang that is free at 180 s; if one went first it would be 291 s."""
        beside = planned("beside", 720.0, on=self.FOUR_MORE, slowdown=FLAT)
        plan = run(self.of_late(), beside, *self.waiting(100.0, 90.0), granted=(*self.FOUR, *self.FOUR_MORE, "m2/0"))
        assert plan == Plan(stop={"late": "it moves"}, move={"late": gpus(*self.FOUR)})

    def test_others_go_first_as_long_as_it_can_wait(self):
        """Both end on the same gang at 276 s, and it need not wait idle."""
        plan = run(self.of_late(), *self.waiting(40.0), granted=(*self.FOUR, "m2/0"))
        assert plan.stop == {}
        assert plan.start == {"w0": gpus(*self.FOUR)}

    def test_it_stays_where_a_restart_costs_more_than_it_gains(self):
        beside = planned("beside", 720.0, on=self.FOUR_MORE, slowdown=FLAT)
        granted = (*self.FOUR, *self.FOUR_MORE, "m2/0")
        plan = run(self.of_late(), beside, *self.waiting(100.0, 90.0), granted=granted, restart_s=400.0)
        assert plan.stop == {}
        assert plan.start == {"w0": gpus(*self.FOUR)}

    def test_not_to_gpus_that_others_still_give_back(self):
        beside = planned("beside", 720.0, on=self.FOUR_MORE, slowdown=FLAT)
        granted = (*self.FOUR[:3], *self.FOUR_MORE, "m2/0")
        plan = run(self.of_late(), beside, *self.waiting(100.0, 90.0), granted=granted, reserved=self.FOUR[3:])
        assert plan.stop == plan.start == {}
        assert plan.wait == {"w0": gpus(*self.FOUR)}

    def test_its_gpus_are_kept_while_it_stops(self):
        late = self.of_late(stopping=True)
        plan = run(late, *self.waiting(40.0), granted=(*self.FOUR, "m2/0"), late=self.FOUR)
        assert plan == Plan(move={"late": gpus(*self.FOUR)})

    def test_and_there_it_starts_before_all_others(self):
        plan = run(self.of_late(on=()), *self.waiting(4000.0), granted=(*self.FOUR, "m2/0"), late=self.FOUR)
        assert plan == Plan(start={"late": gpus(*self.FOUR)}, release=gpus("m2/0"))

    @pytest.mark.parametrize("on", [(), ("m2/0",)])
    def test_once_one_of_them_is_gone_they_are_kept_no_longer(self, on):
        late = self.of_late(on=on, stopping=bool(on))
        plan = run(late, granted=(*self.FOUR[:3], *on), late=self.FOUR)
        assert plan.move == {}
        assert plan.start == ({} if on else {"late": gpus(*self.FOUR[:3])})

    def test_nor_for_a_job_that_is_over(self):
        plan = run(*self.waiting(40.0), granted=self.FOUR, late=self.FOUR)
        assert plan == Plan(start={"w0": gpus(*self.FOUR)})

    def test_nor_while_another_job_runs_there(self):
        other = planned("other", 720.0, on=self.FOUR[:2], slowdown=FLAT)
        plan = run(self.of_late(on=()), other, granted=self.FOUR, late=self.FOUR)
        assert plan.move == {}
        assert plan.start == {"late": gpus(*self.FOUR[2:])}


class TestTasksOf:
    def test_machine_by_machine_without_the_rest(self):
        assert tasks_of(gpus("m1/1", "m0/0", "m0/2", "m0/1", "m1/0"), 2) == (
            gpus("m0/0", "m0/1"),
            gpus("m1/0", "m1/1"),
        )

    def test_of_one_gpu_each(self):
        assert tasks_of(gpus("m0/1", "m0/0"), 1) == (gpus("m0/0"), gpus("m0/1"))


# ---- for any holdings -----------------------------------------------------------------------------------------------


@st.composite
def job_shapes(draw):
    least = draw(st.integers(1, 2))
    tasks = least + draw(st.integers(0, 2))
    return JobShape(tasks=tasks, min_tasks=least, gpus_per_task=draw(st.sampled_from([1, 1, 2, 4])))


@st.composite
def situations(draw):
    """Jobs of up to three shapes, some of them on GPUs, some of which are granted, reserved, expiring or gone.

    Some of the stopping or waiting jobs are to move, to any GPUs.
    """
    shapes = draw(st.lists(job_shapes(), min_size=1, max_size=3))
    slowdown = draw(st.sampled_from([FLAT, CRUDE_SLOWDOWN, STRICT]))
    every = list(CLUSTER.gpu_ids())
    fate = {gpu: draw(st.sampled_from(["granted", "granted", "reserved", "expiring", "gone"])) for gpu in every}
    rest = sorted(every, key=lambda gpu: (gpu.index // 2, gpu.machine_id))
    jobs = []
    for place in range(draw(st.integers(0, 5))):
        shape = draw(st.sampled_from(shapes))
        mine, here = (), list(tasks_of(rest, shape.gpus_per_task))
        if draw(st.booleans()) and len(here) >= shape.min_tasks:
            count = draw(st.integers(shape.min_tasks, min(shape.tasks, len(here))))
            mine = tuple(gpu for task in here[:count] for gpu in task)
            # What runs was granted once; it may be on its way back by now, but it is not still to come.
            for gpu in mine:
                fate[gpu] = "granted" if fate[gpu] == "reserved" else fate[gpu]
            rest = [gpu for gpu in rest if gpu not in mine]
        view = job(f"j{place}", draw(st.integers(1, 4000)), shape, slowdown)
        jobs.append(PlannedJob(view=view, gpus=mine, stopping=bool(mine) and draw(st.booleans())))
    others = {"loser": (rest.pop(),)} if rest and draw(st.booleans()) else {}
    by_fate = {
        name: frozenset(gpu for gpu in every if fate[gpu] == name) for name in ("granted", "reserved", "expiring")
    }
    goals, moving = list(every), {}
    for each in jobs:
        if (each.stopping or not each.gpus) and draw(st.booleans()):
            size = each.view.shape.demand_min_gpus
            here = [gpu for gpu in goals if draw(st.integers(0, 3))][:size]
            if len(tasks_of(here, each.view.shape.gpus_per_task)) == each.view.shape.min_tasks:
                moving[each.view.job_id] = tuple(here)
                goals = [gpu for gpu in goals if gpu not in here]
    return tuple(jobs), others, Holdings(**by_fate), draw(st.sampled_from([0.0, 8.0, 200.0])), moving


def plan_of(situation):
    jobs, others, holdings, restart_s, moving = situation
    return make_plan(jobs, others, holdings, CLUSTER, restart_s, moving)


@settings(max_examples=150)
@given(situations())
def test_each_held_gpu_is_assigned_at_most_once(situation):
    jobs, others, holdings, *_ = situation
    plan = plan_of(situation)
    running = [gpu for gpus in (*(job.gpus for job in jobs), *others.values()) for gpu in gpus]
    given = [gpu for gpus in (*plan.start.values(), *plan.wait.values(), plan.release) for gpu in gpus]
    goals = [gpu for gpus in plan.move.values() for gpu in gpus]
    leaving = {gpu for job in jobs if job.stopping or job.view.job_id in plan.move for gpu in job.gpus}
    assert len({*running, *given}) == len(running) + len(given)
    assert len({*given, *goals}) == len(given) + len(goals)
    assert leaving >= set(running) & set(goals)
    assert all(set(some) <= holdings.granted for some in plan.start.values())
    assert all(set(some) <= holdings.granted | holdings.reserved for some in plan.wait.values())
    assert all(set(some) & holdings.reserved for some in plan.wait.values())
    assert all(set(some) <= holdings.granted for some in plan.move.values())
    assert set(plan.release) <= holdings.granted


@settings(max_examples=300)
@given(situations())
def test_no_job_waits_that_could_run_on_gpus_left_idle(situation):
    jobs, others, holdings, *_ = situation
    plan = plan_of(situation)
    assert not set(plan.start) & set(plan.wait)
    given = (*plan.start.values(), *plan.wait.values(), *plan.move.values())
    taken = [*(job.gpus for job in jobs), *others.values(), *given]
    left = (holdings.granted | holdings.reserved) - {gpu for some in taken for gpu in some}
    machines = Counter(gpu.machine_id for gpu in left)
    for each in jobs:
        if not each.gpus and each.view.job_id not in {*plan.start, *plan.wait, *plan.move}:
            shape = each.view.shape
            assert sum(count // shape.gpus_per_task for count in machines.values()) < shape.min_tasks


@settings(max_examples=150)
@given(situations())
def test_gangs_are_ones_that_their_jobs_can_run_on(situation):
    jobs, *_ = situation
    plan = plan_of(situation)
    by_id = {job.view.job_id: job for job in jobs}
    for job_id, gang in (*plan.start.items(), *plan.wait.items()):
        shape = by_id[job_id].view.shape
        assert by_id[job_id].gpus == ()
        assert shape.usable_gpus(len(gang)) == len(gang)
        assert len(tasks_of(gang, shape.gpus_per_task)) * shape.gpus_per_task == len(gang)


@settings(max_examples=150)
@given(situations())
def test_jobs_stop_when_they_must_and_only_then_or_to_grow(situation):
    jobs, others, holdings, _, moving = situation
    plan = plan_of(situation)
    usable = holdings.granted | holdings.reserved
    must = {job.view.job_id for job in jobs if not job.stopping and not set(job.gpus) <= usable} | set(others)
    assert must <= set(plan.stop)
    moved = {job_id for job_id, why in plan.stop.items() if why == "it moves"}
    assert moved <= set(plan.move) <= moved | set(moving)
    assert not moved or not plan.prepare
    assert not moved & must
    grown = set(plan.stop) - must - moved
    assert all(plan.stop[job_id] == "it grows" for job_id in grown)
    assert set(plan.prepare) == grown
    prepared = [gpu for gang in plan.prepare.values() for gpu in gang]
    stays = {gpu for job in jobs if job.view.job_id not in grown for gpu in job.gpus}
    assert len(prepared) == len(set(prepared))
    assert set(prepared) <= usable - stays
    assert not (grown | moved) or (not (must - set(others)) and not any(job.stopping for job in jobs))
    assert not grown or not plan.wait
    assert not any(job.stopping for job in jobs if job.view.job_id in plan.stop)
    assert all(job.gpus for job in jobs if job.view.job_id in plan.stop)


@settings(max_examples=150)
@given(situations(), st.randoms(use_true_random=False))
def test_the_order_of_jobs_does_not_matter(situation, rng):
    jobs, others, holdings, restart_s, moving = situation
    shuffled = rng.sample(jobs, len(jobs))
    assert make_plan(shuffled, others, holdings, CLUSTER, restart_s, moving) == plan_of(situation)


@settings(max_examples=300)
@given(situations())
def test_waiting_jobs_are_planned_on_first_access(situation):
    jobs, others, holdings, restart_s, moving = situation
    later = Holdings(reserved=holdings.granted | holdings.reserved, expiring=holdings.expiring)
    for each in (holdings, later):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(planner, "_wait_for_all", lambda *_: {})
            at_once = make_plan(jobs, others, each, CLUSTER, restart_s, moving)
        assert make_plan(jobs, others, each, CLUSTER, restart_s, moving) == at_once


def test_it_is_not_asked_for_by_the_plan_itself(monkeypatch):
    asked = []
    real = planner.best_starts
    monkeypatch.setattr(planner, "best_starts", lambda *given: asked.append(given) or real(*given))
    plan = run(planned("a"), planned("b"), planned("c", on=("m1/0",)), granted=("m1/0",), reserved=("m0/0", "m0/1"))
    assert plan.wait
    assert not asked
    assert plan.wait == {"a": gpus("m0/0"), "b": gpus("m0/1")}
    assert list(plan.wait) == ["a", "b"]
    assert len(plan.wait) == len(asked) + 1 == 2
    assert run(planned("a"), granted=("m0/1",), reserved=("m0/0",)).wait == {"a": gpus("m0/0", "m0/1")}
    assert len(asked) == 2
    assert run(planned("c", on=("m1/0",)), granted=("m1/0",), reserved=("m0/0",)).wait == {}


@settings(max_examples=100)
@given(situations())
def test_carried_out_it_comes_to_rest(situation):
    """Plan, do what it says, plan again: after a few turns nothing changes any more, and no GPU idles unreleased."""
    jobs, _, holdings, restart_s, moving = situation
    held = {job.view.job_id: job.gpus for job in jobs}
    views = {job.view.job_id: job.view for job in jobs}
    granted = holdings.granted
    for turn in itertools.count():
        now = [PlannedJob(view=views[name], gpus=mine) for name, mine in held.items()]
        plan = make_plan(now, {}, Holdings(granted=granted), CLUSTER, restart_s, moving)
        if plan == Plan():
            break
        assert turn < 4, "it does not come to rest"
        held |= dict.fromkeys(plan.stop, ()) | plan.start
        moving = plan.move
        granted = granted - set(plan.release)
    busy = {gpu for mine in held.values() for gpu in mine}
    assert granted == busy


def test_a_job_that_loses_work_does_not_grow():
    jobs = [PlannedJob(view=job("a", 1000.0, ELASTIC, FLAT), gpus=gpus("m0/0"), loses_work=True)]
    plan = make_plan(jobs, {}, Holdings(granted=frozenset(gpus("m0/0", "m0/1"))), CLUSTER, 8.0)
    assert plan == Plan(release=gpus("m0/1"))


def test_no_other_job_gets_the_unbound_gpus_of_a_job_on_bound_ones():
    """m0/0 is bound to k now. Until a has stopped there, w does not start on the other GPU of a."""
    jobs = [planned("a", on=("m0/0", "m0/1")), planned("k"), planned("w")]
    holdings = Holdings(granted=frozenset(gpus("m0/0", "m0/1")), bound={gpus("m0/0")[0]: "k"})
    assert make_plan(jobs, {}, holdings, CLUSTER, 8.0) == Plan(stop={"a": "its GPUs are for another job"})


def test_no_job_grows_by_gpus_that_would_go_to_jobs_that_wait():
    """Two elastic jobs stopped in turns for ever, each to grow by what the other left, beside jobs of tasks of two."""
    cluster, pairs = cluster_of((2,), (3,), (2, 1)), JobShape(tasks=2, gpus_per_task=2)
    shapes = {"e0": ELASTIC, "e1": ELASTIC, "p0": pairs, "p1": pairs, "p2": pairs}
    works = {"e0": 1000.0, "e1": 1000.0, "p0": 100.0, "p1": 300.0, "p2": 200.0}
    held = {"e0": gpus("m0/0", "m0/1"), "p2": gpus("m2/0", "m2/1"), "e1": (), "p0": (), "p1": ()}
    for _ in range(4):
        jobs = [planned(name, works[name], map(str, held[name]), False, shapes[name], FLAT) for name in held]
        plan = make_plan(jobs, {}, Holdings(granted=cluster.gpu_set), cluster, 8.0)
        if not plan.stop and not plan.start:
            break
        held |= dict.fromkeys(plan.stop, ()) | plan.start
    assert not plan.stop
    assert not plan.start


@pytest.mark.parametrize("level", Level)
def test_levels_have_an_order_that_the_pool_relies_on(level):
    assert level == list(Level).index(level)


class TestBoundGpus:
    """Some policies grant GPUs to one job of an app. The other GPUs are divided as usual."""

    @staticmethod
    def run(*jobs, bound, granted=(), expiring=()):
        of_jobs = dict(zip(gpus(*bound), bound.values(), strict=True))
        held = frozenset([*gpus(*granted), *of_jobs])
        holdings = Holdings(granted=held, expiring=frozenset(gpus(*expiring)), bound=of_jobs)
        return make_plan(jobs, {}, holdings, CLUSTER, 8.0)

    def test_each_job_starts_on_its_own_gpu_and_the_rest_on_the_others(self):
        plan = self.run(planned("a"), planned("b", 100.0), bound={"m0/0": "a"}, granted=("m0/1",))
        assert plan.start == {"a": gpus("m0/0"), "b": gpus("m0/1")}

    def test_job_does_not_grow_by_gpus_that_are_not_bound_to_it(self):
        plan = self.run(planned("a", on=("m0/0",)), bound={"m0/0": "a"}, granted=("m0/1",))
        assert (plan.stop, plan.release) == ({}, gpus("m0/1"))

    def test_job_that_has_to_leave_its_gpu_finds_the_bound_one_when_it_has_stopped(self):
        before = self.run(planned("a", on=("m0/1",)), bound={"m0/0": "a"}, expiring=("m0/1",))
        assert (before.stop, before.release) == ({"a": "its GPUs are taken back"}, ())
        after = self.run(planned("a"), bound={"m0/0": "a"})
        assert after.start == {"a": gpus("m0/0")}

    def test_job_that_may_stay_where_it_runs_gives_the_bound_gpu_back(self):
        plan = self.run(planned("a", on=("m0/1",)), bound={"m0/0": "a"}, granted=("m0/1",))
        assert (plan.stop, plan.release) == ({}, gpus("m0/0"))

    def test_stopping_job_is_not_stopped_again(self):
        plan = self.run(planned("a", on=("m0/0",), stopping=True), planned("b"), bound={"m0/0": "b"})
        assert (plan.stop, plan.start, plan.release) == ({}, {}, ())


class TestDeviceTypes:
    """m0, m1: four k80 each; m2, m3: two v100 each."""

    MIXED = Cluster(
        name="mixed",
        machines=tuple(replace(machine, device="v100" if machine.gpus == 2 else "k80") for machine in CLUSTER.machines),
        devices={"k80": DeviceType(name="k80"), "v100": DeviceType(name="v100", speed=3.0)},
    )
    SPEEDS = Speeds.of([("k80", 1.0), ("v100", 3.0)])

    def run(self, *jobs, granted=(), expiring=(), speeds=SPEEDS, **moving):
        typed = [replace(each, view=replace(each.view, speeds=speeds)) for each in jobs]
        holdings = Holdings(granted=frozenset(gpus(*granted)), expiring=frozenset(gpus(*expiring)))
        goals = {name: gpus(*goal) for name, goal in moving.items()}
        return make_plan(typed, {}, holdings, self.MIXED, 8.0, goals)

    def test_no_gang_spans_types_and_the_fastest_type_comes_first(self):
        plan = self.run(planned("a"), granted=("m0/0", "m2/0", "m2/1"))
        assert plan.start == {"a": gpus("m2/0", "m2/1")}
        assert plan.release == gpus("m0/0")

    def test_of_equally_fast_types_the_smaller_name_comes_first(self):
        equal = Speeds.of([("k80", 3.0), ("v100", 3.0)])
        plan = self.run(planned("a", shape=JobShape()), granted=("m0/0", "m2/0"), speeds=equal)
        assert plan.start == {"a": gpus("m0/0")}
        assert plan.release == gpus("m2/0")

    def test_jobs_without_a_gang_on_one_type_get_one_on_the_next(self):
        plan = self.run(planned("a", shape=JobShape()), planned("b", shape=JobShape()), granted=("m0/0", "m2/0"))
        assert sorted(plan.start.values()) == sorted([gpus("m0/0"), gpus("m2/0")])

    def test_a_type_that_cannot_run_the_job_is_given_back(self):
        plan = self.run(planned("a"), granted=("m0/0", "m2/0"), speeds=Speeds.of([("v100", 3.0)]))
        assert plan.start == {"a": gpus("m2/0")}
        assert plan.release == gpus("m0/0")

    def test_gpus_of_another_type_wait_for_a_job_that_stops(self):
        plan = self.run(planned("a", on=("m0/0",), stopping=True), granted=("m2/0",), expiring=("m0/0",))
        assert plan.release == ()

    def test_gpus_of_another_type_wait_for_a_job_that_grows(self):
        only_k80 = Speeds.of([("k80", 1.0)])
        plan = self.run(planned("a", on=("m0/0",)), granted=("m0/0", "m0/1", "m2/0"), speeds=only_k80)
        assert (plan.stop, plan.release) == ({"a": "it grows"}, ())

    def test_no_job_grows_while_one_on_another_type_loses_its_gpus(self):
        jobs = planned("a", on=("m2/0",)), planned("b", on=("m0/0",))
        plan = self.run(*jobs, granted=("m0/0", "m0/1"), expiring=("m2/0",))
        assert plan == Plan(stop={"a": "its GPUs are taken back"})

    def test_job_that_moves_waits_for_its_gpus_and_starts_on_no_other_type(self):
        jobs = planned("a"), planned("b", on=("m0/0",), stopping=True)
        faster_on_k80 = Speeds.of([("k80", 3.0), ("v100", 1.0)])
        plan = self.run(*jobs, granted=("m0/0", "m2/0"), speeds=faster_on_k80, a=("m0/0",))
        assert plan == Plan(move={"a": gpus("m0/0")})


class TestGrowth:
    def test_job_grows_though_a_larger_one_may_not(self):
        """a and the idle GPU would make the gang of four that waits, b and the idle GPU do not."""
        waits = planned("w", shape=JobShape(tasks=4, min_tasks=4))
        jobs = planned("a", 9000.0, on=("m0/0", "m0/1", "m0/2")), planned("b", on=("m1/0",)), waits
        plan = run(*jobs, granted=("m0/0", "m0/1", "m0/2", "m1/0", "m1/1"))
        assert plan.stop == {"b": "it grows"}

    def test_no_jobs_exchange_their_gpus_while_another_one_grows(self):
        across = [
            planned("b", on=("m0/0", "m1/0"), shape=PAIRS, slowdown=STRICT),
            planned("c", on=("m0/1", "m1/1"), shape=PAIRS, slowdown=STRICT),
        ]
        granted = ("m0/0", "m1/0", "m0/1", "m1/1")
        assert run(*across, granted=granted).stop == {"b": "it moves", "c": "it moves"}
        plan = run(*across, planned("a", on=("m2/0",)), granted=(*granted, "m2/0", "m2/1"))
        assert plan.stop == {"a": "it grows"}


def test_gpu_that_an_app_still_holds_does_not_count_as_reserved_for_it():
    (here, there) = gpus("m0/0", "m0/1")
    lease = Lease(lease_id=1, gpu=here, app_id="a", granted_at_s=0.0, expires_at_s=9.0, state=LeaseState.EXPIRING)
    assert Holdings.of({here: lease}, [here, there]) == Holdings(
        reserved=frozenset([there]), expiring=frozenset([here])
    )
