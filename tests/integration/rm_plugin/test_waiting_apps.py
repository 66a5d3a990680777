"""Apps of a real ResourceManager that wait without an app master: faults, kills, and the first grant."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import psutil
from authorized_stub import LocalStub
from live_rm import Live, address_of, kill, live, replay_app, settings, start_process
from msgspec.structs import replace

from themis.apps import JobShape
from themis.config.rm_settings import LeaseSettings, RmSettings
from themis.lifecycle import WAITING
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.app_status import shown_state


def at_grant(folder: Path) -> RmSettings:
    return settings(
        folder, app_masters="at_grant", lease=LeaseSettings(duration_s=120, checkpoint_lead_s=1, grace_s=15)
    )


async def filled(rm: Live) -> str:
    """An app that holds all GPUs."""
    holder = await rm.submit(replay_app("holder", iterations=100_000, jobs=4, tasks=2))
    await rm.wait(holder, lambda app: app.gpus == 8)
    return holder


async def waiting(rm: Live, app_id: str) -> pb.AppStatus:
    return await rm.wait(app_id, lambda app: app.HasField("estimate") and shown_state(app) == WAITING)


def test_apps_wait_without_a_process_and_start_with_their_first_gpus(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(at_grant(tmp_path)) as rm:
            holder = await filled(rm)
            first, second, third = [await rm.submit(replay_app(name, iterations=20)) for name in ("a", "b", "c")]
            for app_id in (first, second, third):
                assert (await waiting(rm, app_id)).waiting.rank > 0
            assert [event.app_id for event in rm.events("am_started")] == [holder]
            host = rm.server.manager.hosted._host
            kill(host.pid)
            await rm.stub.Kill(pb.KillRequest(app_id=third))
            assert (await rm.ended(third)).state == "KILLED"
            await rm.stub.Kill(pb.KillRequest(app_id=holder))
            for app_id in (first, second):
                status = await rm.ended(app_id)
                assert (status.state, status.attempts) == ("FINISHED", 1)
            assert sorted(event.app_id for event in rm.events("am_started")) == [holder, first, second]

    asyncio.run(scenario())


def test_apps_wait_on_when_the_resource_manager_is_killed(tmp_path: Path) -> None:
    configured = at_grant(tmp_path)

    async def scenario() -> None:
        first = start_process(configured)
        try:
            async with grpc.aio.insecure_channel(address := await address_of(configured)) as channel:
                stub = LocalStub(rpc.ClientServiceStub(channel), address)
                rm = Live(None, None, stub, address)
                holder = await filled(rm)
                waits = await rm.submit(replay_app("a", iterations=20))
                await waiting(rm, waits)
            hosts = [child for child in first.children() if "am.agent_host" in child.cmdline()]
        finally:
            first.kill()
            first.wait()
        # Its pipe has closed.
        assert len(hosts) == 1
        assert not psutil.wait_procs(hosts, timeout=60)[1]
        async with live(configured) as rm:
            await waiting(rm, waits)
            await rm.stub.Kill(pb.KillRequest(app_id=holder))
            status = await rm.ended(waits)
            assert (status.state, status.attempts) == ("FINISHED", 1)

    asyncio.run(scenario())


def test_app_master_without_gpus_ends_and_the_app_goes_on_from_its_checkpoints_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        # A lease has room for the starts of an app master and its tasks on a busy machine.
        lease = LeaseSettings(duration_s=10, checkpoint_lead_s=1, grace_s=15)
        configured = settings(tmp_path, app_masters="at_grant", am_idle_s=0.6, policy="tiresias", lease=lease)
        async with live(configured) as rm:
            apps = []
            for name in ("a", "b"):
                spec = replay_app(name, iterations=1500)
                (job,) = spec.jobs
                whole = replace(job, shape=JobShape(tasks=3, min_tasks=3, gpus_per_task=2))
                apps.append(await rm.submit(replace(spec, jobs=(whole,))))
            rested = await rm.event("am_rested", apps[0])
            status = await rm.show(apps[0])
            assert shown_state(status) == WAITING
            assert 0 < status.progress < 1
            assert rested.detail["attempt"] == 1
            for app_id in apps:
                status = await rm.ended(app_id, timeout_s=200)
                assert (status.state, status.attempts > 1) == ("FINISHED", bool(rm.events("am_rested", app_id)))
            assert rm.events("am_lost") == []

    asyncio.run(scenario())
