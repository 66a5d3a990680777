"""The tasks of one incarnation of a job: started together, ended together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from am.runtimes.port import ContainerRuntime, TaskExit, TaskHandle, TaskLaunch

LOG = logging.getLogger("themis.am.jobs")

PEER_GRACE_S = 5.0
"""How long the other tasks of a gang may run on once one has ended: they end by themselves, or would wait for ever."""


async def start_gang(runtime: ContainerRuntime, launches: Sequence[TaskLaunch]) -> list[TaskHandle]:
    """Start every task or none: when one cannot be started, the others are killed again and all seats given back.

    So it is when this is cancelled in between.
    """
    handles: list[TaskHandle] = []
    try:
        for launch in launches:
            handles.append(await runtime.start(launch))  # noqa: PERF401 - those started must be known on failure
    except BaseException:
        unused = [launch.seat for launch in launches[len(handles) :] if launch.seat is not None]
        # In parallel: seats are returned even if a task cannot be killed. The first error is the one raised.
        undone = [*(runtime.kill(handle) for handle in handles), runtime.vacate(unused)]
        for failure in await asyncio.gather(*undone, return_exceptions=True):
            if isinstance(failure, Exception):
                LOG.warning("a gang that cannot start leaves something behind: %s", failure)
        raise
    return handles


async def wait_gang(runtime: ContainerRuntime, handles: Sequence[TaskHandle]) -> list[TaskExit]:
    """Return when every task has ended. The first that fails takes the others with it after a short grace."""
    waits = [asyncio.ensure_future(handle.wait()) for handle in handles]
    pending = set(waits)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if pending and any(not task.result().succeeded for task in done):
            await asyncio.gather(*(runtime.stop(handle, PEER_GRACE_S) for handle in handles if handle.ended is None))
    return [wait.result() for wait in waits]
