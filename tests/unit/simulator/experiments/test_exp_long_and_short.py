from exp_records import app, by_what, done, record

from simulator.experiments.plotting import house_style
from simulator.experiments.registry import experiment_named
from simulator.experiments.tab5 import make_pair


def test_the_two_apps_are_those_of_the_table():
    long_app, short_app = make_pair().apps
    assert (long_app.demand_max_gpus, round(long_app.jobs[0].work_gpu_s / 60.0)) == (4, 580)
    assert (short_app.demand_max_gpus, round(short_app.jobs[0].work_gpu_s / 60.0)) == (2, 83)


def test_they_come_in_the_middle_of_the_workload_around_them():
    workload = make_pair("w2-small", 1, "testbed")
    names = [app.name for app in workload.apps]
    assert len(names) == 14
    assert abs(names.index("long") - names.index("app-06")) <= 2
    assert workload.apps[names.index("long")].arrival_s == workload.apps[names.index("app-06")].arrival_s


def test_rho_of_each_is_set_beside_the_paper_s():
    rho = {"themis": (1.0, 2.0), "tiresias": (0.9, 1.9)}
    runs = [
        done(record(app("long", rho=first), app("other"), app("short", rho=second)), **labels, policy=policy, seed=1)
        for policy, (first, second) in rho.items()
        for labels in (
            {"set-up": setup, "ends": ends} for setup in ("alone", "in workload 2") for ends in ("aligned", "staggered")
        )
    ]
    experiment = experiment_named("tab5")
    findings = experiment.evaluate(runs)
    lines = by_what(findings)
    assert len(findings.rows) == 16, "the other apps are not of the table"
    assert lines["rho of the long app, themis, in workload 2, aligned"].ratio == 1.0
    assert lines["rho of the long app, themis, in workload 2, aligned"].remark == ""
    short = lines["rho of the short app, themis, in workload 2, aligned"]
    assert short.remark == "better under tiresias, unlike in the paper."
    assert lines["rho of the short app, themis, alone, aligned"].paper == "about 1.2"
    with house_style():
        assert len(experiment.draw(findings).axes) == 2
