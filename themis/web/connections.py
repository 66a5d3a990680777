"""A bound on the connections of a web server. A page must not take the file handles of the process that serves it.

Each connection has a handle, also one that never sends a request. Without handles an app master starts no task, and the
ResourceManager accepts no app master.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

MAX_CONNECTIONS = 320
"""Connections of one server at a time. A further one is closed at once."""

IDLE_S = 30.0
"""A connection without a whole request for this time is closed, the first request included."""

HANDSHAKE_S = 10.0
"""Seconds for the handshake of TLS."""


class BoundedConnections:
    """Makes the protocol of each new connection, for `loop.create_server`."""

    def __init__(self, server: web.Server) -> None:
        self._server = server

    def __call__(self) -> asyncio.Protocol:
        """Return the server's protocol, or one that ends the connection if there are too many."""
        return _Full() if len(self._server.connections) >= MAX_CONNECTIONS else self._server()


class _Full(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
