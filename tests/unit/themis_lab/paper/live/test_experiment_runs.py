"""Failed runs of an experiment are reported, and do not hide finished ones."""

import json

import pytest
from rich.console import Console

from themis.errors import ThemisError
from themis_lab.paper.live import command, runs
from themis_lab.paper.live.folder import ExperimentFolder
from themis_lab.paper.live.plan import plan_experiment
from themis_lab.paper.live.results import Results, read_results
from themis_lab.paper.live.runs import StoppedError, finished_report, run_policies, why_cut_short
from themis_lab.paper.live.scale import scale_named
from themis_lab.paper.live.summary import failures, how_it_was_run
from themis_lab.testbed.facts import Ending, RunFacts, write_facts
from themis_lab.testbed.interruption import Interruption


@pytest.fixture
def experiment():
    return plan_experiment("w1", ["themis", "drf"], 1, scale_named("quick"))


def facts(ending, trouble=""):
    return RunFacts(
        mix="w1-quick",
        policy="drf",
        seed=1,
        time_scale=30.0,
        expected_apps=24,
        ending=ending,
        wall_s=9.0,
        time_limit_s=9.0,
        trouble=trouble,
    )


def ended(folder, policy, ending, trouble=""):
    run = folder.run(policy)
    run.root.mkdir(parents=True)
    write_facts(run.facts, facts(ending, trouble))
    return run


def test_run_cut_short_is_a_failure(tmp_path):
    folder = ExperimentFolder(tmp_path)
    ended(folder, "drf", Ending.TIME_LIMIT).report.write_text(json.dumps({"ending": Ending.TIME_LIMIT}))
    ended(folder, "slaq", Ending.RM_FAILED, "exit code 1")
    results = read_results(folder, "w1", ["drf", "slaq", "srtf"])
    assert failures(results) == [
        "drf: the run was cut short: the time limit was reached",
        "slaq: the run was cut short: the ResourceManager failed: exit code 1",
    ]
    assert results.policies == ()


def test_report_needs_a_finished_run(tmp_path, experiment):
    folder = ExperimentFolder(tmp_path)
    ended(folder, "drf", Ending.TIME_LIMIT)
    with pytest.raises(ThemisError, match=r"no run came to its end.*time limit"):
        command._report(experiment, folder, Console(quiet=True))
    assert not folder.page.exists()


@pytest.mark.parametrize("content", ["", '{"ending": "every app en', "[]", "{}"])
def test_unreadable_report_counts_as_missing(content, tmp_path):
    folder = ExperimentFolder(tmp_path)
    ended(folder, "drf", Ending.ALL_ENDED).report.write_text(content)
    assert finished_report(folder, "drf") is None


def test_finished_run_is_kept(tmp_path):
    folder = ExperimentFolder(tmp_path)
    assert (finished_report(folder, "drf"), why_cut_short(folder, "drf")) == (None, "")
    ended(folder, "drf", Ending.ALL_ENDED).report.write_text(json.dumps({"ending": Ending.ALL_ENDED}))
    assert finished_report(folder, "drf") == {"ending": "every app ended"}


def test_next_policy_runs_after_service_failure(tmp_path, experiment, monkeypatch):
    driven = []

    def drive(plan, run, console, interruption):
        driven.append(plan.policy)
        write_facts(run.facts, facts(Ending.RM_FAILED, "it is gone"))
        return facts(Ending.RM_FAILED, "it is gone")

    monkeypatch.setattr(runs, "drive", drive)
    console = Console(record=True, width=200)
    with Interruption() as interruption:
        run_policies(experiment, ExperimentFolder(tmp_path), console, interruption)
    assert driven == ["themis", "drf"]
    assert console.export_text().count("FAILED: the ResourceManager failed: it is gone") == 2


def test_interrupt_stops_the_experiment(tmp_path, experiment, monkeypatch):
    driven = []
    monkeypatch.setattr(runs, "drive", lambda plan, *_: driven.append(plan.policy) or facts(Ending.INTERRUPTED))
    with Interruption() as interruption, pytest.raises(StoppedError, match="the same command goes on") as stopped:
        run_policies(experiment, ExperimentFolder(tmp_path), Console(quiet=True), interruption)
    assert (driven, stopped.value.exit_code) == (["themis"], 3)


def test_policy_without_rho_is_in_no_figure():
    results = Results(workload="w1", rows=(), reports={"themis": {}}, unfinished={"themis": ["app-00"]})
    assert results.policies == ()


def made_with(code, load):
    return {"wall_s": 9.0, "environment": {"code": code, "cpus": 2, "load_1min": load, "python": "3.11.7"}}


def test_summary_warns_about_runs_of_different_code(experiment):
    def sentences(**reports):
        return " ".join(how_it_was_run(experiment, Results(workload="w1", rows=(), reports=reports, unfinished={})))

    alike = sentences(themis=made_with("1f", 0.5), drf=made_with("1f", 3.25))
    assert "On 2 CPUs, with a load of 0.5 to 3.2 before a run." in alike
    assert "same code" not in alike
    assert "(themis 1f, drf 2e)" in sentences(themis=made_with("1f", 0.5), drf=made_with("2e", 0.5))
    # A kept run of an earlier version, which lacks this value.
    assert "(themis 1f, drf not known)" in sentences(themis=made_with("1f", 0.5), drf={"wall_s": 9.0})
