"""The baselines of AlloX on the worked examples: totals as recomputed, two of which differ from the paper's."""

import math

import pytest
from allox_cases import TABLE_1, cluster, job, snapshot

from rm_plugin.policies.allox import allox_plus
from rm_plugin.policies.allox.baselines import bf, drfa, drff, drfs, es, es_fcfs, jsq, sjf, srpt
from rm_plugin.policies.allox.decision import decide
from rm_plugin.policies.allox.values import Machine, RunningJob
from themis.choices import LateOrder

ROW_2 = tuple(job(f"J{place}", "u", gpu=gpu, cpu=cpu) for place, (gpu, cpu) in enumerate([(3, 4), (4, 6), (5, 10)]))
JSQ = tuple(job(f"J{place}", "u", gpu=40, cpu=cpu) for place, cpu in enumerate([50, 50, 160, 160]))
SJF = tuple(job(f"J{place}", "u", gpu=gpu, cpu=cpu) for place, (gpu, cpu) in enumerate([(10, 20)] * 2 + [(20, 90)] * 2))
BOTH = ("User 1", "User 2")


def played(policy, jobs, machines):
    """End of each job, all of which arrive at 0, with decisions at every end."""
    now_s, waiting, bindings, ends, running = 0.0, list(jobs), {}, {}, {}
    state = {machine.machine_id: machine for machine in machines}
    while waiting or running:
        view = snapshot(
            waiting,
            state.values(),
            now_s,
            bindings=dict(bindings),
            running=tuple(each for each, _ in running.values()),
        )
        decision = policy(view)
        bindings |= decision.bindings
        for start in decision.starts:
            waiting.remove(start.job)
            end_s = now_s + start.job.time_s(start.type_name)
            ends[start.job.job_id] = end_s
            record = RunningJob(job=start.job, machine_id=start.machine_id, type_name=start.type_name)
            running[start.machine_id] = record, end_s
            state[start.machine_id] = Machine(
                machine_id=start.machine_id, type_name=start.type_name, available_s=end_s, is_idle=False
            )
        assert running, "something runs while jobs wait"
        now_s = min(end_s for _, end_s in running.values())
        for machine_id, (record, end_s) in list(running.items()):
            if end_s == now_s:
                del running[machine_id]
                state[machine_id] = Machine(
                    machine_id=machine_id, type_name=record.type_name, available_s=now_s, is_idle=True
                )
    return ends


@pytest.mark.parametrize(
    ("policy", "table_1", "row_2"), [(bf.decide, 104, 22), (jsq.decide, 81, 17), (sjf.decide, 76, 17)]
)
def test_totals_of_queueing_rules(policy, table_1, row_2):
    assert sum(played(policy, TABLE_1, cluster(gpus=2, cpus=2)).values()) == table_1
    assert sum(played(policy, ROW_2, cluster(gpus=1, cpus=1)).values()) == row_2


def test_equal_share_of_figure_1a_takes_181_with_makespan_75():
    ends = played(lambda view: es_fcfs.decide(view, BOTH), TABLE_1, cluster(gpus=2, cpus=2))
    by_user = [
        sum(end for name, end in ends.items() if name in own) for own in (("J1", "J3", "J5"), ("J2", "J4", "J6"))
    ]
    assert (by_user, max(ends.values())) == ([80, 101], 75)


def test_allox_takes_the_optimum_of_table_1():
    assert sum(played(lambda view: decide(view, 1.0), TABLE_1, cluster(gpus=2, cpus=2)).values()) == 75


def test_jsq_takes_60_where_the_paper_says_100():
    assert sum(played(jsq.decide, JSQ, cluster(gpus=2, cpus=2)).values()) / 4 == 60


def test_sjf_takes_50_of_an_optimum_of_20():
    assert sum(played(sjf.decide, SJF, cluster(gpus=2, cpus=2)).values()) / 4 == 50


def test_es_leaves_the_share_of_an_absent_user_idle():
    jobs = [job(f"j{place}", "ann", gpu=1, cpu=1) for place in range(4)]
    decision = es.decide(snapshot(jobs, cluster(gpus=2, cpus=2)), ("ann", "bob"))
    assert [start.machine_id for start in decision.starts] == ["g0", "c0"]


def test_es_gives_machines_that_do_not_divide_evenly_to_the_first_users():
    jobs = [job(f"{user}{place}", user, gpu=1) for user in ("ann", "bob") for place in range(3)]
    decision = es.decide(snapshot(jobs, cluster(gpus=3)), ("bob", "ann"))
    assert sorted(start.job.user for start in decision.starts) == ["ann", "ann", "bob"]


def test_drff_leaves_cpus_idle():
    jobs = [job(f"j{place}", "ann", gpu=2, cpu=1) for place in range(3)]
    assert [start.machine_id for start in drff.decide(snapshot(jobs, cluster(gpus=1, cpus=2))).starts] == ["g0"]


def test_drfs_blocks_behind_a_job_that_does_not_fit():
    jobs = [job("short", "ann", gpu=1, cpu=5), job("other", "ann", gpu=2, cpu=9), job("cpu", "ann", gpu=9, cpu=8)]
    decision = drfs.decide(snapshot(jobs, cluster(gpus=1, cpus=1)))
    assert [(start.job.job_id, start.machine_id) for start in decision.starts] == [("short", "g0")]


def test_drfs_gains_by_a_false_preference_for_cpus():
    """Lemma 3.2: with a speedup of 1 + epsilon DRF leaves the CPU idle, and claiming to prefer it ends sooner."""
    honest = [job("a", "ann", gpu=10, cpu=11), job("b", "bob", gpu=10, cpu=11)]
    lying = [honest[0], job("b", "bob", gpu=11, cpu=11 - 1e-9)]
    machines = cluster(gpus=1, cpus=1)
    assert played(drfs.decide, honest, machines) == {"a": 10, "b": 20}
    assert played(drfs.decide, lying, machines)["b"] == pytest.approx(11)


def test_drfa_counts_a_gpu_as_beta_cpus():
    running = [
        RunningJob(job=job("r1", "ann", gpu=1, cpu=3), machine_id="g0", type_name="gpu"),
        RunningJob(job=job("r2", "bob", gpu=1, cpu=3), machine_id="c0", type_name="cpu"),
    ]
    machines = [each for each in cluster(gpus=2, cpus=2) if each.machine_id in ("g1", "c1")]
    busy = [
        Machine(machine_id=each.machine_id, type_name=each.type_name, available_s=9.0, is_idle=False)
        for each in running
    ]
    waiting = [job("a", "ann", gpu=1, cpu=3), job("b", "bob", gpu=2, cpu=6)]
    view = snapshot(waiting, [*machines, *busy], running=tuple(running))
    starts = drfa.decide(view, {"gpu": 3.0, "cpu": 1.0}).starts
    assert [(start.job.job_id, start.machine_id) for start in starts] == [("b", "g1"), ("a", "c1")]


def test_drfa_counts_types_by_the_mean_speedup_of_the_jobs_that_can_use_both():
    jobs = [job("a", gpu=1, cpu=3), job("b", gpu=1, cpu=5), job("c", gpu=1)]
    weights = drfa.mean_speedups(jobs, ("gpu", "cpu", "tpu"), slowest="cpu")
    assert weights == {"gpu": 4.0, "cpu": 1.0, "tpu": 1.0}


@pytest.mark.parametrize("policy", [drff.decide, drfs.decide])
def test_job_whose_types_have_left_does_not_block_the_others(policy):
    jobs = [job("a", "ann", tpu=1), job("b", "bob", gpu=2)]
    assert [start.job.job_id for start in policy(snapshot(jobs, cluster(gpus=1))).starts] == ["b"]


def test_job_leaves_the_queue_of_a_machine_that_can_no_longer_run_it():
    view = snapshot([job("a", cpu=5)], cluster(gpus=1, cpus=1), bindings={"a": "g0"})
    assert [start.machine_id for start in jsq.decide(view).starts] == ["c0"]


def test_srpt_preempts_a_longer_job_for_a_shorter_one():
    long = job("long", gpu=100)
    machines = [Machine(machine_id="g0", type_name="gpu", available_s=100.0, is_idle=False)]
    running = (RunningJob(job=long, machine_id="g0", type_name="gpu", fraction_left=0.5),)
    decision = srpt.decide(snapshot([job("short", gpu=49)], machines, 50.0, running=running))
    assert decision.preempted == ("long",)
    assert [(start.job.job_id, start.machine_id) for start in decision.starts] == [("short", "g0")]
    assert srpt.decide(snapshot([job("short", gpu=51)], machines, 50.0, running=running)).starts == ()


def test_allox_plus_starts_the_shortest_pair_first():
    jobs = [job("a", gpu=5, cpu=6), job("b", gpu=4, cpu=90), job("c", gpu=7, cpu=8)]
    starts = allox_plus.decide(snapshot(jobs, cluster(gpus=1, cpus=1))).starts
    assert [(start.job.job_id, start.machine_id) for start in starts] == [("b", "g0"), ("a", "c0")]


def test_allox_plus_starts_jobs_past_the_time_out_first_and_the_shortest_of_them():
    jobs = [job("new", arrival_s=900.0, gpu=1), job("late", arrival_s=300.0, gpu=50), job("latest", gpu=90)]
    starts = allox_plus.decide(snapshot(jobs, cluster(gpus=1), 1000.0), timeout_s=500.0).starts
    assert [start.job.job_id for start in starts] == ["late"]


def test_allox_plus_starts_the_oldest_late_job_first_where_a_site_wants_that():
    jobs = [job("new", arrival_s=900.0, gpu=1), job("late", arrival_s=300.0, gpu=50), job("latest", gpu=90, cpu=99)]
    view = snapshot(jobs, cluster(gpus=1, cpus=1), 1000.0)
    starts = allox_plus.decide(view, timeout_s=500.0, late_order=LateOrder.OLDEST).starts
    assert [(start.job.job_id, start.machine_id) for start in starts] == [("latest", "g0")]


def test_a_long_job_starves_under_overload_unless_the_oldest_late_job_goes_first():
    """A job of 90 s, and every 0.1 s after it one of 10 s; one GPU."""
    jobs = [job("long", gpu=90), *(job(f"{n:03}", arrival_s=0.1 * n, gpu=10) for n in range(300))]
    starts_s = {}
    for late_order in LateOrder:
        waiting, now_s = {each.job_id: each for each in jobs}, 0.0
        while "long" in waiting and now_s < 1900.0:
            there = [each for each in waiting.values() if each.arrival_s <= now_s]
            (start,) = allox_plus.decide(snapshot(there, cluster(gpus=1), now_s), late_order=late_order).starts
            del waiting[start.job.job_id]
            starts_s[late_order] = now_s if start.job.job_id == "long" else math.inf
            now_s += start.job.time_s("gpu")
    assert starts_s == {LateOrder.SHORTEST: math.inf, LateOrder.OLDEST: 510.0}


@pytest.mark.parametrize("policy", [bf.decide, jsq.decide])
def test_bound_jobs_stay_until_their_machine_leaves(policy):
    machines = cluster(gpus=2)
    view = snapshot([job("a", gpu=5), job("b", gpu=5)], machines, bindings={"a": "g1", "b": "g1"})
    assert [(start.job.job_id, start.machine_id) for start in policy(view).starts] == [("a", "g1")]
    lost = snapshot([job("a", gpu=5)], machines[:1], bindings={"a": "g1"})
    assert policy(lost).bindings == {"a": "g0"}
