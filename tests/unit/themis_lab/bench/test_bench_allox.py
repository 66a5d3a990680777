"""`themis bench allox`: its rows, its options, and their documentation."""

import argparse
import json

import pytest
from allox_cases import job, machine, snapshot
from documents import code, table_rows

from themis_cli.bench_allox_command import add_to
from themis_cli.main import main
from themis_lab.bench import allox_run
from themis_lab.bench.allox_peers import gavel_total_s
from themis_lab.bench.allox_run import AlloxRow

PAGE = "docs/reference/benchmarks.md"


def test_rows_compare_with_the_plain_assignment(capsys):
    assert (
        main(["bench", "allox", "--sizes", "30x8,12x4", "--plain", "12", "--repeats", "2", "--trace", "20", "--json"])
        == 0
    )
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["kind"], row["jobs"], row["busy"]) for row in rows] == [
        ("matching", 12, 0.0), ("matching", 12, 0.9), ("matching", 30, 0.0), ("matching", 30, 0.9),
        ("allox_plus", 1000, 0.0), ("trace", 20, 0.0),
    ]  # fmt: skip
    assert [row["ratio"] is not None for row in rows] == [True, True, False, False, False, False]
    assert [row["gavel_ratio"] is not None for row in rows] == [True, False, False, False, False, False]
    # On an idle cluster both decide the same; a busy one of 4 machines has no idle one, so there is nothing to compare.
    assert abs(rows[0]["gavel_excess"]) < 1e-12
    assert max(row["difference"] for row in rows[:2]) < 1e-12
    assert all(0 < row["columns"] < row["jobs"] * row["machines"] for row in rows[:4])


def test_gavel_matches_with_idle_machines_only():
    """Two jobs of 5 s on a GPU that is free in 1 s, and 100 s on an idle CPU node."""
    jobs = [job(f"j{place}", gpu=5, cpu=100) for place in range(2)]
    shot = snapshot(jobs, [machine("g", "gpu", available_s=1.0), machine("c", "cpu")])
    assert gavel_total_s(shot) == 300.0


def test_the_table_names_every_kind(capsys):
    assert main(["bench", "allox", "--sizes", "4x2", "--repeats", "1", "--trace", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["kind", "matching", "matching", "allox_plus"]


def test_a_row_over_its_limit_is_marked_and_the_command_exits_with_1(capsys, monkeypatch):
    monkeypatch.setattr(allox_run, "LIMITS_S", {**allox_run.LIMITS_S, ("matching", 4, 2): 0.0})
    assert main(["bench", "allox", "--sizes", "4x2", "--repeats", "1", "--trace", "0"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [", over" in line for line in lines] == [False, True, True, False]


@pytest.mark.parametrize(
    "words",
    [("--sizes", "a"), ("--sizes", "4x"), ("--sizes", "4x0"), ("--repeats", "0"), ("--plain", "-1"), ("--trace", "-1")],
)
def test_bad_options_exit_with_2(capsys, words):
    assert main(["bench", "allox", *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_options_and_keys_are_documented():
    commands = argparse.ArgumentParser().add_subparsers()
    add_to(commands)
    known = {each.option_strings[-1]: each.default for each in commands.choices["allox"]._actions[1:]}
    written = {code(row[0])[0]: row[1].strip("`") for row in table_rows(PAGE, "option of `bench allox`")}
    assert written == {name: "off" if default is False else str(default) for name, default in known.items()}
    keys = [name for row in table_rows(PAGE, "key of a row of AlloX") for name in code(row[0])]
    assert keys == list(AlloxRow.__struct_fields__)


@pytest.mark.slow
@pytest.mark.alone
def test_limits_are_kept(capsys):
    # Other work on the machine takes a part of its caches, so a run may be slower than the code is.
    for _ in range(3):
        code = main(["bench", "allox", "--plain", "0", "--trace", "0", "--json"])
        rows = json.loads(capsys.readouterr().out)["rows"]
        is_kept = all(row["cpu_s"] <= row["limit_s"] for row in rows if row["limit_s"] is not None)
        assert code == (0 if is_kept else 1)
        if is_kept:
            return
    pytest.fail(f"a limit is not kept in any of three runs: {rows}")
