"""The NodeInventory port: the machines of an engine, and their states."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from themis.cluster import Cluster, DeviceType, Machine
from themis.values import Value


class NodeState(StrEnum):
    """The state of a machine.

    USABLE: it accepts new leases. DRAINING: running tasks may continue until their leases end. LOST: no task runs
    there.
    """

    USABLE = "usable"
    DRAINING = "draining"
    LOST = "lost"


class Node(Value, frozen=True, kw_only=True):
    """A machine and its present state.

    Attributes:
        machine: The machine. The engine starts containers there by its id.
        state: Its state.
        used_gpus: Its GPUs in use, by any program. 0 if the engine does not count.
        free_memory_mb: Memory that no container has. None if the engine does not count.
        free_vcores: Virtual cores that no container has. None if the engine does not count.
        reason: Why it is not usable, for events. May be empty.
    """

    machine: Machine
    state: NodeState = NodeState.USABLE
    used_gpus: int = 0
    free_memory_mb: int | None = None
    free_vcores: int | None = None
    reason: str = ""


class Inventory(Value, frozen=True, kw_only=True):
    """All machines of an engine, and their device types.

    Attributes:
        max_gpus: GPUs that all apps together may use, for example by the limit of a queue. None without a limit.
        limit: What sets `max_gpus`, for users.
    """

    nodes: tuple[Node, ...]
    devices: tuple[DeviceType, ...]
    max_gpus: int | None = None
    limit: str = ""


class NodeInventory(Protocol):
    """Reports the machines of an engine."""

    async def read(self) -> Inventory:
        """Return the present inventory. Raises ThemisError if it cannot be read at the moment."""
        ...


class FixedInventory:
    """The machines of a fixed cluster, for the local engine and for tests."""

    def __init__(self, cluster: Cluster, nodes: Sequence[Node] = ()) -> None:
        self.nodes = tuple(nodes) or tuple(Node(machine=machine) for machine in cluster.machines)
        self._devices = tuple(cluster.devices.values())

    async def read(self) -> Inventory:
        """Return all machines. A test may set `nodes`."""
        return Inventory(nodes=self.nodes, devices=self._devices)
