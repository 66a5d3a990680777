"""YARN's nodes as machines: GPUs by `yarn.io/gpu`, racks by YARN's own mapping, use by the node's state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from rm_plugin.engines.inventory import Inventory, Node, NodeState
from themis.cluster import Cluster, DeviceType, Machine
from themis.errors import InputError
from themis.hadoop.values import NodeReport
from themis.hadoop.values import NodeState as YarnState
from themis.hadoop.yarn_client import YarnClient

LOG = logging.getLogger("themis.rm.yarn")

_STATES = {YarnState.RUNNING: NodeState.USABLE, YarnState.DECOMMISSIONING: NodeState.DRAINING}


class YarnInventory:
    """Reads node reports.

    Machine ids are host names. A pinned ask cannot distinguish two NodeManagers of one host, so the running one counts,
    or else the first.

    Args:
        client: The connected client.
        device: The device type of nodes without one in the overlay.
        overlay: Slots, racks and device types by host name, which node reports do not have.
    """

    def __init__(self, client: YarnClient, device: DeviceType, overlay: Cluster | None = None) -> None:
        self._client = client
        self._device = device
        self._overlay = {machine.machine_id: machine for machine in overlay.machines} if overlay else {}
        self._devices = {device.name: device, **(overlay.devices if overlay else {})}
        # The last known addresses. A node that YARN does not mention may still run.
        self._web: dict[str, str] = {}
        # The reported GPUs of machines that have another number in the overlay, for one warning each.
        self._warned: dict[str, int] = {}
        # The machines as they last ran. YARN reports ever smaller resources of a decommissioned node.
        self._machines: dict[str, Machine] = {}

    async def read(self) -> Inventory:
        """Return the nodes with GPUs, in any state.

        Omits nodes that YARN is just registering: their containers may still run, but no new ones can start. After a
        restart of YARN's ResourceManager, all nodes are in this state for a moment.
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
        """Return `host:port` of the web services of these machines' NodeManagers, without lost nodes."""
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
        if known is not None and self._warned.get(report.host) != report.gpus:
            self._warned[report.host] = report.gpus
            LOG.warning(
                "%s has %d GPUs in the cluster file and %d in YARN: the file's slots and device of it do not count",
                report.host,
                known.gpus,
                report.gpus,
            )
        return Machine(
            machine_id=report.host,
            rack_id=report.rack or "/default-rack",
            # Reports do not say which GPUs share a link, so assume all of them.
            slots=(report.gpus,),
            device=self._device.name,
            cpus=max(1, report.vcores),
            memory_mb=report.memory_mb,
        )


def _runs(report: NodeReport) -> bool:
    return report.state in _STATES


def refuse_cpu_nodes(overlay: Cluster | None) -> None:
    """Raise InputError for an overlay with CPU nodes: containers always ask YARN for GPUs."""
    cpu_types = [device.name for device in overlay.present_devices if not device.is_gpu] if overlay else []
    if cpu_types:
        remedy = "leave machines of this type out of the cluster file, or use the engine local or docker"
        raise InputError("the engine yarn does not support CPU nodes yet", value=cpu_types[0], remedy=remedy)
