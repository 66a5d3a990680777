"""Workloads by name and path, their options, the generator, and the report's own arithmetic."""

import json
import math
import os
import subprocess
import sys

import pytest
from documents import ROOT

from themis.apps import CRUDE_SLOWDOWN, TunerSpec
from themis.errors import InputError, UnknownNameError
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.workload import AppTrace, JobTrace, LossCurve, Workload
from themis_lab.simulator.workloads.extract import read_extract
from themis_lab.simulator.workloads.registry import WORKLOADS, workload_named
from themis_lab.simulator.workloads.report import planned_work_gpu_s, report
from themis_lab.simulator.workloads.synthetic import RANGES

TESTBED = cluster_named("testbed")


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_equal_seeds_give_equal_workloads(name):
    one, two, other = (workload_named(name, seed, TESTBED) for seed in (1, 1, 2))
    assert one == two != other
    assert (one.name, bool(one.source)) == (name, True)
    assert all(len({job.job_id for job in app.jobs}) == len(app.jobs) for app in one.apps)


def test_the_same_in_another_process():
    code = (
        "from themis_lab.simulator.clusters import cluster_named;"
        "from themis_lab.simulator.workloads.registry import *; import hashlib;"
        "print(hashlib.sha256(repr(workload_named('w2-small', 7, cluster_named('testbed'))).encode()).hexdigest())"
    )
    environments = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    runs = [
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT, env=each, timeout=60)
        for each in environments
    ]
    assert runs[0].stdout == runs[1].stdout


def test_the_release_of_philly_is_known_by_its_name(tmp_path):
    job = {
        "vc": "a",
        "user": "u",
        "submitted_time": "2017-10-09 07:01:55",
        "attempts": [
            {
                "start_time": "2017-10-09 07:02:00",
                "end_time": "2017-10-09 07:03:00",
                "detail": [{"ip": "m1", "gpus": ["gpu0"]}],
            }
        ],
    }
    released = tmp_path / "cluster_job_log"
    released.write_text(json.dumps([job]), encoding="utf-8")
    assert len(workload_named(str(released), 1, TESTBED).apps) == 1
    with pytest.raises(InputError, match="a burst has at least one job: 0"):
        workload_named(str(released), 1, TESTBED, least_jobs=0)
    other = released.rename(tmp_path / "jobs")
    with pytest.raises(
        InputError, match=r"a file whose format cannot be derived from its name: .*jobs.*\.json, or be cluster_job"
    ):
        workload_named(str(other), 1, TESTBED)


def test_options_as_values_and_as_text():
    values = workload_named("w1", 1, TESTBED, apps=10, scale=2.0, rigid=True, network_intensive=None)
    texts = workload_named("w1", 1, TESTBED, apps="10", scale="2", rigid="true", network_intensive="none")
    assert values == texts
    assert len(values.apps) == 10


@pytest.mark.parametrize(
    ("name", "option", "match"),
    [
        ("w1", {"app": 3}, "did you mean 'apps'"),
        ("w2", {"two_gpu_share": 0.5}, "unknown option of workload w2"),
        ("philly", {"apps": 3}, "unknown option of workload philly"),
        ("w1", {"apps": "many"}, "must be a whole number"),
        ("w1", {"apps": 2.5}, "must be a whole number"),
        ("w1", {"scale": "inf"}, "must be a number"),
        ("w1", {"rigid": 1}, "must be true or false"),
        ("w1", {"apps": None}, "must be a whole number"),
        ("synthetic", {"tuner": "none"}, "unknown tuner"),
        ("synthetic", {"load": 0}, "option load of workload synthetic must lie in 0.0001 to 10000: 0"),
        ("synthetic", {"sigma": 1000}, "option sigma of workload synthetic must lie in 0 to 5: 1000.0"),
        ("synthetic", {"task_gpu_s": 1e300}, "must lie in 0.001 to 1e"),
        ("synthetic", {"jobs": 10**9}, "must lie in 1 to 10000"),
        ("synthetic", {"apps": 10**9}, "must lie in 1 to 100000"),
    ],
)
def test_options_that_do_not_fit(name, option, match):
    with pytest.raises(InputError, match=match) as caught:
        workload_named(name, 1, TESTBED, **option)
    assert caught.value.exit_code == 2


def test_unknown_names_and_files(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'w1-small'"):
        workload_named("w1-smal", 1, TESTBED)
    for name in ("none.csv", "none.json", "none.trace"):
        with pytest.raises(InputError, match="cannot read"):
            workload_named(str(tmp_path / name), 1, TESTBED)


def test_traces_by_path(tmp_path):
    (tmp_path / "p.csv").write_text(
        "timestamp,duration,num_gpus,cluster\n2017-10-09 07:01:55,66,1,a\n2017-10-09 07:01:56,66,1,a\n"
    )
    assert len(workload_named(str(tmp_path / "p.csv"), 1, TESTBED).apps) == 1
    with pytest.raises(InputError, match=r"p\.csv has no burst of at least this many jobs: 3; its largest has 2"):
        workload_named(str(tmp_path / "p.csv"), 1, TESTBED, least_jobs=3)
    (tmp_path / "h.csv").write_text("timestamp,duration,num_gpus,cluster\n")
    with pytest.raises(InputError, match=r"h\.csv holds no job that ran$"):
        workload_named(str(tmp_path / "h.csv"), 1, TESTBED)
    (tmp_path / "g.trace").write_text("\t".join(("A", "", "", "", "", "5", "1", "", "", "", "9", "0")) + "\n")
    table = tmp_path / "elsewhere.csv"
    table.write_text(
        "model,batch_size,num_gpus,gpu_type,steps_per_s_consolidated,steps_per_s_unconsolidated\nA,,1,v100,1,1\n"
    )
    (app,) = workload_named(str(tmp_path / "g.trace"), 1, TESTBED, throughputs=str(table)).apps
    assert app.jobs[0].work_gpu_s == pytest.approx(5.0)
    with pytest.raises(InputError, match="cannot read"):
        workload_named(str(tmp_path / "g.trace"), 1, TESTBED)


@pytest.mark.parametrize("sigma", RANGES["sigma"])
@pytest.mark.parametrize("task_gpu_s", RANGES["task_gpu_s"])
@pytest.mark.parametrize("load", RANGES["load"])
def test_the_generator_makes_numbers_at_the_ends_of_all_ranges_or_says_why_not(sigma, task_gpu_s, load):
    for seed in range(1, 6):
        options = {"apps": 20, "sigma": sigma, "task_gpu_s": task_gpu_s, "load": load}
        if task_gpu_s > 1.0:
            with pytest.raises(InputError, match=r"more (work than a century of one GPU|than a century later)"):
                workload_named("synthetic", seed, TESTBED, **options)
            continue
        workload = workload_named("synthetic", seed, TESTBED, **options)
        figures = [app.arrival_s for app in workload.apps] + [job.work_gpu_s for job in all_jobs(workload)]
        assert all(map(math.isfinite, figures))
        assert all(job.work_gpu_s > 0.0 for job in all_jobs(workload))


def all_jobs(workload):
    return [job for app in workload.apps for job in app.jobs]


def test_the_generator_with_one_app():
    (only,) = workload_named("synthetic", 3, TESTBED, apps=1).apps
    assert only.arrival_s == 0.0


@pytest.mark.parametrize("load", [0.5, 3.0])
@pytest.mark.parametrize("cluster", ["testbed", "paper-256"])
def test_the_generator_brings_the_load_asked_for(load, cluster):
    where = cluster_named(cluster)
    workload = workload_named("synthetic", 3, where, load=load, apps=400)
    (row,) = [row for row in report(workload, (where.gpus,)) if row.quantity.startswith("load on")]
    assert row.ours == pytest.approx(load, rel=0.01)


def test_the_generator_keeps_gangs_within_the_cluster():
    workload = workload_named("synthetic", 3, cluster_named("3x1"), single_share=0)
    assert {job.shape.tasks for app in workload.apps for job in app.jobs} == {1, 2}
    assert all(6 <= len(app.jobs) <= 18 for app in workload.apps)


def test_the_generator_with_one_phase():
    workload = workload_named("synthetic", 3, TESTBED, tuner="single", apps=3)
    assert {app.tuner.name for app in workload.apps} == {"single"}


def app(tuner, *iterations):
    jobs = tuple(
        JobTrace(job_id=f"j{n}", iterations_total=each, serial_iteration_s=2.0, slowdown=CRUDE_SLOWDOWN)
        for n, each in enumerate(iterations)
    )
    return AppTrace(name="a", arrival_s=0.0, jobs=jobs, tuner=tuner)


def test_planned_work_equals_the_work_of_the_tuner():
    assert planned_work_gpu_s(app(TunerSpec(name="single"), 10, 5, 1)) == 32.0
    halving = TunerSpec(name="successive_halving", settings={"phases": "4x8,2x16,1x36"})
    assert planned_work_gpu_s(app(halving, 60, 60, 60, 60)) == 2.0 * (4 * 8 + 2 * 16 + 36)


def test_a_report_of_one_app_has_no_load():
    rows = report(Workload(name="one", apps=(app(TunerSpec(name="single"), 3600),)), (64,))
    ours = {row.quantity: row.ours for row in rows}
    assert ours["GPU hours a task, median"] == 2.0
    assert not any(quantity.startswith("load") for quantity in ours)


def test_the_philly_workload_equals_its_extract():
    workload = workload_named("philly", 1, TESTBED)
    for one, reported in zip(workload.apps, read_extract(), strict=True):
        assert (one.name, len(one.jobs), one.jobs[0].shape.tasks) == (reported.name, reported.jobs, reported.gpus)
        assert planned_work_gpu_s(one) == pytest.approx(reported.gpu_s, rel=0.01)


def test_the_default_curve_is_one():
    assert LossCurve().at(0) == 1.0
