"""What NodeManagers themselves say runs on them, by their REST services: the ResourceManager frees GPUs earlier."""

from __future__ import annotations

import http.client
import json
import os
import urllib.request
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from themis.hadoop.jvm import HOSTS_VARIABLE
from themis.values import Value

_TIMEOUT_S = 3.0
_OVER = ("DONE", "EXITED_WITH_SUCCESS", "EXITED_WITH_FAILURE", "CONTAINER_CLEANEDUP_AFTER_KILL", "COMPLETE")


class NodesReply(Value, frozen=True, kw_only=True):
    """What is left of an application: its containers that have not ended, and the nodes that do not answer."""

    living: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


def living_containers(addresses: Iterable[str], yarn_app_id: str) -> NodesReply:
    """Ask nodes for an application's containers that have not ended. Do not ask lost nodes.

    Args:
        addresses: `host:port` of NodeManagers' web services.
        yarn_app_id: As in `application_1700000000000_0001`.
    """
    # With what follows it: else application 1000 has those of 10000 too.
    wanted = f"_{yarn_app_id.removeprefix('application_')}_"
    answers = {address: _containers(address) for address in addresses}
    return NodesReply(
        living=tuple(
            str(container.get("id"))
            for containers in answers.values()
            for container in containers or ()
            if wanted in str(container.get("id", "")) and container.get("state") not in _OVER
        ),
        silent=tuple(address for address, containers in answers.items() if containers is None),
    )


def _containers(address: str) -> list[dict[str, object]] | None:
    request = urllib.request.Request(f"http://{_reachable(address)}/ws/v1/node/containers")
    try:
        # A web proxy in the environment is meant for the world outside, never for a cluster's own nodes.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            body = json.load(answer)
    except (OSError, http.client.HTTPException, ValueError):
        return None
    listed = (body.get("containers") or {}).get("container") or []
    return listed if isinstance(listed, list) else [listed]


def _reachable(address: str) -> str:
    """The address by number where the JVM's hosts file names the host: Python does not read that."""
    host, _, port = address.rpartition(":")
    return f"{_hosts(os.environ.get(HOSTS_VARIABLE, '')).get(host, host)}:{port}"


@cache
def _hosts(path: str) -> dict[str, str]:
    if not path:
        return {}
    lines = (line.split("#")[0].split() for line in Path(path).read_text(encoding="utf-8").splitlines())
    return {name: words[0] for words in lines if words for name in words[1:]}
