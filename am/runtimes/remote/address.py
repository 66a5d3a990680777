"""The address at which an app master is reached by its task hosts."""

from __future__ import annotations

import socket


def own_address(rm_address: str) -> str:
    """This machine's address on the network that the ResourceManager is on, by which others there reach it."""
    host, _, port = rm_address.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: connecting a datagram socket only chooses the interface.
        probe.connect((host, int(port)))
        address: str = probe.getsockname()[0]
    return address
