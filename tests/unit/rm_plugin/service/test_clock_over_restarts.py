"""Time over restarts of the ResourceManager: it never runs back, and a change of the wall clock adds no GPU time."""

import asyncio
import time

import pytest

from rm_plugin.service.log_summary import read_summary
from rm_plugin.service.memory_service import FailingStore
from rm_plugin.service.recorder import Recorder
from rm_plugin.service.server import clock_of
from rm_plugin.service.store import StoredApp
from themis.clock import ClockMark, VirtualClock, WallClock, boot_id
from themis.cluster import GpuId
from themis.leases import Lease
from themis.lifecycle import AppState

APP = StoredApp(app_id="app-0001", state=AppState.RUNNING, submitted_at_s=10.0)


def store_of(ahead_s, *, state=AppState.RUNNING, boot=None, monotonic_s=None):
    """A store whose newest time is ahead of the wall clock."""
    store = FailingStore()
    mark = ClockMark(
        time_s=time.time() + ahead_s,
        boot_id=boot_id() if boot is None else boot,
        monotonic_s=time.monotonic() if monotonic_s is None else monotonic_s,
    )
    with store.transaction() as transaction:
        transaction.put_app(StoredApp(app_id="app-0001", state=state, submitted_at_s=10.0))
        transaction.put_meta("clock", mark.to_text())
    return store


@pytest.mark.parametrize("state", [AppState.RUNNING, AppState.FINISHED])
@pytest.mark.parametrize("boot", [None, "another boot"])
def test_time_continues_from_store_if_wall_clock_was_set_back(state, boot):
    now_s = clock_of(store_of(7_200.0, state=state, boot=boot)).now_s()
    assert now_s == pytest.approx(time.time() + 7_200.0, abs=60.0)


def test_wall_clock_set_ahead_adds_no_time_for_active_apps():
    """It was down for ten minutes, and the wall clock says two hours."""
    store = store_of(-7_200.0, monotonic_s=time.monotonic() - 600.0)
    assert clock_of(store).now_s() == pytest.approx(time.time() - 7_200.0 + 600.0, abs=60.0)


@pytest.mark.parametrize(
    ("state", "boot"), [(AppState.FINISHED, None), (AppState.RUNNING, "another boot"), (AppState.RUNNING, "")]
)
def test_time_follows_wall_clock_without_apps_or_after_reboot(state, boot):
    assert clock_of(store_of(-7_200.0, state=state, boot=boot)).now_s() == pytest.approx(time.time(), abs=60.0)


def test_store_without_mark_starts_after_its_apps_and_leases():
    store = FailingStore()
    ahead_s = time.time() + 500.0
    lease = Lease(lease_id=1, gpu=GpuId("m0", 0), app_id="app-0001", granted_at_s=ahead_s, expires_at_s=ahead_s + 9)
    with store.transaction() as transaction:
        transaction.put_app(APP)
        transaction.put_lease(lease)
    assert clock_of(store).now_s() == pytest.approx(ahead_s, abs=60.0)


@pytest.mark.parametrize("served", [False, True])
def test_every_write_stores_newest_time(served):
    store = FailingStore()
    recorder = Recorder(store, VirtualClock(5_000.0))
    if served:
        asyncio.run(recorder.commit(recorder.batch()))
    else:
        recorder.record("rm_started")
    recorder.close()
    mark = ClockMark.from_text(store.meta("clock"))
    assert (mark.time_s, mark.boot_id) == (5_000.0, boot_id())


def test_lease_ended_before_grant_has_no_gpu_time():
    store = FailingStore()
    with store.transaction() as transaction:
        for kind, time_s in (("lease_granted", 7_200.0), ("lease_released", 100.0)):
            transaction.append_event(kind, time_s, app_id="app-0001", detail={"lease_id": 1})
    assert read_summary(store).attained_gpu_s == {"app-0001": 0.0}


def test_new_clock_is_wall_clock():
    assert WallClock().now_s() == pytest.approx(time.time(), abs=60.0)
