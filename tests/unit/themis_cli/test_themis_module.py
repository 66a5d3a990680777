"""The command without its script, `python -m themis_cli`, and Ctrl-C while it starts."""

import runpy
import signal
import sys

import pytest

from themis_cli import main as command


def test_module_runs_themis_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["themis_cli", "rho", "--example", "no-such-example"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("themis_cli", run_name="__main__")
    assert ended.value.code == 2
    assert "themis" in capsys.readouterr().err


class InterruptingFinder:
    """Finds nothing; at the first module of a name it sends Ctrl-C, as a user may at that moment."""

    def __init__(self, name):
        self.name = name
        self.asked = 0

    def find_spec(self, name, path=None, target=None):
        if name == self.name:
            self.asked += 1
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        # The module of a command, and what it imports once it runs.
        (["devcluster", "status"], "themis_cli.devcluster_command"),
        (["devcluster", "status"], "themis_lab.devcluster.cluster"),
        (["rho", "--example", "no-such-example"], "themis_cli.rho_command"),
    ],
)
def test_ctrl_c_during_an_import_ends_the_command_in_good_order(words, name, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, name, raising=False)
    finder = InterruptingFinder(name)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    assert command.main(words) == command.EXIT_INTERRUPTED
    assert finder.asked == 1
    assert name in sys.modules
    assert capsys.readouterr().err == "themis: interrupted\n"
