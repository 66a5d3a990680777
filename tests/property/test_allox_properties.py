"""AlloX' matching and decision against brute force and against what the paper proves."""

import math

import numpy as np
import pytest
from allox_cases import all_schedules, array, brute_force_s, ends_of, job, machine, snapshot
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from rm_plugin.policies.allox.decision import decide, match_jobs
from rm_plugin.policies.allox.matching import match
from rm_plugin.policies.allox.values import UserState

SECONDS = st.integers(1, 60).map(float) | st.floats(0.01, 1e4)


@st.composite
def instances(draw, most_jobs=5, most_machines=3, types=3):
    kinds = draw(st.lists(st.integers(0, types - 1), min_size=1, max_size=most_machines))
    jobs = draw(st.integers(0, most_jobs))
    times = []
    for _ in range(jobs):
        row = draw(st.lists(SECONDS | st.just(math.inf), min_size=types, max_size=types))
        runs_on = draw(st.sampled_from(kinds))
        row[runs_on] = row[runs_on] if math.isfinite(row[runs_on]) else draw(SECONDS)
        times.append(row)
    waits = draw(st.lists(st.just(0.0) | SECONDS, min_size=len(kinds), max_size=len(kinds)))
    return np.array(times).reshape(jobs, types), kinds, waits


def full_total_s(times, kinds, waits):
    """The optimum of the whole matrix, with all n positions of all machines."""
    jobs = len(times)
    if not jobs:
        return 0.0
    p = times[:, kinds]
    q = np.concatenate([k * p + np.array(waits) for k in range(1, jobs + 1)], axis=1)
    return q[linear_sum_assignment(q)].sum()


@given(instances())
def test_total_equals_brute_force(case):
    assert match(*case).total_s == pytest.approx(brute_force_s(*case), rel=1e-9, abs=1e-6)


@given(instances(most_jobs=14, most_machines=6))
def test_total_equals_full_matrix_and_is_certified(case):
    matching = match(*case)
    assert matching.is_certified
    assert matching.total_s == pytest.approx(full_total_s(*case), rel=1e-9)


@given(instances(most_jobs=12, most_machines=5))
def test_each_job_runs_once_and_shortest_first(case):
    times, kinds, waits = case
    matching = match(times, kinds, waits)
    assert sorted(index for queue in matching.queues for index in queue) == list(range(len(times)))
    for queue, kind in zip(matching.queues, kinds, strict=True):
        own = [times[index][kind] for index in queue]
        assert own == sorted(own)
        assert all(map(math.isfinite, own))
    assert matching.total_s == pytest.approx(sum(ends_of(matching.queues, times, kinds, waits).values()))


@given(instances(most_jobs=8), st.data())
def test_machine_more_or_shorter_time_never_raises_the_optimum(case, data):
    times, kinds, waits = case
    before_s = match(times, kinds, waits).total_s * (1 + 1e-12)
    assert match(times, [*kinds, kinds[0]], [*waits, waits[0]]).total_s <= before_s
    if len(times):
        shorter = times.copy()
        shorter[data.draw(st.integers(0, len(times) - 1))] *= 0.5
        assert match(shorter, kinds, waits).total_s <= before_s


@given(instances(most_jobs=10, most_machines=4))
def test_rest_of_a_matching_stays_optimal_once_its_first_jobs_start(case):
    times, kinds, waits = case
    matching = match(times, kinds, waits)
    started = {queue[0]: place for place, queue in enumerate(matching.queues) if queue and waits[place] == 0.0}
    ends_s = ends_of(matching.queues, times, kinds, waits)
    rest = [index for index in range(len(times)) if index not in started]
    busy = list(waits)
    for index, place in started.items():
        busy[place] = float(times[index][kinds[place]])
    assert match(times[rest], kinds, busy).total_s == pytest.approx(sum(ends_s[index] for index in rest), abs=1e-6)


@given(instances(most_jobs=4, most_machines=2))
def test_optimum_is_pareto_efficient(case):
    times, kinds, waits = case
    ends = ends_of(match(times, kinds, waits).queues, times, kinds, waits)
    for queues in all_schedules(len(times), len(kinds)):
        other = ends_of(queues, times, kinds, waits)
        better = [index for index in ends if other[index] < ends[index] - 1e-6]
        worse = [index for index in ends if other[index] > ends[index] + 1e-9]
        assert not better or worse


@st.composite
def snapshots(draw):
    now_s = draw(st.floats(0, 100))
    types = ("cpu", "gpu", "tpu")
    kinds = draw(st.lists(st.sampled_from(types), min_size=1, max_size=5))
    machines = [
        machine(f"m{place}", kind, draw(st.floats(0, 150)), is_idle=draw(st.booleans()))
        for place, kind in enumerate(kinds)
    ]
    users = ("ann", "bob", "cyd")
    jobs = [
        job(
            f"j{place}",
            draw(st.sampled_from(users)),
            draw(st.floats(0, now_s)),
            **{name: draw(SECONDS | st.none()) for name in types[:-1]},
            tpu=draw(SECONDS),
        )
        for place in range(draw(st.integers(0, 8)))
    ]
    states = {user: UserState(progress=draw(st.sampled_from((0.0, 0.25, 0.5)))) for user in users[:2]}
    return snapshot(jobs, machines, now_s, users=states)


@given(snapshots(), st.sampled_from((0.0, 0.1, 0.5, 1.0)))
def test_decision_starts_waiting_jobs_on_idle_machines_that_run_them(view, alpha):
    starts = decide(view, alpha).starts
    idle = {each.machine_id: each.type_name for each in view.machines if each.is_idle}
    assert len({start.job.job_id for start in starts}) == len({start.machine_id for start in starts}) == len(starts)
    for start in starts:
        assert start.job in view.waiting
        assert idle[start.machine_id] == start.type_name
        assert math.isfinite(start.job.time_s(start.type_name))


@given(snapshots(), st.sampled_from((0.0, 0.1, 0.5, 1.0)), st.randoms(use_true_random=False))
def test_decision_does_not_depend_on_the_order_of_the_snapshot(view, alpha, rng):
    jobs, machines, users = list(view.waiting), list(view.machines), list(view.users.items())
    for each in (jobs, machines, users):
        rng.shuffle(each)
    other = snapshot(jobs, machines, view.now_s, users=dict(users), capacity=view.capacity)
    assert decide(other, alpha) == decide(view, alpha)


@given(snapshots(), st.floats(0, 50))
def test_arrivals_do_not_change_the_matching(view, earlier_s):
    order = sorted(view.waiting, key=lambda each: each.job_id)
    shifted = [job(each.job_id, each.user, each.arrival_s - earlier_s) for each in order]
    moved = [
        type(each)(job_id=each.job_id, user=each.user, arrival_s=late.arrival_s, configurations=each.configurations)
        for each, late in zip(order, shifted, strict=True)
    ]
    machines = [*view.machines, machine("t", "tpu")]
    assert match_jobs(moved, machines, view.now_s) == match_jobs(order, machines, view.now_s)


@given(snapshots())
def test_all_users_let_in_equals_deciding_one_start_at_a_time(view):
    """With alpha = 1 all candidates start at once; so does the total of re-solving after each start."""
    decision = decide(view, 1.0)
    if decision.solves:
        places = decision.solves[0].places
        assert all(places[start.job.job_id].machine_id == start.machine_id for start in decision.starts)
        assert all(places[start.job.job_id].start_s == view.now_s for start in decision.starts)


def test_job_that_runs_nowhere_is_refused_by_index():
    with pytest.raises(ValueError, match="a job can run on no machine: 1"):
        match(array([[1.0], [math.inf]]), [0], [0.0])
