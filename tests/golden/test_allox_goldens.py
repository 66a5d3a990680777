"""The worked examples of the AlloX paper, recomputed. Where the paper misprints, the test states the right number."""

import numpy as np
import pytest
from allox_cases import TABLE_1, all_schedules, array, cluster, ends_of, job, machine, progress, snapshot

from rm_plugin.policies.allox.decision import decide, match_jobs, places_of
from rm_plugin.policies.allox.matching import match
from rm_plugin.policies.allox.progress import value_of
from rm_plugin.policies.allox.values import Capacity, Configuration, Job

ROW_2 = array([[3, 4], [4, 6], [5, 10]])


def test_three_jobs_on_one_machine_take_22():
    matching = match(array([[3], [4], [5]]), [0], [0.0])
    assert matching.queues == ((0, 1, 2),)
    assert matching.total_s == 3 + 7 + 12 == 3 * 3 + 2 * 4 + 5


def test_cost_matrix_has_the_papers_entries_but_its_misprinted_index():
    q = np.concatenate([k * ROW_2 for k in (1, 2, 3)], axis=1)
    assert q.tolist() == [[3, 4, 6, 8, 9, 12], [4, 6, 8, 12, 12, 18], [5, 10, 10, 20, 15, 30]]
    # The paper writes (2, 2, 3) for 12 "on the GPU"; machine 1 is the GPU, and (2, 2, 3) is 18.
    column = {(i, k): 2 * (k - 1) + i - 1 for i in (1, 2) for k in (1, 2, 3)}
    assert q[1, column[1, 3]] == 12
    assert q[1, column[2, 3]] == 18


def test_paper_matrix_has_optimum_17_in_two_schedules():
    assert match(ROW_2, [0, 1], [0.0, 0.0]).total_s == 17
    optimal = {
        queues
        for queues in all_schedules(3, 2)
        if sum(ends_of(queues, ROW_2.tolist(), [0, 1], [0.0, 0.0]).values()) == 17
    }
    assert optimal == {((1, 2), (0,)), ((0, 2), (1,))}


def test_table_1_has_optimum_75_not_76():
    machines = cluster(gpus=2, cpus=2)
    matching = match_jobs(TABLE_1, machines, 0.0)
    assert matching.total_s == 75
    assert matching.is_certified
    assert max(place.end_s for place in places_of(TABLE_1, machines, matching, 0.0).values()) == 20


def test_figure_1b_as_drawn_takes_76_with_makespan_18():
    times = [[each.time_s("gpu"), each.time_s("cpu")] for each in TABLE_1]
    ends = ends_of([(3, 0), (1, 2), (4,), (5,)], times, [0, 0, 1, 1], [0.0] * 4)
    assert (sum(ends.values()), max(ends.values())) == (76, 18)


def test_gains_of_table_1_fit_no_single_schedule():
    assert round(1 - 75 / 181, 3) == 0.586  # 59 % of the mean needs the optimum
    assert round(1 - 18 / 75, 2) == 0.76  # 76 % of the makespan needs the drawing
    assert round(1 - 76 / 181, 3) == 0.580
    assert round(1 - 20 / 75, 3) == 0.733


JSQ = [(40, 50)] * 2 + [(40, 160)] * 2
SJF = [(10, 20)] * 2 + [(20, 90)] * 2


@pytest.mark.parametrize(("times", "best"), [(JSQ, 45), (SJF, 20)])
def test_counterexamples_of_queueing_rules_have_their_optimum(times, best):
    jobs = [job(f"J{place}", gpu=gpu, cpu=cpu) for place, (gpu, cpu) in enumerate(times)]
    assert match_jobs(jobs, cluster(gpus=2, cpus=2), 0.0).total_s / 4 == best


def test_sjf_counterexample_has_24_optimal_schedules():
    totals = [sum(ends_of(queues, SJF, [0, 0, 1, 1], [0.0] * 4).values()) for queues in all_schedules(4, 4)]
    assert (min(totals), totals.count(min(totals))) == (80, 24)


def test_arrival_at_4_decided_at_6_on_machine_free_at_10_completes_in_11():
    jobs, machines = [job("j", arrival_s=4.0, gpu=5)], [machine("g0", "gpu", 10.0, now_s=6.0)]
    place = places_of(jobs, machines, match_jobs(jobs, machines, 6.0), 6.0)["j"]
    assert (place.start_s - 4.0, place.end_s - 4.0) == (6.0, 11.0)


def test_value_of_papers_job_is_a_half_on_gpu_and_an_eighth_on_cpu():
    papers = Job(
        job_id="j",
        user="u",
        arrival_s=0.0,
        configurations={
            "cpu": Configuration(time_s=20.0, memory_gb=4.0),
            "gpu": Configuration(time_s=5.0, memory_gb=2.0),
        },
    )
    capacity = Capacity(units={"cpu": 8.0, "gpu": 2.0}, memory_gb=64.0)
    assert value_of(papers, "gpu", capacity) == 1 / 2
    assert value_of(papers, "cpu", capacity) == 1 / 8
    assert 0.5 * 5 == 0.125 * 20 == 2.5


def test_alpha_of_30_percent_lets_6_of_20_users_in():
    jobs = [job(f"j{place}", f"u{place:02}", gpu=1) for place in range(20)]
    decision = decide(snapshot(jobs, cluster(gpus=1)), alpha=0.3)
    assert decision.solves[0].considered == 6


def test_alpha_of_7_percent_lets_7_of_100_users_in():
    jobs = [job(f"j{place}", f"u{place:02}", gpu=1) for place in range(100)]
    assert decide(snapshot(jobs, cluster(gpus=1)), alpha=0.07).solves[0].considered == 7


@pytest.mark.parametrize(("gpu_free_s", "started"), [(10.0, []), (200.0, ["c0"])])
def test_job_waits_for_a_gpu_that_is_free_soon(gpu_free_s, started):
    machines = [machine("c0", "cpu"), machine("g0", "gpu", gpu_free_s)]
    decision = decide(snapshot([job("j", gpu=5, cpu=100)], machines), alpha=0.0)
    assert [start.machine_id for start in decision.starts] == started


def test_claims_of_lemma_3_3_exceed_the_cluster():
    share_a = (1.5 - 1e-9 / 2) / (4 - 1e-9)
    assert share_a == pytest.approx(3 / 8)
    assert share_a + 2 / 3 == pytest.approx(25 / 24)


def test_user_with_less_progress_goes_first():
    jobs = [job("a", "busy", gpu=1), job("b", "idle", gpu=50)]
    decision = decide(snapshot(jobs, cluster(gpus=1), users=progress(busy=0.5, idle=0.0)), alpha=0.0)
    assert [start.job.job_id for start in decision.starts] == ["b"]
