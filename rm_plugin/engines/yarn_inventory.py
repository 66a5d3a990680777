"""YARN's nodes as machines: devices by `yarn.io/gpu` and node attributes, racks by YARN's mapping, use by state."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection

from msgspec.structs import replace

from rm_plugin.engines.inventory import Inventory, Node, NodeState
from rm_plugin.engines.yarn_devices import NodeDevices
from themis.cluster import Cluster, DeviceType, Machine
from themis.errors import InputError
from themis.hadoop.values import NodeReport, QueueReport
from themis.hadoop.values import NodeState as YarnState
from themis.hadoop.yarn_client import YarnClient
from themis.threads import Threads

LOG = logging.getLogger("themis.rm.yarn")

QUEUES_EVERY_S = 5.0
"""Seconds between two reads of the queues, whose limits change rarely."""

_STATES = {YarnState.RUNNING: NodeState.USABLE, YarnState.DECOMMISSIONING: NodeState.DRAINING}


class YarnInventory:
    """Reads node reports.

    Machine ids are host names. A pinned ask cannot distinguish two NodeManagers of one host, so the running one counts,
    or else the first. A CPU node is one device: the node without `kept_vcores` cores.

    Args:
        client: The connected client.
        devices: Finds the device types of nodes.
        overlay: Slots, racks and device types by host name, which node reports do not have.
        kept_vcores: Cores of each CPU node that are left to app masters and other programs.
        node_label: The node label of the nodes to use. Empty for nodes without one.
        queues: Returns the YARN queues of the apps, by name.
    """

    def __init__(
        self,
        client: YarnClient,
        devices: NodeDevices,
        overlay: Cluster | None = None,
        *,
        kept_vcores: int = 0,
        node_label: str = "",
        queues: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._client = client
        # Apart from the submissions: that these wait for YARN must not hide that YARN is away.
        self._threads = Threads("yarn-nodes", 1)
        self._queues = queues
        self._label = node_label
        self._queue_reports: tuple[QueueReport, ...] = ()
        self._queues_read_s = -math.inf
        self._devices = devices
        self._overlay = {machine.machine_id: machine for machine in overlay.machines} if overlay else {}
        self._kept_vcores = kept_vcores
        # The last known addresses. A node that YARN does not mention may still run.
        self._web: dict[str, str] = {}
        # The newest warning about each machine, so that each appears once.
        self._warned: dict[str, str] = {}
        # The machines as they last ran. YARN reports ever smaller resources of a decommissioned node.
        self._machines: dict[str, Machine] = {}
        # Nodes that run, but whose devices are unknown now, with the reason.
        self._unclear: dict[str, str] = {}

    async def read(self) -> Inventory:
        """Return the nodes with devices, in any state.

        Omits nodes that YARN is just registering: their containers may still run, but no new ones can start. After a
        restart of YARN's ResourceManager, all nodes are in this state for a moment. Omits nodes whose device type was
        never clear, and logs why. A node whose type became unclear drains: its leases end and are not renewed.
        """
        every = await self._threads.run(self._client.nodes, tuple(YarnState))
        reports = [report for report in every if report.state is not YarnState.NEW]
        for report in sorted(reports, key=_runs):
            if _runs(report):
                self._web[report.host] = report.http_address
            else:
                self._web.pop(report.host, None)
        nodes = self._nodes(reports)
        max_gpus, limit = await self._limit(sum(node.machine.gpus for node in nodes if self._has_gpus(node.machine)))
        return Inventory(nodes=nodes, devices=tuple(self._devices.types.values()), max_gpus=max_gpus, limit=limit)

    async def _limit(self, gpus: int) -> tuple[int | None, str]:
        """Return how many of the GPUs the apps' queues may use together, and why. None if they may use all."""
        names = sorted(set(self._queues()))
        if not names:
            return None, ""
        if time.monotonic() - self._queues_read_s > QUEUES_EVERY_S:
            self._queue_reports = await self._threads.run(self._client.queues, self._label)
            self._queues_read_s = time.monotonic()
        limits = [report.max_gpus for report in self._queue_reports if any(map(report.is_called, names))]
        known = [limit for limit in limits if limit is not None]
        if len(known) < len(names) or sum(known) >= gpus:
            return None, ""
        queue = "queue" if len(names) == 1 else "queues"
        shown = ", ".join(name.removeprefix("root.") for name in names)
        return sum(known), f"YARN's {queue} {shown} may use {sum(known)} of {gpus} GPUs"

    def close(self) -> None:
        """End the threads that call YARN, once their calls have returned."""
        self._threads.close()

    def web_addresses(self, machine_ids: Collection[str]) -> tuple[str, ...]:
        """Return `host:port` of the web services of these machines' NodeManagers, without lost nodes."""
        return tuple(self._web[machine_id] for machine_id in sorted(machine_ids) if self._web.get(machine_id))

    def _nodes(self, reports: Collection[NodeReport]) -> tuple[Node, ...]:
        by_host: dict[str, NodeReport] = {}
        for report in sorted(reports, key=lambda report: (_runs(report), report.node_id)):
            by_host[report.host] = report
        for host, report in by_host.items():
            if self._is_labelled_otherwise(report):
                continue
            if report.state is YarnState.RUNNING or host not in self._machines:
                self._note(report)
        return tuple(self._node(report) for host, report in sorted(by_host.items()) if host in self._machines)

    def _node(self, report: NodeReport) -> Node:
        state = _STATES.get(report.state, NodeState.LOST)
        reason = f"YARN says {report.state.value}: {report.health or report.node_id}"
        if state is NodeState.USABLE:
            reason = self._unclear.get(report.host, "")
            if self._is_labelled_otherwise(report):
                reason = f"YARN has it under the node label {', '.join(sorted(report.labels)) or 'none'}"
            state = NodeState.DRAINING if reason else state
        machine = self._machines[report.host]
        used = report.used_gpus if self._has_gpus(machine) else _used_as_cpu_node(report, machine)
        return Node(
            machine=machine,
            state=state,
            used_gpus=used,
            free_memory_mb=max(0, report.memory_mb - report.used_memory_mb),
            free_vcores=max(0, report.vcores - report.used_vcores),
            reason=reason,
        )

    def _is_labelled_otherwise(self, report: NodeReport) -> bool:
        """Whether a node has another label than ours, so that our containers cannot run there. Such a node drains."""
        # YARN reports no labels of nodes that do not run.
        return _runs(report) and report.labels != ({self._label} if self._label else frozenset())

    def _has_gpus(self, machine: Machine) -> bool:
        return self._devices.types[machine.device].is_gpu

    def _note(self, report: NodeReport) -> None:
        """Remember the machine of a node. If its device type is unclear, keep the former machine, if any."""
        self._unclear.pop(report.host, None)
        listed = self._overlay.get(report.host)
        try:
            device = self._devices.of(report, listed)
        except InputError as error:
            if report.state is YarnState.RUNNING:
                self._unclear[report.host] = str(error)
                self._warn(report.host, f"{error}; its devices are not used")
            return
        if device is None:
            self._machines.pop(report.host, None)
        else:
            self._machines[report.host] = self._machine(report, device, listed)

    def _machine(self, report: NodeReport, device: DeviceType, listed: Machine | None) -> Machine:
        devices = report.gpus if device.is_gpu else 1
        if listed is not None and (listed.gpus, listed.device) == (devices, device.name):
            return listed if device.is_gpu else replace(listed, cpus=self._cores_of(report, listed))
        if listed is not None:
            self._warn(
                report.host,
                f"{report.host} has {listed.gpus} devices of type {listed.device} in the cluster file and {devices} of "
                f"type {device.name} in YARN: the file's entry for it does not count",
            )
        cpus = report.vcores if device.is_gpu else self._cores_of(report)
        return Machine(
            machine_id=report.host,
            rack_id=report.rack or "/default-rack",
            # Reports do not say which GPUs share a link, so assume all of them.
            slots=(devices,),
            device=device.name,
            cpus=max(1, cpus),
            memory_mb=report.memory_mb,
        )

    def _cores_of(self, report: NodeReport, listed: Machine | None = None) -> int:
        """The cores of a CPU node: those that YARN has without `kept_vcores`, or fewer if the cluster file says so.

        A cluster file that says nothing of cores gives each machine one, so one core there counts as not stated.
        """
        cores = max(1, report.vcores - self._kept_vcores)
        if listed is None or listed.cpus in (1, cores):
            return cores
        self._warn(
            report.host,
            f"{report.host} has {listed.cpus} cores in the cluster file, and YARN has {report.vcores}, of which "
            f"{self._kept_vcores} are kept: {min(listed.cpus, cores)} count",
        )
        return min(listed.cpus, cores)

    def _warn(self, host: str, warning: str) -> None:
        if self._warned.get(host) != warning:
            self._warned[host] = warning
            LOG.warning("%s", warning)


def _used_as_cpu_node(report: NodeReport, machine: Machine) -> int:
    """1 if the node has fewer free cores than a task would ask for: a task of ours or another program has them."""
    return int(report.used_vcores + machine.cpus > report.vcores)


def _runs(report: NodeReport) -> bool:
    return report.state in _STATES
