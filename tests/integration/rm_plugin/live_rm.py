"""A real ResourceManager in this process, with real app masters and replayed jobs as processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import psutil
from authorized_stub import AuthorizedStub

from rm_plugin.engines.engine import Engine
from rm_plugin.service.server import Server
from rm_plugin.service.store import StoredEvent
from rm_plugin.service.store_sqlite import SqliteStore
from themis.apps import AppSpec, Estimate, JobShape, JobSpec, ProgramSpec, TaskResources, TunerSpec
from themis.clock import WallClock
from themis.config.cluster_file import load_cluster
from themis.config.rm_settings import LeaseSettings, RmSettings
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.values import app_to_message

ENDED = ("FINISHED", "FAILED", "KILLED")


def settings(folder: Path, **changes: object) -> RmSettings:
    values: dict[str, object] = {
        "cluster": Path("conf/clusters/small-8.yaml").absolute(),
        "state_dir": folder,
        "listen": "127.0.0.1:0",
        # On a busy machine an honest app needs longer than its lease's last second to stop.
        "lease": LeaseSettings(duration_s=4, checkpoint_lead_s=1, grace_s=15),
        "coalesce_s": 0.1,
        "report_deadline_s": 1,
        "bid_deadline_s": 1,
        "heartbeat_s": 0.3,
        "am_expiry_s": 10,
        # What a failed test leaves must end soon.
        "rm_absence_s": 60,
        "time_scale": 30,
        "validate_state": True,
    }
    return RmSettings(**{**values, **changes})


def replay_app(name: str, *, iterations: int, jobs: int = 1, tasks: int = 1, tuner: str = "single") -> AppSpec:
    shape = JobShape(tasks=tasks)
    return AppSpec(
        name=name,
        tuner=TunerSpec(name=tuner),
        program=ProgramSpec(name="replay", arguments={"model": "resnet50", "serial_iteration_s": 1.5}),
        jobs=tuple(
            JobSpec(
                job_id=f"job-{number:02d}",
                shape=shape,
                iterations_total=iterations,
                hyper_parameters={"learning_rate": 0.01 * (number + 1)},
            )
            for number in range(jobs)
        ),
        resources=TaskResources(memory_mb=256),
        estimate=Estimate(serial_iteration_s=1.5),
        checkpoint_every=20,
        replay=True,
    )


class Live:
    """A server and a client of it."""

    def __init__(self, server: Server, store: SqliteStore, stub: AuthorizedStub, address: str) -> None:
        self.server, self.store, self.stub, self.address = server, store, stub, address

    async def submit(self, spec: AppSpec) -> str:
        return (await self.stub.Submit(pb.SubmitRequest(spec=app_to_message(spec)))).app_id

    async def show(self, app_id: str) -> pb.AppStatus:
        return await self.stub.Show(pb.ShowRequest(app_id=app_id))

    async def wait(self, app_id: str, wanted: Callable[[pb.AppStatus], bool], timeout_s: float = 60) -> pb.AppStatus:
        async with asyncio.timeout(timeout_s):
            while not wanted(status := await self.show(app_id)):
                await asyncio.sleep(0.05)
            return status

    async def ended(self, app_id: str, timeout_s: float = 60) -> pb.AppStatus:
        return await self.wait(app_id, lambda status: status.state in ENDED, timeout_s)

    def events(self, kind: str, app_id: str = "") -> list[StoredEvent]:
        return [event for event in self.store.events(app_id=app_id) if event.kind == kind]

    async def event(
        self, kind: str, app_id: str, count: int = 1, *, after: int = 0, timeout_s: float = 60
    ) -> StoredEvent:
        async with asyncio.timeout(timeout_s):
            while len(found := [e for e in self.events(kind, app_id) if e.sequence > after]) < count:
                await asyncio.sleep(0.05)
            return found[count - 1]


@contextlib.asynccontextmanager
async def live(configured: RmSettings, engine: Engine | None = None) -> AsyncIterator[Live]:
    store = SqliteStore(configured.state_dir / "rm.sqlite")
    server = Server(configured, load_cluster(configured.cluster), store, WallClock(), engine)
    run_id = store.meta("run_id")
    try:
        address = await server.start()
        async with grpc.aio.insecure_channel(address) as channel:
            identities = server.manager.identities
            stub = AuthorizedStub(
                rpc.ClientServiceStub(channel), lambda: identities.local_token(os.geteuid(), identities.user)
            )
            yield Live(server, store, stub, address)
    finally:
        await server.stop()
        store.close()
        left = [process.pid for process in psutil.process_iter() if _marked(process, run_id or "")]
        assert not left, f"processes left behind: {left}"


def start_process(configured: RmSettings, python: str = sys.executable) -> psutil.Popen:
    """A ResourceManager as a process of its own, by the command that users type."""
    config = configured.state_dir / "rm.yaml"
    config.write_text(json.dumps(configured.model_dump(mode="json")))
    command = [python, "-m", "themis_cli.main", "rm", "start", "-c", str(config)]
    with (configured.state_dir / "rm.log").open("wb") as log:
        return psutil.Popen(command, stdout=log, stderr=log)


async def address_of(configured: RmSettings, timeout_s: float = 60) -> str:
    path = configured.state_dir / "address"
    async with asyncio.timeout(timeout_s):
        while not path.exists():
            await asyncio.sleep(0.05)
    return path.read_text().strip()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _marked(process: psutil.Process, run_id: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.environ().get("THEMIS_RUN_ID") == run_id
    return False
