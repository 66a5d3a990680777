"""A bound on the connections of a web server. A page must not take the file handles of the process that serves it.

Each connection has a handle, also one that never sends a request. Without handles an app master starts no task, and the
ResourceManager accepts no app master.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from typing import TYPE_CHECKING

from themis.peers import least_needed

if TYPE_CHECKING:
    from aiohttp import web

MAX_CONNECTIONS = 320
"""Connections of one server at a time."""

IDLE_S = 30.0
"""A connection without a whole request for this time is closed, the first request included."""

HANDSHAKE_S = 10.0
"""Seconds for the handshake of TLS."""


class BoundedConnections:
    """Makes the protocol of each new connection, for `loop.create_server`.

    One peer may have all of them. A further connection then takes the place of another one (`least_needed`).

    Args:
        server: Answers the requests.
        tls: For TLS, with which `loop.create_server` would hide connections until their handshake is over.
    """

    def __init__(self, server: web.Server, tls: ssl.SSLContext | None) -> None:
        self._server = server
        self._tls = tls
        self._open: list[asyncio.Transport] = []

    def __call__(self) -> asyncio.Protocol:
        """Return what a connection has until its peer is known."""
        return _Arrival(self)

    def take(self, transport: asyncio.Transport) -> None:
        """Let the server answer at a connection, and end another one if there are too many."""
        self._open = [known for known in self._open if not known.is_closing()]
        if len(self._open) >= MAX_CONNECTIONS:
            least_needed(self._open).abort()
        self._open.append(transport)
        protocol: asyncio.BaseProtocol = self._server()
        if self._tls is not None:
            loop, limit_s = asyncio.get_running_loop(), HANDSHAKE_S
            # No future waits for the handshake, and its limit is a float. The stubs allow neither.
            protocol = SSLProtocol(loop, protocol, self._tls, None, True, ssl_handshake_timeout=limit_s)  # type: ignore[arg-type]
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


class _Arrival(asyncio.Protocol):
    def __init__(self, connections: BoundedConnections) -> None:
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connections.take(transport)
