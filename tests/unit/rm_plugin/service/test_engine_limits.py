"""GPUs that the engine's own limits keep from all apps: closed before they are leased, and shown."""

import asyncio
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from web_cases import RmCase

from rm_plugin.engines.inventory import Inventory, Node, NodeState
from rm_plugin.service.nodes import NodeWatch
from themis.apps import TaskResources
from themis.wire import themis_pb2 as pb


class Case(RmCase):
    """Machines of 4 and 2 GPUs; an app whose tasks need 1,000 MB per GPU, and which holds one GPU of the first."""

    def __init__(self):
        super().__init__(((4,), (2,)))
        self.manager.rounds = SimpleNamespace(
            trigger=lambda why: None,
            lease_ends_moved=lambda: None,
            between_rounds=asyncio.Lock(),
            explanation=lambda app_id: (),
        )
        self.use(engine="yarn")
        self.watch = NodeWatch(self.manager, self, poll_s=1.0)
        self.entry = self.running("one", unmet=3)
        self.entry.spec = replace(self.entry.spec, resources=TaskResources(memory_mb=1000))
        self.grant(app_0001={"m00": 1})
        self.found = Inventory(nodes=(), devices=())

    def use(self, **settings):
        self.manager.live_cluster._settings = self.manager.settings.model_copy(update=settings)

    async def read(self):
        return self.found

    async def see(self, *, max_gpus=None, **memory_mb):
        """Look at machines of which YARN reports this free memory, and a queue with this limit."""
        nodes = [
            Node(machine=each, free_memory_mb=memory_mb.get(each.machine_id), used_gpus=int(each.machine_id == "m00"))
            for each in self.arbiter.cluster.machines
        ]
        limit = "" if max_gpus is None else f"YARN's queue default may use {max_gpus} of 6 GPUs"
        self.found = Inventory(nodes=tuple(nodes), devices=(), max_gpus=max_gpus, limit=limit)
        await self.watch.look()

    @property
    def free(self):
        return [str(gpu) for gpu in self.arbiter.table.free_gpus()]

    @property
    def renewable(self):
        (lease,) = self.arbiter.table.of_app("app-0001")
        snapshot, _ = self.arbiter.begin_round(lease.expires_at_s)
        return snapshot.standing("app-0001").renewable.gpus


def run(scenario):
    asyncio.run(scenario(Case()))


@pytest.mark.parametrize(
    ("max_gpus", "free"),
    [(6, 5), (4, 3), (2, 1), (1, 0), (0, 0)],
)
def test_free_gpus_beyond_the_queue_are_closed(max_gpus, free):
    async def scenario(case):
        await case.see(max_gpus=max_gpus)
        assert len(case.free) == free
        await case.see()
        assert len(case.free) == 5

    run(scenario)


def test_free_gpus_that_stay_open_are_on_one_machine():
    async def scenario(case):
        await case.see(max_gpus=4)
        assert case.free == ["m00/1", "m00/2", "m00/3"]

    run(scenario)


def test_gpus_of_a_lost_machine_do_not_use_up_the_queue():
    async def scenario(case):
        m00, m01 = case.arbiter.cluster.machines
        nodes = (Node(machine=m00, state=NodeState.LOST, reason="decommissioned"), Node(machine=m01))
        case.found = Inventory(nodes=nodes, devices=(), max_gpus=2, limit="YARN's queue default may use 2 of 6 GPUs")
        for _ in range(2):
            await case.watch.look()
        assert case.arbiter.table.lost == {"m00"}
        assert case.free == ["m01/0", "m01/1"]

    run(scenario)


@pytest.mark.parametrize(("max_gpus", "renewable"), [(1, 1), (0, 0)])
def test_lease_beyond_the_queue_ends_without_renewal(max_gpus, renewable):
    async def scenario(case):
        await case.see(max_gpus=max_gpus)
        case.arbiter.set_silent("app-0001", False)
        assert case.renewable == renewable

    run(scenario)


def test_gpus_without_memory_for_a_task_are_closed():
    async def scenario(case):
        await case.see(m00=2500, m01=900)
        assert case.free == ["m00/1", "m00/2"]
        assert case.manager.live_cluster.limits == (
            "m00 has no memory for tasks on 1 of its GPUs",
            "m01 has no memory for tasks on 2 of its GPUs",
        )

    run(scenario)


def test_gpus_without_cores_for_a_task_are_closed():
    async def scenario(case):
        case.entry.spec = replace(case.entry.spec, resources=TaskResources(memory_mb=1000, vcores=2))
        free = {"m00": {"free_vcores": 5, "used_gpus": 1}, "m01": {"free_vcores": 1, "free_memory_mb": 1000}}
        nodes = [Node(machine=each, **free[each.machine_id]) for each in case.arbiter.cluster.machines]
        case.found = Inventory(nodes=tuple(nodes), devices=())
        await case.watch.look()
        assert case.free == ["m00/1", "m00/2"]
        assert case.manager.live_cluster.limits == (
            "m00 has no virtual cores for tasks on 1 of its GPUs",
            "m01 has no memory for tasks on 1 of its GPUs",
            "m01 has no virtual cores for tasks on 1 of its GPUs",
        )

    run(scenario)


def test_memory_of_a_container_that_is_still_to_come_is_not_free():
    async def scenario(case):
        case.entry.heartbeat.ClearField("jobs")
        nodes = [Node(machine=each, free_memory_mb=2500) for each in case.arbiter.cluster.machines]
        case.found = Inventory(nodes=tuple(nodes), devices=())
        await case.watch.look()
        assert case.free == ["m00/1", "m01/0", "m01/1"]

    run(scenario)


def test_limit_and_gpus_without_containers_are_shown():
    async def scenario(case):
        await case.see(max_gpus=3)
        limit = "YARN's queue default may use 3 of 6 GPUs"
        assert case.manager.waits_for(case.entry) == limit
        lease_ids = [lease.lease_id for lease in case.arbiter.table.of_app("app-0001")]
        release = pb.Release(lease_ids=lease_ids, reason="YARN granted no container within 20 s", no_room=True)
        await case.manager.changes.make(lambda change: case.manager.live_cluster.release(change, "app-0001", release))
        assert case.manager.waits_for(case.entry) == f"YARN granted no container within 20 s; {limit}"
        assert limit in case.manager.estimates.waiting(case.entry).reason
        case.clock.advance_to(case.clock.now_s() + case.manager.settings.unfit_s)
        assert case.manager.waits_for(case.entry) == limit
        case.entry.heartbeat.unmet_gpus = 0
        assert case.manager.waits_for(case.entry) == ""

    run(scenario)


def refused(case, headroom_gpus=None, reason="not granted"):
    """All leases of the app come back without containers."""
    lease_ids = [lease.lease_id for lease in case.arbiter.table.of_app("app-0001")]
    release = pb.Release(lease_ids=lease_ids, reason=reason, no_room=True, headroom_gpus=headroom_gpus)
    return case.manager.changes.make(lambda change: case.manager.live_cluster.release(change, "app-0001", release))


@pytest.mark.parametrize(("headroom", "closed", "grantable"), [(None, 1, None), (1, 1, None), (0, 0, 0)])
def test_machines_are_closed_unless_the_headroom_explains_the_refusal(headroom, closed, grantable):
    async def scenario(case):
        assert len(case.arbiter.table.of_app("app-0001")) == 1
        await refused(case, headroom)
        assert len(case.manager.live_cluster.unfit_gpus(case.clock.now_s())) == closed
        assert case.entry.grant_limit.at(case.clock.now_s()) == grantable

    run(scenario)


@pytest.mark.parametrize(("headroom", "closed"), [(1, 0), (2, 2)])
def test_headroom_for_a_part_of_what_was_asked_explains_the_refusal(headroom, closed):
    async def scenario(case):
        case.grant(app_0001={"m01": 1})
        await refused(case, headroom)
        assert len(case.manager.live_cluster.unfit_gpus(case.clock.now_s())) == closed

    run(scenario)


def test_heartbeat_with_headroom_ends_the_limit_and_asks_for_a_round():
    async def scenario(case):
        await refused(case, 0)
        reasons = []
        case.manager.rounds.trigger = reasons.append
        case.entry.heartbeat.ClearField("jobs")
        case.entry.heartbeat.headroom_gpus = 0
        case.manager.live_cluster.note_grants(case.entry)
        assert (case.entry.grant_limit.gpus, reasons) == (0, [])
        case.entry.heartbeat.headroom_gpus = 1
        case.manager.live_cluster.note_grants(case.entry)
        assert (case.entry.grant_limit.gpus, reasons) == (None, ["demand"])

    run(scenario)


def test_round_follows_the_end_of_the_pause():
    async def scenario(case):
        case.use(engine="yarn", unfit_s=0.05)
        reasons = asyncio.Queue()
        case.manager.rounds.trigger = reasons.put_nowait
        await refused(case, 0)
        assert await reasons.get() == "gpus free"
        async with asyncio.timeout(60):
            assert await reasons.get() == "demand"

    run(scenario)
