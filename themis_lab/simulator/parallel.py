"""Several runs at a time, each in a process of its own kind: what comes out does not depend on how many."""

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
    """Numbers that processes write, each its own places, and their parent reads: no lock, so no killed one holds it."""

    here: Board | None = None
    """In a process that was started for `run_parallel`: the one it was given."""

    def __init__(self, places: int) -> None:
        from multiprocessing.sharedctypes import RawArray

        self._numbers: Array[c_long] = RawArray("l", places)

    def put(self, place: int, number: int) -> None:
        """Write a number."""
        self._numbers[place] = number

    def numbers(self) -> list[int]:
        """All numbers, by their places."""
        return list(self._numbers)


def run_parallel(
    function: Callable[[T], R],
    items: Iterable[tuple[K, T]],
    processes: int,
    board: Board | None = None,
    look: Callable[[], None] = lambda: None,
) -> Iterator[tuple[K, R]]:
    """`function` of each item, with the item's key, as they come.

    Args:
        function: Of a module, so that it can cross to other processes.
        items: (key, item).
        processes: At a time; with 1 everything is done here, in order.
        board: Is `Board.here` in the other processes.
        look: Called ten times a second while they are at work.

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
    # Imported late: a single run needs no other process, and starts the sooner.
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
            # A few ahead only: an interrupt should not find hundreds of runs waiting.
            todo = iter(items)
            running: dict[Future[R], K] = {}
            while True:
                while len(running) < 2 * processes and (item := next(todo, None)) is not None:
                    # It may start a process, of which `_end` would not know were the start interrupted.
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
    """Leave nothing running, also when a run is under way."""
    workers = list((pool._processes or {}).values())
    manager: Any = pool._executor_manager_thread
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()
    if manager is not None:
        # It sees that they are gone. Python, at its exit, would try to wake it while it closes what it is woken by.
        manager.join(_MANAGER_S)


def _start_server() -> None:
    """Start the two processes that look after the others, deaf to interrupts: while they load they would tell where."""
    from multiprocessing import forkserver, resource_tracker

    # A hang-up comes to all processes of a terminal, and the word to end to all of a service; these two end with their
    # parent, whose word on it is enough.
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF_TO)
    try:
        # Started apart: it unblocks interrupts when it has.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF_TO)
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _begin(board: Board | None) -> None:
    """Leave interrupts to the parent, and do not outlive it, however it ends: nobody else would end this process."""
    Board.here = board
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # By this one the parent ends it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
