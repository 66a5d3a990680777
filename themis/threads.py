"""Threads for the blocking calls of one part of a process, such as those to YARN or to Docker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A bounded number of threads of one part. `asyncio.to_thread` would take them from all other parts.

    Example: YARN is away, and each of 16 submissions waits 20 s for it. The lock has its own thread, and is renewed.

    Args:
        name: The part, as tools show its threads.
        count: Calls at a time. Further calls wait.
    """

    def __init__(self, name: str, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that blocks. If this is cancelled before a thread is free, the function is not called."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Make no further call; returns at once."""
        self._pool.shutdown(wait=False, cancel_futures=True)
