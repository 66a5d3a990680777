"""Machines that join, are lost, return, drain, or have GPUs in foreign use."""

import asyncio
from types import SimpleNamespace

from web_cases import RmCase

from rm_plugin.engines.inventory import FixedInventory, Inventory, Node, NodeState
from rm_plugin.service.nodes import NodeWatch, with_inventory
from themis.cluster import Cluster, GpuId, Machine
from themis.errors import UnreachableError


class Case(RmCase):
    """Two machines of two GPUs under a watch; an app that holds one of the first."""

    def __init__(self):
        super().__init__(((2,), (2,)))
        self.reasons = []
        self.manager.rounds = SimpleNamespace(
            rounds=0, trigger=self.reasons.append, lease_ends_moved=lambda: None, between_rounds=asyncio.Lock()
        )
        self.inventory = FixedInventory(self.arbiter.cluster)
        self.watch = NodeWatch(self.manager, self.inventory, poll_s=1.0, absent_s=30.0)
        entry = self.app("one")
        self.app_id = entry.app_id
        self.grant(**{entry.app_id.replace("-", "_"): {"m00": 1}})

    async def see(self, *more, **changes):
        """Apply an inventory with these changes of nodes, None for a node that it does not mention."""
        known = [
            Node(**{"machine": machine, **(changes.get(machine.machine_id) or {})})
            for machine in self.arbiter.cluster.machines
            if changes.get(machine.machine_id, {}) is not None
        ]
        self.inventory.nodes = (*known, *more)
        await self.watch.look()

    @property
    def held(self):
        return [str(lease.gpu) for lease in self.arbiter.table.of_app(self.app_id)]

    @property
    def free(self):
        return [str(gpu) for gpu in self.arbiter.table.free_gpus()]

    @property
    def kinds(self):
        return [event.kind for event in self.recorder.store.events()]


def run(scenario):
    asyncio.run(scenario(Case()))


def machine(name, gpus):
    return Machine(machine_id=name, rack_id="rack0", slots=(gpus,), device="v100")


LOST, DRAINING = {"state": NodeState.LOST}, {"state": NodeState.DRAINING}


def test_same_inventory_changes_nothing():
    async def scenario(case):
        before = case.arbiter.cluster
        await case.see()
        assert case.arbiter.cluster is before
        assert (case.reasons, case.held) == ([], ["m00/0"])

    run(scenario)


def test_lost_machine_ends_its_leases_and_returns_empty():
    async def scenario(case):
        await case.see(m00=LOST)
        assert (case.held, case.free) == ([], ["m01/0", "m01/1"])
        assert case.arbiter.gpus_available == 2
        await case.see(m00=LOST)
        assert case.kinds.count("machine_lost") == 1
        await case.see()
        assert case.free == ["m00/0", "m00/1", "m01/0", "m01/1"]
        assert case.kinds[-1] == "machine_back" and case.reasons[-1] == "gpus free"

    run(scenario)


def test_new_machine_joins():
    async def scenario(case):
        await case.see(Node(machine=machine("m09", 3)))
        assert case.arbiter.cluster.gpus == 7
        assert case.free[-3:] == ["m09/0", "m09/1", "m09/2"]
        assert (case.kinds[-1], case.reasons[-1]) == ("machine_joined", "gpus free")
        assert case.recorder.kept_cluster().gpus == 7

    run(scenario)


def test_unknown_lost_machine_does_not_join():
    async def scenario(case):
        await case.see(Node(machine=machine("m09", 3), state=NodeState.LOST))
        assert case.arbiter.cluster.gpus == 4

    run(scenario)


def test_machine_with_changed_gpus_is_drained_first():
    """Its tasks were started on its former GPUs."""

    async def scenario(case):
        changed = {"machine": machine("m00", 3)}
        await case.see(m00=changed)
        assert (case.held, case.free) == (["m00/0"], ["m01/0", "m01/1"])
        lease_ids = [lease.lease_id for lease in case.arbiter.table.of_app(case.app_id)]
        case.arbiter.release(lease_ids, now_s=case.clock.now_s(), reason="done")
        await case.see(m00=changed)
        assert case.free == ["m00/0", "m00/1", "m00/2", "m01/0", "m01/1"]
        case.arbiter.validate()


def test_machine_that_changed_rack_keeps_leases():
    async def scenario(case):
        moved = Machine(machine_id="m00", rack_id="rack9", slots=(2,), device="v100")
        await case.see(m00={"machine": moved})
        assert (case.held, case.free) == (["m00/0"], ["m00/1", "m01/0", "m01/1"])

    run(scenario)


def test_leases_on_draining_machine_continue_without_renewal():
    async def scenario(case):
        await case.see(m00=DRAINING)
        assert (case.held, case.free) == (["m00/0"], ["m01/0", "m01/1"])
        (lease,) = case.arbiter.table.of_app(case.app_id)
        snapshot, changes = case.arbiter.begin_round(lease.expires_at_s - 1.0)
        assert [change.kind.value for change in changes] == ["lease_expiring"]
        assert snapshot.free.by_machine() == {"m01": 2}
        assert snapshot.standing(case.app_id).renewable.gpus == 0
        await case.see()
        assert "m00/1" in case.free

    run(scenario)


def test_unmentioned_machine_is_closed_at_once_and_lost_later():
    """A restarted engine learns of its machines one by one."""

    async def scenario(case):
        await case.see()
        await case.see(m00=None)
        assert (case.held, case.free) == (["m00/0"], ["m01/0", "m01/1"])
        case.clock.advance_to(case.clock.now_s() + 29.0)
        await case.see(m00=None)
        assert case.held == ["m00/0"]
        case.clock.advance_to(case.clock.now_s() + 2.0)
        await case.see(m00=None)
        assert case.held == []

    run(scenario)


def test_gpus_in_foreign_use_are_closed_after_two_inventories():
    async def scenario(case):
        used = {"used_gpus": 1}
        await case.see(m00=used, m01=used)
        assert len(case.free) == 3
        await case.see(m00=used, m01=used)
        # Of m00 one is leased to an app of ours.
        assert case.free == ["m00/1", "m01/0"]
        await case.see(m00=used)
        assert case.free == ["m00/1", "m01/0", "m01/1"]
        assert case.reasons == ["gpus free"]

    run(scenario)


def test_lease_without_container_hides_no_gpu_in_foreign_use():
    """Another tenant has one GPU of m01. An app gets a lease there, whose container is still to come."""

    async def scenario(case):
        for _ in range(2):
            await case.see(m01={"used_gpus": 1})
        assert case.free == ["m00/1", "m01/0"]
        case.grant(**{case.app_id.replace("-", "_"): {"m01": 1}})
        await case.see(m01={"used_gpus": 1})
        assert case.free == ["m00/1"]
        settings = case.manager.settings
        case.clock.advance_to(case.clock.now_s() + settings.unfit_s + settings.yarn.pin_timeout_s - 1.0)
        await case.see(m01={"used_gpus": 1})
        assert case.free == ["m00/1"], "YARN may still start the container"
        case.clock.advance_to(case.clock.now_s() + 1.0)
        await case.see(m01={"used_gpus": 1})
        assert case.free == ["m00/1", "m01/1"], "by now the container must have come, and the other tenant has gone"

    run(scenario)


def test_gpu_that_a_tenant_gives_back_beside_a_lease_without_container_is_opened():
    async def scenario(case):
        for _ in range(2):
            await case.see(m01={"used_gpus": 1})
        case.grant(**{case.app_id.replace("-", "_"): {"m01": 1}})
        await case.see(m01={"used_gpus": 1})
        await case.see(m01={"used_gpus": 0})
        assert case.free == ["m00/1", "m01/1"]

    run(scenario)


def test_gpus_in_foreign_use_are_those_without_free_capacity():
    async def scenario(case):
        case.manager.live_cluster._unfit_until_s = {GpuId("m01", 0): case.clock.now_s() + 5.0}
        for _ in range(2):
            await case.see(m01={"used_gpus": 1})
        assert case.free == ["m00/1", "m01/1"]

    run(scenario)


def test_gpus_without_free_capacity_are_closed_for_a_while():
    async def scenario(case):
        case.manager.live_cluster._unfit_until_s = {GpuId("m01", 1): case.clock.now_s() + 5.0}
        await case.see()
        assert case.free == ["m00/1", "m01/0"]
        case.clock.advance_to(case.clock.now_s() + 6.0)
        await case.see()
        assert case.free == ["m00/1", "m01/0", "m01/1"]

    run(scenario)


def test_free_memory_that_is_known_of_one_machine_only_counts_there():
    async def scenario(case):
        await case.see(m00={"free_memory_mb": 0})
        assert case.free == ["m01/0", "m01/1"]

    run(scenario)


def test_silent_engine_changes_nothing():
    async def scenario(case):
        async def away():
            raise UnreachableError("YARN is unavailable")

        case.inventory.read = away
        await case.watch.look()
        assert case.held == ["m00/0"]

    run(scenario)


def test_absence_does_not_count_while_engine_is_unreachable():
    """For any length of time: an engine that returns learns of its machines one by one."""

    async def scenario(case):
        await case.see()
        case.clock.advance_to(case.clock.now_s() + 300.0)
        await case.see(m00=None)
        assert case.held == ["m00/0"]
        case.clock.advance_to(case.clock.now_s() + 20.0)
        await case.see()
        case.clock.advance_to(case.clock.now_s() + 20.0)
        await case.see(m00=None)
        assert case.held == ["m00/0"], "it was seen in between"

    run(scenario)


def test_known_machines_keep_order_and_new_ones_follow():
    cluster = Cluster(name="c", machines=(machine("b", 1), machine("a", 1)))
    nodes = tuple(Node(machine=machine(name, 1)) for name in ("d", "a", "c", "b"))
    found = with_inventory(cluster, Inventory(nodes=nodes, devices=()))
    assert [each.machine_id for each in found.machines] == ["b", "a", "c", "d"]
