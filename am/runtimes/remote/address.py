"""Find the address at which task hosts reach their app master."""

from __future__ import annotations

import contextlib
import ipaddress
import socket

_ELSEWHERE = "192.0.2.1"
"""A reserved address (RFC 5737). The route to it shows this machine's address on its network."""


def own_address(rm_address: str) -> str:
    """Return this machine's address on the network of the ResourceManager; of several, of the first."""
    host, _, port = rm_address.partition(",")[0].rpartition(":")
    address = _source(host, int(port))
    if _is_loopback(address) and not _means_loopback(host):
        # The ResourceManager runs on this machine, whose own name resolves to 127.0.1.1 here, as on Debian. Other
        # machines resolve the same name to a network address.
        with contextlib.suppress(OSError):
            return _source(_ELSEWHERE, int(port))
    return address


def _source(host: str, port: int) -> str:
    """Return this machine's address on the route to another. Connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        address: str = probe.getsockname()[0]
    return address


def _means_loopback(host: str) -> bool:
    return host == "localhost" or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
