"""Make many runs and return their documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from themis_lab.simulator.metrics import Document, document_of
from themis_lab.simulator.parallel import Board, run_parallel
from themis_lab.simulator.runs import Run, make_run
from themis_lab.simulator.simulation import Simulation, Watch

Progress = Callable[[int, int], None]


def documents_of(
    runs: Sequence[Run],
    processes: int,
    progress: Progress = lambda *_: None,
    watch: Watch | None = None,
    watch_apart: Progress = lambda *_: None,
) -> list[Document]:
    """Return the documents of runs, in the order of `runs`.

    Args:
        runs: The runs to make.
        processes: Runs at a time; with 1 they are made in this process, one after the other.
        progress: Called with (runs made, runs in total) after each run.
        watch: Called after every round of a run in this process.
        watch_apart: Called with (apps ended, apps in total) of all runs, ten times a second, if other processes run.
    """
    workers = min(processes, len(runs))
    made: Iterator[tuple[int, Document]]
    if workers <= 1:
        made = ((index, document_of(make_run(run, watch))) for index, run in enumerate(runs))
    else:
        board = Board(len(runs))
        apps = sum(len(run.workload.apps) for run in runs)
        items = ((index, (index, run)) for index, run in enumerate(runs))
        made = run_parallel(_document, items, workers, board, lambda: watch_apart(sum(board.numbers()), apps))
    found: dict[int, Document] = {}
    for index, document in made:
        found[index] = document
        progress(len(found), len(runs))
    return [found[index] for index in range(len(runs))]


def _document(item: tuple[int, Run]) -> Document:
    """Return the document of a run, made in another process. The board shows how many of its apps have ended."""
    index, run = item
    board = Board.here

    def watch(simulation: Simulation) -> None:
        if board is not None:
            board.put(index, len(simulation.ended))

    return document_of(make_run(run, watch))
