"""The user at the other end of a loopback connection, from the kernel's table of sockets.

A web page cannot ask a browser for the token of a Unix socket, but the kernel knows whose socket the browser's is. Only
read-only pages may rely on it: the connection may end, and its port go to another user, before the table is read. Then
the answer goes nowhere.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_TABLES = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}
_ESTABLISHED = "01"


def local_peer_uid(peer: Sequence[Any] | None, own: Sequence[Any] | None) -> int | None:
    """Return the user number at the other end of an accepted connection.

    Returns None unless the connection is over loopback and still open.

    Args:
        peer: Host and port of the other end, as `getpeername` returns them.
        own: Host and port of this end.
    """
    if not peer or not own:
        return None
    return local_peer_uids([(peer, own)]).get((peer[0], peer[1]))


def local_peer_uids(connections: Iterable[tuple[Sequence[Any], Sequence[Any]]]) -> dict[tuple[str, int], int]:
    """Return the user numbers at the other ends of accepted connections, by the addresses of these ends.

    Connections that are not over loopback, and those that ended, are left out.

    Args:
        connections: The addresses of the other end and of this one, as for `local_peer_uid`.
    """
    wanted: dict[tuple[str, str], tuple[str, int]] = {}
    tables = set()
    for peer, own in connections:
        address, own_address = _address(str(peer[0])), _address(str(own[0]))
        if address is not None and own_address is not None and address.is_loopback:
            ends = _as_in_table(address, int(peer[1])), _as_in_table(own_address, int(own[1]))
            wanted[ends] = (peer[0], peer[1])
            tables.add(address.version)
    uids = {}
    for version in tables:
        with contextlib.suppress(OSError), _TABLES[version].open(encoding="ascii") as table:
            for line in table:
                words = line.split()
                peer_end = wanted.get((words[1], words[2])) if words[3] == _ESTABLISHED else None
                if peer_end is not None:
                    uids[peer_end] = int(words[7])
                    if len(uids) == len(wanted):
                        break
    return uids


def is_loopback_name(host: str | None) -> bool:
    """Whether a name in an address of a page means this machine alone.

    A web site can let its own name resolve to 127.0.0.1, and its scripts could then read a page of this machine.
    """
    address = _address(host or "")
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    # An IPv4 client of a server that listens on an IPv6 address.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _as_in_table(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    """Return an end of a connection as the table writes it: words of 32 bits in the machine's order."""
    content = socket.inet_pton(socket.AF_INET if address.version == 4 else socket.AF_INET6, str(address))
    words = struct.unpack(f"={len(content) // 4}I", content)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
