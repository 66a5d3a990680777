"""Shares in the connections of gRPC's port, so that no peer keeps the others out by taking all of them.

gRPC accepts connections by itself, and has one bound for all peers. But each connection is a socket of this process,
and the kernel lists its other end. So when few places are left, this module ends connections of the peer that has the
most, the oldest first. gRPC then sees a connection that its client has closed.

A peer is a user, if a call with a token came over the connection; else a user of this machine, by the kernel's table of
sockets; else a network. The connection of an app master's session is never ended, and a peer keeps `FEWEST` others.

Example: there are 576 places. A user of this machine opens 600 connections and says nothing. At 433 the service ends
145 of them, the oldest first, and again whenever that many are open. `submarine app list` of another user finds a
place.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import resource
import socket
import stat
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from rm_plugin.service.own_page import peer_address
from themis.addresses import network_of
from themis.values import Value
from themis.web.connections import MAX_CONNECTIONS
from themis.web.local_peer import local_peer_uids

FEWEST = 8
"""Connections that a peer keeps in any case."""

LOOK_S, SHORT_S = 0.1, 0.05
"""Seconds between looks; less while connections are ended, since a peer that floods takes free places again."""

IDLE_S = 5.0
"""Seconds between looks while many files are open, but no more than at the last look."""

_OTHER_HANDLES = MAX_CONNECTIONS + 128
"""File handles for pages, the store, logs that are read, and programs that are started."""

_HANDLES = Path("/proc/self/fd")


def max_connections() -> int:
    """Return how many connections gRPC accepts: some file handles stay for pages, the store and programs."""
    handles = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(handles // 2, handles - _OTHER_HANDLES)


class _Connection(Value, frozen=True, kw_only=True):
    """A connection that gRPC has accepted, by the addresses of its ends."""

    handle: int
    peer: tuple[str, int]
    own: tuple[str, int]


class ConnectionShares:
    """Makes half of the places free once less than a quarter is.

    Args:
        most: The most connections that gRPC accepts.
    """

    def __init__(self, most: int) -> None:
        self.most, self._allowed = most, most - most // 4
        self._users: dict[tuple[str, int], str] = {}
        self._sessions: Counter[tuple[str, int]] = Counter()
        # In the order in which they were seen first.
        self._seen: dict[tuple[str, int], None] = {}

    def note_user(self, peer: str, user: str) -> None:
        """A call with a token of this user came over the connection of a peer, which is named as gRPC does."""
        self._users[_end(peer)] = user

    @contextlib.contextmanager
    def session(self, peer: str) -> Iterator[None]:
        """Keep a connection while a session of an app master uses it."""
        end = _end(peer)
        self._sessions[end] += 1
        try:
            yield
        finally:
            self._sessions[end] -= 1
            if not self._sessions[end]:
                del self._sessions[end]

    async def run(self, port: int) -> None:
        """End connections of this port whenever too many are open."""
        looked_at, idle_s = 0, 0.0
        while True:
            # All open files are at least as many as the connections, and cheap to count. To list connections is not:
            # with thousands of sessions it takes a tenth of a second. So that is done if more files are open than at
            # the last look that ended none, and now and then.
            handles, ended = _open_handles(), 0
            if handles > self._allowed and (handles > looked_at or idle_s >= IDLE_S):
                ended = self.shed(port)
                looked_at, idle_s = (0 if ended else handles), 0.0
            if len(self._users) > 4 * self._allowed:
                self._forget_closed(_connections(port))
            pause_s = SHORT_S if ended else LOOK_S
            idle_s += pause_s
            await asyncio.sleep(pause_s)

    def shed(self, port: int) -> int:
        """End connections if too many are open, as far as peers have enough of them. Returns how many it ended."""
        connections = _connections(port)
        self._forget_closed(connections)
        if len(connections) <= self._allowed:
            return 0
        ended, by_peer = 0, self._by_peer(connections)
        # A peer that floods takes a quarter within the time between two looks.
        while len(connections) - ended > self.most // 2:
            most = max(by_peer.values(), key=len, default=[])
            if len(most) <= FEWEST:
                break
            _end_connection(most.pop(0))
            ended += 1
        return ended

    def _forget_closed(self, connections: list[_Connection]) -> None:
        open_now = {connection.peer for connection in connections}
        self._users = {peer: user for peer, user in self._users.items() if peer in open_now}
        kept = {peer: None for peer in self._seen if peer in open_now}
        self._seen = kept | dict.fromkeys(connection.peer for connection in connections)

    def _by_peer(self, connections: list[_Connection]) -> dict[str, list[_Connection]]:
        """The connections without a session, the oldest first."""
        age = {peer: place for place, peer in enumerate(self._seen)}
        free = sorted(
            (each for each in connections if each.peer not in self._sessions), key=lambda each: age[each.peer]
        )
        uids = local_peer_uids((each.peer, each.own) for each in free)
        by_peer: defaultdict[str, list[_Connection]] = defaultdict(list)
        for each in free:
            user, uid = self._users.get(each.peer), uids.get(each.peer)
            unknown = network_of(each.peer[0]) if uid is None else f"uid {uid}"
            by_peer[unknown if user is None else f"user {user}"].append(each)
        return by_peer


def _end(peer: str) -> tuple[str, int]:
    """Return the address and port in gRPC's name of a peer."""
    port = peer.rpartition(":")[2]
    return _plain(peer_address(peer)), int(port) if port.isdecimal() else 0


def _plain(address: str) -> str:
    """An address in one spelling: one of IPv4 may be written as one of IPv6."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(getattr(known, "ipv4_mapped", None) or known)


def _open_handles() -> int:
    # Linux 6.2 gives the number as the size of the folder, earlier versions give 0.
    return _HANDLES.stat().st_size or sum(1 for _ in _HANDLES.iterdir())


def _connections(port: int) -> list[_Connection]:
    """The connections that this process has accepted at a port."""
    found = []
    for path in _HANDLES.iterdir():
        handle = int(path.name)
        with contextlib.suppress(OSError), _borrowed(handle) as borrowed:
            if borrowed is None or borrowed.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            own = borrowed.getsockname()
            if own[1] == port:
                peer = borrowed.getpeername()
                ends = (_plain(peer[0]), peer[1]), (_plain(own[0]), own[1])
                found.append(_Connection(handle=handle, peer=ends[0], own=ends[1]))
    return found


@contextlib.contextmanager
def _borrowed(handle: int) -> Iterator[socket.socket | None]:
    """A socket of this process as a copy, which stays the same one if gRPC closes its own; None if it is no socket.

    Files are not copied: to close any handle of a file ends all locks of this process on it (fcntl(2)), and SQLite
    relies on its locks on the store.
    """
    if not _is_socket(handle):
        yield None
        return
    copy = os.dup(handle)
    if not _is_socket(copy):
        # The number was given to a file between the two calls. So the copy stays open.
        yield None
        return
    with socket.socket(fileno=copy) as borrowed:
        yield borrowed


def _is_socket(handle: int) -> bool:
    return stat.S_ISSOCK(os.fstat(handle).st_mode)


def _end_connection(connection: _Connection) -> None:
    """Let gRPC see the end of a connection, if its handle is still of that."""
    with contextlib.suppress(OSError), _borrowed(connection.handle) as borrowed:
        if borrowed is None:
            return
        address, port, *_ = borrowed.getpeername()
        if (_plain(address), port) == connection.peer:
            borrowed.shutdown(socket.SHUT_RDWR)
