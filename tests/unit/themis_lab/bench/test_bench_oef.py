"""`themis bench oef`: its rows, its options, and their documentation."""

import argparse
import json

import pytest
from documents import code, table_rows

from themis_cli.bench_oef_command import add_to
from themis_cli.main import main
from themis_lab.bench.oef_run import OefRow

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


@pytest.mark.parametrize(
    "words", [("--sizes", "a"), ("--sizes", "0"), ("--types", "0"), ("--repeats", "0"), ("--full", "-1")]
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


@pytest.mark.alone
def test_limits_are_kept(capsys):
    assert main(["bench", "oef", "--sizes", "100,300", "--full", "0", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert all(row["cpu_s"] <= row["limit_s"] for row in rows if row["limit_s"] is not None)
