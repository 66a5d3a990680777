"""Threads for the blocking calls of one part of a process, such as those to YARN or to Docker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Call = tuple[Callable[[], Any], "Future[Any]"]


class Threads:
    """A bounded number of threads of one part. `asyncio.to_thread` would take them from all other parts.

    The process can end during a call that does not return. It cannot with a `ThreadPoolExecutor`, whose threads Python
    joins.

    Example: YARN is away, and each of 16 submissions waits 20 s for it. The lock has its own thread, and is renewed.

    Args:
        name: The part, as tools show its threads.
        count: Calls at a time. Further calls wait.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._started = 0
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._closed = False

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that blocks. If this is cancelled before a thread is free, the function is not called.

        Raises:
            RuntimeError: The threads are closed, or the machine has no thread left.
        """
        if self._closed:
            raise RuntimeError(f"the threads {self._name} are closed")
        if self._started < self._count:
            # If the machine has no thread left, this raises: the call is not made, and the next one tries again.
            Thread(target=self._work, name=f"{self._name}_{self._started + 1}", daemon=True).start()
            self._started += 1
        future: Future[T] = Future()
        self._calls.put((partial(function, *args, **kwargs), future))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Make no further call; returns at once. A call that is under way goes on, and others are cancelled."""
        if self._closed:
            return
        self._closed = True
        # A thread that has just ended its call may take the last one meanwhile.
        with contextlib.suppress(Empty):
            while (call := self._calls.get_nowait()) is not None:
                call[1].cancel()
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future = call
            if future.set_running_or_notify_cancel():
                try:
                    result = function()
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
            # Else a thread that waits for its next call would keep what the last one returned.
            del call, function, future
