"""Run a generator in a process of its own, which ends with this one: Ctrl-C need not wait for a solver in C."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import TypeVar

from themis.errors import InvariantError, ThemisError

Item = TypeVar("Item")
Task = TypeVar("Task")


def run_apart(work: Callable[[Task], Iterator[Item]], task: Task) -> Iterator[Item]:
    """Yield what `work(task)` yields in another process. However the loop over it ends, that process is gone.

    Args:
        work: A module-level function, which the other process imports.
        task: Its argument, which is pickled.

    Raises:
        ThemisError: Raised by `work`.
        InvariantError: The process died.
    """
    # Spawned, so that it inherits no threads and no state.
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(sender, work, task), daemon=True)
    process.start()
    sender.close()
    try:
        while True:
            item = receiver.recv()
            if item is None:
                return
            if isinstance(item, ThemisError):
                raise item
            yield item
    except EOFError:
        process.join()
        raise InvariantError("the process that measures died", value=process.exitcode) from None
    finally:
        process.kill()
        process.join()


def _serve(sender: Connection, work: Callable[[Task], Iterator[Item]], task: Task) -> None:
    # Ctrl-C reaches both processes. The parent decides when this one ends, even by dying.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        for item in work(task):
            sender.send(item)
        sender.send(None)
    except ThemisError as error:
        sender.send(error)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
