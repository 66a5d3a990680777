"""A TCP connection that carries small messages, one JSON object a line, and never makes its owner wait."""

from __future__ import annotations

import json
import socket
from contextlib import suppress

LINE_LIMIT_BYTES = 4096
SILENCE_PROBED_S, PROBE_EVERY_S, PROBES = 10, 5, 2

Message = dict[str, object]


class Channel:
    """One end of a connection.

    A peer that dies closes it. One whose machine vanishes closes nothing: the kernel's keep-alive finds out, within
    SILENCE_PROBED_S + PROBES * PROBE_EVERY_S seconds.

    Args:
        connected: The connection's socket, owned from now on.

    Attributes:
        closed: Nothing more will come than has come already.
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
        """For `select`."""
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message; that the peer is gone shows when reading, not here."""
        with suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def next(self) -> Message | None:
        """The next message that has come whole, or None; whoever sends anything else is hung up on."""
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
        """Hang up; what has not been read is dropped."""
        self.closed = True
        self._buffer = b""
        self._socket.close()

    def _read(self) -> bool:
        """Take in what has come; False where that is nothing, or the last."""
        try:
            data = self._socket.recv(LINE_LIMIT_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._buffer += data
        self.closed = not data
        return not self.closed
