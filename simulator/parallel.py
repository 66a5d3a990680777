"""Several runs at a time, each in a process of its own kind: what comes out does not depend on how many."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from themis.errors import ThemisError
from themis.interruption import OneInterruption

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")

_PRELOADED = ["simulator.runs"]


def mapped(function: Callable[[T], R], items: Iterable[tuple[K, T]], processes: int) -> Iterator[tuple[K, R]]:
    """`function` of each item, with the item's key, as they come.

    Args:
        function: Of a module, so that it can cross to other processes.
        items: (key, item).
        processes: At a time; with 1 everything is done here, in order.

    Raises:
        ThemisError: A process was killed.
    """
    if processes > 1:
        return _apart(function, items, processes)
    return ((key, function(item)) for key, item in items)


def _apart(function: Callable[[T], R], items: Iterable[tuple[K, T]], processes: int) -> Iterator[tuple[K, R]]:
    # Imported late: a single run needs no other process, and starts the sooner.
    import multiprocessing
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_bound_to_the_parent)
    # A second interrupt must not come between the first and the end of the processes: Python would wait for their runs.
    with OneInterruption((signal.SIGINT,)) as interruption:
        try:
            # A few ahead only: an interrupt should not find hundreds of runs waiting.
            todo = iter(items)
            running: dict[Future[R], K] = {}
            while True:
                while len(running) < 2 * processes and (item := next(todo, None)) is not None:
                    running[pool.submit(function, item[1])] = item[0]
                if not running:
                    return
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield running.pop(future), future.result()
        except BrokenProcessPool:
            raise ThemisError(
                "a process that makes runs was killed", remedy="out of memory? try fewer --jobs"
            ) from None
        finally:
            interruption.shield()
            _end(pool)


def _end(pool: ProcessPoolExecutor) -> None:
    """Leave nothing running, also when a run is under way."""
    workers = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()


def _bound_to_the_parent() -> None:
    """Leave interrupts to the parent, and do not outlive it, however it ends: nobody else would end this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
