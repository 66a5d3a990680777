"""The ResourceManager while SQLite is locked by another program, or its disk is full."""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import time
from pathlib import Path

import grpc
import psutil
import pytest
from authorized_stub import LocalStub
from live_rm import address_of, live, replay_app, settings, start_process

from rm_plugin.service import app_masters
from rm_plugin.service.store_sqlite import BUSY_S
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.values import app_to_message

LOCKED_S = 20.0


async def refused(call: object) -> str:
    """The text of a refusal without a store."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call  # type: ignore[misc]
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    return raised.value.details() or ""


def test_a_locked_store_refuses_submissions_while_apps_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Submit and kill are refused; rounds, ends of leases and of an app wait, and come once the lock is gone."""
    monkeypatch.setattr(app_masters, "KILL_GRACE_S", 5.0)

    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm:
            short = await rm.submit(replay_app("short", iterations=60))
            long = await rm.submit(replay_app("long", iterations=4000))
            await rm.wait(long, lambda status: status.gpus > 0 and status.state == "RUNNING")
            other = sqlite3.connect(tmp_path / "rm.sqlite", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            before = [event.sequence for event in rm.store.events()][-1]
            locked_s = time.monotonic()
            assert "cannot be written" in await refused(rm.submit(replay_app("during", iterations=10)))
            took_s = []
            while time.monotonic() - locked_s < LOCKED_S:
                asked_s = time.monotonic()
                assert {app.app_id for app in (await rm.stub.List(pb.ListRequest())).apps} == {short, long}
                took_s.append(time.monotonic() - asked_s)
                await refused(rm.stub.Kill(pb.KillRequest(app_id=long)))
                await asyncio.sleep(0.3)
            # By the median: on a busy machine a single answer may take long.
            assert statistics.median(took_s) < BUSY_S / 2, "the loop waited for SQLite"
            assert (await rm.show(long)).state == "RUNNING"
            assert [event.sequence for event in rm.store.events()][-1] == before
            other.execute("ROLLBACK")
            other.close()
            await asyncio.wait_for(rm.server.manager.changes.usable(), 40)
            after = await rm.submit(replay_app("after", iterations=10))
            assert after == "app-0003"
            for app in (short, after):
                assert (await rm.ended(app)).state == "FINISHED"
            assert (await rm.show(long)).attempts == 1
            await rm.stub.Kill(pb.KillRequest(app_id=long))
            assert (await rm.ended(long)).state == "KILLED"

    asyncio.run(scenario())


def test_a_submission_fails_on_a_full_disk_and_succeeds_after_cleanup(tmp_path: Path) -> None:
    """No file of the ResourceManager may grow: as a disk that is full says, so does the limit on the size of files."""
    configured = settings(tmp_path)

    async def scenario() -> None:
        rm = start_process(configured)
        try:
            address = await address_of(configured)
            async with grpc.aio.insecure_channel(address) as channel:
                stub = LocalStub(rpc.ClientServiceStub(channel), address)
                request = pb.SubmitRequest(spec=app_to_message(replay_app("one", iterations=10)))
                first = (await stub.Submit(request)).app_id
                rm.rlimit(psutil.RLIMIT_FSIZE, (4096, -1))
                details = await refused(stub.Submit(request))
                assert "cannot be written" in details or "cannot write" in details
                assert [app.app_id for app in (await stub.List(pb.ListRequest())).apps] == [first]
                rm.rlimit(psutil.RLIMIT_FSIZE, (-1, -1))
                second = ""
                async with asyncio.timeout(60):
                    while not second:
                        try:
                            second = (await stub.Submit(request)).app_id
                        except grpc.aio.AioRpcError:
                            await asyncio.sleep(0.2)
                assert second == "app-0002"
                assert len((await stub.List(pb.ListRequest())).apps) == 2
        finally:
            rm.terminate()
            rm.wait(60)
        assert not (tmp_path / "address").exists()

    asyncio.run(scenario())
