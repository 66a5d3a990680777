"""Make several runs at a time, each in a worker process. The results do not depend on the number of processes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from themis.errors import ThemisError
from themis.interruption import OneInterruption

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor
    from ctypes import Array, c_long

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")

_PRELOADED = ["themis_lab.simulator.runs"]
_LOOK_EVERY_S = 0.1
_MANAGER_S = 10.0
_DEAF_TO = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


class Board:
    """Shared numbers: each process writes its own, and the parent reads all. A killed process cannot hold a lock."""

    here: Board | None = None
    """The board of this process, if `run_parallel` started it."""

    def __init__(self, places: int) -> None:
        from multiprocessing.sharedctypes import RawArray

        self._numbers: Array[c_long] = RawArray("l", places)

    def put(self, place: int, number: int) -> None:
        """Write the number at an index."""
        self._numbers[place] = number

    def numbers(self) -> list[int]:
        """Return all numbers, by index."""
        return list(self._numbers)


def run_parallel(
    function: Callable[[T], R],
    items: Iterable[tuple[K, T]],
    processes: int,
    board: Board | None = None,
    look: Callable[[], None] = lambda: None,
) -> Iterator[tuple[K, R]]:
    """Yield `function` of each item with the item's key, in order of completion.

    Args:
        function: A function of a module, so that it can be sent to other processes.
        items: (key, item).
        processes: The number of processes; 1 runs everything in this one, in order.
        board: Becomes `Board.here` in the other processes.
        look: Called ten times a second while they work.

    Raises:
        ThemisError: A process was killed.
    """
    if processes > 1:
        return _apart(function, items, processes, board, look)
    return ((key, function(item)) for key, item in items)


def _apart(
    function: Callable[[T], R],
    items: Iterable[tuple[K, T]],
    processes: int,
    board: Board | None,
    look: Callable[[], None],
) -> Iterator[tuple[K, R]]:
    # Imported late: a single run needs no other process, and starts sooner without this import.
    import multiprocessing
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    _start_server()
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=(board,))
    # A second interrupt must not come between the first and the end of the processes: Python would wait for their runs.
    with OneInterruption() as interruption:
        try:
            # Submit only a few runs ahead, so that an interrupt does not find hundreds waiting.
            todo = iter(items)
            running: dict[Future[R], K] = {}
            while True:
                while len(running) < 2 * processes and (item := next(todo, None)) is not None:
                    # This may start a process. If the start were interrupted, `_end` would not know the process.
                    with interruption.held():
                        running[pool.submit(function, item[1])] = item[0]
                if not running:
                    return
                finished, _ = wait(running, timeout=_LOOK_EVERY_S, return_when=FIRST_COMPLETED)
                look()
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
    """End all processes, also during a run."""
    workers = list((pool._processes or {}).values())
    manager: Any = pool._executor_manager_thread
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()
    if manager is not None:
        # The thread notices that the processes are gone. At exit, Python would wake it while closing its wake-up pipe.
        manager.join(_MANAGER_S)


def _start_server() -> None:
    """Start the two helper processes of `multiprocessing` with interrupts blocked: they would print a traceback."""
    from multiprocessing import forkserver, resource_tracker

    # SIGHUP reaches all processes of a terminal, and SIGTERM all of a service. These two ignore both: they end with
    # their parent.
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF_TO)
    try:
        # Started separately: it unblocks interrupts itself afterwards.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF_TO)
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _begin(board: Board | None) -> None:
    """Leave interrupts to the parent, and end with it in any case: no other process would end this one."""
    Board.here = board
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The parent ends this process with SIGTERM.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
