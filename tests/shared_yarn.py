"""A YARN in memory that several tenants share, and a ResourceManager with its app masters on it, all in one process.

YARN's scheduler, its node reports and task hosts are fakes. All else is the product: the arbiter and its rounds, app
masters, and the requests, reuse and release of containers.
"""

import asyncio
import contextlib
import itertools
import os
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from agent_cases import cluster_of
from msgspec.structs import replace

from am.context import AmContext
from am.master import AppMaster
from am.runtimes.remote.hosts import TaskHosts
from am.runtimes.remote.runtime import RemoteRuntime
from am.runtimes.yarn_source import YarnLimits, YarnSource
from rm_plugin.engines.engine import LocalEngine
from rm_plugin.engines.inventory import Inventory, Node
from rm_plugin.engines.port import AmExit, EngineAttempts
from rm_plugin.service.manager import ResourceManager
from rm_plugin.service.server import Server
from rm_plugin.service.store_memory import MemoryStore
from themis.apps import AppSpec, Estimate, JobShape, JobSpec, ProgramSpec, TunerSpec
from themis.clock import WallClock
from themis.cluster import DeviceType
from themis.config.rm_settings import LeaseSettings, RmSettings
from themis.hadoop.values import AllocateReply, Container, ContainerAsk, ContainerEnd, Registration

GPUS = {"m0": 4, "m1": 4, "m2": 2}
LIMITS = YarnLimits(heartbeat_s=0.05, pin_timeout_s=0.5)


@dataclass
class Tenant:
    """A YARN application: what it asks for, holds, and has not heard yet. Implements `AmClient` and `NmClient`."""

    yarn: "SharedYarn"
    is_ours: bool
    on_start: object = None
    held: dict[str, Container] = field(default_factory=dict)
    news: list[ContainerEnd] = field(default_factory=list)
    hosts: TaskHosts = field(default_factory=lambda: TaskHostsInMemory())

    def ask(self, ask):
        with self.yarn.lock:
            self.yarn.asks.append((self, ask))

    def withdraw(self, number):
        with self.yarn.lock:
            self.yarn.asks = [
                (tenant, ask)
                for tenant, ask in self.yarn.asks
                if tenant is not self or ask.allocation_request_id != number
            ]

    def allocate(self, progress=0.0):
        with self.yarn.lock:
            granted = self.yarn.grant(self)
            ended, self.news = self.news, []
            headroom = self.yarn.headroom()
        return AllocateReply(granted=tuple(granted), ended=tuple(ended), headroom_gpus=headroom)

    def start(self, container, wish):
        self.on_start(wish.seat_id)

    def has(self, container):
        return container.container_id in self.held

    def stop(self, container):
        with self.yarn.lock:
            if self.held.pop(container.container_id, None) is not None:
                self.news.append(ContainerEnd(container_id=container.container_id, exit_code=143, diagnostics=""))

    release = stop


class SharedYarn:
    """Grants pinned asks in the order in which they came, as far as the node and the queue of our apps allow."""

    def __init__(self):
        self.lock = threading.RLock()
        self.asks: list[tuple[Tenant, ContainerAsk]] = []
        self.tenants: list[Tenant] = []
        self.queue_gpus: int | None = None
        self.unreported_gpus: int | None = None
        """A limit of our apps that YARN's queues do not report, as that of a user."""
        self.knows_headroom = True
        """Whether the headroom that it reports has this limit too."""
        self._numbers = itertools.count(1)
        self._granted: dict[int, list[Container]] = {}

    def tenant(self, **kind):
        self.tenants.append(Tenant(self, **kind))
        return self.tenants[-1]

    def used(self, *, ours=None):
        """GPUs of containers by node: of all tenants, of our apps, or of the others."""
        with self.lock:
            found = [each for each in self.tenants if ours is None or each.is_ours == ours]
            return Counter(container.host for tenant in found for container in tenant.held.values())

    def headroom(self):
        """What our apps may use beyond what they use."""
        own = self.unreported_gpus if self.knows_headroom else None
        limits = [limit for limit in (self.queue_gpus, own) if limit is not None]
        return max(0, min([sum(GPUS.values()), *limits]) - self.used(ours=True).total())

    def grant(self, to):
        waiting, granted = [], []
        for tenant, ask in self.asks:
            if self._fits(tenant, ask):
                container = Container(
                    container_id=f"c{next(self._numbers)}", host=ask.host, node_id=ask.host, gpus=ask.gpus,
                    memory_mb=ask.memory_mb, vcores=1, allocation_request_id=ask.allocation_request_id, raw=None,
                )  # fmt: skip
                tenant.held[container.container_id] = container
                self._granted.setdefault(id(tenant), []).append(container)
            else:
                waiting.append((tenant, ask))
        self.asks = waiting
        return self._granted.pop(id(to), granted)

    def _fits(self, tenant, ask):
        limits = [limit for limit in (self.queue_gpus, self.unreported_gpus) if limit is not None]
        over = tenant.is_ours and limits and self.used(ours=True).total() + ask.gpus > min(limits)
        return not over and self.used()[ask.host] + ask.gpus <= GPUS[ask.host]


class Stranger:
    """Another tenant, which asks for single GPUs of nodes, takes what it can get, and may give it all back."""

    def __init__(self, yarn):
        self._tenant = yarn.tenant(is_ours=False)
        self._yarn = yarn

    def ask(self, **gpus):
        for number, host in enumerate(Counter(gpus).elements(), 1):
            self._tenant.ask(ContainerAsk(allocation_request_id=number, host=host, gpus=1, memory_mb=1))

    def take(self):
        """Take what is free of what was asked for."""
        self._tenant.allocate()

    def leave(self):
        with self._yarn.lock:
            self._yarn.asks = [each for each in self._yarn.asks if each[0] is not self._tenant]
            self._tenant.held.clear()

    @property
    def held(self):
        return Counter(container.host for container in self._tenant.held.values())


class TaskHostsInMemory(TaskHosts):
    """Task hosts that are ready at once. Their tasks run until they are stopped, and leave a checkpoint then."""

    def answer(self, seat_id):
        if (state := self._hosts.get(seat_id)) is not None:
            state.address, state.pid = f"{seat_id}:1", os.getpid()
            state.ready.set()

    def renew(self, seat_id):
        super().renew(seat_id)
        self.answer(seat_id)

    @property
    def tasks(self):
        """The number of tasks that run."""
        states = self._hosts.values()
        return sum(bool(state.order) and not state.leaving and not state.exited.is_set() for state in states)

    def stop(self, seat_id, grace_s):
        if (state := self._hosts.get(seat_id)) is not None:
            state.exit_code = 75
            state.exited.set()


class AmEngineInMemory:
    """The engine of an app master."""

    page_url = engine_id = ""

    def __init__(self, yarn, context):
        self.attempt = context.attempt
        self._tenant = yarn.tenant(is_ours=True)
        self._context = context

    async def start(self, page, progress):
        hosts, loop = self._tenant.hosts, asyncio.get_running_loop()
        self._tenant.on_start = lambda seat_id: loop.call_soon_threadsafe(hosts.answer, seat_id)
        self._source = source = YarnSource(
            self._tenant,
            self._tenant,
            lambda wish: wish,
            LIMITS,
            registration=Registration(previous=(), max_memory_mb=8192, max_vcores=8, max_gpus=4),
            progress=progress,
        )
        prefix = f"{self._context.app_id}-{self.attempt}"
        self.runtime = RemoteRuntime(source, hosts, address="", run_id="", prefix=prefix, environment={})

    @property
    def headroom_gpus(self):
        return self._source.headroom_gpus

    async def lost(self):
        await asyncio.Event().wait()

    async def finish(self, state, diagnostics):
        pass

    async def close(self):
        await self.runtime.close()


class LauncherInMemory:
    """Runs app masters in this process."""

    def __init__(self, yarn, on_exit):
        self._yarn, self._on_exit = yarn, on_exit
        self._masters = {}

    async def launch(self, launch):
        context = AmContext(
            rm_address=launch.environment["THEMIS_RM_ADDRESS"],
            app_id=launch.app_id,
            attempt=launch.attempt,
            token=launch.token,
            folder=launch.working_dir,
        )
        master = AppMaster(context, AmEngineInMemory(self._yarn, context), WallClock())
        self._masters[launch.app_id] = asyncio.create_task(self._run(launch, master))
        return os.getpid()

    async def _run(self, launch, master):
        exit_code = 1
        with contextlib.suppress(Exception):
            exit_code = await master.run()
        await self._on_exit(AmExit(app_id=launch.app_id, attempt=launch.attempt, pid=os.getpid(), exit_code=exit_code))

    async def adopt(self, app_id, attempt, pid):
        return False

    async def attempts(self, app_id, attempt):
        return EngineAttempts(newest=attempt)

    def waiting(self, app_id):
        return ""

    queue = waiting

    async def kill(self, app_id):
        if (master := self._masters.pop(app_id, None)) is not None:
            master.cancel()
            await asyncio.gather(master, return_exceptions=True)

    async def shutdown(self):
        for app_id in list(self._masters):
            await self.kill(app_id)


class EngineInMemory(LocalEngine):
    """The engine of the ResourceManager."""

    poll_s = 0.1

    def __init__(self, yarn):
        plain = cluster_of(*((count,) for count in GPUS.values()))
        devices = {name: DeviceType(name=name, emulated=True) for name in plain.gpus_by_device}
        super().__init__(replace(plain, devices=devices))
        self.yarn = yarn

    def launcher(self, run_id, on_exit, machines_of, lock):
        return LauncherInMemory(self.yarn, on_exit)

    def inventory(self):
        return self

    async def read(self):
        used, limit = self.yarn.used(), self.yarn.queue_gpus
        nodes = [Node(machine=each, used_gpus=used[each.machine_id]) for each in self._cluster.machines]
        text = "" if limit is None else f"YARN's queue default may use {limit} of 10 GPUs"
        return Inventory(nodes=tuple(nodes), devices=tuple(self._cluster.devices.values()), max_gpus=limit, limit=text)


class Site:
    """A ResourceManager and its apps on this cluster."""

    def __init__(self, manager: ResourceManager, yarn: SharedYarn) -> None:
        self.manager, self.yarn, self.stranger = manager, yarn, Stranger(yarn)

    async def submit(self, name, *, jobs=1, tasks=8, min_tasks=1):
        """An app of jobs that never end."""
        shape = JobShape(tasks=tasks, min_tasks=min_tasks)
        spec = AppSpec(
            user="user",
            name=name,
            tuner=TunerSpec(name="single"),
            program=ProgramSpec(name="replay", arguments={"serial_iteration_s": 0.1}),
            jobs=tuple(JobSpec(job_id=f"j{place}", shape=shape, iterations_total=20000) for place in range(jobs)),
            estimate=Estimate(serial_iteration_s=0.1),
            replay=True,
        )
        return (await self.manager.submit(spec)).app_id

    @property
    def tasks(self):
        """The number of tasks that run. Each has a GPU."""
        return sum(tenant.hosts.tasks for tenant in self.yarn.tenants)

    def grants(self, app_id):
        """What an app is believed to be granted."""
        return self.manager.entries.get(app_id).grant_limit

    def events(self, kind, app_id):
        return [event for event in self.manager.recorder.store.events(app_id=app_id) if event.kind == kind]

    async def until(self, condition, what, limit_s=50):
        try:
            async with asyncio.timeout(limit_s):
                while not condition():
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"not within {limit_s} s: {what}") from None


@contextlib.asynccontextmanager
async def site(folder: Path, policy: str, **changes):
    yarn = SharedYarn()
    engine = EngineInMemory(yarn)
    values = {
        "engine": "yarn", "state_dir": folder, "listen": "127.0.0.1:0", "policy": policy,
        "lease": LeaseSettings(duration_s=3, checkpoint_lead_s=0.5, grace_s=2), "coalesce_s": 0.05,
        "report_deadline_s": 1, "bid_deadline_s": 1, "heartbeat_s": 0.1, "unfit_s": 0.5, "validate_state": True,
        "yarn": {"pin_timeout_s": LIMITS.pin_timeout_s},
    }  # fmt: skip
    server = Server(RmSettings(**(values | changes)), await engine.open(), MemoryStore(), WallClock(), engine)
    await server.start()
    try:
        yield Site(server.manager, yarn)
    finally:
        await server.stop()
