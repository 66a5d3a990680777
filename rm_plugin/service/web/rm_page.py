"""The ResourceManager's page: starts and ends the web server beside the gRPC one, on the same loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import TYPE_CHECKING

from rm_plugin.service.manager import ResourceManager
from rm_plugin.service.web.event_index import EventIndex
from rm_plugin.service.web.page_state import PageState
from rm_plugin.service.web.usage_history import UsageHistory
from themis.errors import InputError

if TYPE_CHECKING:
    from aiohttp import web


SAMPLE_S = 5.0
"""Seconds between two samples of the use of the cluster."""

LOG = logging.getLogger("themis.rm.page")


class RmPage:
    """Serves the page, the REST interface and the metrics of one ResourceManager; `policy` names its policy."""

    def __init__(self, manager: ResourceManager, policy: str) -> None:
        self._page_state = PageState(manager, policy, EventIndex(manager.recorder), UsageHistory())
        self._runner: web.AppRunner | None = None
        self._background: list[asyncio.Task[None]] = []

    async def start(self, listen: str, tls: ssl.SSLContext | None = None) -> str:
        """Listen at HOST:PORT, port 0 for any free one, with TLS or without; returns the page's address.

        Raises:
            InputError: Nothing can listen there, or it is no HOST:PORT.
        """
        host, port = parsed_page_address(listen)
        # Here and not above: a ResourceManager without a page has no use for a web server.
        from rm_plugin.service.web.routes import application
        from themis.web.answers import listen as serve

        self._runner, bound = await serve(application(self._page_state), host.strip("[]"), port, tls)
        loop = asyncio.get_running_loop()
        self._background = [
            loop.create_task(self._page_state.event_index.follow()),
            loop.create_task(self._sample_usage()),
        ]
        return f"{'http' if tls is None else 'https'}://{host}:{bound}/"

    async def stop(self) -> None:
        """End the server; requests that are being answered are cut off after a second."""
        for task in self._background:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner, self._background = None, []

    async def _sample_usage(self) -> None:
        while True:
            try:
                self._page_state.sample_usage()
            except Exception:
                # The page shows one moment less. Its other parts, and the next moments, must not suffer.
                LOG.exception("the use of the cluster was not recorded")
            await asyncio.sleep(SAMPLE_S)


def parsed_page_address(listen: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT. Raises InputError for any other text."""
    host, separator, port = listen.rpartition(":")
    if not separator or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise InputError("a page listens at HOST:PORT", value=listen, remedy="write for instance 127.0.0.1:8080")
    return host, int(port)
