"""The status of machines for users and operators: their states, and how many of their GPUs are leased or closed."""

from __future__ import annotations

from rm_plugin.service.manager import ResourceManager
from themis.cluster import Machine
from themis.wire import themis_pb2 as pb


def node_statuses(manager: ResourceManager) -> list[pb.NodeStatus]:
    """Return the status of every machine."""
    return [node_status(manager, machine) for machine in manager.arbiter.cluster.machines]


def node_status(manager: ResourceManager, machine: Machine) -> pb.NodeStatus:
    """Return the status of a machine: `usable`, `drained`, `lost`, or `closed` if none of its GPUs is given out."""
    table = manager.arbiter.table
    gpus = manager.arbiter.cluster.gpus_of(machine.machine_id)
    ends = [table.live[gpu].expires_at_s for gpu in gpus if gpu in table.live]
    closed = sum(gpu in table.closed for gpu in gpus)
    free = 0
    if machine.machine_id in table.lost:
        state = "lost"
    else:
        free = sum(gpu not in table.closed and gpu not in table.live for gpu in gpus)
        if machine.machine_id in manager.live_cluster.drained:
            state = "drained"
        else:
            state = "closed" if closed == len(gpus) else "usable"
    return pb.NodeStatus(
        machine_id=machine.machine_id,
        state=state,
        gpus=len(gpus),
        gpus_leased=len(ends),
        gpus_closed=closed,
        gpus_free=free,
        last_lease_end_s=max(ends, default=0.0),
    )
