"""A TCP connection for small messages, one JSON object per line, whose methods never block."""

from __future__ import annotations

import json
import socket
from contextlib import suppress

LINE_LIMIT_BYTES = 4096
SILENCE_PROBED_S, PROBE_EVERY_S, PROBES = 10, 5, 2

Message = dict[str, object]


class Channel:
    """One end of a connection.

    The connection closes when the peer dies. If the peer's machine vanishes, the kernel's keep-alive closes it within
    SILENCE_PROBED_S + PROBES * PROBE_EVERY_S seconds.

    Args:
        connected: The connected socket, which the channel closes.

    Attributes:
        closed: Whether the connection has ended: no more bytes will arrive.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.closed = False
        self._socket = connected
        self._buffer = b""
        connected.setblocking(False)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_PROBED_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)

    def fileno(self) -> int:
        """Return the file descriptor, for `select`."""
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message. A lost peer shows in `next`, not here."""
        with suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def next(self) -> Message | None:
        """Return the next complete message, or None. A peer that sends anything else is disconnected."""
        while b"\n" not in self._buffer:
            if len(self._buffer) > LINE_LIMIT_BYTES:
                self.close()
            if self.closed or not self._read():
                return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            return message
        self.close()
        return None

    def close(self) -> None:
        """Close the connection and drop unread messages."""
        self.closed = True
        self._buffer = b""
        self._socket.close()

    def _read(self) -> bool:
        """Read the available bytes. Returns False if there are none or the connection ended."""
        try:
            data = self._socket.recv(LINE_LIMIT_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._buffer += data
        self.closed = not data
        return not self.closed
