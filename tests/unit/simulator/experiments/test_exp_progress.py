"""How far a reproduction has come is told within runs too, the same way in one process and in several."""

from dataclasses import replace
from itertools import pairwise

import pytest

from simulator.experiments import runner
from simulator.experiments.port import Cell, Scale
from simulator.parallel import Board
from tests.unit.simulator.sim_cases import app, cluster, settings, workload
from themis_cli import reproduce_progress
from themis_cli.reproduce_progress import ProgressLine


def small(name):
    """Apps that come one after the other, so that rounds follow ends; `name` is that of a workload which is timed."""
    return workload(*(app(each, at_s=600.0 * place) for place, each in enumerate("abcd")))


@pytest.fixture
def runs():
    cell = Cell(
        labels={}, make_workload=small, workload_arguments={"name": "synthetic"}, settings=settings(cluster((1,)))
    )
    return {key: replace(cell, labels={"run": key}) for key in "xyz"}


@pytest.mark.parametrize("processes", [1, 2])
def test_the_share_grows_and_ends_with_all(runs, processes):
    told = []
    made = dict(runner._make(runs, processes, lambda *numbers: told.append(numbers)))
    assert made.keys() == runs.keys()
    assert told[-1] == (3, 3, pytest.approx(1.0))
    assert all(before <= after for (*_, before), (*_, after) in pairwise(told))


def test_what_is_done_of_a_run_that_goes_on_counts(monkeypatch, runs):
    monkeypatch.setattr(runner, "_GLANCE_EVERY_S", 0.0)
    told = []
    list(runner._make(runs, 1, lambda *numbers: told.append(numbers)))
    within = [round(12 * share) for made, _, share in told if made == 1]
    assert within == sorted(within)
    assert {4, 5, 6, 7} <= set(within)


def test_a_run_in_another_process_writes_the_share_of_its_apps_that_have_ended(monkeypatch, runs):
    board = Board(2)
    monkeypatch.setattr(Board, "here", board)
    runner._run_apart((1, runs["x"]))
    # The last app ends after the last round.
    assert board.numbers() == [0, 750]


def test_glances_are_ten_a_second_at_most(monkeypatch, runs):
    now_s = iter([0.0, 0.05, 0.1, 0.15, 0.2])
    monkeypatch.setattr(runner.time, "monotonic", lambda: next(now_s))
    looked = []
    told = runner._Told(runs.values(), lambda *numbers: looked.append(numbers))
    for _ in range(5):
        told.glance()
    assert len(looked) == 3


def test_lines_without_a_terminal_are_rare(monkeypatch, capsys, runs):
    now_s = 100.0
    monkeypatch.setattr(reproduce_progress.time, "monotonic", lambda: now_s)
    line = ProgressLine(list(runs.values()), [], Scale.QUICK, 1)
    for seconds in range(0, 100, 5):
        now_s = 100.0 + seconds
        line.told(0, 7, seconds / 1000)
    line.told(7, 7, 1.0)
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "0 of 7 runs; about 16 min left",
        "0 of 7 runs; about 15 min left",
        "7 of 7 runs; about 0 s left",
    ]
