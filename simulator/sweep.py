"""Makes many runs, several at a time in processes of their own; what comes out does not depend on how many."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from simulator.metrics import Document, document_of
from simulator.runs import Run, make_run
from simulator.simulation import Watch
from themis.errors import ThemisError

Progress = Callable[[int, int], None]

_PRELOADED = ["simulator.runs"]


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
    for place, document in _here(runs, watch) if processes <= 1 else _apart(runs, processes):
        found[place] = document
        progress(len(found), len(runs))
    return [found[place] for place in range(len(runs))]


def _here(runs: Sequence[Run], watch: Watch | None) -> Iterator[tuple[int, Document]]:
    for place, run in enumerate(runs):
        yield place, document_of(make_run(run, watch))


def _apart(runs: Sequence[Run], processes: int) -> Iterator[tuple[int, Document]]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    workers = min(processes, len(runs))
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_leave_interrupts_to_the_parent)
    try:
        # A few ahead only: an interrupt should not find hundreds of runs waiting.
        todo = iter(enumerate(runs))
        running: dict[Future[Document], int] = {}
        while True:
            while len(running) < 2 * workers and (item := next(todo, None)) is not None:
                running[pool.submit(_document, item[1])] = item[0]
            if not running:
                return
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                yield running.pop(future), future.result()
    except BrokenProcessPool:
        raise ThemisError("a process of the sweep was killed", remedy="out of memory? try fewer --jobs") from None
    finally:
        _end(pool)


def _document(run: Run) -> Document:
    return document_of(make_run(run))


def _end(pool: ProcessPoolExecutor) -> None:
    """Leave nothing running, also when a run is under way."""
    workers = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
