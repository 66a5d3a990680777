"""The tasks of one incarnation of a job: started together, ended together."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

from am.runtimes.port import ContainerRuntime, TaskExit, TaskHandle, TaskLaunch

LOG = logging.getLogger("themis.am.jobs")

PEER_GRACE_S = 5.0
"""How long the other tasks of a gang may run on once one has failed: they end by themselves, or would wait for ever."""


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


async def wait_gang(
    runtime: ContainerRuntime,
    handles: Sequence[TaskHandle],
    *,
    peer_wait_s: float = math.inf,
    progress: Callable[[], int] = lambda: 0,
) -> list[TaskExit]:
    """Return when every task has ended. The first that fails takes the others with it after a short grace.

    If one has succeeded, the others may go on for `peer_wait_s` seconds, and then for as long as they make progress.
    Example: the chief is done, but a parameter server waits for more work for ever.

    Args:
        runtime: Where the tasks run.
        handles: The tasks of the gang.
        peer_wait_s: Seconds without progress after which the others are stopped, once one has succeeded.
        progress: Returns a number that changes with the gang's progress.
    """
    waits = [asyncio.ensure_future(handle.wait()) for handle in handles]
    pending, reached = set(waits), progress()
    while pending:
        timeout_s = None if len(pending) == len(waits) or math.isinf(peer_wait_s) else peer_wait_s
        done, pending = await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        stuck = not done and progress() == reached
        reached = progress()
        if stuck:
            LOG.warning("tasks are stopped that went on for %g s after another one had ended", peer_wait_s)
        if pending and (stuck or any(not task.result().succeeded for task in done)):
            await asyncio.gather(*(runtime.stop(handle, PEER_GRACE_S) for handle in handles if handle.ended is None))
    return [wait.result() for wait in waits]
