"""How far a reproduction has come is told within runs too, the same way in one process and in several."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.unit.themis_lab.simulator.sim_cases import app, cluster, settings, workload
from themis_cli import reproduce_progress
from themis_cli.reproduce_progress import ProgressLine
from themis_lab.paper import runner
from themis_lab.paper.port import Cell, Scale
from themis_lab.simulator.parallel import Board


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
    monkeypatch.setattr(runner, "_NOTED_EVERY_S", 0.0)
    told = []
    list(runner._make(runs, 1, lambda *numbers: told.append(numbers)))
    within = [3 * share - 1 for made, _, share in told if made == 1]
    assert within == sorted(within)
    assert any(0.2 < share < 0.8 for share in within)


def test_a_run_in_another_process_writes_the_share_of_its_work_that_is_done(monkeypatch, runs):
    monkeypatch.setattr(runner, "_NOTED_EVERY_S", 0.0)
    board = Board(2)
    monkeypatch.setattr(Board, "here", board)
    runner._run_apart((1, runs["x"]))
    there, written = board.numbers()
    assert there == 0
    assert 750 <= written <= 1000


def test_it_is_written_ten_times_a_second_at_most(runs):
    times_s = iter(number * 0.04 for number in range(10**6))
    written, rounds = [], []
    watch = runner._noting(Board(1), 0, lambda: written.append(0), lambda: next(times_s))

    def both(simulation):
        rounds.append(0)
        watch(simulation)

    runner.run_cell(runs["x"], both)
    assert len(rounds) > 5
    assert len(written) == -(-len(rounds) // 3)


def test_lines_without_a_terminal_are_rare(monkeypatch, capsys, runs):
    now_s = 100.0
    monkeypatch.setattr(reproduce_progress.time, "monotonic", lambda: now_s)
    line = ProgressLine(list(runs.values()), [], Scale.QUICK, 1)
    for seconds in range(0, 100, 5):
        now_s = 100.0 + seconds
        line.told(0, 7, seconds / 1000)
    line.told(7, 7, 1.0)
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(";")[0] for line in told] == ["0 of 7 runs", "0 of 7 runs", "7 of 7 runs"]
    assert told[-1].endswith("about 0 s left")
