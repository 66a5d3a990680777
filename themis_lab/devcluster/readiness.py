"""What a cluster still lacks before it can be used, and how to wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from themis_lab.devcluster import web
from themis_lab.devcluster.errors import DevClusterError
from themis_lab.devcluster.spec import DATANODE, NAMENODE, RESOURCE_MANAGER, ClusterSpec, node_manager

_POLL_S = 0.1

Say = Callable[[str], None]


def what_is_missing(
    spec: ClusterSpec, since_s: Mapping[str, float], hdfs: web.HdfsState, nodes: Mapping[str, web.NodeReport]
) -> str | None:
    """Return what is not ready yet, or None.

    Args:
        spec: What the cluster shall be like.
        since_s: Names of the daemons that shall be ready, and since when they run at the earliest, in seconds since
            1970. HDFS needs NameNode and DataNode, nodes need the ResourceManager; without them they do not count.
        hdfs: What the NameNode says.
        nodes: What the ResourceManager says, by host.
    """
    if {NAMENODE, DATANODE} <= since_s.keys() and hdfs is not web.HdfsState.READY:
        return f"HDFS: {hdfs}"
    if RESOURCE_MANAGER not in since_s:
        return None
    wanted = [
        _is_in_service(nodes.get(host), gpus, device, since_s[node_manager(host)])
        for host, gpus, device in zip(spec.hosts, spec.gpus, spec.devices or [""] * len(spec.gpus), strict=True)
        if node_manager(host) in since_s
    ]
    return None if all(wanted) and nodes else f"YARN: {sum(wanted)} of {len(wanted)} nodes"


def wait_until_none(missing: Callable[[], str | None], *, limit_s: float, trouble: str, say: Say) -> None:
    """Call `missing` until it returns None.

    Args:
        missing: The question.
        limit_s: How long to ask, in seconds.
        trouble: What it means when something is missing for longer.
        say: Called with what is missing, whenever that changes.

    Raises:
        DevClusterError: Something is missing for longer.
    """
    deadline_s = time.monotonic() + limit_s
    said = None
    while (what := missing()) is not None:
        if time.monotonic() >= deadline_s:
            raise DevClusterError(trouble, value=what, remedy="see the logs, in `logs` in its folder")
        if what != said:
            say(what)
            said = what
        time.sleep(_POLL_S)


def _is_in_service(node: web.NodeReport | None, gpus: int, device: str, since_s: float) -> bool:
    # An administrator may add a type to a node that reports none.
    has_its_devices = node is not None and node.gpus == gpus and (not device or node.device == device)
    return node is not None and node.state == web.RUNNING and has_its_devices and node.health_at_s >= since_s
