"""The daemons' HTTP interfaces: nodes and their GPUs, the state of HDFS, and making folders in it."""

from __future__ import annotations

import http.client
import json
import urllib.request
from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import quote, urlencode

from themis.values import Value
from themis_lab.devcluster.configuration import DEVICE_ATTRIBUTE, GPU

# States of a node, as YARN names them.
RUNNING, LOST, DECOMMISSIONED, DECOMMISSIONING = "RUNNING", "LOST", "DECOMMISSIONED", "DECOMMISSIONING"
_TIMEOUT_S = 5.0
# Loopback addresses never need a proxy, whatever the environment says.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class HdfsState(StrEnum):
    """The state of HDFS, as far as its NameNode reports it."""

    AWAY = "away"
    SAFE_MODE = "safe mode"
    NO_DATANODE = "no datanode"
    READY = "ready"


class NodeReport(Value, frozen=True, kw_only=True):
    """A node in the ResourceManager's view.

    Attributes:
        state: YARN's name for it: NEW, RUNNING, UNHEALTHY, DECOMMISSIONING, DECOMMISSIONED, LOST, REBOOTED, SHUTDOWN.
        gpus: GPUs it declares.
        gpus_used: GPUs in containers; 0 for a node that is gone.
        device: Its device type, by the node attribute `device`. Empty without one.
        health_at_s: When its NodeManager last looked at its own health, in seconds since 1970; it does so when it
            starts, so an earlier time means that the ResourceManager reports on the previous one.
    """

    state: str
    gpus: int
    gpus_used: int
    health_at_s: float
    device: str = ""


class NoAnswerError(Exception):
    """A daemon does not answer, or not yet."""


def node_reports(rm_web: str) -> dict[str, NodeReport]:
    """Every node that the ResourceManager knows, by host.

    Raises:
        NoAnswerError: It does not answer.
    """
    found = (_get(f"{rm_web}/ws/v1/cluster/nodes").get("nodes") or {}).get("node") or []
    return {
        node["nodeHostName"]: NodeReport(
            state=node["state"],
            gpus=_gpus(node.get("totalResource")),
            gpus_used=_gpus(node.get("usedResource")),
            health_at_s=node.get("lastHealthUpdate", 0) / 1000,
            device=_device(node.get("nodeAttributesInfo")),
        )
        for node in found
    }


def hdfs_state(namenode_web: str) -> HdfsState:
    """Return the state of HDFS."""
    try:
        status = _bean(namenode_web, "NameNodeStatus")
        info = _bean(namenode_web, "NameNodeInfo")
        if status.get("State") != "active":
            return HdfsState.AWAY
        if info.get("Safemode"):
            return HdfsState.SAFE_MODE
        return HdfsState.READY if json.loads(info.get("LiveNodes", "{}")) else HdfsState.NO_DATANODE
    except NoAnswerError:
        return HdfsState.AWAY


def make_folder(namenode_web: str, path: str, user: str, permission: str) -> None:
    """Make a folder in HDFS, and missing folders above it.

    Args:
        namenode_web: `http://host:port` of the NameNode.
        path: Absolute path in HDFS.
        user: In whose name.
        permission: Octal, e.g. `755`.

    Raises:
        NoAnswerError: The NameNode does not answer or refuses.
    """
    for query in ({"op": "MKDIRS"}, {"op": "SETPERMISSION", "permission": permission}):
        url = f"{namenode_web}/webhdfs/v1{quote(path)}?{urlencode({**query, 'user.name': user})}"
        _ask(urllib.request.Request(url, method="PUT"))


def _gpus(resource: Mapping[str, Any] | None) -> int:
    parts = ((resource or {}).get("resourceInformations") or {}).get("resourceInformation") or []
    return sum(int(part["value"]) for part in parts if part["name"] == GPU)


def _device(attributes: Mapping[str, Any] | None) -> str:
    found = (attributes or {}).get("nodeAttributeInfo") or []
    return next((str(each["value"]) for each in found if each["name"] == DEVICE_ATTRIBUTE), "")


def _bean(web: str, name: str) -> Mapping[str, Any]:
    beans = _get(f"{web}/jmx?qry=Hadoop:service=NameNode,name={name}").get("beans") or []
    return beans[0] if beans else {}


def _get(url: str) -> dict[str, Any]:
    found = json.loads(_ask(urllib.request.Request(url, headers={"Accept": "application/json"})))
    return found if isinstance(found, dict) else {}


def _ask(request: urllib.request.Request) -> bytes:
    try:
        with _OPENER.open(request, timeout=_TIMEOUT_S) as answer:
            return bytes(answer.read())
    except (OSError, http.client.HTTPException) as error:
        # An HTTP error is an OSError too.
        raise NoAnswerError(f"{request.full_url}: {error}") from error
