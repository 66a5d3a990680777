"""A ResourceManager in memory that a test sends messages to, its restart, and an app master that answers rounds."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rm_plugin.arbiter.auction import run_auction
from rm_plugin.engines.memory import MemoryAppLauncher
from rm_plugin.policies.port import Policy
from rm_plugin.policies.registry import make_policy
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.host_process import AgentHost
from rm_plugin.service.log_summary import report_unreadable
from rm_plugin.service.manager import ResourceManager
from rm_plugin.service.memory_service import MemoryService
from rm_plugin.service.recorder import Recorder
from rm_plugin.service.restoring import restored_entries
from rm_plugin.service.round_runner import RoundRunner
from rm_plugin.service.server import _abandon_open_round, _arbiter
from rm_plugin.service.session import Session
from rm_plugin.service.status import app_status
from rm_plugin.service.store import StateStore
from rm_plugin.solvers.registry import solver
from themis.apps import AppSpec, JobShape, JobSpec, ProgramSpec, TunerSpec
from themis.attempt_proof import hashed
from themis.bids import AppReport, GangDemand, PhaseLeft
from themis.clock import VirtualClock
from themis.cluster import Cluster, DeviceType, Machine
from themis.config.rm_settings import RmSettings
from themis.wire import themis_pb2 as pb
from themis.wire.values import report_to_message

NOW_S = 1_700_000_000.0
CLUSTER = Cluster(
    name="small",
    machines=tuple(Machine(machine_id=f"m{place}", rack_id="r0", slots=(2, 2), device="v100") for place in range(2)),
    devices={"v100": DeviceType(name="v100", emulated=True)},
)

SPEC = AppSpec(
    user="user",
    name="mine",
    tuner=TunerSpec(name="single"),
    program=ProgramSpec(name="digits"),
    jobs=(JobSpec(job_id="job-0", iterations_total=10),),
)
_DEMAND = GangDemand(job_id="job-0", min_gpus=1, max_gpus=1, work_left_gpu_s=10.0)
_PHASE = PhaseLeft(jobs=1, work_gpu_s=10.0, longest_gpu_s=10.0, gang_gpus=1)


class InlineAuctioneer:
    """Solves where it is asked, without a worker process."""

    async def run(self, market):
        return run_auction(market, solver("exact"), 5.0)


class ServiceCase:
    """Needs a running loop. A new one of the same store is a restart."""

    def __init__(
        self,
        store: StateStore,
        *,
        policy: str = "themis",
        folder: Path = Path("state"),
        decider: Policy | None = None,
        cluster: Cluster = CLUSTER,
        now_s: float = NOW_S,
        host: AgentHost | None = None,
        **settings: object,
    ) -> None:
        values = {
            "cluster": Path("unused"),
            "state_dir": folder,
            "policy": policy,
            "app_masters": "at_submit",
            "report_deadline_s": 0.02,
            "bid_deadline_s": 0.02,
            "auction": {"keep_markets": 0},
        }
        settings = RmSettings.model_validate(values | settings)
        self.clock = VirtualClock(now_s)
        self.recorder = Recorder(store, self.clock)
        self.entries = restored_entries(store)
        decider = decider or make_policy(policy)
        report_unreadable(self.recorder.summary)
        self.arbiter = _arbiter(settings, cluster, store, self.clock, self.entries, decider, self.recorder.summary)
        _abandon_open_round(self.recorder)
        self.launcher = MemoryAppLauncher(_nothing)
        self.manager = ResourceManager(
            settings=settings,
            arbiter=self.arbiter,
            entries=self.entries,
            recorder=self.recorder,
            launcher=self.launcher,
            clock=self.clock,
            host=host,
        )
        self.rounds = self.manager.rounds = RoundRunner(
            settings=settings,
            arbiter=self.arbiter,
            policy=decider,
            entries=self.entries,
            hosted=self.manager.hosted,
            changes=self.manager.changes,
            auctioneer=InlineAuctioneer(),
            clock=self.clock,
            notify=self.manager.notify,
            grantable_gpus=self.manager.live_cluster.grantable_gpus,
            heartbeat_s=self.manager.app_masters.heartbeat_s,
        )
        self.numbers: dict[str, int] = {}

    async def started(self, name: str, jobs: int = 2) -> tuple[AppEntry, Session]:
        """An app that was submitted, and whose app master registered."""
        entry = await self.manager.submit(app(name, jobs))
        return await self.manager.sessions.register(registration(entry))

    async def send(self, entry: AppEntry, session: Session, **body: object) -> None:
        """Receive a message of an app master, as the next of its session unless it has an id."""
        message = body.pop("message", None) or pb.AmMessage(**body)
        if not message.id:
            self.numbers[entry.app_id] = message.id = self.numbers.get(entry.app_id, 0) + 1
        await self.manager.sessions.receive(entry, session, message)

    async def round(self, answers=lambda round_id, body: ()) -> None:
        """Play a round; `answers` gives (entry, session, message) when reports and when bids are asked for.

        What they lack counts as missed, whatever the time: no answer comes too late because this process stood still.
        """
        round_id = self.arbiter._next_round_id
        settings = self.rounds._settings
        self.rounds._settings = settings.model_copy(update={"report_deadline_s": 60.0, "bid_deadline_s": 60.0})
        playing = asyncio.ensure_future(self.rounds._play(["test"]))
        try:
            for body in ("rho", "bid"):
                while not playing.done() and not self._asked(body):
                    await asyncio.sleep(0.001)
                for entry, session, message in answers(round_id, body):
                    await self.send(entry, session, message=message)
                for session in self._sessions():
                    session.forget(round_id)
            await playing
        finally:
            self.rounds._settings = settings

    def _asked(self, body: str) -> bool:
        """Whether the round waits for answers of this kind: what is sent before is dropped."""
        return any(session._reports if body == "rho" else session._bids for session in self._sessions())

    def _sessions(self) -> list[Session]:
        return [entry.session for entry in self.entries.active() if entry.session]

    def check(self) -> None:
        """Lists, statuses and invariants hold."""
        self.arbiter.validate()
        for entry in self.entries:
            app_status(self.manager, entry, whole=False).SerializeToString()
            app_status(self.manager, entry, whole=True).SerializeToString()


def app(name: str, jobs: int = 2) -> AppSpec:
    return AppSpec(
        user="user",
        name=name,
        tuner=TunerSpec(name="single"),
        program=ProgramSpec(name="digits"),
        jobs=tuple(
            JobSpec(job_id=f"job-{place}", shape=JobShape(tasks=2), iterations_total=100) for place in range(jobs)
        ),
    )


def known_token(entry: AppEntry) -> str:
    """Give the attempt of an app a token that the test knows."""
    entry.token_sha256 = hashed("the token of a test")
    return "the token of a test"


def registration(entry: AppEntry, **changes: object) -> pb.Register:
    values = {
        "app_id": entry.app_id,
        "token": known_token(entry),
        "attempt": entry.attempt,
        "pid": entry.registered_pid or 4711,
    }
    return pb.Register(**{**values, **changes})


def report(round_id: int) -> pb.RhoReport:
    slowdown = pb.Slowdown(slot=1.0, machine=1.0, rack=1.1, cluster=1.3)
    demand = pb.GangDemand(
        job_id="job-0", min_gpus=1, max_gpus=2, unit_gpus=1, slowdown=slowdown, work_left_gpu_s=100.0,
        held=pb.Allocation(counts=[pb.GpuCount(machine_id="m0", gpus=1)]),
        forecast=pb.LossForecast(floor=0.1, drop=1.0, scale=10.0, power=0.5, iteration=5, serial_iteration_s=1.0),
    )  # fmt: skip
    phase = pb.PhaseLeft(jobs=2, work_gpu_s=200.0, longest_gpu_s=100.0, gang_gpus=2)
    return pb.RhoReport(
        round_id=round_id, rho=2.0, t_shared_s=200.0, t_ideal_s=100.0, demands=[demand], phases_left=[phase],
        restart_s=1.0,
    )  # fmt: skip


def bid(round_id: int) -> pb.Bid:
    rows = [
        pb.BidRow(value=0.5, gangs=[pb.Gang(gpus=2, within=1, count=1, unit_gpus=1)]),
        pb.BidRow(value=0.4, pinned=pb.Allocation(counts=[pb.GpuCount(machine_id="m1", gpus=1)])),
    ]
    return pb.Bid(round_id=round_id, empty_value=0.1, rows=rows, rows_dropped=0, prepare_ms=1.0)


DECLARATION = pb.Declaration(phases=[pb.FluidPhase(time_s=50.0, gpus=2.0)], cluster_time_s=40.0, share_demand=0.5)


def heartbeat() -> pb.Heartbeat:
    level = pb.LevelSlowdown(level="machine", factor=1.0, intervals=1, spread=0.1)
    job = pb.JobStatus(
        job_id="job-0", state="RUNNING", iteration=5, target_iteration=100, loss=0.5, has_loss=True, iteration_s=1.0,
        hyper_parameters={"learning_rate": pb.Scalar(number=0.1)}, slowdown=[level],
    )  # fmt: skip
    return pb.Heartbeat(
        progress=0.5,
        jobs=[job],
        phase=0,
        phases=1,
        unmet_gpus=2,
        best="job-0",
        declaration=DECLARATION,
        phases_left=[pb.FluidPhase(time_s=25.0, gpus=2.0)],
    )


def job_event(kind: str = "checkpoint", detail: str = '{"iteration": 5, "seconds": 0.5}') -> pb.JobEvent:
    return pb.JobEvent(job_id="job-0", kind=kind, time_s=NOW_S, detail=detail)


def finish(state: str = "FINISHED") -> pb.Finish:
    return pb.Finish(state=state, diagnostics="", rho={"themis": 1.5}, jobs=heartbeat().jobs, best="job-0")


async def _nothing(_exit: object) -> None:
    return None


async def answer(rm: MemoryService, entry: AppEntry, session: Session, *, deaf_for: int = 0) -> None:
    """An app that could use one GPU more than it has, as long as it has none; deaf to the first rounds."""
    async for message in session.outgoing():
        if message.WhichOneof("body") != "ask_rho":
            continue
        deaf_for -= 1
        if deaf_for < 0:
            wanted = () if rm.arbiter.table.live_of(entry.app_id) else (_DEMAND,)
            report = AppReport(
                app_id=entry.app_id,
                round_id=message.ask_rho.round_id,
                rho=2.0,
                t_shared_s=20.0,
                t_ideal_s=10.0,
                demands=wanted,
                phases_left=(_PHASE,),
            )
            await rm.manager.sessions.receive(
                entry, session, pb.AmMessage(id=message.id, rho=report_to_message(report))
            )
