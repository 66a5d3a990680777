"""Learning that containers have ended: the engine's events say where to look, a look now and then misses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Mapping

from themis.docker_host import ContainerEnd, DockerError, DockerHost

LOG = logging.getLogger("themis.docker")

LOOK_S = 5.0
"""How often all containers are looked at, since events are lost with a connection."""
_RETRY_S = 1.0
_ALL = ""


class ContainerWatch:
    """Follows containers until they have ended. Belongs to the loop that it is made on.

    Args:
        host: The engine.
        labels: What all containers that are followed carry.
        look_s: How often, in seconds, all of them are looked at.
    """

    def __init__(self, host: DockerHost, labels: Mapping[str, str], *, look_s: float = LOOK_S) -> None:
        self._host = host
        self._labels = dict(labels)
        self._look_s = look_s
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[str] = asyncio.Queue()
        self._ends: dict[str, asyncio.Future[ContainerEnd]] = {}
        self._closed = threading.Event()
        self._looking = self._loop.create_task(self._look_on())
        # A daemon thread, as it waits for ever: the process does not wait for it at its end.
        threading.Thread(target=self._listen, name="docker-events", daemon=True).start()

    def follow(self, container_id: str) -> asyncio.Future[ContainerEnd]:
        """The end of a started container, once it has ended for whatever cause."""
        end = self._ends[container_id] = self._loop.create_future()
        # It may have ended before anybody listened.
        self._news.put_nowait(container_id)
        return end

    async def close(self) -> None:
        """Follow nothing any more."""
        self._closed.set()
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)

    async def _look_on(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._look_s):
                    news = await self._news.get()
            except TimeoutError:
                news = _ALL
            for container_id in list(self._ends) if news == _ALL else [news]:
                await self._look(container_id)

    async def _look(self, container_id: str) -> None:
        if container_id not in self._ends:
            return
        try:
            end = await self._host.threads.run(self._host.end_of, container_id)
        except DockerError as error:
            LOG.warning("%s", error)
            return
        if end is not None:
            future = self._ends.pop(container_id)
            if not future.done():
                future.set_result(end)

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                for container_id in self._host.ends(self._labels):
                    self._tell(container_id)
            except DockerError as error:
                LOG.info("%s", error)
            self._tell(_ALL)
            self._closed.wait(_RETRY_S)

    def _tell(self, container_id: str) -> None:
        if not self._closed.is_set():
            # The loop may have been closed without this having been.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._news.put_nowait, container_id)
