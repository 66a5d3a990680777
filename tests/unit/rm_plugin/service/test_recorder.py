"""Batches and the recorder: what is written together, with which time, and who is woken."""

import asyncio
import math

import pytest

from rm_plugin.service import recorder as recorder_module
from rm_plugin.service.log_summary import SNAPSHOT, read_summary
from rm_plugin.service.recorder import Batch, Recorder, Removed
from rm_plugin.service.store import StoredApp
from rm_plugin.service.store_memory import MemoryStore
from themis.clock import ClockMark, VirtualClock
from themis.cluster import Cluster, GpuId, Machine
from themis.leases import Lease, LeaseChange, LeaseChangeKind
from themis.lifecycle import AppState, LeaseState

CLUSTER = Cluster(name="c", machines=(Machine(machine_id="m0", rack_id="r0", slots=(2,)),))
LEASE = Lease(
    lease_id=7, gpu=GpuId("m0", 1), app_id="app-0001", granted_at_s=1_000.0, expires_at_s=1_600.0,
    state=LeaseState.GRANTED,
)  # fmt: skip


@pytest.fixture
def store():
    return MemoryStore()


def recorded(store, scenario, now_s=1_000.0):
    """Run a scenario with a recorder on a loop, and close it."""

    async def whole():
        recorder = Recorder(store, VirtualClock(now_s))
        try:
            return await scenario(recorder)
        finally:
            recorder.close()

    return asyncio.run(asyncio.wait_for(whole(), 20))


class TestBatch:
    def test_new_batch_has_nothing_to_write(self):
        assert not Batch(now_s=1.0)

    @pytest.mark.parametrize(
        "content",
        [
            {"leases": [LEASE]},
            {"meta": {"key": "value"}},
            {"removed": Removed(app_ids=("app-0001",), archive="", through=3, pieces=())},
        ],
    )
    def test_batch_with_anything_is_written(self, content):
        assert Batch(now_s=1.0, **content)

    def test_event_has_its_own_time_or_that_of_the_batch(self):
        batch = Batch(now_s=5.0)
        batch.event("one")
        batch.event("two", app_id="app-0001", detail={"x": 1}, time_s=0.0)
        assert [(event.kind, event.time_s, event.app_id, event.detail) for event in batch.events] == [
            ("one", 5.0, "", {}),
            ("two", 0.0, "app-0001", {"x": 1}),
        ]

    @pytest.mark.parametrize(
        ("more", "detail"),
        [
            ({}, {}),
            ({"reason": "done"}, {"reason": "done"}),
            ({"round_id": 3}, {"round_id": 3}),
            ({"reserved": True}, {"reserved": True}),
        ],
    )
    def test_change_of_a_lease_is_written_with_its_event(self, store, more, detail):
        batch = Batch(now_s=5.0)
        batch.lease_changes([LeaseChange(kind=LeaseChangeKind.RELEASED, lease=LEASE, **more)])
        with store.transaction() as transaction:
            (event,) = batch.write_to(transaction)
        assert store.leases(held_only=False) == (LEASE,)
        assert (event.kind, event.app_id) == ("lease_released", "app-0001")
        assert event.detail == {"lease_id": 7, "gpu": "m0/1", "expires_at_s": 1_600.0, **detail}

    def test_event_of_a_bound_lease_names_its_job(self):
        batch = Batch(now_s=5.0)
        bound = Lease(
            lease_id=8, gpu=GpuId("m0", 0), app_id="app-0001", granted_at_s=1.0, expires_at_s=2.0,
            state=LeaseState.GRANTED, job_id="job-0",
        )  # fmt: skip
        batch.lease_changes([LeaseChange(kind=LeaseChangeKind.GRANTED, lease=bound)])
        assert batch.events[0].detail["job_id"] == "job-0"


class TestRecorder:
    def test_every_write_has_the_present_time(self, store):
        async def scenario(recorder):
            await recorder.commit(recorder.batch())

        recorded(store, scenario, now_s=1_234.0)
        assert ClockMark.from_text(store.meta("clock")).time_s == 1_234.0

        async def at_start(recorder):
            recorder.record("rm_started")

        recorded(store, at_start, now_s=2_000.0)
        assert ClockMark.from_text(store.meta("clock")).time_s == 2_000.0

    def test_writes_wake_all_who_wait_for_news_and_only_them(self, store):
        async def scenario(recorder):
            waiting = [asyncio.ensure_future(recorder.news()) for _ in range(2)]
            await asyncio.sleep(0)
            recorder.record("one")
            await asyncio.wait_for(asyncio.gather(*waiting), 30)
            later = asyncio.ensure_future(recorder.news())
            await asyncio.sleep(0.01)
            assert not later.done()
            await recorder.commit(recorder.batch())
            await asyncio.wait_for(later, 30)

        recorded(store, scenario)

    def test_test_write_is_large_and_leaves_nothing(self, store):
        sizes = []

        async def scenario(recorder):
            commit = recorder.commit

            async def noted(batch):
                sizes.append(len(batch.meta["probe"]))
                await commit(batch)

            recorder.commit = noted
            await recorder.probe()

        recorded(store, scenario)
        assert sizes == [64 * 1024, 0]
        assert not store.meta("probe")

    def test_summary_follows_the_log_also_past_events_that_others_wrote(self, store):
        async def scenario(recorder):
            recorder.record("round_started", detail={"round_id": 3})
            assert recorder.summary.last_round == 3
            with store.transaction() as transaction:
                transaction.append_event("round_started", 1.0, app_id="", detail={"round_id": 5})
            recorder.record("one")
            assert (recorder.summary.last_round, recorder.summary.sequence) == (5, 3)

        recorded(store, scenario)

    def test_snapshot_is_written_after_enough_events_and_then_not_at_once_again(self, store, monkeypatch):
        monkeypatch.setattr(recorder_module, "SNAPSHOT_EVERY", 3)
        written = []

        async def scenario(recorder):
            for number in range(8):
                recorder.record("one")
                if (text := store.meta(SNAPSHOT)) and text not in written:
                    written.append(text)
                    assert number in (3, 6)

        recorded(store, scenario)
        assert len(written) == 2
        assert read_summary(store).sequence == 8

    def test_machines_that_were_written_are_known_again(self, store):
        async def scenario(recorder):
            assert recorder.kept_cluster() is None
            batch = recorder.batch()
            batch.cluster(CLUSTER)
            recorder.write_now(batch)
            assert recorder.kept_cluster() == CLUSTER

        recorded(store, scenario)

    @pytest.mark.parametrize("text", ["no hex", "ff", "0a"])
    def test_machines_that_cannot_be_read_are_reported(self, store, text, caplog):
        async def scenario(recorder):
            with store.transaction() as transaction:
                transaction.put_meta("cluster", text)
            assert recorder.kept_cluster() is None

        recorded(store, scenario)
        assert "the machines that the store remembers cannot be read" in caplog.text

    def test_archived_app_that_cannot_be_read_is_passed_over(self, store, caplog):
        stored = StoredApp(
            app_id="app-0001", name="odd", archive="events-1-2.jsonl.gz", state=AppState.FINISHED, attempt=1,
            token="", spec=b"no specification", pid=0, submitted_at_s=1.0, started_at_s=None, finished_at_s=2.0,
            diagnostics="", final={},
        )  # fmt: skip

        async def scenario(recorder):
            with store.transaction() as transaction:
                transaction.put_app(stored)
            assert await recorder.archived_app("odd") is None
            assert await recorder.archived_apps(math.inf, (), (), 9) == ()

        recorded(store, scenario)
        assert "app-0001 cannot be read" in caplog.text
