"""docs/explanation/simulator.md holds every phase, cost, option, lie and key of the documents."""

import argparse

import pytest
from agent_cases import FLAT, app_of, cluster_of, job
from documents import code, table_rows, text_of
from msgspec.structs import fields, replace

from am.agent.model.fairness import declaration_of, ideal_times_s
from am.app_view import make_cluster_view
from themis.apps import JobShape
from themis.choices import BundleRule
from themis.fluid_cluster import FluidLife, fluid_ideals_s
from themis.rho import RhoDefinition
from themis_cli import replay_command, simulate_command
from themis_lab.simulator.agents import LIES
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.compare import replay_document, sweep_document
from themis_lab.simulator.costs import Costs
from themis_lab.simulator.events import Phase
from themis_lab.simulator.metrics import document_of
from themis_lab.simulator.runs import Run, make_run
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.workloads.registry import workload_named

PAGE = "docs/explanation/simulator.md"
RULE = BundleRule.CONTINUATION


def first_column(heading):
    return [name for row in table_rows(PAGE, heading) for name in code(row[0])]


@pytest.fixture(scope="module")
def document():
    cluster = cluster_named("4x2")
    return document_of(
        make_run(
            Run(workload=workload_named("w1-small", 1, cluster, apps=2, scale=80), settings=Settings(cluster=cluster))
        )
    )


def test_phases_are_all_there_in_their_order():
    assert first_column("phase") == [phase.name for phase in Phase]


def test_costs_are_all_there_with_their_defaults():
    written = {code(row[0])[0]: float(row[1]) for row in table_rows(PAGE, "cost")}
    usual = Costs()
    assert written == {each.name: getattr(usual, each.name) for each in fields(Costs)}


def options_of(module, name):
    commands = argparse.ArgumentParser().add_subparsers()
    module.add_to(commands)
    found = {option for action in commands.choices[name]._actions for option in action.option_strings}
    return found - {"-h", "--help"}


def test_options_of_both_commands_are_all_there():
    rows = {code(row[0])[0].split()[0]: row[1] for row in table_rows(PAGE, "option")}
    assert set(rows) == options_of(simulate_command, "simulate")
    assert {name for name, of_replay in rows.items() if of_replay} == options_of(replay_command, "replay")


def test_lies_are_all_there():
    assert first_column("lie") == list(LIES)


def test_keys_of_the_document_are_all_there(document):
    rows = table_rows(PAGE, "key")
    meanings = " ".join(cell for row in rows for cell in row)
    known = set(code(meanings))
    assert set(document) <= known
    for key in ("completion_s", "placement_score", "utilisation", "auctions", "overheads", "invariants"):
        assert set(document[key]) <= known, key
    for each in document["by_definition"].values():
        assert set(each) <= known
    assert {name for row in rows for name in code(row[0])} <= set(document)


def test_keys_of_an_app_are_all_there(document):
    assert set(first_column("key of an app")) == set(document["apps"][0])


def test_keys_of_several_runs_are_all_there(document):
    several = sweep_document([document, {**document, "policy": "srtf"}])
    rows = table_rows(PAGE, "key of several runs")
    assert first_column("key of several runs") == list(several)
    written = " ".join(row[1] for row in rows)
    assert {key for each in ("rows", "ratios") for key in several[each][0]} <= set(code(written))


def test_keys_of_a_replay_are_all_there(document):
    replay = replay_document(document, [document])
    assert first_column("key of a replay") == list(replay)
    (meaning,) = [row[1] for row in table_rows(PAGE, "key of a replay") if row[0] == "`completion_ratios`"]
    (ratios,) = replay["completion_ratios"]
    assert code(meaning) == list(ratios)


def test_all_definitions_have_a_formula():
    assert first_column("definition") == [definition.value for definition in RhoDefinition]


def test_formulas_of_rho_match_the_code():
    """B = 4 * 1,200 GPU s, R = 8, D = 4, N = 4: an app of four jobs of one GPU."""
    jobs = tuple(job(f"j{place}", 1200.0, JobShape(tasks=1), FLAT) for place in range(4))
    whole = app_of(jobs, contention=4.0, demand_max_gpus=4, restart_s=60.0)
    cluster_view = make_cluster_view(cluster_of((2, 2), (2, 2)), active_apps=4, lease_s=600.0, rule=RULE)
    assert ideal_times_s(whole, cluster_view) == {
        "themis": 4800 / 4 * 4,
        "isolated_share": 1200 * max(1, 4 * 4 / 8),
        "placement_aware": 4800 / 4 * 4 * 1.0,
        "private_cluster": 2 * 1200,
        "attainable": max(4800 / 4 * 4, 1200 + 60),
    }
    life = FluidLife(arrived_s=100.0, ends_s=2500.0, contention=3.0)
    assert fluid_ideals_s(declaration_of(whole, cluster_view), life) == {
        "fluid": 2400.0,
        "isolated_fluid": 1200 * max(1, 3 * 4 / 8),
        "themis_fluid": 4800 / 4 * 3,
    }
    often = replace(whole, contention=16.0)
    assert ideal_times_s(often, cluster_view)["private_cluster"] == pytest.approx(4 * 1200 * 1 / (8 / 16))


def test_all_definitions_are_named_where_it_is_said_which_one_is_meant(document):
    assert "definition `themis`" in text_of(PAGE)
    assert set(document["max_rho"]) == set(document["by_definition"])
