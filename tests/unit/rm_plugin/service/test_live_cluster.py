"""Changes of leases and machines outside rounds: stored, sent to the affected apps, and triggering rounds."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from web_cases import RmCase

from rm_plugin.service.live_cluster import DRAINED, UNUSED_EVERY_S
from rm_plugin.service.session import Session
from themis.cluster import GpuId
from themis.errors import UnknownNameError
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb


class Case(RmCase):
    """Two machines of two GPUs; two apps with sessions hold one GPU each of the first."""

    def __init__(self):
        super().__init__(((2,), (2,)))
        self.reasons = []
        self.manager.rounds = SimpleNamespace(trigger=self.reasons.append, lease_ends_moved=lambda: None)
        self.live_cluster = self.manager.live_cluster
        self.one, self.two = (self.with_session(name) for name in ("one", "two"))
        self.grant(**{entry.app_id.replace("-", "_"): {"m00": 1} for entry in (self.one, self.two)})

    def with_session(self, name):
        entry = self.app(name)
        for state in (AppState.ACCEPTED, AppState.RUNNING):
            entry.turn(state)
        entry.session = Session(entry.app_id, 1)
        return entry

    def lease(self, entry):
        (lease,) = self.arbiter.table.of_app(entry.app_id)
        return lease

    async def reported(self, entry):
        """Return the messages sent to an app."""
        entry.session.close()
        return [message async for message in entry.session.outgoing()]

    @property
    def kinds(self):
        return [event.kind for event in self.recorder.events(0, "", 100)]


def run(scenario):
    async def whole():
        await scenario(Case())

    asyncio.run(whole())


def test_pause_after_unused_gpus_lasts_a_minute_at_most():
    async def scenario(case):
        leases, clock = case.manager.settings.lease, case.clock
        assert leases.duration_s > UNUSED_EVERY_S
        for _ in range(20):
            case.live_cluster._note_unused(case.one, case.arbiter.cluster.gpus)
        assert case.live_cluster.grantable_gpus(case.one) == 1
        assert case.live_cluster.unused_reason(case.one).endswith("came back unused: no more for 60 s")
        clock.advance_to(clock.now_s() + UNUSED_EVERY_S)
        assert case.live_cluster.grantable_gpus(case.one) is None

    run(scenario)


def test_release_is_stored_sent_to_its_app_and_triggers_round():
    async def scenario(case):
        lease = case.lease(case.one)
        await case.made(
            case.live_cluster.release, case.one.app_id, pb.Release(lease_ids=[lease.lease_id], reason="done")
        )
        assert case.kinds[-1] == "lease_released"
        assert case.reasons == ["gpus free"]
        (message,) = await case.reported(case.one)
        assert (message.WhichOneof("body"), list(message.leases.leases)) == ("leases", [])
        assert await case.reported(case.two) == []

    run(scenario)


def test_release_ignores_leases_of_other_apps():
    async def scenario(case):
        before = case.kinds
        await case.made(
            case.live_cluster.release, case.one.app_id, pb.Release(lease_ids=[case.lease(case.two).lease_id])
        )
        assert (case.kinds, case.reasons) == (before, [])
        assert case.lease(case.two)

    run(scenario)


def test_gpus_returned_without_free_capacity_are_closed_for_a_while():
    async def scenario(case):
        lease = case.lease(case.one)
        # Processes of this machine always have room.
        case.live_cluster._settings = case.manager.settings.model_copy(update={"engine": "yarn"})
        await case.made(
            case.live_cluster.release, case.one.app_id, pb.Release(lease_ids=[lease.lease_id], no_room=True)
        )
        case.live_cluster.before_round()
        assert case.arbiter.table.closed == {lease.gpu}
        later_s = case.clock.now_s() + case.manager.settings.unfit_s
        assert case.live_cluster.unfit_gpus(later_s - 1.0) == [lease.gpu]
        assert case.live_cluster.unfit_gpus(later_s) == []

    run(scenario)


@pytest.mark.parametrize(("closed", "reasons"), [(frozenset(), ["gpus free"]), (frozenset([GpuId("m01", 0)]), [])])
def test_opened_gpus_trigger_round(closed, reasons):
    async def scenario(case):
        case.live_cluster.close_gpus(frozenset([GpuId("m01", 0)]))
        case.live_cluster.close_gpus(closed)
        assert case.reasons == reasons
        assert case.arbiter.table.closed == closed

    run(scenario)


def test_drained_machine_is_written_until_it_is_opened_again():
    async def scenario(case):
        def kept():
            return sorted(case.live_cluster.drained), json.loads(case.recorder.store.meta(DRAINED))

        before = len(case.kinds)
        for machine_id in ("m01", "m00", "m00"):
            await case.live_cluster.drain(machine_id, drained=True, by="carol")
        assert kept() == (["m00", "m01"], ["m00", "m01"])
        await case.live_cluster.drain("m01", drained=False)
        assert kept() == (["m00"], ["m00"])
        assert case.kinds[before:] == ["machine_drained", "machine_drained", "machine_opened"]
        with pytest.raises(UnknownNameError, match="m77"):
            await case.live_cluster.drain("m77", drained=True)

    run(scenario)


def test_lost_machine_is_sent_to_all_apps():
    async def scenario(case):
        await case.live_cluster.machine_lost("m00", "its switch died")
        assert case.kinds[-3:] == ["machine_lost", "lease_revoked", "lease_revoked"]
        for entry in (case.one, case.two):
            leases, cluster = await case.reported(entry)
            assert list(leases.leases.leases) == []
            assert cluster.cluster.gpus_available == 2

    run(scenario)
