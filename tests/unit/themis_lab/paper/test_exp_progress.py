"""Progress of a reproduction, also within runs, with one process and with several."""

from itertools import pairwise

import pytest
from msgspec.structs import replace
from sim_cases import app, cluster, settings, workload

from themis_cli import reproduce_progress
from themis_cli.reproduce_progress import ProgressLine
from themis_lab.paper import runner
from themis_lab.paper.port import Cell, Scale
from themis_lab.simulator.parallel import Board


def small(name):
    """Apps that arrive one after another, so that rounds follow ends. `name` is a workload with a known run time."""
    return workload(*(app(each, at_s=600.0 * place) for place, each in enumerate("abcd")))


@pytest.fixture
def runs():
    cell = Cell(
        labels={}, make_workload=small, workload_arguments={"name": "synthetic"}, settings=settings(cluster((1,)))
    )
    return {key: replace(cell, labels={"run": key}) for key in "xyz"}


@pytest.mark.parametrize("processes", [1, 2])
def test_progress_grows_to_one(runs, processes):
    reports = []
    made = dict(runner._make(runs, processes, lambda *numbers: reports.append(numbers)))
    assert made.keys() == runs.keys()
    assert reports[-1] == (3, 3, pytest.approx(1.0))
    assert all(before <= after for (*_, before), (*_, after) in pairwise(reports))


def test_progress_includes_running_runs(monkeypatch, runs):
    monkeypatch.setattr(runner, "_WRITE_EVERY_S", 0.0)
    reports = []
    list(runner._make(runs, 1, lambda *numbers: reports.append(numbers)))
    within = [3 * share - 1 for made, _, share in reports if made == 1]
    assert within == sorted(within)
    assert any(0.2 < share < 0.8 for share in within)


def test_worker_writes_progress_on_the_board(monkeypatch, runs):
    monkeypatch.setattr(runner, "_WRITE_EVERY_S", 0.0)
    board = Board(2)
    monkeypatch.setattr(Board, "here", board)
    runner._run_in_worker((1, runs["x"]))
    there, written = board.numbers()
    assert there == 0
    assert 750 <= written <= 1000


def test_progress_is_written_at_most_ten_times_a_second(runs):
    times_s = iter(number * 0.04 for number in range(10**6))
    written, rounds = [], []
    watch = runner._progress_watch(Board(1), 0, lambda: written.append(0), lambda: next(times_s))

    def both(simulation):
        rounds.append(0)
        watch(simulation)

    runner.run_cell(runs["x"], both)
    assert len(rounds) > 5
    assert len(written) == -(-len(rounds) // 3)


def test_progress_lines_without_terminal_are_rare(monkeypatch, capsys, runs):
    now_s = 100.0
    monkeypatch.setattr(reproduce_progress.time, "monotonic", lambda: now_s)
    line = ProgressLine(list(runs.values()), [], Scale.QUICK, 1)
    for seconds in range(0, 100, 5):
        now_s = 100.0 + seconds
        line.update(0, 7, seconds / 1000)
    line.update(7, 7, 1.0)
    reports = capsys.readouterr().err.splitlines()
    assert [line.partition(";")[0] for line in reports] == ["0 of 7 runs", "0 of 7 runs", "7 of 7 runs"]
    assert reports[-1].endswith("about 0 s left")
