"""Which containers are kept and taken over, and which must go first; engine and hosts are fakes."""

import asyncio

import pytest

from am.runtimes.port import NoRoomError, SeatRequest, TaskExit
from am.runtimes.remote import containers as module
from am.runtimes.remote.containers import Containers
from am.runtimes.remote.hosts import TaskHosts
from themis.cluster import GpuId


class FakeEngine:
    """Starts containers at once but on machines that are `full`; ends what is discarded unless its end is `slow`."""

    def __init__(self):
        self.full, self.slow, self.deaf, self.too_large = set(), set(), set(), set()
        self.asked, self.discarded, self.running = [], [], {}
        self.hosts = TaskHosts()

    async def acquire(self, wish):
        self.asked.append((wish.seat_id, tuple(map(str, wish.request.gpus)), wish.request.memory_mb))
        wish.on_step("ask")
        if wish.machine_id in self.too_large:
            raise ValueError("too large")
        while wish.machine_id in self.full:
            await asyncio.sleep(0.001)
            if "no" in self.full:
                raise NoRoomError("full", value=wish.machine_id)
        wish.on_step("grant")
        self.running[wish.seat_id] = asyncio.get_running_loop().create_future()
        self.answer(wish.seat_id)

    def answer(self, seat_id):
        """Its task host says that it is ready."""
        if seat_id not in self.deaf:
            state = self.hosts._hosts[seat_id]
            state.address, state.pid = f"{seat_id}:{state.task_run}", 1
            state.ready.set()

    async def gone(self, seat_id):
        return await asyncio.shield(self.running[seat_id])

    async def discard(self, seat_id):
        self.discarded.append(seat_id)
        if seat_id in self.running:
            if seat_id not in self.slow:
                self.end(seat_id)
            await asyncio.shield(self.running[seat_id])

    def end(self, seat_id, code=143):
        if not self.running[seat_id].done():
            self.running[seat_id].set_result(TaskExit(exit_code=code))

    async def close(self):
        for seat_id in self.running:
            self.end(seat_id)

    @property
    def alive(self):
        return {seat_id for seat_id, end in self.running.items() if not end.done()}


class World:
    """Containers of an app, on that engine."""

    def __init__(self):
        self.engine = FakeEngine()
        self.containers = Containers(
            self.engine, self.engine.hosts, address="127.0.0.1:1", prefix="s", environment={}
        )  # fmt: skip
        renew = self.engine.hosts.renew

        def renewed(seat_id):
            renew(seat_id)
            self.engine.answer(seat_id)

        self.engine.hosts.renew = renewed

    def prepare(self, wanted, granted=None):
        """Prepare containers for requests, whose GPUs are all granted unless others are named."""
        every = {gpu for request in wanted for gpu in request.gpus}
        return self.containers.prepare(wanted, every if granted is None else gpus(granted))

    async def reserve(self, *tasks, **request):
        return await self.containers.reserve(requests(*tasks, **request))

    def task_ends(self, *seats):
        """Their tasks end in good order."""
        for seat in seats:
            self.containers.free(self.containers.of(seat))

    async def idle(self, *tasks, **request):
        """Containers on which tasks have run."""
        seats = await self.reserve(*tasks, **request)
        self.task_ends(*seats)
        return seats


def gpus(text):
    return tuple(GpuId.parse(each) for each in text.split())


def requests(*tasks, job_id="j0", **request):
    return [
        SeatRequest(job_id=job_id, task_index=index, gpus=gpus(text), **request) for index, text in enumerate(tasks)
    ]


def run(scenario):
    async def whole():
        world = World()
        try:
            return await scenario(world)
        finally:
            await world.containers.close()
            assert world.engine.alive == set()

    return asyncio.run(asyncio.wait_for(whole(), 60))


def ids(seats):
    return [seat.seat_id for seat in seats]


async def soon(condition):
    async with asyncio.timeout(30.0):
        while not condition():
            await asyncio.sleep(0.001)


class TestTakingOver:
    def test_next_task_on_same_gpus_reuses_container(self):
        async def scenario(world):
            first = await world.idle("m0/0", "m0/1")
            again = await world.reserve("m0/0", "m0/1")
            assert ids(again) == ids(first) == ["s-1", "s-2"]
            assert [seat.reused for seat in first + again] == [False, False, True, True]
            assert [seat.address for seat in again] == ["s-1:2", "s-2:2"]
            assert list(again[0].seconds) == ["connect"]
            assert len(world.engine.asked) == 2

        run(scenario)

    def test_other_job_of_app_reuses_container(self):
        async def scenario(world):
            first = await world.idle("m0/0")
            assert ids(await world.reserve("m0/0", job_id="j1")) == ids(first)

        run(scenario)

    def test_missing_containers_are_requested(self):
        async def scenario(world):
            await world.idle("m0/0")
            seats = await world.reserve("m0/0", "m1/0")
            assert ids(seats) == ["s-1", "s-2"]
            assert list(seats[0].seconds) == ["ask", "grant", "start", "connect"]

        run(scenario)

    def test_busy_container_is_not_reused(self):
        async def scenario(world):
            await world.reserve("m0/0")
            assert ids(await world.reserve("m0/0")) == ["s-2"]

        run(scenario)

    @pytest.mark.parametrize(
        ("task", "request_"),
        [("m0/0 m0/1", {"memory_mb": 100}), ("m0/0", {"memory_mb": 200}), ("m0/0", {"memory_mb": 100, "vcores": 2})],
    )
    def test_idle_container_of_other_size_ends_before_request(self, task, request_):
        async def scenario(world):
            await world.idle("m0/0", "m0/2", memory_mb=100)
            world.engine.slow = {"s-1"}
            reserving = asyncio.ensure_future(world.reserve(task, **request_))
            await soon(lambda: world.engine.discarded)
            await asyncio.sleep(0.01)
            assert len(world.engine.asked) == 2 and not reserving.done()
            world.engine.end("s-1")
            assert ids(await reserving) == ["s-3"]
            # Other containers stay.
            assert world.engine.alive == {"s-2", "s-3"}

        run(scenario)

    def test_gone_container_is_not_reused(self):
        """Preempted, its host dead, or its node lost."""

        async def scenario(world):
            await world.idle("m0/0")
            world.engine.end("s-1", -102)
            await soon(lambda: not world.containers.occupied())
            seats = await world.reserve("m0/0")
            assert (ids(seats), seats[0].reused) == (["s-2"], False)

        run(scenario)

    def test_container_gone_during_reuse_is_replaced(self):
        async def scenario(world):
            await world.idle("m0/0")
            world.engine.deaf = {"s-1"}
            reserving = asyncio.ensure_future(world.reserve("m0/0"))
            await asyncio.sleep(0.01)
            world.engine.end("s-1")
            assert ids(await reserving) == ["s-2"]

        run(scenario)

    def test_container_with_silent_host_is_replaced(self, monkeypatch):
        monkeypatch.setattr(module, "TAKE_OVER_S", 0.01)

        async def scenario(world):
            await world.idle("m0/0")
            world.engine.deaf = {"s-1"}
            assert ids(await world.reserve("m0/0")) == ["s-2"]
            assert world.engine.discarded == ["s-1"]

        run(scenario)

    def test_gang_without_room_keeps_the_containers_that_came(self):
        """Also those of a preparation; another tenant would take their GPUs."""

        async def scenario(world):
            await world.idle("m0/0")
            world.engine.full = {"full", "more"}
            world.prepare(requests("full/0", "m1/0"))
            reserving = asyncio.ensure_future(world.reserve("m0/0", "full/0", "m1/0", "m2/0", "more/0"))
            await soon(lambda: len(world.engine.asked) == 5)
            world.engine.full.add("no")
            with pytest.raises(NoRoomError, match="full, more") as caught:
                await reserving
            assert caught.value.gpus == gpus("full/0 more/0")
            assert world.containers.occupied() == set(gpus("m0/0 m1/0 m2/0"))
            asked = len(world.engine.asked)
            assert ids(await world.reserve("m0/0", "m1/0", "m2/0")) == ["s-1", "s-3", "s-4"]
            assert len(world.engine.asked) == asked

        run(scenario)

    def test_gang_that_fails_otherwise_leaves_no_container(self):
        async def scenario(world):
            world.engine.too_large = {"m1"}
            with pytest.raises(ValueError, match="too large"):
                await world.reserve("m0/0", "m1/0")
            assert world.containers.occupied() == set()

        run(scenario)

    def test_containers_of_a_cancelled_reservation_are_kept_until_cleared(self):
        async def scenario(world):
            await world.idle("m0/0", "m1/0")
            world.engine.full = {"full"}
            reserving = asyncio.ensure_future(world.reserve("m0/0", "full/0"))
            await soon(lambda: len(world.engine.asked) == 3)
            reserving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reserving
            assert world.containers.occupied() == set(gpus("m0/0 full/0 m1/0"))
            await world.containers.clear(gpus("m0/0 full/0"))
            assert world.containers.occupied() == set(gpus("m1/0"))

        run(scenario)

    def test_container_gone_before_task_start_raises_no_room(self):
        async def scenario(world):
            (seat,) = await world.reserve("m0/0")
            world.engine.end("s-1")
            await soon(lambda: not world.containers.occupied())
            with pytest.raises(NoRoomError, match="ended before its task began"):
                world.containers.of(seat)

        run(scenario)


class TestPreparing:
    def test_prepared_container_is_reserved(self):
        async def scenario(world):
            world.prepare(requests("m0/0", "m0/1"))
            await soon(lambda: len(world.engine.alive) == 2)
            seats = await world.reserve("m0/0", "m0/1")
            assert ids(seats) == ["s-1", "s-2"]
            assert [seat.reused for seat in seats] == [False, False]
            assert seats[0].seconds["ask"] == seats[0].seconds["grant"] == 0.0

        run(scenario)

    def test_starting_container_can_be_reserved(self):
        async def scenario(world):
            world.engine.full = {"m0"}
            world.prepare(requests("m0/0"))
            await soon(lambda: world.engine.asked)
            reserving = asyncio.ensure_future(world.reserve("m0/0"))
            await asyncio.sleep(0.01)
            assert not reserving.done()
            world.engine.full = set()
            assert ids(await reserving) == ["s-1"]
            assert len(world.engine.asked) == 1

        run(scenario)

    def test_prepare_skips_occupied_gpus(self):
        async def scenario(world):
            await world.reserve("m0/0")
            await world.idle("m0/1")
            world.prepare(requests("m0/0", "m0/1", "m0/1 m0/2", "m0/3"))
            await soon(lambda: len(world.engine.asked) == 3)
            assert world.engine.asked[-1][1] == ("m0/3",)

        run(scenario)

    def test_preparation_says_when_it_is_ready(self):
        async def scenario(world):
            changes = []
            world.containers.watch(lambda: changes.append("ready"), lambda *_: changes.append("no room"))
            await world.reserve("m0/0")
            world.engine.full = {"m1"}
            # The task on m0/0 has to end first, for which nothing is prepared.
            growth = requests("m0/0 m0/1", "m1/0")
            assert not world.prepare(growth)
            world.engine.full = set()
            await soon(lambda: changes)
            assert changes == ["ready"]
            assert world.prepare(growth)
            assert len(world.engine.asked) == 2

        run(scenario)

    def test_nothing_is_ready_before_all_gpus_are_granted(self):
        async def scenario(world):
            await world.reserve("m0/0")
            growth = requests("m0/0", "m0/1", "m0/2")
            assert not world.prepare(growth, granted="m0/0 m0/1")
            await soon(lambda: len(world.engine.alive) == 2)
            assert not world.prepare(growth, granted="m0/0 m0/1")
            assert not world.prepare(growth, granted="m0/0 m0/1 m0/2")
            await soon(lambda: world.prepare(growth))
            assert len(world.engine.asked) == 3

        run(scenario)

    def test_task_on_gpus_of_a_running_one_waits_for_its_other_gpus(self):
        async def scenario(world):
            await world.reserve("m0/0")
            assert not world.prepare(requests("m0/0 m0/1"), granted="m0/0")
            assert world.prepare(requests("m0/0 m0/1"))

        run(scenario)

    def test_idle_container_of_another_size_makes_way(self):
        """A task of two GPUs needs one container for both. The job must not stop before that is there."""

        async def scenario(world):
            changes = []
            await world.reserve("m0/0 m0/1")
            (single,) = await world.idle("m0/2")
            world.engine.slow.add(single.seat_id)
            world.containers.watch(lambda: changes.append("change"), lambda *_: None)
            growth = requests("m0/0 m0/1", "m0/2 m0/3")
            assert not world.prepare(growth)
            await soon(lambda: world.engine.discarded == [single.seat_id])
            # It ends slowly: nothing is requested on its GPU, and nothing is ready.
            assert not world.prepare(growth)
            assert len(world.engine.asked) == 2
            world.engine.end(single.seat_id)
            await soon(lambda: changes)
            assert not world.prepare(growth)
            await soon(lambda: world.prepare(growth))
            assert world.engine.asked[-1][1] == ("m0/2", "m0/3")
            assert world.containers.occupied() == set(gpus("m0/0 m0/1 m0/2 m0/3"))

        run(scenario)

    def test_idle_container_stays_while_part_of_the_larger_one_is_not_granted(self):
        async def scenario(world):
            await world.idle("m0/2")
            assert not world.prepare(requests("m0/2 m0/3"), granted="m0/2")
            await asyncio.sleep(0.01)
            assert world.engine.discarded == []

        run(scenario)

    def test_failed_preparation_is_reported_once_its_container_is_gone(self):
        async def scenario(world):
            failed = []
            occupied = world.containers.occupied
            world.containers.watch(lambda: None, lambda *what: failed.append((what[0], str(what[1]), occupied())))
            world.engine.full = {"m0", "no"}
            assert not world.prepare(requests("m0/0 m0/1"))
            await soon(lambda: failed)
            assert failed == [(gpus("m0/0 m0/1"), "full: 'm0'", frozenset())]

        run(scenario)

    def test_preparation_that_was_cleared_is_not_reported(self):
        async def scenario(world):
            failed = []
            world.containers.watch(lambda: None, lambda *what: failed.append(what))
            world.engine.full = {"m0"}
            world.prepare(requests("m0/0"))
            await soon(lambda: world.engine.asked)
            await world.containers.clear(gpus("m0/0"))
            await asyncio.sleep(0.01)
            assert failed == []

        run(scenario)

    def test_failed_preparation_is_forgotten(self):
        async def scenario(world):
            world.engine.full = {"m0", "no"}
            world.prepare(requests("m0/0"))
            assert world.containers.occupied() == set(gpus("m0/0"))
            await soon(lambda: not world.containers.occupied())
            world.engine.full = set()
            assert ids(await world.reserve("m0/0")) == ["s-2"]

        run(scenario)

    def test_failed_preparation_fails_waiting_reservation(self):
        async def scenario(world):
            world.engine.full = {"m0"}
            world.prepare(requests("m0/0"))
            reserving = asyncio.ensure_future(world.reserve("m0/0"))
            await soon(lambda: world.engine.asked)
            world.engine.full.add("no")
            with pytest.raises(NoRoomError, match="full"):
                await reserving
            assert world.containers.occupied() == set()

        run(scenario)

    def test_clear_ends_prepared_containers(self):
        async def scenario(world):
            world.engine.full = {"m0"}
            world.prepare(requests("m0/0"))
            await soon(lambda: world.engine.asked)
            await world.containers.clear(gpus("m0/0"))
            assert world.containers.occupied() == set()

        run(scenario)


class TestClearing:
    def test_clear_waits_until_engine_reports_idle_containers_gone(self):
        async def scenario(world):
            await world.idle("m0/0", "m0/1")
            world.engine.slow = {"s-1"}
            clearing = asyncio.ensure_future(world.containers.clear(gpus("m0/0")))
            await soon(lambda: world.engine.discarded)
            await asyncio.sleep(0.01)
            assert not clearing.done()
            assert world.containers.occupied() == set(gpus("m0/0 m0/1"))
            world.engine.end("s-1")
            await clearing
            assert world.containers.occupied() == set(gpus("m0/1"))

        run(scenario)

    def test_clear_lets_busy_container_end_with_its_task(self):
        async def scenario(world):
            seats = await world.reserve("m0/0 m0/1")
            clearing = asyncio.ensure_future(world.containers.clear(gpus("m0/1")))
            await asyncio.sleep(0.01)
            assert world.engine.discarded == [] and not clearing.done()
            world.task_ends(*seats)
            await clearing
            assert world.containers.occupied() == set()

        run(scenario)

    def test_ending_container_is_not_reused(self):
        async def scenario(world):
            await world.idle("m0/0")
            world.engine.slow = {"s-1"}
            clearing = asyncio.ensure_future(world.containers.clear(gpus("m0/0")))
            reserving = asyncio.ensure_future(world.reserve("m0/0"))
            await asyncio.sleep(0.01)
            assert len(world.engine.asked) == 1
            world.engine.end("s-1")
            await clearing
            assert ids(await reserving) == ["s-2"]

        run(scenario)

    def test_clear_of_unoccupied_gpus_returns_at_once(self):
        run(lambda world: world.containers.clear(gpus("m0/0")))

    def test_failed_end_is_retried(self):
        async def scenario(world):
            await world.idle("m0/0")
            discard = world.engine.discard

            async def failing(seat_id):
                world.engine.discard = discard
                raise OSError("away")

            world.engine.discard = failing
            with pytest.raises(OSError, match="away"):
                await world.containers.clear(gpus("m0/0"))
            assert world.containers.occupied() == set(gpus("m0/0"))
            await world.containers.clear(gpus("m0/0"))
            assert world.containers.occupied() == set()

        run(scenario)


def test_close_ends_containers_in_every_state():
    async def scenario(world):
        await world.idle("m0/0")
        await world.reserve("m0/1")
        world.engine.full = {"m1"}
        world.prepare(requests("m1/0"))
        await soon(lambda: len(world.engine.asked) == 3)

    run(scenario)
