"""Experiments in which one app lies: figure 18, and what the auction buys."""

import math

import pytest
from exp_records import app as plain_app
from exp_records import by_what, done, record
from msgspec.structs import replace

from rm_plugin.policies.registry import POLICIES
from themis.bids import AppReport, GangDemand, PhaseLeft
from themis.errors import UnknownNameError
from themis_lab.paper.fig18 import APPS, GANG_GPUS, SETTINGS, like_apps, tipping_point
from themis_lab.paper.lying import CONTENDERS, HONEST, carrier_of, standard_error
from themis_lab.paper.plans import FOR_MIXED_DEVICES
from themis_lab.paper.plotting import house_style
from themis_lab.paper.port import Scale
from themis_lab.paper.registry import experiment_named
from themis_lab.paper.runner import run_cell
from themis_lab.paper.strategies import OWN_LIES, erring_agent, lie_of, lying_agent
from themis_lab.simulator.agents import LIES, HonestAgent, LyingAgent


def app(name, hours):
    return replace(plain_app(name), ended_at_s=3600.0 * hours)


# ---- who lies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fig18", "lying"])
def test_only_the_named_app_lies(name):
    cells = experiment_named(name).cells(Scale.QUICK, 1)
    lying = [cell for cell in cells if cell.agents() is not None]

    assert lying
    for cell in lying:
        agents = {each.name: cell.agents()(each) for each in cell.workload().apps}
        liars = [name for name, agent in agents.items() if isinstance(agent, LyingAgent)]
        assert liars == [cell.labels["liar"]]
        assert sum(isinstance(agent, HonestAgent) for agent in agents.values()) == len(agents) - 1


def test_seeds_have_different_liars_and_share_honest_runs():
    cells = experiment_named("fig18").cells(Scale.QUICK, 3)
    honest = [cell for cell in cells if not cell.labels["lie_percent"]]

    assert all(cell.make_agent is None for cell in honest)
    assert len({cell.labels["liar"] for cell in cells}) >= 4
    every = experiment_named("fig18").cells(Scale.PAPER, 1)
    assert len({cell.labels["liar"] for cell in every}) == APPS


def test_policies_without_auction_get_the_lies_of_themis():
    lies = {contender.name: contender.lies for contender in CONTENDERS}

    assert set(lies["worst_rho_first"]) <= set(lies["themis"])
    assert {lie for reported in lies.values() for lie in reported} <= LIES.keys() | OWN_LIES.keys()
    named = {name for name in lies if not name.startswith("themis, ")}
    assert named == POLICIES.keys() - {"tiresias", "drf", *FOR_MIXED_DEVICES}


@pytest.mark.parametrize(
    ("lie", "factor", "largest_gang", "longest_gpu_s"),
    [
        ("demand", 2.0, 8, 300.0),
        ("demand", 0.1, 2, 300.0),
        ("phases", 2.0, 4, 600.0),
        ("phases", 9.0, 4, 800.0),
        ("phases", 0.1, 4, 200.0),
    ],
)
def test_lies_about_demand_and_phases_stay_possible(lie, factor, largest_gang, longest_gpu_s):
    """A phase of four jobs with 800 GPU s: its longest job has between a quarter of them and all."""
    phase = PhaseLeft(jobs=4, work_gpu_s=800.0, longest_gpu_s=300.0, gang_gpus=4)
    demand = GangDemand(job_id="a", min_gpus=2, max_gpus=4, work_left_gpu_s=300.0)
    truth = AppReport(app_id="a", round_id=1, rho=1.0, t_shared_s=1.0, t_ideal_s=1.0, demands=(demand,))
    reported = lie_of(lie, factor).report(replace(truth, phases_left=(phase,)))

    assert reported.demands[0].max_gpus == largest_gang
    assert reported.phases_left[0].longest_gpu_s == longest_gpu_s


def test_unknown_lie_lists_known_ones():
    (first, *_) = like_apps(1).apps
    with pytest.raises(UnknownNameError, match="largest_row"):
        lying_agent(first, first.name, "hush", 1.0)


def test_apps_have_independent_errors():
    first, second, *_ = like_apps(1).apps

    assert vars(erring_agent(first, 0.2, 1))["_left"] != vars(erring_agent(second, 0.2, 1))["_left"]
    assert vars(erring_agent(first, 0.2, 1))["_left"] == vars(erring_agent(first, 0.2, 1))["_left"]


# ---- figure 18 ------------------------------------------------------------------------------------------------------


def test_fig18_apps_are_identical_and_fit_one_machine():
    workload = like_apps(1)
    cell = experiment_named("fig18").cells(Scale.QUICK, 1)[0]
    sizes = sorted(machine.gpus for machine in cell.settings.cluster.machines)

    assert len({repr(replace(each, name="")) for each in workload.apps}) == 1
    assert len(workload.apps) == APPS
    assert sizes == [2] * 28 + [GANG_GPUS]
    assert workload.apps[0].jobs[0].slowdown.rack >= 2.0


def lie_runs(factors):
    """The liar's completion time by X, the others take an hour each."""
    return [
        done(
            record(*(app(f"app-{place}", factor if place == 2 else 1.0) for place in range(APPS))),
            setting=setting.title,
            lie_percent=share,
            seed=seed,
            liar="app-2",
        )
        for setting in SETTINGS
        for seed in (1, 2)
        for share, factor in factors.items()
    ]


def test_tipping_point_is_the_first_costly_lie():
    findings = experiment_named("fig18").evaluate(lie_runs({0: 1.0, 20: 0.8, 40: 1.2, 100: 1.5}))
    lines = by_what(findings)
    title = SETTINGS[0].title

    assert lines[f"X from which on lying costs the liar 5% (%), {title}"].ours == 40
    best = lines[f"liar's completion time / without a lie, its best X, {title}"]
    assert (best.ours, best.remark) == (pytest.approx(0.8), "at X = 20 %, where the lie gains 20.0%.")
    assert lines[f"liar's completion time / without a lie, X = 100 %, {title}"].ours == pytest.approx(1.5)
    assert lines[f"truthful apps' completion time / without a lie, X = 100 %, {title}"].ours == 1.0
    with house_style():
        assert len(experiment_named("fig18").draw(findings).axes) == len(SETTINGS)


def test_honest_baseline_counts_once_for_all_liars():
    runs = lie_runs({0: 1.0, 40: 1.2})
    again = [replace(run, cell=replace(run.cell, labels={**run.cell.labels, "liar": "app-5"})) for run in runs]
    honest = [run for run in again if not run.cell.labels["lie_percent"]]
    reported = experiment_named("fig18").evaluate([*runs, *honest]).remarks[-1]
    assert f"in all {len(runs)} runs: " in reported


def test_free_lies_have_no_tipping_point():
    findings = experiment_named("fig18").evaluate(lie_runs({0: 1.0, 20: 1.2, 100: 0.7}))

    assert math.isnan(tipping_point([row for row in findings.rows if row["setting"] == SETTINGS[0].title]))
    line = by_what(findings)[f"liar's completion time / without a lie, X = 100 %, {SETTINGS[0].title}"]
    assert line.remark == "here the liar gains 30.0%."


# ---- lying over whole runs ------------------------------------------------------------------------------------------


def lying_run(policy, lie, factor, seed, liar, hours):
    apps = [app(name, hours if name == liar else 2.0) for name in ("a", "b")]
    return done(record(*apps), policy=policy, lie=lie, factor=factor, seed=seed, liar=liar)


def lying_runs(**hours_by_policy):
    return [
        run
        for policy, hours in hours_by_policy.items()
        for seed in (1, 2)
        for run in (
            lying_run(policy, HONEST, 1.0, seed, "", 2.0),
            lying_run(policy, "rho", 2.0, seed, "a", hours),
            lying_run(policy, "work", 2.0, seed, "b", 2.0),
        )
    ]


def test_gain_is_relative_to_the_honest_run():
    findings = experiment_named("lying").evaluate(lying_runs(themis=2.4, worst_rho_first=1.5))
    lines = by_what(findings)

    assert lines["gain by rho times 2, worst_rho_first (%)"].ours == pytest.approx(25.0)
    assert lines["gain by rho times 2, themis (%)"].ours == pytest.approx(-20.0)
    best = lines["gain of the best lie, completion time, worst_rho_first (%)"]
    assert best.ours == pytest.approx(25.0)
    assert "lying pays" in best.remark
    assert "no gain that stands out" in lines["gain of the best lie, completion time, themis (%)"].remark
    assert findings.remarks[0] == "Under themis no lie gains more than 1% and more than twice its standard error."
    assert "rho times 2." in findings.remarks[1]
    assert "worst_rho_first in reports +25.0 %" in findings.causes[0]
    assert len(findings.rows) == 8, "honest runs are what lies are compared with, not rows"
    with house_style():
        assert len(experiment_named("lying").draw(findings).axes) == 2


def test_lie_about_s_is_in_bids_and_reports():
    runs = [
        run
        for policy in ("themis", "gandiva")
        for run in (
            lying_run(policy, HONEST, 1.0, 1, "", 2.0),
            lying_run(policy, "strictness", 2.0, 1, "a", 1.0),
            lying_run(policy, "rho", 2.0, 1, "a", 1.8),
        )
    ]
    (cause,) = experiment_named("lying").evaluate(runs).causes

    assert "themis in reports +10.0 % and in both at once +50.0 %" in cause
    assert "gandiva in reports +50.0 %" in cause


@pytest.mark.parametrize(
    ("lie", "place"),
    [
        ("rows", "bids"),
        ("largest_row", "bids"),
        ("rho", "reports"),
        ("loss", "reports"),
        ("throughout", "both at once"),
        ("work", "both at once"),
        ("strictness", "both at once"),
        ("slowdown", "both at once"),
        ("speed", "both at once"),
        ("stated_speed", "both at once"),
    ],
)
def test_carrier_follows_from_the_changed_message(lie, place):
    assert carrier_of(lie, "themis") == carrier_of(lie, "themis, f = 0") == place
    assert carrier_of(lie, "srtf") == "reports", "it asks for no bids"


def test_lie_in_reports_is_not_counted_for_bids():
    hours = {"rho": 1.8, "rows": 2.0, "throughout": 1.8, "work": 1.9}
    lies = [lying_run("themis", lie, 4.0, 1, "a", taken) for lie, taken in hours.items()]
    findings = experiment_named("lying").evaluate([lying_run("themis", HONEST, 1.0, 1, "", 2.0), *lies])

    (claim,), (cause,) = findings.claims, findings.causes
    assert claim.here.endswith("of the best lie in bids alone: themis +0.0 %")
    assert "themis in bids +0.0 % and in reports +10.0 % and in both at once +10.0 %" in cause


def test_standard_error_is_of_the_mean():
    assert standard_error([1.0]) == 0.0
    assert standard_error([1.0, 3.0]) == pytest.approx(1.0)


def test_lie_in_bids_does_not_affect_policy_without_bids():
    cells = experiment_named("lying").cells(Scale.QUICK, 1)
    honest = next(cell for cell in cells if cell.labels["policy"] == "srsf" and cell.labels["lie"] == HONEST)
    lying = replace(
        honest, make_agent=lying_agent, agent_arguments={"liar": "app-001", "lie": "throughout", "amount": 4.0}
    )

    assert run_cell(lying).apps == run_cell(honest).apps
