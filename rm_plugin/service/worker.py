"""A worker process for long computations, so that neither the event loop nor its interpreter waits for them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor


def start_worker(niceness: int = 0) -> ProcessPoolExecutor:
    """Start one process. It ends when this process ends. Raises OSError if it cannot be started.

    Args:
        niceness: How much lower its priority is.
    """
    # Spawned, not forked: gRPC's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    worker = ProcessPoolExecutor(1, mp_context=context, initializer=_prepare, initargs=(niceness,))
    worker.submit(_nothing)
    return worker


def end_worker(worker: ProcessPoolExecutor) -> None:
    """Kill the process, whatever it computes."""
    for process in list((worker._processes or {}).values()):
        process.kill()
    worker.shutdown(wait=False, cancel_futures=True)


def _prepare(niceness: int) -> None:
    os.nice(niceness)
    # Ctrl-C reaches the whole process group; the parent decides when the worker ends, also by dying.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _nothing() -> None:
    """Start the process."""
