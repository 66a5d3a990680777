"""The parser of a single command behaves like the parser of all commands."""

import re
import shlex
from pathlib import Path

import pytest

from themis.parser import HelpfulParser
from themis_cli.main import _COMMANDS, build_parser, main


def expected(capsys, parser, *words):
    with pytest.raises(SystemExit):
        parser.parse_args(words)
    return capsys.readouterr().out


@pytest.mark.parametrize("command", _COMMANDS)
def test_help_of_single_parser_equals_full_parser(capsys, command):
    alone = expected(capsys, build_parser(command), command, "--help")
    assert alone == expected(capsys, build_parser(), command, "--help")
    assert alone.startswith(f"usage: themis {command}")


def test_help_lists_the_commands_of_operators_and_of_researchers_in_two_groups(capsys):
    text = expected(capsys, build_parser(), "--help")
    _, operators, researchers = re.split(r"^  for (?:operators|researchers):\n", text, flags=re.MULTILINE)
    listed = [re.findall(r"^    (\w+)", group, flags=re.MULTILINE) for group in (operators, researchers)]
    assert listed[0] == ["rm", "user", "usage", "checkpoints", "devcluster", "examples", "completion"]
    assert (*listed[0], *listed[1]) == _COMMANDS


def test_unknown_command_lists_all_commands(capsys):
    assert main(["zzz"]) == 2
    said = capsys.readouterr().err
    assert all(command in said for command in _COMMANDS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["simulat"], "invalid choice: 'simulat' (did you mean 'simulate'?)"),
        (["reproduce", "tab5", "--scale", "quik"], "argument --scale: invalid choice: 'quik' (did you mean 'quick'?)"),
        (["simulate", "--lease-ends", "stagered"], "invalid choice: 'stagered' (did you mean 'staggered'?)"),
        (["simulate", "--lease-ends", "never"], "invalid choice: 'never' (choose from "),
    ],
)
def test_unknown_choice_names_nearest(capsys, words, expected):
    assert main(words) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["simulate", "--polcy", "themis"], "unknown option of themis simulate: '--polcy'; did you mean '--policy'?"),
        (["simulate", "--sead=3"], "unknown option of themis simulate: '--sead'; did you mean '--seed'?"),
        (["bench", "simulator", "--jsn"], "'--jsn'; did you mean '--json'?"),
        (["simulate", "--hlp"], "'--hlp'; did you mean '--help'?"),
        (
            ["testbed", "--polices", "themis"],
            "unknown option of themis testbed: '--polices'; did you mean '--policies'?",
        ),
    ],
)
def test_unknown_option_names_nearest(capsys, words, expected):
    assert main(words) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["simulate", "--policy", "themis", "--workload", "w1", "--zzz"], ["audit", "--nope"]]
)
def test_unknown_option_without_near_one_is_named(capsys, words):
    assert main(words) == 2
    assert f"unrecognized arguments: {words[-1]}; see: " in capsys.readouterr().err


@pytest.mark.parametrize("words", [["simulate"], ["rm"], ["rm", "drain"], ["bench", "zzz"], ["audit", "market.json"]])
def test_bad_usage_is_one_line(capsys, words):
    assert main(words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("themis: ") and "; see: themis " in line and line.endswith(" -h")


@pytest.mark.parametrize("value", ["--reason: it waits", "--reasons=2 of them", "-- reason"])
def test_word_with_space_is_a_value(value):
    parser = HelpfulParser()
    parser.add_argument("--reason")
    assert parser.parse_args(["--reason", value]).reason == value


def test_words_after_two_dashes_are_no_options():
    parser = HelpfulParser()
    parser.add_argument("--reason")
    parser.add_argument("words", nargs="*")
    assert parser.parse_args(["--", "--reasn"]).words == ["--reasn"]


def test_prefix_of_option_is_accepted():
    options = build_parser("simulate").parse_args(["simulate", "--pol", "themis", "--workl", "w1"])
    assert options.policy == ["themis"]


@pytest.mark.parametrize(("option", "shown"), [("--seed", "--seed/--first-seed"), ("--f", "--f"), ("--jobs", "--jobs")])
@pytest.mark.parametrize("number", ["1_0", "\u0661"])
def test_numbers_must_be_plain(capsys, option, shown, number):
    assert main(["simulate", "--policy", "themis", "--workload", "w1-small", option, number]) == 2
    assert f"argument {shown}: invalid " in capsys.readouterr().err


def test_command_of_the_systemd_unit_exists():
    unit = (Path(__file__).parents[3] / "conf/themis-rm.service").read_text(encoding="utf-8")
    (command,) = re.findall(r"^Exec\w+=/opt/themis/bin/themis (.*)$", unit, re.MULTILINE)
    assert build_parser().parse_args(shlex.split(command)).config == "/etc/themis/themis.yaml"
