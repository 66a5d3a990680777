"""YARN's nodes as machines: GPUs by `yarn.io/gpu`, racks by YARN's own mapping, use by the node's state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from rm_plugin.engines.inventory import Inventory, Node, NodeState
from themis.cluster import Cluster, DeviceType, Machine
from themis.hadoop.values import NodeReport
from themis.hadoop.values import NodeState as YarnState
from themis.hadoop.yarn_client import YarnClient

LOG = logging.getLogger("themis.rm.yarn")

_STATES = {YarnState.RUNNING: NodeState.USABLE, YarnState.DECOMMISSIONING: NodeState.DRAINING}


class YarnInventory:
    """Reads node reports.

    Machine ids are host names. Two NodeManagers of one host cannot be told apart by a pinned ask: the one that runs
    counts, or the first of them.

    Args:
        client: Connected.
        device: The type of the nodes' GPUs where the overlay names none.
        overlay: What node reports do not tell, by host name: slots and racks, and types of devices.
    """

    def __init__(self, client: YarnClient, device: DeviceType, overlay: Cluster | None = None) -> None:
        self._client = client
        self._device = device
        self._overlay = {machine.machine_id: machine for machine in overlay.machines} if overlay else {}
        self._devices = {device.name: device, **(overlay.devices if overlay else {})}
        # As they were last told: of what YARN does not mention nobody knows that it is lost.
        self._web: dict[str, str] = {}
        # GPUs of machines that the overlay describes with another number, as they were last warned of.
        self._told: dict[str, int] = {}
        # As they last ran. Of a node that is decommissioned YARN tells less and less resources.
        self._machines: dict[str, Machine] = {}

    async def read(self) -> Inventory:
        """The nodes that have GPUs, in whatever state.

        A node that YARN just registers is not mentioned yet: what runs on a known one is not gone, and no container
        starts on it either. After a restart of YARN's ResourceManager every node is such for an instant.
        """
        every = await asyncio.to_thread(self._client.nodes, tuple(YarnState))
        reports = [report for report in every if report.state is not YarnState.NEW]
        for report in sorted(reports, key=_runs):
            if _runs(report):
                self._web[report.host] = report.http_address
            else:
                self._web.pop(report.host, None)
        return Inventory(nodes=self._nodes(reports), devices=tuple(self._devices.values()))

    def web_addresses(self, machine_ids: Collection[str]) -> tuple[str, ...]:
        """`host:port` of the web services of these machines' NodeManagers; those that YARN calls lost are left out."""
        return tuple(self._web[machine_id] for machine_id in sorted(machine_ids) if self._web.get(machine_id))

    def _nodes(self, reports: Collection[NodeReport]) -> tuple[Node, ...]:
        by_host: dict[str, NodeReport] = {}
        for report in sorted(reports, key=lambda report: (_runs(report), report.node_id)):
            by_host[report.host] = report
        for host, report in by_host.items():
            if report.state is YarnState.RUNNING or host not in self._machines:
                self._machines[host] = self._machine(report)
        return tuple(self._node(report) for _, report in sorted(by_host.items()) if self._machines[report.host].gpus)

    def _node(self, report: NodeReport) -> Node:
        state = _STATES.get(report.state, NodeState.LOST)
        return Node(
            machine=self._machines[report.host],
            state=state,
            used_gpus=report.used_gpus,
            reason=""
            if state is NodeState.USABLE
            else f"YARN says {report.state.value}: {report.health or report.node_id}",
        )

    def _machine(self, report: NodeReport) -> Machine:
        known = self._overlay.get(report.host)
        if known is not None and known.gpus == report.gpus:
            return known
        if known is not None and self._told.get(report.host) != report.gpus:
            self._told[report.host] = report.gpus
            LOG.warning(
                "%s has %d GPUs in the cluster file and %d in YARN: the file's slots and device of it do not count",
                report.host,
                known.gpus,
                report.gpus,
            )
        return Machine(
            machine_id=report.host,
            rack_id=report.rack or "/default-rack",
            # What GPUs share a link no report tells: as far as we know, all of them.
            slots=(report.gpus,),
            device=self._device.name,
            cpus=max(1, report.vcores),
            memory_mb=report.memory_mb,
        )


def _runs(report: NodeReport) -> bool:
    return report.state in _STATES
