"""Follow the engine's machines: they join, are lost, return, drain, or have GPUs that other tenants use."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable

from rm_plugin.engines.inventory import Inventory, Node, NodeInventory, NodeState
from rm_plugin.service.manager import ResourceManager
from themis.cluster import Cluster, GpuId
from themis.errors import ThemisError
from themis.values import Value

LOG = logging.getLogger("themis.rm.nodes")

ABSENT_S = 60.0
"""Seconds without mention by the engine after which a machine counts as lost."""
ANSWER_S = 5.0
"""Seconds without an answer after which the engine counts as away."""


class NodeWatch:
    """Reads the inventory every `poll_s` seconds and applies it to the arbiter's cluster.

    A lost machine stays in the cluster, as it may come back. A machine that the inventory no longer mentions counts as
    lost only after `absent_s` seconds: an engine that restarted learns of its machines one by one.
    """

    def __init__(
        self, manager: ResourceManager, inventory: NodeInventory, poll_s: float, absent_s: float = ABSENT_S
    ) -> None:
        self._manager = manager
        self._inventory = inventory
        self._poll_s = poll_s
        self._absent_s = absent_s
        # Counted from the first inventory that lacks the machine; no inventory, no absence.
        self._absent_since_s: dict[str, float] = {}
        self._away = False
        self._uses: dict[str, _Use] = {}
        self._one_look = asyncio.Lock()

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            await asyncio.sleep(self._poll_s)
            try:
                await self.look()
            except Exception:
                # A defect in one look must not leave the machines unwatched for good.
                LOG.exception("the machines could not be checked")

    async def look(self) -> None:
        """Read the inventory once and apply it. If the engine does not answer, nothing changes.

        While the engine is unavailable no container can start or be reported as ended. Also while it does not mention a
        machine that may still run: after its own restart it learns of its machines one by one. So deadlines of apps
        stand still (`AppMasters.engine_is_away`).
        """
        async with self._one_look:
            await self._look()

    async def _look(self) -> None:
        late = asyncio.get_running_loop().call_later(ANSWER_S, self._is_away, "no answer")
        try:
            inventory = await self._inventory.read()
        except ThemisError as error:
            self._is_away(error)
            return
        finally:
            late.cancel()
        await self.apply(inventory)
        if self._away:
            LOG.info("the engine answers again")
        self._away = False
        lost = self._manager.arbiter.table.lost
        self._manager.app_masters.watch.engine_is_away(bool(self._absent_since_s.keys() - lost))

    def _is_away(self, why: object) -> None:
        if not self._away:
            LOG.warning("the engine does not report its machines: %s", why)
        self._away = True
        self._manager.app_masters.watch.engine_is_away(True)

    async def apply(self, inventory: Inventory) -> None:
        """Apply an inventory to the arbiter's cluster."""
        manager = self._manager
        nodes = {node.machine.machine_id: node for node in inventory.nodes}
        await self._lose_those_gone(nodes)
        self._count_foreign(nodes)
        holding = {gpu.machine_id for gpu in manager.arbiter.table.live}
        cluster = with_inventory(manager.arbiter.cluster, inventory, holding)
        usable = [node.machine.machine_id for node in nodes.values() if node.state is not NodeState.LOST]
        back = sorted(manager.arbiter.table.lost & set(usable))
        closed = self._closed(inventory, cluster)
        if cluster == manager.arbiter.cluster and not back and closed == manager.arbiter.table.closed:
            return
        async with manager.rounds.between_rounds:
            if cluster != manager.arbiter.cluster:
                known = {machine.machine_id for machine in manager.arbiter.cluster.machines}
                joined = [machine.machine_id for machine in cluster.machines if machine.machine_id not in known]
                await manager.live_cluster.refit(cluster, joined)
            await manager.live_cluster.machines_back(back)
            manager.live_cluster.close_gpus(self._closed(inventory, manager.arbiter.cluster))

    async def _lose_those_gone(self, nodes: dict[str, Node]) -> None:
        """End the leases of lost machines at once, even within a round; the round then grants nothing there."""
        arbiter, now_s = self._manager.arbiter, self._manager.clock.now_s()
        missing = [each.machine_id for each in arbiter.cluster.machines if each.machine_id not in nodes]
        self._absent_since_s = {name: self._absent_since_s.get(name, now_s) for name in missing}
        for machine in arbiter.cluster.machines:
            node = nodes.get(machine.machine_id)
            if node is None:
                gone = now_s - self._absent_since_s[machine.machine_id] > self._absent_s
            else:
                gone = node.state is NodeState.LOST
            if gone and machine.machine_id not in arbiter.table.lost:
                reason = (node.reason if node else "") or "the machine is lost"
                await self._manager.live_cluster.machine_lost(machine.machine_id, reason)

    def _closed(self, inventory: Inventory, cluster: Cluster) -> frozenset[GpuId]:
        """Return the GPUs to close, and note the limits that close some."""
        now_s = self._manager.clock.now_s()
        nodes = {node.machine.machine_id: node for node in inventory.nodes}
        counts = any(node.free_memory_mb is not None or node.free_vcores is not None for node in inventory.nodes)
        memory_mb, vcores = self._least_needs() if counts else (0.0, 0.0)
        limits = []
        live_cluster = self._manager.live_cluster
        unfit = set(live_cluster.unfit_gpus(now_s))
        closed: set[GpuId] = set()
        for machine in cluster.machines:
            gpus = cluster.gpus_of(machine.machine_id)
            is_drained = machine.machine_id in live_cluster.drained
            node = nodes.get(machine.machine_id)
            closed.update(gpus if is_drained else self._closed_on(node, gpus, unfit))
            if node is None:
                continue
            for what, free, need in (
                ("memory", node.free_memory_mb, memory_mb),
                ("virtual cores", node.free_vcores, vcores),
            ):
                if full := self._too_many(node, gpus, closed, free, need):
                    closed |= full
                    limits.append(f"{machine.machine_id} has no {what} for tasks on {len(full)} of its GPUs")
        if inventory.max_gpus is not None:
            closed |= self._beyond(inventory.max_gpus, cluster, closed)
            limits.append(inventory.limit)
        live_cluster.limits = tuple(limits)
        return frozenset(closed)

    def _least_needs(self) -> tuple[float, float]:
        """Return the smallest memory in MB and virtual cores per GPU of any active app's tasks. 0 without apps."""
        default_mb = self._manager.settings.yarn.task_memory_mb
        needs = [
            (entry.spec.resources, job.shape.gpus_per_task)
            for entry in self._manager.entries.active()
            for job in entry.spec.jobs
        ]
        return (
            min(((resources.memory_mb or default_mb) / gpus for resources, gpus in needs), default=0.0),
            min((resources.vcores / gpus for resources, gpus in needs), default=0.0),
        )

    def _too_many(
        self, node: Node, gpus: tuple[GpuId, ...], closed: set[GpuId], free: int | None, need: float
    ) -> set[GpuId]:
        """Return free GPUs of a machine beyond those whose tasks it has `free` units of a resource for, `need` each."""
        if free is None or need <= 0.0:
            return set()
        live = self._manager.arbiter.table.live
        leased = sum(gpu in live for gpu in gpus)
        # Containers on these leases are still to come.
        to_come = max(0, leased - max(0, node.used_gpus - self._foreign_on(node)))
        fit = max(0, int(free / need) - to_come)
        return set([gpu for gpu in gpus if gpu not in live and gpu not in closed][fit:])

    def _beyond(self, max_gpus: int, cluster: Cluster, closed: set[GpuId]) -> set[GpuId]:
        """Return the GPUs to close so that at most `max_gpus` are leased: free ones, then leased ones.

        Keeps free GPUs of the machines that have most of them, where gangs fit best. GPUs of lost machines do not
        count: else those of the other machines would be closed in their place.
        """
        live, lost = self._manager.arbiter.table.live, self._manager.arbiter.table.lost
        free_by_machine: list[list[GpuId]] = []
        leased: list[GpuId] = []
        for machine in cluster.machines:
            if not cluster.devices[machine.device].is_gpu or machine.machine_id in lost:
                continue
            gpus = cluster.gpus_of(machine.machine_id)
            leased += [gpu for gpu in gpus if gpu in live]
            free_by_machine.append([gpu for gpu in gpus if gpu not in live and gpu not in closed])
        free = [gpu for gpus in sorted(free_by_machine, key=len, reverse=True) for gpu in gpus]
        room = max_gpus - len(leased)
        return {*free[max(0, room) :], *leased[len(leased) + min(0, room) :]}

    def _count_foreign(self, nodes: dict[str, Node]) -> None:
        live = Counter(gpu.machine_id for gpu in self._manager.arbiter.table.live)
        now_s, settings = self._manager.clock.now_s(), self._manager.settings
        keep_s = settings.unfit_s + settings.yarn.pin_timeout_s
        self._uses = {
            name: self._uses.get(name, _Use()).next(node.used_gpus, live[name], now_s, keep_s)
            for name, node in nodes.items()
        }

    def _foreign_on(self, node: Node) -> int:
        return self._uses[node.machine.machine_id].foreign

    def _closed_on(self, node: Node | None, gpus: tuple[GpuId, ...], unfit: set[GpuId]) -> Iterable[GpuId]:
        """Return a machine's GPUs to close: all if it is not mentioned or drains, else foreign and unfit ones."""
        if node is None or node.state is NodeState.DRAINING or node.machine.gpus != len(gpus):
            return gpus
        live = self._manager.arbiter.table.live
        # The engine does not say which GPUs the other tenants use. Take unfit ones, as these are closed anyway, then
        # the last ones, so that the set changes little.
        free = sorted([gpu for gpu in gpus if gpu not in live], key=lambda gpu: (gpu in unfit, gpu))
        foreign = free[max(0, len(free) - self._foreign_on(node)) :]
        return {*foreign, *(unfit & set(gpus))}


class _Use(Value, frozen=True, kw_only=True):
    """The GPUs of a machine that other tenants use, estimated from its GPUs in use and its leases.

    GPUs in use beyond the leases are foreign. This counts too few while leases wait for their containers. Example: of
    four GPUs, another tenant uses two, and an app runs on one. Three are in use, so two are foreign. Now a second app
    gets the free GPU, and its container has not started yet. Three are in use and two leased, but still two are
    foreign. So a count stays for longer than any lease waits, less the GPUs that have come out of use since.

    Attributes:
        used: GPUs in use, by any program.
        beyond: GPUs in use beyond the leases.
        foreign: The estimate. It rises only to what two looks in a row show, because a GPU that was just given back
            stays in use briefly.
        until_s: Time at which an estimate above `beyond` ends.
    """

    used: int = 0
    beyond: int = 0
    foreign: int = 0
    until_s: float = -math.inf

    def next(self, used: int, leased: int, now_s: float, keep_s: float) -> _Use:
        """The use at the next look. An estimate above `beyond` stays for at most `keep_s` seconds."""
        beyond = max(0, used - leased)
        seen = min(beyond, self.beyond)
        kept = self.foreign - max(0, self.used - used) if now_s < self.until_s else 0
        until_s = now_s + keep_s if seen >= kept else self.until_s
        return _Use(used=used, beyond=beyond, foreign=max(seen, kept), until_s=until_s)


def with_inventory(cluster: Cluster, inventory: Inventory, holding: Collection[str] = ()) -> Cluster:
    """Return the cluster with the inventory's machines: known ones updated, in their order, then new ones.

    A machine with leases (`holding`) is not updated: its tasks were started on the GPUs that it had then.
    """
    now = {node.machine.machine_id: node.machine for node in inventory.nodes if node.state is not NodeState.LOST}
    known = tuple(
        machine if machine.machine_id in holding else now.get(machine.machine_id, machine)
        for machine in cluster.machines
    )
    ids = {machine.machine_id for machine in known}
    joined = tuple(now[machine_id] for machine_id in sorted(now) if machine_id not in ids)
    if (machines := known + joined) == cluster.machines:
        return cluster
    devices = {**cluster.devices, **{device.name: device for device in inventory.devices}}
    return Cluster(name=cluster.name, machines=machines, devices=devices)
