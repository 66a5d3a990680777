"""An app that takes GPUs and gives them back at once, for ever: how much other apps lose by it."""

from __future__ import annotations

import asyncio

import pytest
from liar import MemoryEngine, Stage, spec_of, stage
from msgspec.structs import replace

from themis.wire import themis_pb2 as pb

LEASES = {"duration_s": 20, "checkpoint_lead_s": 0.1, "grace_s": 0.5}


class Refuser:
    """Gives back every lease of some app masters as soon as it comes."""

    def __init__(self, masters, **words):
        self.masters, self.words, self.refusals = list(masters), words, 0

    async def run(self):
        while True:
            for master in self.masters:
                if master.leases:
                    leases, master.leases = list(master.leases), {}
                    master.send(release=pb.Release(lease_ids=leases, reason="not wanted", **self.words))
                    self.refusals += 1
            await asyncio.sleep(0.002)


def play(tmp_path, scenario, **changes):
    async def whole():
        async with stage(tmp_path, **{"coalesce_s": 0.1, "lease": LEASES, **changes}) as on:
            await scenario(on)

    asyncio.run(asyncio.wait_for(whole(), 120))


def spec_of_bob(name):
    return replace(spec_of(name, jobs=8, work_gpu_s=10.0), user="bob")


@pytest.mark.parametrize("policy", ["srtf", "fair_finish", "worst_rho_first"])
def test_user_whose_apps_give_gpus_back_at_once_does_not_keep_them_from_another(tmp_path, policy):
    async def scenario(on: Stage):
        # Both are shorter than the other app, and would come first in each round.
        liars = [await on.started(spec_of_bob(f"liar-{place}")) for place in range(2)]
        refuser = Refuser(liars)
        refusing = asyncio.ensure_future(refuser.run())
        await on.until(lambda: refuser.refusals > 0, 60)
        other = await on.started(spec_of("other", jobs=8, work_gpu_s=1000.0))
        await on.until(lambda: other.gpus == 8, 60)
        assert refuser.refusals <= 6
        refusing.cancel()

    play(tmp_path, scenario, policy=policy)


def test_user_who_gave_too_much_back_gets_gpus_again_later(tmp_path):
    async def scenario(on: Stage):
        liar = await on.started(spec_of_bob("liar"))
        refusing = asyncio.ensure_future(Refuser([liar]).run())
        other, manager = await on.started(spec_of("other")), on.manager
        await on.until(lambda: "came back unused" in manager.waits_for(manager.entries.get(liar.app_id)), 60)
        assert "unused" not in manager.waits_for(manager.entries.get(other.app_id))
        refusing.cancel()
        await manager.kill(other.app_id, "test", by="root")
        await on.until(lambda: liar.gpus == 8, 60)

    play(tmp_path, scenario, policy="srtf", lease={**LEASES, "duration_s": 3})


def test_gpus_that_were_held_for_a_while_do_not_count_as_unused(tmp_path):
    async def scenario(on: Stage):
        honest = await on.started(spec_of("honest", jobs=8))
        for _ in range(4):
            await on.until(lambda: honest.gpus == 8, 60)
            await asyncio.sleep(0.15)
            leases, honest.leases = list(honest.leases), {}
            honest.send(release=pb.Release(lease_ids=leases, reason="done"))
            await asyncio.sleep(0.05)
        assert not on.manager.live_cluster.unused_reason(on.manager.entries.get(honest.app_id))

    # A tenth of a lease is 0.1 s.
    play(tmp_path, scenario, policy="srtf", lease={**LEASES, "duration_s": 1})


def test_new_apps_of_a_user_have_no_new_budget_to_close_machines(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(MemoryEngine, "poll_s", 0.05)

    async def scenario(on: Stage):
        closed = on.manager.live_cluster.unfit_gpus
        for place in range(3):
            liar = await on.started(spec_of_bob(f"liar-{place}"))
            refusing = asyncio.ensure_future(Refuser([liar], no_room=True).run())
            await on.until(lambda: closed(on.manager.clock.now_s()) or "says too often" in caplog.text, 60)
            refusing.cancel()
            await on.manager.kill(liar.app_id, "test", by="root")
            await on.until(lambda: not closed(on.manager.clock.now_s()), 60)
        # Each closes all that it gets; the second finds the budget spent.
        assert "says too often that the engine has no room: 8 GPUs stay open" in caplog.text

    play(tmp_path, scenario, policy="srtf", engine="docker", unfit_s=0.2)
