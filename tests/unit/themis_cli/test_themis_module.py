"""The command without its script, `python -m themis_cli`, and Ctrl-C while it starts."""

import runpy
import signal
import sys
from importlib import import_module

import pytest

from themis_cli import main as command


def test_module_runs_themis_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["themis_cli", "rho", "--example", "no-such-example"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("themis_cli", run_name="__main__")
    assert ended.value.code == 2
    assert "themis" in capsys.readouterr().err


def test_ctrl_c_waits_until_the_command_is_imported(monkeypatch, capsys):
    imported = []

    def interrupted(name):
        signal.raise_signal(signal.SIGINT)
        imported.append(import_module(name))
        return imported[-1]

    monkeypatch.setattr(command, "import_module", interrupted)
    assert command.main(["rho", "--example", "no-such-example"]) == command.EXIT_INTERRUPTED
    assert [module.__name__ for module in imported] == ["themis_cli.rho_command"]
    assert capsys.readouterr().err == "themis: interrupted\n"
