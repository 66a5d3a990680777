from exp_records import app, by_what, done, record

from themis_lab.paper.plotting import house_style
from themis_lab.paper.registry import experiment_named
from themis_lab.paper.tab5 import make_pair


def test_pair_has_the_gpu_time_of_the_table():
    long_app, short_app = make_pair().apps
    assert (long_app.demand_max_gpus, round(long_app.jobs[0].work_gpu_s / 60.0)) == (4, 580)
    assert (short_app.demand_max_gpus, round(short_app.jobs[0].work_gpu_s / 60.0)) == (2, 83)


def test_pair_arrives_at_the_median_arrival():
    workload = make_pair("w2-small", 1, "testbed")
    names = [app.name for app in workload.apps]
    assert len(names) == 14
    assert abs(names.index("long") - names.index("app-06")) <= 2
    assert workload.apps[names.index("long")].arrival_s == workload.apps[names.index("app-06")].arrival_s


def test_remark_says_whether_order_depends_on_arrival():
    long_app, short_app = make_pair(later_s=1800.0).apps[::-1]
    assert (long_app.name, long_app.arrival_s, short_app.name, short_app.arrival_s) == ("long", 1800.0, "short", 0.0)
    rho = {"themis": (1.3, 0.9), "tiresias": (1.2, 0.8)}
    runs = [
        done(
            record(app("long", rho=long_rho), app("short", rho=short_rho)),
            **{"set-up": setup, "ends": "aligned", "policy": policy, "seed": 1},
        )
        for policy, (long_rho, short_rho) in rho.items()
        for setup in ("alone", "in workload 2", "alone, the long app later")
    ]
    remark = experiment_named("tab5").evaluate(runs).remarks[-1]
    assert (
        "the long app themis 1.30, tiresias 1.20 (as in the paper); the short app themis 0.90, tiresias 0.80" in remark
    )
    assert remark.endswith("(better under tiresias, unlike in the paper).")


def test_tab5_compares_rho_with_the_paper():
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
    assert short.remark.startswith("above the paper's: at N_avg 1 it takes 2 times as long as by itself at S = 1")
    assert short.remark.endswith("; better under tiresias, unlike in the paper.")
    assert lines["rho of the short app, themis, alone, aligned"].paper == "about 1.2"
    with house_style():
        assert len(experiment.draw(findings).axes) == 2
