"""Free loopback addresses and ports, so that clusters conflict neither with other programs nor with each other.

Each cluster has a network 127.x.y.0/24 of its own: `.1` is the master, the nodes follow. Ports are the same on every
address and differ from Hadoop's standard ones, since a daemon that listens on all addresses would take those here too.
Linux has the whole of 127.0.0.0/8 on its loopback interface.
"""

from __future__ import annotations

import random
import socket
from enum import IntEnum

from themis.values import Value
from themis_lab.devcluster.errors import DevClusterError

_FIRST_PORT, _LAST_PORT = 20_000, 32_000
"""Below the ports that Linux gives to outgoing connections (net.ipv4.ip_local_port_range, from 32768)."""
_TRIES = 200


class Port(IntEnum):
    """The listeners of a cluster, counted from its first port."""

    NAMENODE = 0
    NAMENODE_WEB = 1
    DATANODE = 2
    DATANODE_IPC = 3
    DATANODE_WEB = 4
    RM = 5
    RM_SCHEDULER = 6
    RM_TRACKER = 7
    RM_ADMIN = 8
    RM_WEB = 9
    NM = 10
    NM_LOCALIZER = 11
    NM_COLLECTOR = 12
    NM_WEB = 13


class Addresses(Value, frozen=True, kw_only=True):
    """The addresses of a cluster.

    Attributes:
        network: The first three parts of its addresses, e.g. `127.18.52`.
        first_port: The lowest of its ports; they follow each other.
        nodes: How many nodes it has.
    """

    network: str
    first_port: int
    nodes: int

    @property
    def master(self) -> str:
        """IP address of NameNode, DataNode and ResourceManager."""
        return f"{self.network}.1"

    def node(self, index: int) -> str:
        """IP address of a node, counted from 0."""
        return f"{self.network}.{index + 2}"

    def port(self, role: Port) -> int:
        """The port of a role, on any address."""
        return self.first_port + role

    def at_master(self, role: Port) -> str:
        """`address:port` of a role on the master."""
        return f"{self.master}:{self.port(role)}"


def free_addresses(nodes: int, chance: random.Random) -> Addresses:
    """Return a network and ports on which nothing listens at this moment.

    Raises:
        DevClusterError: None was found.
    """
    for _ in range(_TRIES):
        # Other programs often use 127.0.x.y.
        network = f"127.{chance.randint(1, 254)}.{chance.randint(1, 254)}"
        first_port = chance.randrange(_FIRST_PORT, _LAST_PORT - len(Port))
        addresses = Addresses(network=network, first_port=first_port, nodes=nodes)
        if all(_is_free(addresses, index) for index in range(-1, nodes)):
            return addresses
    remedy = "the loopback interface must have all of 127.0.0.0/8, as on Linux"
    raise DevClusterError("found no free loopback addresses", value=_TRIES, remedy=remedy)


def _is_free(addresses: Addresses, index: int) -> bool:
    return all(_can_bind(addresses.node(index), addresses.port(role)) for role in Port)


def _can_bind(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
            # Two sockets may be bound to one port as long as neither listens.
            probe.listen(1)
        except OSError:
            return False
    return True
