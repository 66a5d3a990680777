"""When leases may be given back: once nothing of the app is left on their GPUs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from am.runtimes.port import KeptSeats
from themis.cluster import GpuId

LOG = logging.getLogger("themis.am.returns")


class Returns:
    """Ends seats that are kept where the app must not stay. One an app master; belongs to its loop.

    Args:
        kept: The runtime's.
        on_change: Told when GPUs have become free that were not.
    """

    def __init__(self, kept: KeptSeats, on_change: Callable[[], None]) -> None:
        self._kept = kept
        self._on_change = on_change
        self._clearing: set[GpuId] = set()
        self._work: set[asyncio.Task[None]] = set()

    def stay_only_on(self, granted: Collection[GpuId]) -> None:
        """The app's GPUs are these from now on: elsewhere nothing is kept, and what idles there ends at once."""
        self._clear(self._kept.occupied().difference(granted))

    def free(self, gpus: Sequence[GpuId]) -> list[GpuId]:
        """Those of these GPUs, on which no job runs, that may be given back now; the others soon."""
        if not gpus:
            return []
        occupied = self._kept.occupied().intersection(gpus)
        self._clear(occupied)
        return [gpu for gpu in gpus if gpu not in occupied]

    async def all(self) -> None:
        """The app ends: return when nothing of it is left anywhere."""
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
            # The leases are kept until it is tried again, or the ResourceManager takes them by force.
            LOG.exception("%s cannot be cleared", ", ".join(map(str, sorted(gpus))))
            return
        finally:
            self._clearing -= gpus
        self._on_change()
