"""The plan of the live experiment: its apps are the paper's scaled workload, and invalid input is refused."""

import math
from pathlib import Path

import pytest
from documents import ROOT

from themis.config.cluster_file import load_cluster
from themis.errors import InputError, UnknownNameError
from themis_lab.paper.live.folder import ExperimentFolder, PlanFile, check_folder, make_folder, read_plan
from themis_lab.paper.live.plan import LONG, SHORT, plan_experiment
from themis_lab.paper.live.scale import ScaleFile, scale_named, scale_names
from themis_lab.simulator.workloads.models import model_named
from themis_lab.simulator.workloads.registry import workload_named
from themis_lab.testbed.mix import rm_settings


def planned(workload="w1", scale="quick", seed=1, policies=("themis",)):
    return plan_experiment(workload, policies, seed, scale_named(scale))


@pytest.mark.parametrize("scale", scale_names())
@pytest.mark.parametrize("workload", ["w1", "w2"])
def test_apps_have_all_work_of_the_workload(workload, scale):
    experiment = planned(workload, scale)
    options = experiment.scale.trace.model_dump()
    apps = workload_named(workload, 1, experiment.cluster, **options).apps
    traces = {app.name.replace("app-", "trace-"): app for app in apps}
    simulated = {app.name: app for app in experiment.simulated().apps}
    assert {LONG, SHORT, *traces} <= simulated.keys()
    for name, trace in traces.items():
        app = simulated[name]
        assert math.isclose(app.arrival_s * experiment.scale.time_scale, trace.arrival_s, abs_tol=1e-6)
        for job, original in zip(app.jobs, trace.jobs, strict=True):
            assert math.isclose(job.work_gpu_s * experiment.scale.time_scale, original.work_gpu_s)
            assert (job.slowdown, job.shape) == (original.slowdown, original.shape)
        assert app.tuner == trace.tuner
        assert app.model == model_named(trace.model).measured_as


@pytest.mark.parametrize("scale", scale_names())
def test_experiment_uses_the_papers_testbed_and_real_apps(scale):
    experiment = planned(scale=scale)
    assert experiment.cluster == load_cluster(ROOT / "conf/clusters/testbed-64.yaml")
    assert any(not arrival.spec.replay for arrival in experiment.arriving)
    assert [arrival.at_s for arrival in experiment.arriving] == sorted(a.at_s for a in experiment.arriving)


def test_replayed_jobs_log_every_second_on_few_gpus():
    experiment = planned()
    seldom = 0
    for spec in (arrival.spec for arrival in experiment.arriving if arrival.spec.replay):
        given = spec.program.arguments
        slowest_s = max(job.hyper_parameters["serial_iteration_s"] / job.shape.demand_min_gpus for job in spec.jobs)
        by_iterations_s = given["log_every"] * slowest_s / experiment.scale.time_scale
        seldom += by_iterations_s > 2.0
        assert given["log_every_s"] == 1.0
    assert seldom, "some apps would report seldom by their iterations alone"


def test_pair_has_divided_gpu_time_of_table_5():
    experiment = planned()
    work = {app.name: app.jobs[0].work_gpu_s for app in experiment.simulated().apps if app.name in (LONG, SHORT)}
    unit = experiment.scale.time_scale * experiment.scale.pair_divisor
    assert math.isclose(work[LONG] * unit, 580 * 60, rel_tol=1e-3)
    assert math.isclose(work[SHORT] * unit, 83 * 60, rel_tol=1e-3)


def test_seed_determines_the_experiment():
    assert planned().fingerprint == planned(policies=("tiresias", "themis")).fingerprint
    assert len({planned(seed=seed, workload=name).fingerprint for seed in (1, 2) for name in ("w1", "w2")}) == 4


def test_service_gets_settings_of_the_scale(tmp_path: Path):
    experiment = planned()
    file = tmp_path / "cluster.yaml"
    file.write_text(experiment.cluster_text())
    assert load_cluster(file) == experiment.cluster
    plan = experiment.run_of("tiresias", file)
    settings = rm_settings(plan.setup, policy=plan.policy, seed=plan.seed, cluster=file, state_dir=tmp_path)
    assert (settings.policy, settings.lease, settings.seed) == ("tiresias", experiment.scale.lease, 1)
    simulated = experiment.settings("tiresias")
    assert simulated.leases.duration_s == settings.lease.duration_s
    assert simulated.rounds.f == settings.auction.f


@pytest.mark.parametrize(
    ("workload", "policies", "message"),
    [
        ("w3", ["themis"], "one of w1, w2"),
        ("w1", [], "policies must be named"),
        ("w1", ["themis", "drf", "themis"], "policies must be named, each once"),
    ],
)
def test_invalid_experiment_is_refused(workload, policies, message):
    with pytest.raises(InputError, match=message):
        plan_experiment(workload, policies, 1, scale_named("quick"))


def test_unknown_scale_names_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'quick'"):
        scale_named("quik")


def test_trained_app_needs_a_name_of_its_own():
    content = scale_named("quick").model_dump(mode="json")
    content["trained"][0]["group"]["name"] = "trace-00"
    with pytest.raises(InputError, match="share a name"):
        plan_experiment("w1", ["themis"], 1, ScaleFile.model_validate(content))


def plan_file(seed=1):
    experiment = planned(seed=seed)
    return PlanFile(
        fingerprint=experiment.fingerprint, workload="w1", seed=seed, policies=("themis",), scale=experiment.scale
    )


def test_folder_continues_only_its_own_experiment(tmp_path: Path):
    mine, out = plan_file(), tmp_path / "out"
    folder = check_folder(out, mine)
    assert not out.exists()
    make_folder(folder, mine)
    (out / "results.csv").write_text("kept")
    make_folder(check_folder(out, mine), mine)
    assert (out / "results.csv").read_text() == "kept"
    assert read_plan(folder) == mine
    with pytest.raises(InputError, match="another experiment"):
        check_folder(out, plan_file(seed=2))


def test_foreign_folder_is_refused(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="left alone"):
        check_folder(tmp_path, plan_file())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": "other"}', '{"fingerprint": "1", "scale": {"nme": 1}}']
)
def test_damaged_plan_raises_input_error(content, tmp_path: Path):
    folder = ExperimentFolder(tmp_path)
    folder.plan.write_text(content)
    with pytest.raises(InputError, match=r"experiment\.json"):
        read_plan(folder)


@pytest.mark.parametrize("rm", [{"coalesce": 0.2}, {"auction": {"f": 3}}, {"policy": "drf"}])
def test_invalid_service_settings_are_refused_before_start(rm):
    content = scale_named("quick").model_dump(mode="json") | {"rm": rm}
    with pytest.raises(InputError):
        plan_experiment("w1", ["themis"], 1, ScaleFile.model_validate(content))
