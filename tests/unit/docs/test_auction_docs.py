"""docs/explanation/auction.md holds every key, option, status, solver and rounding, and its example every key."""

import argparse
import json

import pytest
from documents import ROOT, code, table_rows

from rm_plugin.arbiter import market_file
from rm_plugin.arbiter.market_file import parse_market
from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.port import SolveStatus
from rm_plugin.solvers.registry import SOLVERS
from themis.choices import EmptyBundle, Rounding
from themis.cluster import Level
from themis_cli.auction_command import add_to
from themis_cli.auction_result import as_document, hold_auction

PAGE = "docs/explanation/auction.md"
KEYS = {
    "key of the market": market_file.MARKET,
    "key of a machine": market_file.MACHINE,
    "key of a bidder": market_file.BIDDER,
    "key of a row": market_file.ROW,
    "key of a gang": market_file.GANG,
}
EXAMPLE = json.loads((ROOT / "conf/markets/three-apps.json").read_text(encoding="utf-8"))


def first_column(heading):
    return [code(row[0])[0] for row in table_rows(PAGE, heading)]


@pytest.mark.parametrize("heading", KEYS)
def test_keys_of_a_market_file_are_all_there(heading):
    keys = KEYS[heading]
    assert sorted(first_column(heading)) == sorted((*keys.required, *keys.optional))


def keys_used(value):
    if isinstance(value, dict):
        return set(value).union(*(keys_used(inner) for inner in value.values()))
    return set().union(*(keys_used(inner) for inner in value)) if isinstance(value, list) else set()


def test_the_example_uses_every_key():
    known = {key for keys in KEYS.values() for key in (*keys.required, *keys.optional)}
    assert known <= keys_used(EXAMPLE)


def test_names_that_a_key_may_take_are_listed():
    meanings = {code(row[0])[0]: code(row[1]) for heading in KEYS for row in table_rows(PAGE, heading)}
    assert {choice.value for choice in EmptyBundle} <= set(meanings["empty_bundle"])
    assert {level.label for level in Level} <= set(meanings["within"])


def test_solvers_statuses_and_roundings_are_all_there():
    assert first_column("solver") == list(SOLVERS)
    assert first_column("status") == [status.value for status in SolveStatus]
    assert first_column("rounding") == [rounding.value for rounding in Rounding]


def test_keys_of_the_result_are_all_there():
    market = parse_market(EXAMPLE)
    result = hold_auction(market, BruteForceSolver(), seed=0, rounding=Rounding.NEAREST, time_limit_s=1.0)
    assert first_column("key of the result") == list(as_document(result))


def test_options_of_the_command_are_all_there():
    commands = argparse.ArgumentParser().add_subparsers()
    add_to(commands)
    known = {option for action in commands.choices["auction"]._actions for option in action.option_strings}
    assert {name.split()[0] for name in first_column("option")} == known - {"-h", "--help"}
