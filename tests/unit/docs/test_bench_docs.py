"""docs/bench.md holds every option with its default, every column, and every key of the document."""

import argparse
from dataclasses import fields

from documents import code, table_rows, text_of

from bench.apps import ELASTIC_SHARE
from bench.auction_output import document
from bench.auction_plan import Plan
from bench.auction_rows import ResultRow
from bench.explicit_tables import START_MACHINES
from themis_cli.bench_command import add_to

PAGE = "docs/bench.md"


def options():
    parser = argparse.ArgumentParser()
    add_to(parser.add_subparsers())
    (group,) = parser._subparsers._group_actions
    (commands,) = group.choices["bench"]._subparsers._group_actions
    return {option.option_strings[-1]: option for option in commands.choices["auction"]._actions}


def test_options_and_their_defaults_are_all_there():
    known = {name: option.default for name, option in options().items() if name != "--help"}
    written = {code(row[0])[0]: row[1].strip("`") for row in table_rows(PAGE, "option")}
    assert written.keys() == known.keys()
    for name, default in known.items():
        shown = "none" if default is None else "off" if default is False else str(default)
        assert written[name] == shown, name


def test_columns_are_all_there():
    written = {name for row in table_rows(PAGE, "column") for name in code(row[0])}
    assert written == {field.name for field in fields(ResultRow)}


def test_keys_of_the_document_are_all_there():
    known = document(Plan(variants=()), [])
    assert all(f"`{key}`" in text_of(PAGE) for key in (*known, *known["environment"]))


def test_numbers_of_the_text_are_those_of_the_code():
    text = text_of(PAGE)
    assert options()["--elastic-share"].default == ELASTIC_SHARE
    assert f"each of up to {START_MACHINES} start machines" in text
