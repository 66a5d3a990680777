"""The lower bound of an app's rho, by hand: (first chance + start + longest job or work / GPUs, by phase) / t_ideal."""

import pytest
from agent_cases import app_of, cluster_view_of, job, jobs_of

from themis_lab.simulator.bounds import least_rho

CLUSTER = cluster_view_of(cluster_gpus=4)


def bound(jobs, phases, first_chance_s=0.0, start_s=0.0):
    # t_ideal: 800 GPU seconds on 4 GPUs that it shares with one other app, 400 s.
    whole = app_of(jobs, work_total_gpu_s=800.0, demand_max_gpus=4, contention=2.0)
    return least_rho(whole, phases, CLUSTER, first_chance_s, start_s) * 400.0


def test_equal_jobs_take_their_work_over_all_gpus():
    jobs = jobs_of([100.0] * 8)
    assert bound(jobs, [jobs]) == pytest.approx(200.0)


def test_no_phase_is_shorter_than_its_longest_job():
    jobs = jobs_of([500.0, 100.0, 100.0, 100.0])
    assert bound(jobs, [jobs]) == pytest.approx(500.0)


def test_phases_add_up_and_so_do_the_first_chance_and_the_start():
    jobs = jobs_of([100.0] * 8)
    phases = [[job("j0", 100.0)] * 8, [job("j0", 300.0), job("j1", 20.0)]]
    assert bound(jobs, phases, first_chance_s=30.0, start_s=7.0) == pytest.approx(200.0 + 300.0 + 30.0 + 7.0)
