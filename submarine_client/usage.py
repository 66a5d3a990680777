"""The use of the cluster by users and by machines: the tables of `top` and `cluster`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from submarine_client.table import MISSING, seconds, table
from submarine_client.terminal import UNLIMITED, wrapped
from themis.values import Value
from themis.wire import app_status as status
from themis.wire import themis_pb2 as pb


class UserUsage(Value, frozen=True, kw_only=True):
    """What one user's apps hold now, and the GPU time of all of them, also of ended ones."""

    user: str
    running: int
    waiting: int
    ended: int
    gpus: int
    gpu_time_s: float


def usage_by_user(apps: Iterable[pb.AppStatus]) -> list[UserUsage]:
    """Sum up apps by user. Users with the most GPUs come first, then those with the most GPU time."""
    by_user: dict[str, list[pb.AppStatus]] = {}
    for app in apps:
        by_user.setdefault(app.user, []).append(app)
    usage = [
        UserUsage(
            user=user,
            running=sum(app.gpus > 0 for app in theirs),
            waiting=sum(app.gpus == 0 and not status.is_at_rest(app) for app in theirs),
            ended=sum(map(status.has_ended, theirs)),
            gpus=sum(app.gpus for app in theirs),
            gpu_time_s=sum(app.gpu_time_s for app in theirs),
        )
        for user, theirs in by_user.items()
    ]
    return sorted(usage, key=lambda each: (-each.gpus, -each.gpu_time_s, each.user))


def top_text(usage: Iterable[UserUsage], width: int = UNLIMITED) -> str:
    """Format a table with a line per user."""
    rows = [
        (
            *(each.user, str(each.gpus), f"{each.gpu_time_s / 3600:.2f}"),
            *(str(each.running), str(each.waiting), str(each.ended)),
        )
        for each in usage
    ]
    return table(("USER", "GPUS", "GPU-HOURS", "RUNNING", "WAITING", "ENDED"), rows, width)


def cluster_object(cluster: pb.ClusterStatus) -> dict[str, Any]:
    """Return the cluster as JSON for programs: its policy, its totals, and its machines."""
    return {
        "name": cluster.cluster.name,
        "policy": cluster.policy,
        "lease_s": cluster.lease_s,
        "active_apps": cluster.active_apps,
        "rounds": cluster.rounds,
        "devices": cluster.gpus,
        "leased": cluster.gpus_leased,
        "machines": [
            {
                "machine_id": machine.machine_id,
                "rack_id": machine.rack_id,
                "device": machine.device or None,
                "state": node.state,
                "devices": node.gpus,
                "leased": node.gpus_leased,
                "free": node.gpus_free,
            }
            for machine, node in _machines(cluster)
        ],
    }


def cluster_text(cluster: pb.ClusterStatus, width: int = UNLIMITED) -> str:
    """Format the cluster: its totals, a table of device types if there are several, a table of machines."""
    machines = _machines(cluster)
    free = sum(node.gpus_free for _, node in machines)
    totals = (
        f"{free} of {cluster.gpus} devices free, {cluster.gpus_leased} leased, {cluster.active_apps} active apps, "
        f"policy {cluster.policy}, leases of {seconds(cluster.lease_s)}"
    )
    parts = [wrapped("", totals, width)]
    types = list(dict.fromkeys(machine.device for machine, _ in machines))
    if len(types) > 1:
        rows = []
        for device in types:
            nodes = [node for machine, node in machines if machine.device == device]
            rows.append((device, str(len(nodes)), *_counts(nodes)))
        parts.append(table(("TYPE", "NODES", "DEVICES", "LEASED", "FREE"), rows, width))
    by_node = [
        (machine.machine_id, machine.rack_id, machine.device or MISSING, node.state, *_counts([node]))
        for machine, node in machines
    ]
    parts.append(table(("NODE", "RACK", "TYPE", "STATE", "DEVICES", "LEASED", "FREE"), by_node, width))
    return "\n\n".join(parts)


def _machines(cluster: pb.ClusterStatus) -> list[tuple[pb.Machine, pb.NodeStatus]]:
    nodes = {node.machine_id: node for node in cluster.nodes}
    return [(machine, nodes.get(machine.machine_id, pb.NodeStatus())) for machine in cluster.cluster.machines]


def _counts(nodes: Sequence[pb.NodeStatus]) -> tuple[str, str, str]:
    """The devices of some nodes: all, leased, free."""
    return (
        str(sum(node.gpus for node in nodes)),
        str(sum(node.gpus_leased for node in nodes)),
        str(sum(node.gpus_free for node in nodes)),
    )
