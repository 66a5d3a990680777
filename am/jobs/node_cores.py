"""The cores of CPU nodes: how many a task gets, and which ones where several nodes share one machine."""

from __future__ import annotations

from collections.abc import Sequence

from themis.cluster import Cluster, DeviceType


def device_of(cluster: Cluster, machine_id: str) -> DeviceType:
    """The device type of a machine. A type that the cluster does not describe has no card."""
    name = cluster.machine(machine_id).device
    return cluster.devices.get(name) or DeviceType(name=name, emulated=True)


def node_cores(cluster: Cluster, machine_id: str) -> int:
    """Return the cores of a CPU node, which a task leases as a whole. 0 for a machine with GPUs."""
    return 0 if device_of(cluster, machine_id).is_gpu else cluster.machine(machine_id).cpus


def assigned_cores(cluster: Cluster, machine_id: str, cores: Sequence[int]) -> tuple[int, ...]:
    """Return the cores of this machine that stand for those of an emulated CPU node. Empty for a machine with GPUs.

    CPU nodes take their cores in the order of the cluster, and begin again at the first when none are left. So nodes
    share cores only if they have more than the machine. Example: nodes c0, c1, c2 of 2 cores each on cores 0 to 3 get
    (0, 1), (2, 3) and (0, 1).

    Args:
        cluster: All machines.
        machine_id: The node.
        cores: The cores of this machine. Without any, none are assigned.
    """
    count = min(node_cores(cluster, machine_id), len(cores))
    if not count:
        return ()
    first = 0
    for machine in cluster.machines:
        if machine.machine_id == machine_id:
            break
        first += node_cores(cluster, machine.machine_id)
    return tuple(sorted(cores[(first + index) % len(cores)] for index in range(count)))
