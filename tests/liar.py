"""App masters that a test scripts: real gRPC clients of a real server, honest by default, and lying as a test asks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc

from rm_plugin.engines.inventory import FixedInventory
from rm_plugin.engines.memory import MemoryAppLauncher
from rm_plugin.service.server import Server
from rm_plugin.service.store import StoredEvent
from rm_plugin.service.store_memory import MemoryStore
from themis.apps import AppSpec, Estimate, JobShape, JobSpec, ProgramSpec, TunerSpec
from themis.clock import WallClock
from themis.cluster import Cluster, Machine
from themis.config.rm_settings import LeaseSettings, RmSettings
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc

CLUSTER = Cluster(
    name="small",
    machines=tuple(Machine(machine_id=f"m{place}", rack_id="r0", slots=(4,)) for place in range(2)),
)
_SLOWDOWN = pb.Slowdown(slot=1.0, machine=1.0, rack=1.0, cluster=1.0)

Change = Callable[["Master", pb.AmMessage], "pb.AmMessage | None"]


def truth(_master: Master, message: pb.AmMessage) -> pb.AmMessage:
    """Send the message as it is."""
    return message


class MemoryEngine:
    """Machines and app masters in memory: a test connects the masters itself."""

    poll_s = 60.0

    def __init__(self) -> None:
        self.started: MemoryAppLauncher

    async def shared_folder(self) -> None:
        return None

    async def open(self) -> Cluster:
        return CLUSTER

    def launcher(self, _run_id, on_exit, _machines_of, _lock) -> MemoryAppLauncher:
        self.started = MemoryAppLauncher(on_exit)
        return self.started

    def inventory(self) -> FixedInventory:
        return FixedInventory(CLUSTER)

    async def check_owner(self, owner: object) -> None:
        pass

    async def fetch_logs(self, app_id: str, page_url: str, folder: Path) -> None:
        pass

    async def close(self) -> None:
        pass


def spec_of(name: str, *, jobs: int = 1, gpus: int = 1, work_gpu_s: float = 1000.0) -> AppSpec:
    """Jobs of 1 to `gpus` GPUs, of this much work each."""
    each = JobShape(tasks=gpus, min_tasks=1)
    return AppSpec(
        name=name,
        user=name,
        tuner=TunerSpec(name="single"),
        program=ProgramSpec(command="train"),
        jobs=tuple(JobSpec(job_id=f"j{place}", shape=each, iterations_total=1000) for place in range(jobs)),
        estimate=Estimate(serial_iteration_s=work_gpu_s / 1000),
    )


class Master:
    """One attempt of an app: registers, answers every round, and never runs a task.

    Args:
        address: The server's.
        spec: Its app, whose jobs are all of one shape.
        registration: What it registers with.
        change: Makes a lie of every true message, or None to say nothing.
    """

    def __init__(self, address: str, spec: AppSpec, registration: pb.Register, change: Change = truth) -> None:
        self.spec, self.registration, self.change = spec, registration, change
        self.leases: dict[int, pb.Lease] = {}
        self.most_gpus = 0
        self.welcome = pb.Registered()
        self.registered = asyncio.Event()
        self.refusal: grpc.aio.AioRpcError | None = None
        self.asked = 0
        self._address = address
        self._outgoing: asyncio.Queue[pb.AmMessage] = asyncio.Queue()
        self._next_id = 1
        self._contention, self._active = 1.0, 1

    @property
    def gpus(self) -> int:
        return len(self.leases)

    @property
    def work_gpu_s(self) -> float:
        return 1000.0 * (self.spec.estimate.serial_iteration_s or 0.0)

    def send(self, **body: object) -> int:
        """Send a message as it is. Returns its id."""
        message = pb.AmMessage(id=self._next_id, **body)
        self._next_id += 1
        self._outgoing.put_nowait(message)
        return message.id

    def say(self, **body: object) -> None:
        """Send what the lie makes of a true message."""
        message = self.change(self, pb.AmMessage(**body))
        if message is not None:
            message.id = self._next_id
            self._next_id += 1
            self._outgoing.put_nowait(message)

    async def run(self) -> None:
        """Serve one session until it ends or is refused."""
        async with grpc.aio.insecure_channel(self._address) as channel:
            self._outgoing.put_nowait(pb.AmMessage(register=self.registration))
            call = rpc.ArbiterServiceStub(channel).Session(self._messages())
            try:
                async for message in call:
                    self._take(message)
            except grpc.aio.AioRpcError as error:
                self.refusal = error
            finally:
                call.cancel()

    async def _messages(self) -> AsyncIterator[pb.AmMessage]:
        while True:
            yield await self._outgoing.get()

    def _take(self, message: pb.RmMessage) -> None:
        body = message.WhichOneof("body")
        if body == "registered":
            self.welcome = message.registered
            self._hold(message.registered.leases)
            self.registered.set()
        elif body == "leases":
            self._hold(message.leases)
        elif body == "ask_rho":
            self.asked += 1
            self._contention, self._active = message.ask_rho.contention, message.ask_rho.active_apps
            self.say(rho=self.report(message.ask_rho.round_id))
        elif body == "offer":
            self.say(bid=self.bid(message.offer))

    def _hold(self, update: pb.LeaseUpdate) -> None:
        expiring = [lease.lease_id for lease in update.leases if lease.state == "EXPIRING"]
        self.leases = {lease.lease_id: lease for lease in update.leases if lease.state == "GRANTED"}
        self.most_gpus = max(self.most_gpus, self.gpus)
        if expiring:
            self.say(release=pb.Release(lease_ids=expiring, reason="the leases end"))

    # ---- the truth ----

    @property
    def ideal_s(self) -> float:
        return self._contention * self.work_gpu_s * len(self.spec.jobs) / min(8, self.spec.demand_max_gpus)

    def _shared_s(self, gpus: float) -> float:
        elapsed_s = max(0.0, WallClock().now_s() - self.welcome.submitted_at_s)
        return elapsed_s + self.work_gpu_s * len(self.spec.jobs) / max(gpus, 8 / self._active)

    def report(self, round_id: int) -> pb.RhoReport:
        """Demand a gang for every job, as all leases end with each round."""
        each = self.spec.jobs[0].shape.demand_max_gpus
        demands = [
            pb.GangDemand(
                job_id=job.job_id,
                min_gpus=1,
                max_gpus=each,
                unit_gpus=1,
                slowdown=_SLOWDOWN,
                work_left_gpu_s=self.work_gpu_s,
            )
            for job in self.spec.jobs[-(-self._lasting(round_id) // each) :]
        ]
        shared_s = self._shared_s(0.0)
        return pb.RhoReport(
            round_id=round_id,
            rho=shared_s / self.ideal_s,
            t_shared_s=shared_s,
            t_ideal_s=self.ideal_s,
            demands=demands,
            phases_left=[
                pb.PhaseLeft(
                    jobs=len(self.spec.jobs),
                    work_gpu_s=self.work_gpu_s * len(self.spec.jobs),
                    longest_gpu_s=self.work_gpu_s,
                    gang_gpus=each,
                )
            ],
            restart_s=0.1,
        )

    def _lasting(self, _round_id: int) -> int:
        """GPUs whose leases outlast this round."""
        soon_s = WallClock().now_s() + self.welcome.checkpoint_lead_s
        return sum(lease.expires_at_s > soon_s for lease in self.leases.values())

    def bid(self, offer: pb.Offer) -> pb.Bid:
        """Value one gang on one machine, or two."""
        free = sum(sum(machine.free_slots) for machine in offer.free)
        most = min(free, self.spec.demand_max_gpus)
        rows = [
            pb.BidRow(
                value=self.ideal_s / self._shared_s(gpus),
                gangs=[pb.Gang(gpus=1, within=3, count=gpus, unit_gpus=1)],
            )
            for gpus in range(1, min(most, len(self.spec.jobs)) + 1)
        ]
        return pb.Bid(round_id=offer.round_id, empty_value=self.ideal_s / self._shared_s(0.0), rows=rows)


class Stage:
    """A server with masters that a test scripts."""

    def __init__(self, server: Server, engine: MemoryEngine, address: str) -> None:
        self.server, self.engine, self.address = server, engine, address
        self._running: set[asyncio.Task[None]] = set()

    @property
    def manager(self):
        return self.server.manager

    async def submit(self, spec: AppSpec) -> str:
        return (await self.manager.submit(spec)).app_id

    def registration(self, app_id: str, **changes: object) -> pb.Register:
        """What the app master that the engine started would register with."""
        launch = self.engine.started.living[app_id].launch
        values = {"app_id": app_id, "token": launch.token, "attempt": launch.attempt, "pid": 4711}
        return pb.Register(**{**values, **changes})

    def connect(self, app_id: str, spec: AppSpec, change: Change = truth, **changes: object) -> Master:
        """Connect an app master, which runs until the test ends or `disconnect`."""
        master = Master(self.address, spec, self.registration(app_id, **changes), change)
        master.task = asyncio.get_running_loop().create_task(master.run())
        self._running.add(master.task)
        return master

    async def started(self, spec: AppSpec, change: Change = truth) -> Master:
        """Submit an app, and connect its master."""
        app_id = await self.submit(spec)
        master = self.connect(app_id, spec, change)
        master.app_id = app_id
        await asyncio.wait_for(master.registered.wait(), 60)
        return master

    async def until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Return once the condition holds."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.01)

    async def disconnect(self, master: Master) -> None:
        master.task.cancel()
        await asyncio.gather(master.task, return_exceptions=True)
        entry = self.manager.entries.get(master.app_id)
        while entry.session is not None:
            await asyncio.sleep(0.01)

    def gpu_s(self, master: Master) -> float:
        """GPU time that an app has had."""
        return self.manager.arbiter.attained_gpu_s(master.app_id, self.manager.clock.now_s())

    def events(self, kind: str = "") -> list[StoredEvent]:
        """The events of a kind, or all."""
        found = self.manager.recorder.events(0, "", 10_000)
        return [event for event in found if kind in ("", event.kind)]

    def cut(self, master: Master) -> int:
        """What was cut from an app's claims."""
        return self.manager.entries.get(master.app_id).cut_claims

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.server.stop()


@contextlib.asynccontextmanager
async def stage(folder: Path, **changes: object) -> AsyncIterator[Stage]:
    """A server on a port of its own: 8 GPUs on two machines, leases of 0.6 s."""
    values: dict[str, object] = {
        "cluster": Path("unused"),
        "state_dir": folder,
        "listen": "127.0.0.1:0",
        "lease": LeaseSettings(duration_s=0.6, checkpoint_lead_s=0.1, grace_s=0.5),
        "coalesce_s": 0.01,
        "report_deadline_s": 0.3,
        "bid_deadline_s": 0.3,
        "am_expiry_s": 10.0,
        "app_masters": "at_submit",
        "validate_state": True,
        "auction": {"keep_markets": 0},
    }
    folder.mkdir(parents=True, exist_ok=True)
    engine = MemoryEngine()
    server = Server(RmSettings.model_validate(values | changes), CLUSTER, MemoryStore(), WallClock(), engine)
    one = Stage(server, engine, await server.start())
    try:
        yield one
    finally:
        await one.close()
        server.manager.arbiter.validate()
