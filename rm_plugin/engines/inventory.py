"""The NodeInventory port: which machines an engine has, and in which state each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from themis.cluster import Cluster, DeviceType, Machine


class NodeState(StrEnum):
    """What may be done with a machine.

    USABLE: everything. DRAINING: what runs there may go on to the end of its lease. LOST: nothing runs there any more.
    """

    USABLE = "usable"
    DRAINING = "draining"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine as its engine sees it now.

    Attributes:
        machine: Its id is the name by which the engine starts containers there.
        state: What may be done with it.
        used_gpus: GPUs of it that are in use, by our apps or by others; 0 where the engine does not count.
        reason: Why it is not usable, for events; may be empty.
    """

    machine: Machine
    state: NodeState = NodeState.USABLE
    used_gpus: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All machines that an engine knows of, and their types of devices."""

    nodes: tuple[Node, ...]
    devices: tuple[DeviceType, ...]


class NodeInventory(Protocol):
    """Where machines come from."""

    async def read(self) -> Inventory:
        """What there is now; raises ThemisError when that cannot be told at the moment."""
        ...


class FixedInventory:
    """The machines of a cluster that never changes: the adapter of the local engine, and of tests."""

    def __init__(self, cluster: Cluster, nodes: Sequence[Node] = ()) -> None:
        self.nodes = tuple(nodes) or tuple(Node(machine=machine) for machine in cluster.machines)
        self._devices = tuple(cluster.devices.values())

    async def read(self) -> Inventory:
        """All machines; a test may set `nodes`."""
        return Inventory(nodes=self.nodes, devices=self._devices)
