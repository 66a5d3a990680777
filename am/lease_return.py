"""When leases may be returned: once nothing of the app is left on their GPUs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from am.runtimes.port import KeptSeats
from themis.cluster import GpuId

LOG = logging.getLogger("themis.am.lease_return")


class LeaseReturn:
    """Ends kept task reservations on GPUs that the app must leave. One per app master, on its event loop.

    Args:
        kept: The reservations that the runtime keeps.
        on_change: Called when occupied GPUs have become free.
    """

    def __init__(self, kept: KeptSeats, on_change: Callable[[], None]) -> None:
        self._kept = kept
        self._on_change = on_change
        self._clearing: set[GpuId] = set()
        self._work: set[asyncio.Task[None]] = set()

    def stay_only_on(self, granted: Collection[GpuId]) -> None:
        """Clear all GPUs except the granted ones: idle reservations there end at once."""
        self._clear(self._kept.occupied().difference(granted))

    def free(self, gpus: Sequence[GpuId]) -> list[GpuId]:
        """The GPUs, of these without a job, that may be returned now. The others are cleared and follow soon."""
        if not gpus:
            return []
        occupied = self._kept.occupied().intersection(gpus)
        self._clear(occupied)
        return [gpu for gpu in gpus if gpu not in occupied]

    async def all(self) -> None:
        """Wait until nothing of the app is left on any GPU."""
        while occupied := self._kept.occupied():
            await self._kept.clear(occupied)

    def _clear(self, gpus: frozenset[GpuId]) -> None:
        if fresh := gpus - self._clearing:
            self._clearing |= fresh
            work = asyncio.get_running_loop().create_task(self._cleared(fresh))
            self._work.add(work)
            work.add_done_callback(self._work.discard)

    async def _cleared(self, gpus: frozenset[GpuId]) -> None:
        try:
            await self._kept.clear(gpus)
        except Exception:
            # The leases stay until the next try, or until the ResourceManager revokes them.
            LOG.exception("%s cannot be cleared", ", ".join(map(str, sorted(gpus))))
            return
        finally:
            self._clearing -= gpus
        self._on_change()
