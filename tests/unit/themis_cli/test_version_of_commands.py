"""`--version` works behind every command of `submarine` and `themis`."""

import argparse

import pytest

from submarine_client.main import main as submarine
from submarine_client.parser import build_parser as submarine_parser
from themis import __version__
from themis_cli.main import build_parser as themis_parser
from themis_cli.main import main as themis


def commands_of(parser, *words):
    """The words of a parser and of every command below it."""
    yield words
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from commands_of(below, *words, name)


def answer(main, words):
    try:
        return main(words)
    except SystemExit as end:
        return end.code


def test_walk_finds_commands_of_every_level():
    found = [*commands_of(themis_parser(), "themis"), *commands_of(submarine_parser(), "submarine")]
    assert {("themis",), ("themis", "rm"), ("themis", "bench", "auction"), ("submarine", "app", "show")} <= {*found}


@pytest.mark.parametrize("words", [*commands_of(themis_parser())], ids=" ".join)
def test_every_command_of_themis_says_its_version(capsys, words):
    assert answer(themis, [*words, "--version"]) == 0
    assert capsys.readouterr().out == f"themis {__version__}\n"


@pytest.mark.parametrize("words", [*commands_of(submarine_parser())], ids=" ".join)
def test_every_command_of_submarine_says_its_version(capsys, words):
    assert answer(submarine, [*words, "--version"]) == 0
    assert capsys.readouterr().out == f"submarine {__version__}\n"
