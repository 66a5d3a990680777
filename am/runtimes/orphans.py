"""Orphans: processes that tasks start and whose parents end before them. Linux only.

An orphan that replaced its environment has no marks, and without control groups nothing else shows whose it is. So the
app master makes itself a subreaper (prctl(2)): orphans of its tasks become its children. It ends them once no task
runs, and the ResourceManager finds them below the app master before it kills that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Collection

from themis.processes import look_surely
from themis.sessions import children_in_other_sessions, kill_sessions, reap, sessions_below

_REAP_S = 1.0
_PASSES = 50
_PASS_S = 0.02


class Orphans:
    """The orphans of an app master's tasks. Belongs to the event loop of the main thread.

    Args:
        tasks: The ids of the tasks that run: these are children too, but `themis.processes` waits for them.
    """

    def __init__(self, tasks: Collection[int]) -> None:
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        # A child that ended keeps its process id until its parent asks for its exit code.
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap_soon)

    async def end(self) -> None:
        """Kill all orphans, unless a task runs: they may be that task's."""
        for _ in range(_PASSES):
            # In a thread, since this looks at every process of the machine.
            sessions = await look_surely(sessions_below, os.getpid())
            if self._tasks or not sessions:
                return
            await look_surely(kill_sessions, sessions)
            await asyncio.sleep(_PASS_S)
            self._reap()

    def _reap_soon(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(_REAP_S, self._reap)

    def _reap(self) -> None:
        self._timer = None
        # Without a file handle for this look, the next one does it.
        with contextlib.suppress(OSError):
            for children in children_in_other_sessions().values():
                reap(child for child in children if child.pid not in self._tasks)
