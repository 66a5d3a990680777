"""Makes many runs and keeps what users read of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from simulator.metrics import Document, document_of
from simulator.parallel import mapped
from simulator.runs import Run, make_run
from simulator.simulation import Watch

Progress = Callable[[int, int], None]


def documents_of(
    runs: Sequence[Run], processes: int, progress: Progress = lambda *_: None, watch: Watch | None = None
) -> list[Document]:
    """The documents of runs, in their order.

    Args:
        runs: What to run.
        processes: Runs at a time; with 1 they are made here, one after the other.
        progress: Told (runs made, runs in all) after each.
        watch: Called after every round of a run that is made here.
    """
    found: dict[int, Document] = {}
    workers = min(processes, len(runs))
    for place, document in _here(runs, watch) if workers <= 1 else mapped(_document, enumerate(runs), workers):
        found[place] = document
        progress(len(found), len(runs))
    return [found[place] for place in range(len(runs))]


def _here(runs: Sequence[Run], watch: Watch | None) -> Iterator[tuple[int, Document]]:
    for place, run in enumerate(runs):
        yield place, document_of(make_run(run, watch))


def _document(run: Run) -> Document:
    return document_of(make_run(run))
