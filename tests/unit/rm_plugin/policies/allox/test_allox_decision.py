"""AlloX' decision: widening, ranks, the cap, explanations, and its state."""

import random

import numpy as np
import pytest
from allox_cases import cluster, job, machine, progress, snapshot

from rm_plugin.policies.allox import matching
from rm_plugin.policies.allox.decision import decide, rank_users
from rm_plugin.policies.allox.explain import explain
from rm_plugin.policies.allox.matching import match
from rm_plugin.policies.allox.progress import ProgressLedger, value_of
from rm_plugin.policies.allox.values import UserState
from themis.errors import InputError, InvariantError


def started(decision):
    return [(start.job.job_id, start.machine_id) for start in decision.starts]


def test_nothing_starts_without_idle_machines_or_jobs():
    assert decide(snapshot([job("j", gpu=1)], [machine("g0", "gpu", 5.0)])).solves == ()
    assert decide(snapshot([], cluster(gpus=1))).solves == ()


def test_machine_idle_for_the_first_user_goes_to_the_next_by_widening():
    """The first user's job waits for the GPU, so a second user is let in, whose job takes the CPU."""
    jobs = [job("a", "ann", gpu=5, cpu=100), job("b", "bob", gpu=50, cpu=20)]
    machines = [machine("c0", "cpu"), machine("g0", "gpu", 10.0)]
    decision = decide(snapshot(jobs, machines, users=progress(ann=0.0, bob=0.5)), alpha=0.0)
    assert started(decision) == [("b", "c0")]
    assert [(solve.considered, solve.widening) for solve in decision.solves] == [(1, 1), (2, 2)]


def test_each_widening_lets_twice_as_many_users_in():
    jobs = [job(user, user, gpu=5) for user in ("ann", "bob", "cyd", "dee", "eve")]
    decision = decide(snapshot(jobs, [machine("c0", "cpu"), machine("g0", "gpu", 10.0)]), alpha=0.0)
    assert [solve.considered for solve in decision.solves] == [1, 2, 4, 5]


def test_start_counts_as_progress_in_the_same_decision():
    """The first start makes ann's progress 1/2, so bob is next although he had more at first."""
    jobs = [job("a0", "ann", gpu=1), job("a1", "ann", gpu=1), job("b", "bob", gpu=1)]
    users = {"ann": UserState(progress=0.0, last_start_s=1.0), "bob": UserState(progress=0.3, last_start_s=2.0)}
    decision = decide(snapshot(jobs, cluster(gpus=2), 5.0, users=users), alpha=0.0)
    assert started(decision) == [("a0", "g0"), ("b", "g1")]


def test_less_progress_counts_more_than_an_older_start():
    users = {"ann": UserState(progress=0.1, last_start_s=5.0), "bob": UserState(progress=0.5, last_start_s=3.0)}
    assert rank_users([job("a", "ann", gpu=1), job("b", "bob", gpu=1)], users) == ["ann", "bob"]


def test_wait_for_a_machine_counts_once_for_each_job():
    """Both jobs wait for the GPU and end at 15 and 20 s: the CPU would take 27 s for one of them."""
    found = match(np.array([[5.0, 27.0], [5.0, 27.0]]), [0, 1], [10.0, 0.0])
    assert (found.queues, found.total_s) == (((0, 1), ()), 35.0)


def test_positions_double_until_every_machine_has_one_to_spare(monkeypatch):
    """With no more positions than the greedy schedule has, the answer must still be that of all n."""
    monkeypatch.setattr(matching, "_EXTRA_POSITIONS", 0)
    rng = random.Random(1)
    times_s = np.array([[rng.uniform(1, 9), rng.uniform(1, 30)] for _ in range(12)])
    found = match(times_s, [0, 0, 1], [0.0, 5.0, 0.0])
    assert found.is_certified
    monkeypatch.setattr(matching, "_EXTRA_POSITIONS", 12)
    assert found.total_s == pytest.approx(match(times_s, [0, 0, 1], [0.0, 5.0, 0.0]).total_s)


def test_of_equally_cheap_positions_the_first_machine_is_offered_one_more():
    """Nine equal jobs on two idle GPUs: the greedy queues have five and four, and three more positions are offered."""
    found = match(np.ones((9, 1)), [0, 0], [0.0, 0.0])
    assert found.positions_offered == (8, 7)


def test_machine_stays_idle_if_all_users_prefer_to_wait():
    jobs = [job("a", "ann", gpu=5, cpu=100), job("b", "bob", gpu=5, cpu=100)]
    machines = [machine("c0", "cpu"), machine("g0", "gpu", 10.0)]
    decision = decide(snapshot(jobs, machines), alpha=0.0)
    assert started(decision) == []
    assert decision.solves[-1].considered == 2


def test_starts_of_one_decision_alternate_between_users_of_equal_progress():
    jobs = [job(f"{user}{place}", user, gpu=1) for user in ("ann", "bob") for place in range(2)]
    decision = decide(snapshot(jobs, cluster(gpus=4)), alpha=0.0)
    assert [start.job.user for start in decision.starts] == ["ann", "bob", "ann", "bob"]


def test_ties_prefer_the_user_with_the_oldest_start():
    users = {"ann": UserState(last_start_s=5.0), "bob": UserState(last_start_s=3.0)}
    jobs = [job("a", "ann", gpu=1), job("b", "bob", gpu=1)]
    assert started(decide(snapshot(jobs, cluster(gpus=1), 10.0, users=users), alpha=0.0)) == [("b", "g0")]


def test_no_user_starves_under_overload():
    """One machine, two users with endless jobs: starts alternate, although progress is 0 at each of them."""
    ledger, order = ProgressLedger(), []
    for turn in range(8):
        jobs = [job(f"{user}{turn}", user, gpu=seconds) for user, seconds in (("ann", 1), ("bob", 100))]
        (start,) = decide(snapshot(jobs, cluster(gpus=1), float(turn), users=ledger.users()), alpha=0.1).starts
        ledger.start(start.job.job_id, start.job.user, start.value, float(turn))
        ledger.end(start.job.job_id)
        order.append(start.job.user)
    assert order == ["ann", "bob"] * 4


def test_overrunning_machine_counts_as_free_now_but_starts_nothing():
    machines = [machine("g0", "gpu", 5.0, is_idle=False), machine("c0", "cpu")]
    decision = decide(snapshot([job("j", gpu=5, cpu=6)], machines, 50.0))
    assert started(decision) == []
    assert decision.solves[0].places["j"].start_s == 50.0


def test_job_whose_types_left_the_cluster_waits():
    view = snapshot([job("t", tpu=1), job("g", gpu=1)], cluster(gpus=2))
    decision = decide(view)
    assert started(decision) == [("g", "g0")]
    assert "no machine of a type" in explain(decision, view, "t").text


def test_three_types_are_matched():
    jobs = [job("a", gpu=5, cpu=9, tpu=1), job("b", gpu=5, cpu=9, tpu=2), job("c", gpu=8, cpu=9)]
    decision = decide(snapshot(jobs, cluster(gpus=1, cpus=1, tpu=1)), 1.0)
    # a ends at 1 and b at 3 on the TPU and c at 8 on the GPU; b on the GPU and c on the CPU would take 15 with a.
    assert sum(place.end_s for place in decision.solves[0].places.values()) == 12
    assert started(decision) == [("c", "g0"), ("a", "t0")]


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_alpha_out_of_range_is_refused(alpha):
    with pytest.raises(InputError):
        decide(snapshot([], []), alpha)


def test_explanation_names_rank_machine_and_its_time():
    jobs = [job("a", "ann", gpu=5, cpu=100), job("b", "bob", gpu=50, cpu=20), job("c", "cyd", gpu=1)]
    machines = [machine("c0", "cpu"), machine("g0", "gpu", 10.0)]
    view = snapshot(jobs, machines, users=progress(ann=0.0, bob=0.5, cyd=0.9))
    decision = decide(view, alpha=0.0)
    assert explain(decision, view, "b").text == "b starts on c0"
    waits = explain(decision, view, "a")
    assert waits.text == "a waits for g0; ann is number 1 of 3 users by progress"
    assert (waits.rank, waits.users, waits.considered, waits.widening_steps, waits.available_s) == (1, 3, 2, 1, 10.0)
    assert waits.place.position_from_end == 1
    assert (
        explain(decision, view, "c").text
        == "c waits: cyd is number 3 of 3 users by progress, and the 2 with the least progress go first"
    )
    assert "does not wait" in explain(decision, view, "other").text
    assert "no machine is idle" in explain(decide(snapshot(jobs, machines[1:])), snapshot(jobs, machines[1:]), "a").text


def test_progress_is_0_again_once_all_jobs_have_ended():
    ledger = ProgressLedger()
    for place in range(10):
        ledger.start(f"j{place}", "u", 0.1, 0.0)
    assert ledger.users()["u"].progress == pytest.approx(1.0)
    for place in range(10):
        ledger.end(f"j{place}")
    assert ledger.users()["u"] == UserState(progress=0.0, last_start_s=0.0)


def test_restored_ledger_has_the_same_state():
    ledger = ProgressLedger()
    ledger.start("j", "u", 0.1, 3.0)
    again = ProgressLedger(ledger.running, ledger.last_start_s)
    assert again.users(["v"]) == ledger.users(["v"])


def test_job_starts_and_ends_once_in_the_ledger():
    ledger = ProgressLedger()
    ledger.start("j", "u", 0.1, 0.0)
    with pytest.raises(InvariantError):
        ledger.start("j", "u", 0.1, 0.0)
    ledger.end("j")
    with pytest.raises(InvariantError):
        ledger.end("j")


def test_best_type_that_is_not_in_the_cluster_does_not_count():
    view = snapshot([], cluster(gpus=2, cpus=4))
    assert value_of(job("j", gpu=10, cpu=20, tpu=1), "cpu", view.capacity) == 0.25


def test_equal_times_prefer_the_gpu():
    view = snapshot([], cluster(gpus=2, cpus=4))
    assert value_of(job("j", gpu=10, cpu=10), "cpu", view.capacity) == 0.5


def test_memory_can_be_the_dominant_share():
    view = snapshot([], cluster(gpus=10))
    capacity = type(view.capacity)(units=view.capacity.units, memory_gb=64.0)
    assert value_of(job("j", gpu=10, memory_gb=16.0), "gpu", capacity) == 0.25
