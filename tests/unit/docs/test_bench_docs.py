"""docs/reference/benchmarks.md holds every option with its default, every column, and every key of the documents."""

import argparse

import pytest
from documents import code, table_rows, text_of
from msgspec.structs import fields

from themis_cli.bench_command import add_to
from themis_lab.bench.apps import ELASTIC_SHARE
from themis_lab.bench.auction_output import document
from themis_lab.bench.auction_plan import AuctionBenchPlan
from themis_lab.bench.auction_rows import ResultRow
from themis_lab.bench.explicit_tables import START_MACHINES
from themis_lab.bench.simulator_cases import COMPARED_LIMIT_S, LEFT_OUT_S, SHAPES, Part, SimulatorBenchPlan
from themis_lab.bench.simulator_output import Growth
from themis_lab.bench.simulator_output import document as simulator_document
from themis_lab.bench.simulator_run import Row

PAGE = "docs/reference/benchmarks.md"


def options(name="auction"):
    parser = argparse.ArgumentParser()
    add_to(parser.add_subparsers())
    (group,) = parser._subparsers._group_actions
    (commands,) = group.choices["bench"]._subparsers._group_actions
    return {option.option_strings[-1]: option for option in commands.choices[name]._actions}


@pytest.mark.parametrize(("command", "heading"), [("auction", "option"), ("simulator", "option of `bench simulator`")])
def test_options_and_their_defaults_are_all_there(command, heading):
    known = {name: option.default for name, option in options(command).items() if name != "--help"}
    written = {code(row[0])[0]: row[1].strip("`") for row in table_rows(PAGE, heading)}
    assert written.keys() == known.keys()
    for name, default in known.items():
        shown = "none" if default is None else "off" if default is False else str(default)
        assert written[name] == shown, name


def test_columns_are_all_there():
    written = {name for row in table_rows(PAGE, "column") for name in code(row[0])}
    assert written == {field.name for field in fields(ResultRow)}


def test_keys_of_the_document_are_all_there():
    known = document(AuctionBenchPlan(variants=()), [])
    assert all(f"`{key}`" in text_of(PAGE) for key in (*known, *known["environment"]))


def test_numbers_in_the_page_match_the_code():
    text = text_of(PAGE)
    assert options()["--elastic-share"].default == ELASTIC_SHARE
    assert f"each of up to {START_MACHINES} start machines" in text


# ---- bench simulator ------------------------------------------------------------------------------------------------


def names(heading):
    return [name for row in table_rows(PAGE, heading) for name in code(row[0])]


def test_parts_and_keys_of_a_row_are_all_there():
    assert names("part") == list(Part)
    assert options("simulator")["--parts"].default == ",".join(Part)
    assert set(names("key of a row")) == {field.name for field in fields(Row)}


def test_keys_of_the_simulators_document_are_all_there():
    known = simulator_document(SimulatorBenchPlan(), [])
    growth = [field.name for field in fields(Growth)]
    assert all(f"`{key}`" in text_of(PAGE) for key in (*known, *known["environment"], *known["synthetic"], *growth))


def test_references_and_limits_in_the_page_match_the_code():
    text = " ".join(text_of(PAGE).split())
    for size, reference in SHAPES.values():
        assert f"{reference.wall_s:g} s and {reference.memory_mb:g} MB for {size.apps}" in text
        assert f"{reference.reach:g} times as fast" in text
    assert f"takes over {LEFT_OUT_S:g} s is killed" in text
    assert f"are given {COMPARED_LIMIT_S:,.0f} s" in text
