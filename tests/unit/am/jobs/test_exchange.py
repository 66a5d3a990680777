"""Running jobs that exchange their GPUs: by hand, and what holds for any gangs."""

from types import MappingProxyType

import pytest
from agent_cases import FLAT, STRICT, cluster_of, job
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from am.jobs.exchange import exchange_gpus
from am.jobs.planner import Holdings, Plan, PlannedJob, make_plan
from themis.apps import JobShape
from themis.cluster import GpuId

CLUSTER = cluster_of((2, 2), (2, 2), (2, 2), racks=("r0",))
RESTART_S = 8.0


def gpus(*texts):
    return tuple(GpuId.parse(text) for text in texts)


def view(name, work, size, slowdown=STRICT):
    return job(name, work, JobShape(tasks=size, min_tasks=size), slowdown)


def exchange(works, gangs, restart_s=RESTART_S, slowdown=STRICT):
    running = [(view(name, works[name], len(gang), slowdown), gpus(*gang)) for name, gang in gangs.items()]
    moves = exchange_gpus(running, CLUSTER, restart_s)
    assert moves == exchange_gpus(running[::-1], CLUSTER, restart_s)
    return {name: set(gang) for name, gang in moves.items()}


ACROSS = {"a": ("m0/0", "m1/0"), "b": ("m0/1", "m1/1")}


def test_two_gangs_across_two_machines_become_two_within_a_slot():
    moves = exchange({"a": 1000.0, "b": 900.0}, ACROSS)
    assert moves == {"a": set(gpus("m0/0", "m0/1")), "b": set(gpus("m1/0", "m1/1"))}


def test_a_job_that_runs_well_stays():
    moves = exchange({"a": 1000.0, "b": 900.0, "c": 2000.0}, {**ACROSS, "c": ("m0/2", "m0/3")})
    assert moves.keys() == {"a", "b"}


def test_a_job_makes_way_for_another_though_it_gains_nothing():
    """On a rack S is 2: a saves 1000 GPU seconds, and the two restarts cost 2 * 8 s on two GPUs each."""
    moves = exchange({"a": 1000.0, "b": 900.0}, {"a": ("m0/0", "m1/0"), "b": ("m0/1", "m2/0")})
    assert moves == {"a": set(gpus("m0/0", "m0/1")), "b": set(gpus("m1/0", "m2/0"))}


@pytest.mark.parametrize(("restart_s", "pays"), [(24.0, True), (26.0, False)])
def test_it_pays_two_restarts_of_each_job_that_moves(restart_s, pays):
    """Only a gains: 200 GPU seconds. Two restarts of two jobs on two GPUs cost eight times `restart_s`."""
    moves = exchange({"a": 200.0, "b": 190.0}, {"a": ("m0/0", "m1/0"), "b": ("m0/1", "m2/0")}, restart_s)
    assert bool(moves) is pays


def test_a_job_that_finds_no_closer_gang_keeps_its_gpus():
    cluster = cluster_of(*[(2,)] * 8)
    jobs = {
        "a": (1000.0, "m0/0 m1/0"),
        "b": (900.0, "m0/1 m1/1"),
        "c": (500.0, "m6/0 m7/0"),
        "d": (400.0, "m2/0 m3/0"),
    }
    running = [(view(name, work, 2), gpus(*gang.split())) for name, (work, gang) in jobs.items()]
    assert exchange_gpus(running, cluster, RESTART_S).keys() == {"a", "b"}


@pytest.mark.parametrize("min_tasks", [4, 1])
def test_a_large_gang_that_finds_no_place_does_not_keep_others_from_theirs(min_tasks):
    cluster = cluster_of((2,), (2,), (1,), (1,), (1,), (1,), (4,))
    large = job("e", 9000.0, JobShape(tasks=4, min_tasks=min_tasks), STRICT)
    running = [
        (large, gpus("m2/0", "m3/0", "m4/0", "m5/0")),
        (view("a", 1000.0, 2), gpus("m0/0", "m1/0")),
        (view("b", 900.0, 2), gpus("m0/1", "m1/1")),
    ]
    assert exchange_gpus(running, cluster, RESTART_S).keys() == {"a", "b"}


@pytest.mark.parametrize("min_tasks", [1, 2])
def test_nobody_moves_if_another_job_would_lose_a_gpu(min_tasks):
    """On m0, a would take a GPU of b. Each task of b needs two GPUs of one machine, and only m1 would have them."""
    cluster = cluster_of((4,), (4,), (1,))
    of_two = job("b", 1000.0, JobShape(tasks=2, gpus_per_task=2, min_tasks=min_tasks), STRICT)
    running = [
        (view("a", 9000.0, 3), gpus("m0/2", "m0/3", "m2/0")),
        (of_two, gpus("m0/0", "m0/1", "m1/0", "m1/1")),
    ]
    assert exchange_gpus(running, cluster, RESTART_S) == {}


def test_a_job_whose_pace_is_a_guess_does_not_move():
    running = [(replace(view(name, 1000.0, 2), pace_guessed=True), gpus(*gang)) for name, gang in ACROSS.items()]
    assert exchange_gpus(running, CLUSTER, RESTART_S) == {}


def test_no_job_moves_if_distance_costs_nothing():
    assert exchange({"a": 1000.0, "b": 900.0}, ACROSS, restart_s=0.0, slowdown=FLAT) == {}


def test_a_single_job_has_nobody_to_exchange_with():
    assert exchange({"a": 1000.0, "c": 900.0}, {"a": ("m0/0", "m1/0"), "c": ("m0/2", "m0/3")}) == {}


class TestPlans:
    """The planner carries an exchange out: both jobs stop, and each starts as soon as all its new GPUs are free."""

    A, B = view("a", 1000.0, 2), view("b", 900.0, 2)
    GRANTED = frozenset(gpus("m0/0", "m0/1", "m1/0", "m1/1"))
    GOALS = MappingProxyType({"a": gpus("m0/0", "m0/1"), "b": gpus("m1/0", "m1/1")})

    def plan(self, a=(), b=(), stopping="", granted=GRANTED, moving=GOALS):
        jobs = [
            PlannedJob(view=self.A, gpus=gpus(*a), stopping="a" in stopping),
            PlannedJob(view=self.B, gpus=gpus(*b), stopping="b" in stopping),
        ]
        return make_plan(jobs, {}, Holdings(granted=granted), CLUSTER, RESTART_S, moving)

    def test_both_stop(self):
        assert self.plan(*ACROSS.values(), moving={}) == Plan(stop={"a": "it moves", "b": "it moves"}, move=self.GOALS)

    def test_an_app_counts_on_the_new_gangs_meanwhile(self):
        assert self.plan(*ACROSS.values(), stopping="ab").expected == self.GOALS

    def test_a_job_that_loses_work_stays(self):
        jobs = [PlannedJob(view=self.A, gpus=gpus(*ACROSS["a"]), loses_work=True)]
        jobs.append(PlannedJob(view=self.B, gpus=gpus(*ACROSS["b"])))
        assert make_plan(jobs, {}, Holdings(granted=self.GRANTED), CLUSTER, RESTART_S) == Plan()

    def test_nobody_moves_while_a_loser_frees_its_gpus(self):
        jobs = [PlannedJob(view=self.A, gpus=gpus(*ACROSS["a"])), PlannedJob(view=self.B, gpus=gpus(*ACROSS["b"]))]
        granted = self.GRANTED | set(gpus("m2/0"))
        plan = make_plan(jobs, {"loser": gpus("m2/0")}, Holdings(granted=granted), CLUSTER, RESTART_S)
        assert plan == Plan(stop={"loser": "the tuner stopped it"})

    def test_nobody_stops_while_a_gpu_is_taken_back(self):
        plan = self.plan(*ACROSS.values(), granted=self.GRANTED - set(gpus("m1/1")), moving={})
        assert plan == Plan(stop={"b": "its GPUs are taken back"})

    def test_the_first_to_stop_waits_for_the_other(self):
        assert self.plan(*ACROSS.values(), stopping="ab") == Plan(move=self.GOALS)
        assert self.plan((), ACROSS["b"], stopping="b") == Plan(move=self.GOALS)

    def test_then_both_start(self):
        assert self.plan() == Plan(start=self.GOALS)

    def test_a_job_whose_new_gpu_is_lost_is_placed_again(self):
        plan = self.plan((), ACROSS["b"], stopping="b", granted=self.GRANTED - set(gpus("m0/0")))
        assert plan.move == {"b": self.GOALS["b"]}
        assert plan.start == {}
        plan = self.plan(granted=self.GRANTED - set(gpus("m0/0")))
        assert plan.start == {"b": self.GOALS["b"]}

    def test_a_job_that_ended_meanwhile_leaves_its_gpus_to_the_other(self):
        jobs = [PlannedJob(view=self.A)]
        plan = make_plan(jobs, {}, Holdings(granted=self.GRANTED), CLUSTER, RESTART_S, self.GOALS)
        assert plan.start == {"a": self.GOALS["a"]}


@settings(max_examples=200)
@given(st.permutations(sorted(CLUSTER.gpu_ids())), st.lists(st.integers(2, 4), min_size=2, max_size=4), st.data())
def test_an_exchange_saves_gpu_time_and_no_other_follows(order, sizes, data):
    running, rest = [], list(order)
    for place, size in enumerate(sizes):
        gang, rest = tuple(rest[:size]), rest[size:]
        if len(gang) == size:
            running.append((view(f"j{place}", data.draw(st.integers(1, 4000)), size), gang))
    moves = exchange_gpus(running, CLUSTER, RESTART_S)
    after = [(each, moves.get(each.job_id, gang)) for each, gang in running]
    assert {gpu for _, gang in after for gpu in gang} == {gpu for _, gang in running for gpu in gang}
    assert all(len(new) == len(old) for (_, new), (_, old) in zip(after, running, strict=True))
    costs = [2 * RESTART_S * len(gang) for each, gang in after if each.job_id in moves]
    assert not moves or gpu_time_s(running) - gpu_time_s(after) > sum(costs)
    assert not moves or exchange_gpus(after, CLUSTER, RESTART_S) == {}


def gpu_time_s(running):
    return sum(each.serial_work_s * each.slowdown.at(CLUSTER.level_of_gpus(gang)) for each, gang in running)
