"""A ResourceManager in memory for its pages: machines, apps with jobs, leases, and rounds from the log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import aiohttp

from rm_plugin.arbiter.core import Arbiter, LeasePolicy
from rm_plugin.arbiter.round_values import RoundSettings
from rm_plugin.engines.memory import MemoryAppLauncher
from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.manager import ResourceManager
from rm_plugin.service.recorder import Recorder
from rm_plugin.service.store_memory import MemoryStore
from rm_plugin.service.web.rm_page import RmPage
from themis.apps import AppSpec, JobShape, JobSpec, ProgramSpec, TunerSpec
from themis.bids import PlacedGang
from themis.clock import VirtualClock
from themis.cluster import Allocation, Cluster, DeviceType, Level, Machine
from themis.config.rm_settings import RmSettings
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb

NOW_S = 1_700_000_000.0
WHOLE = pb.FluidPhase(time_s=1000.0, gpus=4.0)
"""What an app that runs declares: its work takes 1000 s on 4 GPUs."""

VOID = {"meta", "br", "link"}
HOSTILE = '<script>alert(7)</script>"&\n'


class RmCase:
    """A ResourceManager that a test fills; needs a running loop."""

    def __init__(self, *racks: tuple[tuple[int, ...], ...], name: str = "here", folder: str = "state") -> None:
        machines = [
            Machine(machine_id=f"m{rack}{place}", rack_id=f"rack{rack}", slots=slots, device="v100")
            for rack, members in enumerate(racks)
            for place, slots in enumerate(members)
        ]
        devices = {"v100": DeviceType(name="v100", emulated=True)}
        cluster = Cluster(name=name, machines=tuple(machines), devices=devices)
        self.clock = VirtualClock(NOW_S)
        self.recorder = Recorder(MemoryStore(), self.clock)
        self.entries = AppEntries()
        self.arbiter = Arbiter(cluster, LeasePolicy(), RoundSettings(), seed=0, grid_origin_s=0.0)
        self.manager = ResourceManager(
            settings=RmSettings(cluster=Path("unused"), state_dir=Path(folder), app_masters="at_submit"),
            arbiter=self.arbiter,
            entries=self.entries,
            recorder=self.recorder,
            launcher=MemoryAppLauncher(_nobody),
            clock=self.clock,
        )
        self.explanations = {}
        self.figures = ()
        self.manager.rounds = SimpleNamespace(
            rounds=0,
            explanation=lambda app_id: self.explanations.get(app_id, ()),
            figures=lambda: self.figures,
        )

    def app(self, name: str, *, jobs: int = 2, user: str = "ada", queue: str = "default", **entry: object) -> AppEntry:
        """Another app that was submitted."""
        spec = AppSpec(
            name=name,
            user=user,
            queue=queue,
            tuner=TunerSpec(name="successive_halving", settings={"eta": 2}),
            program=ProgramSpec(name="digits"),
            jobs=tuple(
                JobSpec(
                    job_id=f"job-{place}",
                    shape=JobShape(tasks=2),
                    iterations_total=500,
                    hyper_parameters={"learning_rate": 0.1 / (place + 1), "optimizer": "adam"},
                )
                for place in range(jobs)
            ),
        )
        values = {"app_id": self.entries.next_id(), "spec": spec, "submitted_at_s": self.clock.now_s(), **entry}
        made = AppEntry(**values)
        self.entries.add(made)
        self.recorder.record("app_submitted", app_id=made.app_id, detail={"name": name, "user": user}, app=made)
        if not made.ended:
            self.manager.app_masters.lifecycle.arrive(made)
        return made

    def running(self, name: str, *, progress: float = 0.5, unmet: int = 0, **more: object) -> AppEntry:
        """Another app that runs, with jobs that it reported."""
        entry = self.app(name, **more)
        entry.turn(AppState.ACCEPTED)
        entry.turn(AppState.RUNNING)
        entry.attempt = 1
        entry.heartbeat = pb.Heartbeat(
            progress=progress,
            unmet_gpus=unmet,
            phase=0,
            phases=3,
            best="job-0",
            declaration=pb.Declaration(phases=[WHOLE], cluster_time_s=1000.0, share_demand=1.0),
            phases_left=[pb.FluidPhase(time_s=(1.0 - progress) * WHOLE.time_s, gpus=WHOLE.gpus)],
            jobs=[
                pb.JobStatus(
                    job_id=job.job_id,
                    state="RUNNING",
                    iteration=40,
                    target_iteration=100,
                    loss=0.25 if place else math.nan,
                    has_loss=True,
                    gpus=2,
                    hyper_parameters={"learning_rate": pb.Scalar(number=0.1)},
                    health="" if place else "its loss is no number since iteration 38",
                    tracked_run="" if place else "https://wandb.ai/me/digits/runs/1b2c",
                )
                for place, job in enumerate(entry.spec.jobs)
            ],
        )
        return entry

    def grant(self, round_id: int = 1, **gpus: dict[str, int]) -> None:
        """Lease GPUs to apps, by machine; underscores in the apps' names stand for dashes."""
        grants = {
            app.replace("_", "-"): [
                PlacedGang(Allocation.of({machine: count}), Level.MACHINE) for machine, count in here.items()
            ]
            for app, here in gpus.items()
        }
        now_s = self.clock.now_s()
        changes = self.arbiter.table.settle(
            grants, [], now_s=now_s, end_s=lambda begins_s: begins_s + 600, round_id=round_id
        )
        batch = self.recorder.batch()
        batch.lease_changes(changes)
        self.recorder.write_now(batch)

    async def made(self, step, *arguments: object, **named: object) -> object:
        """A change of one step, made and written."""
        return await self.manager.changes.make(lambda change: step(change, *arguments, **named))

    def round(self, round_id: int, rho: dict[str, float], *, offered: list[str], won: dict[str, int]) -> None:
        """A whole round in the log: all that won bid, and kept four fifths."""
        record = self.recorder.record
        self.manager.rounds.rounds = round_id
        free = {"m00": sum(won.values())}
        head = {"round_id": round_id}
        record(
            "round_started", detail={**head, "reasons": ["demand"], "free": free, "renewable": {}, "active": list(rho)}
        )
        demand = dict.fromkeys(rho, 4)
        record("round_reported", detail={**head, "rho": rho, "absent": [], "demand_gpus": demand})
        record("round_offered", detail={**head, "apps": offered})
        self.clock.advance_to(self.clock.now_s() + 0.25)
        bid = {"rows": 12, "rows_dropped": 0, "empty_value": 0.1, "best_value": 0.5, "prepare_ms": 3.0}
        absent = {app: "no bid by the deadline" for app in offered if app not in won}
        record("round_bids", detail={**head, "bids": dict.fromkeys(won, bid), "absent": absent})
        machines = {app: {"m00": count} for app, count in won.items()}
        auction = {"status": "optimal", "gap": 0.0, "solve_ms": 5.0, "bidders": len(won), "market": "", "seed": "1"}
        record(
            "round_auctioned",
            detail={**head, **auction, "proportional_fair": machines, "payments": dict.fromkeys(won, 0.8)},
        )
        record(
            "round_granted",
            detail={**head, "auction": machines, "leftovers": {}, "usable_left": 0, "refused": {}},
        )
        record("round_ended", detail={**head, "duration_ms": 300.0, "outcome": "granted"})


async def _nobody(_exit: object) -> None:
    return None


class Site:
    """A page that is served, asked from outside."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.url = session, url

    async def get(self, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
        """Status, headers and text of an address."""
        async with self.session.request(method, self.url.rstrip("/") + path) as answer:
            return answer.status, dict(answer.headers), await answer.text()

    async def text(self, path: str) -> str:
        """The text of an address that must answer."""
        status, _, text = await self.get(path)
        assert status == 200, text
        return text

    async def json(self, path: str) -> dict[str, object]:
        """A document that must be there, and strict JSON."""
        return json.loads(await self.text(path), parse_constant=_refuse)


def _refuse(constant: str) -> float:
    raise AssertionError(f"{constant} is no JSON")


@contextlib.asynccontextmanager
async def served(case: RmCase, policy: str = "themis"):
    page = RmPage(case.manager, policy)
    url = await page.start("127.0.0.1:0")
    try:
        async with aiohttp.ClientSession() as session:
            yield Site(session, url)
    finally:
        await page.stop()


def run(scenario, *arguments):
    asyncio.run(scenario(*arguments))


class Elements(HTMLParser):
    """Every element of a page with its attributes; asserts that what opens is closed."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open, self.seen = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.seen.append(data)

    @property
    def text(self):
        return " ".join("".join(self.seen).split())

    def of(self, name):
        return [attributes for tag, attributes in self.found if tag == name]

    def of_class(self, name):
        return [attrs for _, attrs in self.found if name in attrs.get("class", "").split()]


def busy():
    """Two machines on a rack, one on another; three apps, one ended; two rounds."""
    case = RmCase(((2, 2), (4,)), ((2,),))
    hungry = case.running("hungry", unmet=4)
    case.running("content")
    case.app("done", state=AppState.FAILED, diagnostics="no luck", gpu_time_s=90.0)
    case.grant(app_0001={"m00": 2}, app_0002={"m00": 2, "m01": 1})
    case.round(1, {"app-0001": 4.0, "app-0002": 1.0}, offered=["app-0001"], won={"app-0001": 2})
    case.round(2, {"app-0001": math.nan, "app-0002": math.inf}, offered=["app-0002"], won={"app-0002": 3})
    hungry.page_url = "http://node:8042/proxy/app/"
    return case
