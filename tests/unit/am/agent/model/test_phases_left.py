"""The work left that a report states."""

import pytest
from agent_cases import app_of, cluster_view_of, job, jobs_of
from msgspec.structs import replace

from am.agent.bids.reports import make_report
from am.agent.model.demands import phases_left
from am.tuners.port import Phase
from themis.apps import JobShape
from themis.bids import LossForecast, PhaseLeft

CURVE = LossForecast(floor=0.1, drop=1.0, scale=10.0, power=1.0, iteration=3, serial_iteration_s=2.0)


def test_the_current_phase_by_its_jobs_and_later_ones_by_the_median_job():
    jobs = (*jobs_of([80, 100, 120]), job("wide", 20, JobShape(tasks=4)))
    app = app_of(jobs, later_phases=(Phase(jobs=2, iterations=3), Phase(jobs=1, iterations=5)), reference=jobs[1])
    assert phases_left(app) == (
        PhaseLeft(jobs=4, work_gpu_s=320.0, longest_gpu_s=120.0, gang_gpus=4),
        PhaseLeft(jobs=2, work_gpu_s=600.0, longest_gpu_s=300.0, gang_gpus=1),
        PhaseLeft(jobs=1, work_gpu_s=500.0, longest_gpu_s=500.0, gang_gpus=1),
    )


def test_a_report_gives_the_whole_work_and_the_restart_cost():
    app = app_of(jobs_of([80, 100]), later_phases=(Phase(jobs=1, iterations=2),), restart_s=7.0)
    report = make_report(app, cluster_view_of(), 3)
    assert report.work_left_gpu_s == pytest.approx(80 + 100 + 200)
    assert report.restart_s == 7.0


def test_a_report_is_provisional_while_the_pace_of_a_job_is_a_guess():
    known, guess = job("a", 100), replace(job("b", 100), pace_guessed=True)
    assert not make_report(app_of([known]), cluster_view_of(), 1).provisional
    assert make_report(app_of([known, guess]), cluster_view_of(), 1).provisional


def test_between_two_phases_only_later_ones_are_left():
    app = app_of((), work_total_gpu_s=1.0, later_phases=(Phase(jobs=1, iterations=2),), reference=job("r", 10))
    assert phases_left(app) == (PhaseLeft(jobs=1, work_gpu_s=20.0, longest_gpu_s=20.0),)


def test_nothing_left():
    assert phases_left(app_of((), work_total_gpu_s=1.0)) == ()


def test_a_demand_carries_its_jobs_forecast():
    view = job("j", 100)
    app = app_of([replace(view, forecast=CURVE)])
    assert make_report(app, cluster_view_of(), 1).demands[0].forecast == CURVE


@pytest.mark.parametrize(
    ("gpus", "seconds"),
    [(1, 400.0), (2, 200.0), (4, 100.0), (8, 100.0)],
    ids=["one", "by work", "as long as the longest", "more than it can use"],
)
def test_the_time_of_a_phase(gpus, seconds):
    """Four jobs of one GPU and 400 GPU seconds, of which the longest has 100."""
    phase = PhaseLeft(jobs=4, work_gpu_s=400.0, longest_gpu_s=100.0)
    assert phase.time_s(gpus) == seconds
