"""The parser of one command says what that of all says."""

import pytest

from themis_cli.main import _COMMANDS, build_parser, main


def told(capsys, parser, *words):
    with pytest.raises(SystemExit):
        parser.parse_args(words)
    return capsys.readouterr().out


@pytest.mark.parametrize("command", _COMMANDS)
def test_help_of_a_command_is_the_same(capsys, command):
    alone = told(capsys, build_parser(command), command, "--help")
    assert alone == told(capsys, build_parser(), command, "--help")
    assert alone.startswith(f"usage: themis {command}")


def test_an_unknown_command_is_told_of_all(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["simulat"])
    said = capsys.readouterr().err
    assert all(command in said for command in _COMMANDS)
