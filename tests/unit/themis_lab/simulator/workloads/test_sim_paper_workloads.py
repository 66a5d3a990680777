"""The paper's workloads: what they achieve of its distributions, what their options do, and that seeds decide."""

import itertools

import pytest

from am.tuners.registry import make_tuner
from themis.apps import JobSpec
from themis.errors import InputError
from themis_lab.simulator.workloads.extract import read_extract
from themis_lab.simulator.workloads.jobs import MAX_ITERATIONS, MIN_ITERATIONS
from themis_lab.simulator.workloads.models import model_named
from themis_lab.simulator.workloads.paper import PaperOptions, Workload1Options, workload_1, workload_2
from themis_lab.simulator.workloads.report import planned_work_gpu_s, report

BOTH = pytest.mark.parametrize("make", [workload_1, workload_2])
SEEDS = pytest.mark.parametrize("seed", range(4))


def achieved(workload):
    return {row.quantity: row for row in report(workload, (256,))}


@SEEDS
@BOTH
def test_apps_match_the_figures_of_the_paper(make, seed):
    rows = achieved(make(seed))
    for quantity in ("apps", "jobs an app, median", "GPU days an app, median", "apps of nlp, %"):
        assert rows[quantity].ours == pytest.approx(rows[quantity].paper, rel=0.01), quantity
    for quantity in ("apps of one job, %", "apps of cv, %", "apps of speech, %"):
        assert rows[quantity].ours == pytest.approx(rows[quantity].paper, abs=1.0), quantity
    for quantity in ("GPU days an app, 5 %", "GPU days an app, 95 %"):
        assert rows[quantity].ours == pytest.approx(rows[quantity].paper, rel=0.15), quantity
    assert rows["jobs an app, most"].ours == 102


@SEEDS
def test_tasks_of_workload_1_approximate_the_paper(seed):
    rows = achieved(workload_1(seed))
    assert rows["GPU hours a task, median"].ours == pytest.approx(3.75, rel=0.25)
    assert 0.3 <= rows["GPU hours a task, 5 %"].ours <= 0.8
    assert 18.0 <= rows["GPU hours a task, 95 %"].ours <= 37.5


@BOTH
def test_the_same_seed_gives_the_same_workload(make):
    assert make(5) == make(5)
    assert make(5) != make(6)


def test_both_have_the_same_arrivals_models_and_work():
    one, two = workload_1(2), workload_2(2)
    for first, second in zip(one.apps, two.apps, strict=True):
        assert (first.name, first.arrival_s, first.model) == (second.name, second.arrival_s, second.model)
        assert len(first.jobs) == len(second.jobs)
        assert planned_work_gpu_s(first) == pytest.approx(planned_work_gpu_s(second), rel=0.01)


def test_arrivals_come_from_the_extract():
    gaps = {round(b.arrival_s - a.arrival_s) for a, b in itertools.combinations(read_extract(), 2)}
    apps = workload_1(2).apps
    assert apps[0].arrival_s == 0.0
    assert {round(b.arrival_s - a.arrival_s) for a, b in itertools.pairwise(apps)} <= gaps
    assert 13 * 86400 < apps[-1].arrival_s < 14 * 86400


def test_shapes():
    one = {job.shape.tasks for app in workload_1(0).apps for job in app.jobs}
    two = {job.shape.tasks for app in workload_2(0).apps for job in app.jobs}
    assert (one, two) == ({1, 2}, {2, 4, 8})
    assert {job.shape.min_tasks for app in workload_2(0).apps for job in app.jobs} == {1}
    rigid = workload_2(0, PaperOptions(rigid=True))
    assert all(job.shape.min_tasks == job.shape.tasks for app in rigid.apps for job in app.jobs)


def test_the_share_of_apps_with_two_gpus():
    for share, count in ((0.0, 0), (0.25, 21), (1.0, 85)):
        apps = workload_1(0, Workload1Options(two_gpu_share=share)).apps
        assert sum(app.jobs[0].shape.tasks == 2 for app in apps) == count


@BOTH
def test_iterations_are_sane_and_keep_the_model_s_time_where_they_can(make):
    kept = 0
    for app in make(1).apps:
        longest = max(job.iterations_total for job in app.jobs)
        assert MIN_ITERATIONS <= longest <= MAX_ITERATIONS
        mean_s = sum(job.serial_iteration_s for job in app.jobs) / len(app.jobs)
        kept += mean_s == pytest.approx(model_named(app.model).serial_iteration_s, rel=0.01)
    assert kept > 20


def test_no_two_jobs_share_a_loss_where_jobs_are_let_go():
    for app in workload_2(3).apps:
        specs = [JobSpec(job_id=job.job_id, iterations_total=job.iterations_total) for job in app.jobs]
        done = 0
        for phase in make_tuner(app.tuner, specs).plan().phases:
            done += phase.iterations
            assert len({job.curve.at(done) for job in app.jobs}) == len(app.jobs)


def test_losses_fall():
    for job in workload_1(3).apps[0].jobs:
        losses = [job.curve.at(job.iterations_total * part / 10) for part in range(11)]
        assert losses == sorted(losses, reverse=True)


@BOTH
def test_scale_divides_work_and_arrivals(make):
    whole, tenth = make(1), make(1, type_of(make)(scale=10.0))
    for one, other in zip(whole.apps, tenth.apps, strict=True):
        assert other.arrival_s == pytest.approx(one.arrival_s / 10)
        assert planned_work_gpu_s(other) == pytest.approx(planned_work_gpu_s(one) / 10, rel=0.05)


@BOTH
@pytest.mark.parametrize("apps", [12, 30])
def test_fewer_apps_give_a_similar_load(make, apps):
    whole = achieved(make(1))["load on 256 GPUs"].ours
    part = achieved(make(1, type_of(make)(apps=apps)))["load on 256 GPUs"].ours
    assert part == pytest.approx(whole, rel=0.4)


def test_stretching_halves_the_load():
    whole, half = (achieved(workload_1(1, Workload1Options(stretch=stretch))) for stretch in (1.0, 2.0))
    assert half["load on 256 GPUs"].ours == pytest.approx(whole["load on 256 GPUs"].ours / 2)


def test_a_divisor_of_jobs_keeps_the_work():
    whole, fifth = workload_2(1), workload_2(1, PaperOptions(job_divisor=5.0))
    for one, other in zip(whole.apps, fifth.apps, strict=True):
        assert len(other.jobs) == (1 if len(one.jobs) == 1 else round(len(one.jobs) / 5))
        assert planned_work_gpu_s(other) == pytest.approx(planned_work_gpu_s(one), rel=0.01)


@BOTH
def test_network_intensive_apps(make):
    for share in (0.0, 0.4, 1.0):
        apps = make(1, type_of(make)(network_intensive=share)).apps
        assert sum(model_named(app.model).strict for app in apps) == round(share * 85)


def test_one_app():
    (app,) = workload_2(1, PaperOptions(apps=1)).apps
    assert app.arrival_s == 0.0


@pytest.mark.parametrize(
    "options",
    [{"apps": 0}, {"scale": 0.0}, {"stretch": float("inf")}, {"job_divisor": float("nan")}, {"two_gpu_share": 1.5}],
)
def test_options_out_of_range(options):
    with pytest.raises(InputError):
        Workload1Options(**options)


def test_more_apps_than_the_extract_has():
    """And the most that it has may be had: a tenth of them have one job, so they are not all that fit."""
    with pytest.raises(InputError, match="at most") as refused:
        workload_1(0, Workload1Options(apps=1000))
    most = int(refused.value.remedy.removeprefix("at most "))
    assert len(workload_1(0, Workload1Options(apps=most)).apps) == most
    with pytest.raises(InputError, match=f"at most {most}"):
        workload_1(0, Workload1Options(apps=most + 1))


def type_of(make):
    return Workload1Options if make is workload_1 else PaperOptions
