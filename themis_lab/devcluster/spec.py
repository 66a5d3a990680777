"""The specification of a development cluster."""

from __future__ import annotations

import getpass
import os
import re

from msgspec import field

from themis.errors import InputError
from themis.values import Value
from themis_lab.devcluster.kerberos import Kerberos

NAMENODE = "namenode"
DATANODE = "datanode"
RESOURCE_MANAGER = "resourcemanager"
_NODE_MANAGER = "nodemanager-"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# YARN's own rule for values of node attributes, without the dot.
_DEVICE = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z_-]{0,61}")
MAX_NODES = 50
"""Each is a JVM of 170 MB."""
MAX_GPUS = 64


def hadoop_user() -> str:
    """The user name that Hadoop sees without Kerberos."""
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


class ClusterSpec(Value, frozen=True, kw_only=True):
    """The specification of a cluster to start.

    Attributes:
        gpus: GPUs that each node declares; one node an entry.
        version: Hadoop's version. None: that of the jars at hand, else the default.
        memory_mb: Memory that each node declares, in MB. Nothing is reserved and nothing enforced.
        vcores: Virtual cores that each node declares.
        heartbeat_ms: Between two heartbeats of a node to the ResourceManager, in milliseconds.
        expiry_ms: After this many milliseconds without a heartbeat a node is lost, or an app master dead.
        user: The superuser of HDFS, administrator of YARN, owner of all processes.
        names: Names of the nodes; none: `gpu-node-1` and so on, `cpu-node-3` for a third node without GPUs.
        devices: Device type that each node reports to YARN as its node attribute `device`, empty for none. No entries:
            no node reports one.
        kerberos: Makes HDFS and YARN secure. Then `user` counts for nothing, and folders on HDFS are the caller's to
            make. None: Hadoop believes everybody.
        acls: YARN checks who may view and end an application: its owner, whom its owner names, and `user`.
    """

    gpus: tuple[int, ...]
    version: str | None = None
    memory_mb: int = 16384
    vcores: int = 64
    heartbeat_ms: int = 200
    expiry_ms: int = 10_000
    user: str = field(default_factory=hadoop_user)
    names: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    kerberos: Kerberos | None = None
    acls: bool = False

    def __post_init__(self) -> None:
        if not 1 <= len(self.gpus) <= MAX_NODES:
            raise InputError("a number of nodes that cannot be", value=len(self.gpus), remedy=f"1 to {MAX_NODES}")
        wrong = [count for count in self.gpus if not 0 <= count <= MAX_GPUS]
        if wrong:
            raise InputError("a number of GPUs that cannot be", value=wrong[0], remedy=f"0 to {MAX_GPUS} a node")
        bad = [name for name in self.names if not _NAME.fullmatch(name)]
        if bad:
            raise InputError(
                "no name of a host", value=bad[0], remedy="a-z, 0-9 and '-', at most 63, not '-' first or last"
            )
        if self.names and len(set(self.names)) != len(self.gpus):
            raise InputError("each node needs a name of its own", value=len(self.names), remedy="one name a node")
        if self.devices and len(self.devices) != len(self.gpus):
            remedy = "one type a node, empty for none"
            raise InputError("each node needs one device type", value=len(self.devices), remedy=remedy)
        wrong_types = [device for device in self.devices if device and not _DEVICE.fullmatch(device)]
        if wrong_types:
            raise InputError("no name of a device type", value=wrong_types[0], remedy="a-z, A-Z, 0-9, '-' and '_'")

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the nodes, as YARN shows them."""
        return self.names or tuple(
            f"{'gpu' if gpus else 'cpu'}-node-{number}" for number, gpus in enumerate(self.gpus, start=1)
        )

    @property
    def daemons(self) -> tuple[str, ...]:
        """Names of all daemons, in starting order."""
        return (NAMENODE, DATANODE, RESOURCE_MANAGER, *map(node_manager, self.hosts))


def node_manager(host: str) -> str:
    """Name of the NodeManager daemon of a node."""
    return _NODE_MANAGER + host


def host_of(daemon: str) -> str | None:
    """The node of a NodeManager daemon. Returns None for other daemons."""
    return daemon.removeprefix(_NODE_MANAGER) if daemon.startswith(_NODE_MANAGER) else None
