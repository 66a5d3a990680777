"""`themis bench oef`: its rows, its options, and their documentation."""

import argparse
import json

import pytest
from documents import code, table_rows
from oef_cases import instance

from rm_plugin.policies.oef.registry import rule_named
from rm_plugin.policies.oef.speedup import normalise
from rm_plugin.solvers.highs_linear import HighsModel
from themis_cli.bench_oef_command import add_to
from themis_cli.main import main
from themis_lab.bench import oef_run
from themis_lab.bench.oef_peers import PEERS, PeerSolve, objective_of, solve_as_peer
from themis_lab.bench.oef_run import OefRow
from themis_lab.simulator.workloads.speedups import random_speedups

PAGE = "docs/reference/benchmarks.md"


def test_rows_compare_row_generation_with_the_full_programme(capsys):
    words = ("--sizes", "12,6", "--types", "3", "--repeats", "2", "--full", "6", "--json")
    assert main(["bench", "oef", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(row["mode"], row["tenants"]) for row in document["rows"]] == [
        (mode, tenants) for tenants in (6, 12) for mode in ("noncooperative", "cooperative")
    ]
    compared = [row for row in document["rows"] if row["ratio"] is not None]
    assert [(row["mode"], row["tenants"]) for row in compared] == [("cooperative", 6)]
    assert compared[0]["difference"] < 1e-6
    assert all(row["cpu_s"] > 0 and row["limit_s"] is None for row in document["rows"])


def test_the_table_names_every_mode(capsys):
    assert main(["bench", "oef", "--sizes", "4", "--types", "2", "--repeats", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["mode", "noncooperative", "cooperative"]


def test_a_row_over_its_limit_is_marked_and_the_command_exits_with_1(capsys, monkeypatch):
    monkeypatch.setattr(oef_run, "LIMITS_S", {("cooperative", 4): 0.0, ("noncooperative", 4): 60.0})
    assert main(["bench", "oef", "--sizes", "4", "--types", "10", "--repeats", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [", over" in line for line in lines] == [False, False, True]


@pytest.mark.parametrize(
    "words",
    [("--sizes", "a"), ("--sizes", "0"), ("--types", "0"), ("--repeats", "0"), ("--full", "-1"), ("--peers", "-1")],
)
def test_bad_options_exit_with_2(capsys, words):
    assert main(["bench", "oef", *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_options_and_keys_are_documented():
    commands = argparse.ArgumentParser().add_subparsers()
    add_to(commands)
    known = {each.option_strings[-1]: each.default for each in commands.choices["oef"]._actions[1:]}
    written = {code(row[0])[0]: row[1].strip("`") for row in table_rows(PAGE, "option of `bench oef`")}
    assert written == {name: "off" if default is False else str(default) for name, default in known.items()}
    keys = [code(row[0])[0] for row in table_rows(PAGE, "key of a row of OEF")]
    assert keys == list(OefRow.__struct_fields__)


@pytest.mark.slow
@pytest.mark.alone
def test_limits_are_kept(capsys):
    assert main(["bench", "oef", "--sizes", "100,300", "--full", "0", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert all(row["cpu_s"] <= row["limit_s"] for row in rows if row["limit_s"] is not None)


class TestPeers:
    @pytest.mark.parametrize("rule", PEERS)
    def test_a_peers_optimum_is_ours(self, rule):
        pytest.importorskip("cvxpy", reason="cvxpy and ecos come with the extra `peers`")
        speedups = normalise(random_speedups(3, 6, 3))
        ours = objective_of(rule, rule_named(rule, HighsModel)(speedups))
        assert solve_as_peer(rule, speedups).objective == pytest.approx(ours, rel=1e-6)

    def test_rows_compare_with_peers_up_to_their_size(self, capsys, monkeypatch):
        # Stands for cvxpy, which needs three times as long as ours here.
        monkeypatch.setattr(oef_run, "solve_as_peer", lambda *_: PeerSolve(objective=1.0, cpu_s=3.0))
        monkeypatch.setattr(oef_run, "objective_of", lambda *_: 1.5)
        words = ("--sizes", "4,6", "--types", "2", "--repeats", "2", "--full", "0", "--peers", "4")
        assert main(["bench", "oef", *words, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert [(row["mode"], row["tenants"]) for row in rows if row["peer_s"] == 3.0] == [(mode, 4) for mode in PEERS]
        assert [row["mode"] for row in rows if row["peer_s"] is None] == ["noncooperative", "cooperative"]
        assert {row["peer_difference"] for row in rows if row["peer_s"]} == {0.5}
        assert all(row["peer_ratio"] > 3.0 for row in rows if row["peer_s"])

    def test_gavels_objective_is_the_least_ratio_to_an_equal_split(self):
        # One GPU of each type, tenants (1, 2), (1, 3) and (1, 4): each has a third of the GPUs by an equal split.
        speedups = normalise(instance(((1, 2), (1, 3), (1, 4))))
        fair = rule_named("max_min", HighsModel)(speedups)
        assert objective_of("gavel_capped", fair) == pytest.approx(1.0)
        assert objective_of("cooperative", fair) == pytest.approx(4.0)
