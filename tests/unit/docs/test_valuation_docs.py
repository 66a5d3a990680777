"""The part of docs/reference/benchmarks.md on valuations holds every option and key."""

import argparse

from documents import code, table_rows, text_of
from msgspec.structs import fields

from themis_cli.bench_valuation_command import add_to
from themis_lab.bench.valuation_output import document
from themis_lab.bench.valuation_run import NEAR, GapRow, ReferenceRow, TimeRow, ValuationBenchPlan

PAGE = "docs/reference/benchmarks.md"


def names(heading):
    return {name for row in table_rows(PAGE, heading) for name in code(row[0])}


def test_options_and_their_defaults_are_all_there():
    commands = argparse.ArgumentParser().add_subparsers()
    add_to(commands)
    known = {each.option_strings[-1]: each.default for each in commands.choices["valuation"]._actions[1:]}
    written = {code(row[0])[0]: row[1].strip("`") for row in table_rows(PAGE, "option of `bench valuation`")}
    assert written == {name: "off" if default is False else str(default) for name, default in known.items()}


def test_keys_are_all_there():
    assert names("key of a gap") == {field.name for field in fields(GapRow)}
    assert names("key of a reference") == {field.name for field in fields(ReferenceRow)}
    assert names("key of a time") == {field.name for field in fields(TimeRow)}
    assert all(f"`{key}`" in text_of(PAGE) for key in document(ValuationBenchPlan(), []))
    assert f"`near` ({NEAR:g})" in text_of(PAGE)
