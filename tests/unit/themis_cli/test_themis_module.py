"""The command without its script: `python -m themis_cli`."""

import runpy
import sys

import pytest


def test_module_runs_themis_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["themis_cli", "rho", "--example", "no-such-example"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("themis_cli", run_name="__main__")
    assert ended.value.code == 2
    assert "themis" in capsys.readouterr().err
