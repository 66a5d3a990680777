"""The address at which an app master is reached by its task hosts."""

from __future__ import annotations

import contextlib
import ipaddress
import socket

_ELSEWHERE = "192.0.2.1"
"""An address that is nobody's (RFC 5737): the way to it is the way out of this machine."""


def own_address(rm_address: str) -> str:
    """This machine's address on the network that the ResourceManager is on, by which others there reach it."""
    host, _, port = rm_address.rpartition(":")
    address = _source(host, int(port))
    if _is_loopback(address) and not _means_loopback(host):
        # The ResourceManager's machine is this one, and its own name leads to 127.0.1.1 here, as Debian sets it up.
        # From other machines the same name leads to a network.
        with contextlib.suppress(OSError):
            return _source(_ELSEWHERE, int(port))
    return address


def _source(host: str, port: int) -> str:
    """This machine's address on the way to another. Nothing is sent: a datagram socket only chooses the interface."""
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
