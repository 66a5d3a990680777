"""Leases are given back only when nothing of the app is left on their GPUs."""

import asyncio

from am.lease_return import LeaseReturn
from am.runtimes.port import NothingKept
from themis.cluster import GpuId

A, B, C = (GpuId("m0", index) for index in range(3))


class FakeKept:
    """Seats that end when the test ends them."""

    def __init__(self, *gpus):
        self.there = set(gpus)
        self.cleared = []
        self.fails = False
        self._changed = asyncio.Condition()

    def occupied(self):
        return frozenset(self.there)

    async def clear(self, gpus):
        self.cleared.append(frozenset(gpus))
        if self.fails:
            raise OSError("away")
        async with self._changed:
            await self._changed.wait_for(lambda: self.there.isdisjoint(gpus))

    async def gone(self, *gpus):
        self.there -= set(gpus)
        async with self._changed:
            self._changed.notify_all()


def run(scenario, *gpus):
    async def whole():
        kept, reported = FakeKept(*gpus), asyncio.Event()
        await scenario(kept, LeaseReturn(kept, reported.set), reported)

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_occupied_gpu_is_free_only_after_clearing():
    async def scenario(kept, returns, reported):
        assert returns.free([A, B]) == [B]
        assert returns.free([A]) == []
        await asyncio.sleep(0)
        assert kept.cleared == [{A}]
        await kept.gone(A)
        await reported.wait()
        assert returns.free([A]) == [A]

    run(scenario, A, C)


def test_stay_only_on_clears_all_other_gpus():
    async def scenario(kept, returns, reported):
        returns.stay_only_on({A})
        returns.stay_only_on({A})
        await asyncio.sleep(0)
        assert kept.cleared == [{B, C}]
        returns.stay_only_on({C})
        await asyncio.sleep(0)
        assert kept.cleared == [{B, C}, {A}]
        await kept.gone(A)
        await reported.wait()

    run(scenario, A, B, C)


def test_failed_clearing_frees_nothing_and_is_retried():
    async def scenario(kept, returns, reported):
        kept.fails = True
        assert returns.free([A]) == []
        await asyncio.sleep(0.01)
        assert not reported.is_set()
        kept.fails = False
        assert returns.free([A]) == []
        await kept.gone(A)
        await reported.wait()
        assert len(kept.cleared) == 2

    run(scenario, A)


def test_end_of_app_waits_for_all_gpus():
    async def scenario(kept, returns, reported):
        ending = asyncio.ensure_future(returns.all())
        await asyncio.sleep(0.01)
        await kept.gone(A)
        await asyncio.sleep(0.01)
        assert not ending.done()
        await kept.gone(B)
        await ending

    run(scenario, A, B)


def test_runtime_without_kept_seats_frees_at_once():
    async def scenario(*_):
        returns = LeaseReturn(NothingKept(), lambda: None)
        returns.stay_only_on(())
        assert returns.free([A, B]) == [A, B]
        await returns.all()

    run(scenario)
