"""Run `bench service`: a ResourceManager in a process of its own, app masters in others, probes from this one.

The phases: start the ResourceManager on an empty store, submit all apps, wait until their app masters have registered,
measure for some seconds, stop it without its apps, and start it again from its store.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import yaml

from rm_plugin.service.store_sqlite import SqliteStore
from submarine_client.admin import Admin
from submarine_client.connection import Connection
from themis.apps import AppSpec, Estimate, JobShape, JobSpec, ProgramSpec, TunerSpec
from themis.choices import AppMastersStart
from themis.config.defaults import DEFAULT_POLICY
from themis.errors import InputError, ThemisError
from themis.files import last_line
from themis.lifecycle import AppState
from themis.processes import GUARD
from themis.python_programs import module_command
from themis.values import Value
from themis_lab.bench.auction_rows import percentile
from themis_lab.bench.service_driver import heartbeats_file
from themis_lab.bench.service_engine import launch_file
from themis_lab.testbed.rm_process import RmProcess

MAX_APPS, MAX_GPUS, MAX_SECONDS = 100_000, 100_000, 3_600.0
_APPS_A_DRIVER = 1_000
_SUBMITTERS = 8
"""Clients that submit at the same time."""
_PROBE_EVERY_S = 0.25
_LISTED = 200
"""Apps of one `list`, as many as of one page of REST."""
_READY_S, _READY_S_AN_APP = 60.0, 0.1
"""Longest wait for all registrations: a minimum, and seconds for each app."""
_START_LIMIT_S = 600.0
"""Longest wait for a start: how long it takes is measured."""
_LOOK_S = 0.5
_WORK_S = 7_200.0
_EVENTS_A_READ = 2_000
_MIB = 2.0**20
_DRIVERS_LOG = "drivers.log"


class ServiceBenchPlan(Value, frozen=True, kw_only=True):
    """The plan of the benchmark.

    Attributes:
        apps: Apps that fill the cluster: each has one job, a gang of `gang_gpus` GPUs.
        waiting: More apps of the same kind, so that as many wait at any time.
        gpus: GPUs of the cluster.
        seconds: Seconds of the measurement.
        lease_s: Seconds of a lease: a round is due this often.
        policy: The policy.
        app_masters: When app masters start.
    """

    apps: int = 200
    waiting: int = 0
    gpus: int = 1_000
    seconds: float = 60.0
    lease_s: float = 20.0
    policy: str = DEFAULT_POLICY
    app_masters: AppMastersStart = AppMastersStart.AT_GRANT

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("--apps", self.apps, 1, MAX_APPS),
            ("--waiting", self.waiting, 0, MAX_APPS),
            ("--gpus", self.gpus, 1, MAX_GPUS),
            ("--seconds", self.seconds, 1, MAX_SECONDS),
            ("--lease-s", self.lease_s, 5, MAX_SECONDS),
        ):
            if not least <= value <= most:
                raise InputError(f"{name} must be {least:g} to {most:g}", value=value)

    @property
    def first_app_masters(self) -> int:
        """The number of app masters that start before the measurement."""
        return self.apps + (self.waiting if self.app_masters is AppMastersStart.AT_SUBMIT else 0)

    @property
    def gang_gpus(self) -> int:
        """GPUs of each job: the largest power of two that `apps` of them have room for."""
        return int(2 ** max(0, (self.gpus // self.apps).bit_length() - 1))


class Quantiles(Value, frozen=True, kw_only=True):
    """Median and 99th percentile by nearest rank, in seconds; None without a value."""

    p50: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, values_s: Sequence[float]) -> Quantiles:
        """Those of some values."""
        return cls(p50=percentile(values_s, 50), p99=percentile(values_s, 99)) if values_s else cls()


class Result(Value, frozen=True, kw_only=True):
    """The measurements. Shares and times are those of the measured seconds, except for submissions.

    Attributes:
        reports_in_time: Reports that arrived by the deadline, as a share of those that rounds wanted; None: no round.
        round_s: Seconds of whole rounds.
        steps_s: Seconds of their steps: until all reports, then all bids, the auction, the grants.
        rest_s: Seconds of requests to the REST interface.
        list_s: Seconds of lists of at most 200 apps over gRPC.
        heartbeat_s: Seconds from a heartbeat to its acknowledgement, as app masters see it.
        submissions_per_s: Apps accepted a second, from 8 clients at once.
        cpu_share: CPU seconds of the ResourceManager's process a second; 1 is one core.
        worker_cpu_share: The same of its other processes, which solve auctions and answer for waiting apps.
        rss_mb: Peak memory of the ResourceManager's process in MiB.
        worker_rss_mb: Memory of its other processes at the end of the measurement, in MiB.
        start_s: Seconds from a start on the filled store to the first answer to `list`.
        start_cpu_s: CPU seconds of the ResourceManager's process until then.
        rounds: Rounds that ended.
        registered: Apps whose app master had registered when the measurement began.
        registered_s: Seconds from the first submission until then.
        registered_cpu_s: CPU seconds of the ResourceManager's process for that.
    """

    reports_in_time: float | None
    round_s: Quantiles
    steps_s: Mapping[str, Quantiles]
    rest_s: Quantiles
    list_s: Quantiles
    heartbeat_s: Quantiles
    submissions_per_s: float
    cpu_share: float
    worker_cpu_share: float
    rss_mb: float
    worker_rss_mb: float
    start_s: float
    start_cpu_s: float
    rounds: int
    registered: int
    registered_s: float
    registered_cpu_s: float


def run_plan(plan: ServiceBenchPlan, say: Callable[[str], object]) -> Result:
    """Run the benchmark. `say` is called with each phase as it begins.

    Raises:
        ThemisError: The ResourceManager or a driver ended early.
    """
    with tempfile.TemporaryDirectory(prefix="themis-bench-service-") as name, ExitStack() as stack:
        folder = Path(name)
        drivers = -(-(plan.apps + plan.waiting) // _APPS_A_DRIVER)
        service = Service(plan, folder, drivers)
        stack.callback(service.end)
        say(f"starting a ResourceManager with {plan.gpus} GPUs")
        service.start()
        driving = stack.enter_context(_drivers(folder, drivers))
        with Connection(service.address) as client:
            say(f"submitting {plan.apps + plan.waiting} apps, each with a job of {plan.gang_gpus} GPUs")
            begun_s, begun_cpu_s = time.monotonic(), _cpu_s(service.process)
            page_url = _submit_all(client, plan)
            submitted_s = time.monotonic() - begun_s
            say("waiting until all app masters have registered")
            registered = _wait_for_all(client, plan, driving, folder / _DRIVERS_LOG)
            registered_s, registered_cpu_s = time.monotonic() - begun_s, _cpu_s(service.process) - begun_cpu_s
            say(f"measuring for {plan.seconds:g} s")
            measured = _measure(client, service, page_url, plan.seconds)
        say("starting it again from its store")
        service.stop_alone()
        start_s = service.start()
        start_cpu_s = _cpu_s(service.process)
        service.end()
        _end(driving)
        rounds = _rounds(folder / "state" / "rm.sqlite", measured.began_at_s, measured.ended_at_s)
        files = [heartbeats_file(folder, driver) for driver in range(drivers)]
        beats = list(chain.from_iterable(json.loads(file.read_text()) for file in files))
        return Result(
            reports_in_time=rounds.reports / rounds.reports_wanted if rounds.reports_wanted else None,
            round_s=Quantiles.of(rounds.took_s),
            steps_s={step: Quantiles.of(values_s) for step, values_s in rounds.steps_s.items()},
            rest_s=Quantiles.of(measured.rest_s),
            list_s=Quantiles.of(measured.list_s),
            heartbeat_s=Quantiles.of(
                [took_s for sent_s, took_s in beats if measured.began_at_s <= sent_s <= measured.ended_at_s]
            ),
            submissions_per_s=(plan.apps + plan.waiting) / submitted_s,
            cpu_share=measured.cpu_s / (measured.ended_at_s - measured.began_at_s),
            worker_cpu_share=measured.worker_cpu_s / (measured.ended_at_s - measured.began_at_s),
            rss_mb=measured.rss_mb,
            worker_rss_mb=measured.worker_rss_mb,
            start_s=start_s,
            start_cpu_s=start_cpu_s,
            rounds=len(rounds.took_s),
            registered=registered,
            registered_s=registered_s,
            registered_cpu_s=registered_cpu_s,
        )


class Service:
    """The ResourceManager's process, which can be stopped and started again on the same state."""

    def __init__(self, plan: ServiceBenchPlan, folder: Path, drivers: int) -> None:
        self.address = ""
        self._folder = folder
        self._settings = folder / "rm.yaml"
        self._arguments = (str(self._settings), str(plan.gpus), str(drivers))
        self._process: RmProcess | None = None
        settings = {
            # The engine has its own machines.
            "cluster": "testbed-64",
            "state_dir": "state",
            "listen": "127.0.0.1:0",
            "page": "127.0.0.1:0",
            "policy": plan.policy,
            "app_masters": plan.app_masters.value,
            "lease": {"duration_s": plan.lease_s, "checkpoint_lead_s": min(2.0, plan.lease_s / 4), "grace_s": 30.0},
            # App masters that are late are measured, not killed.
            "am_expiry_s": 600.0,
        }
        self._settings.write_text(yaml.safe_dump(settings), encoding="utf-8")

    def start(self) -> float:
        """Start it. Returns the seconds until it answered."""
        begun_s = time.monotonic()
        log = self._folder / "rm.log"
        command = module_command("themis_lab.bench.service_rm", *self._arguments)
        self._process = RmProcess(command, uuid.uuid4().hex, log)
        self.address = self._process.wait_for_address(self._folder / "state" / "address", limit_s=_START_LIMIT_S)
        with Connection(self.address) as client:
            client.wait_until_ready(_START_LIMIT_S)
            client.first(most=1)
        return time.monotonic() - begun_s

    @property
    def process(self) -> psutil.Process:
        """The process. Raises ThemisError if it has ended."""
        assert self._process is not None
        self._process.check()
        return psutil.Process(self._process.pid)

    def stop_alone(self) -> None:
        """Stop it in good order; its apps go on."""
        process = self.process
        with Admin(self.address) as admin:
            admin.stop(keep_apps=True)
        process.wait(120.0)
        self.end()

    def end(self) -> None:
        """End it with everything that it started."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()


@contextmanager
def _drivers(folder: Path, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that play app masters. The kernel kills them with this one."""
    guard = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(int(signal.SIGKILL))]
    started: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / _DRIVERS_LOG).open("ab") as log:
            for driver in range(count):
                launch_file(folder, driver).touch()
                command = module_command("themis_lab.bench.service_driver", str(folder), str(driver))
                started.append(subprocess.Popen([*guard, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def _end(drivers: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in drivers:
        process.terminate()
    for process in drivers:
        process.wait()


def _submit_all(client: Connection, plan: ServiceBenchPlan) -> str:
    """Submit the apps. Returns the address of the service's page."""
    with ThreadPoolExecutor(_SUBMITTERS) as pool:
        replies = list(pool.map(client.submission, [_app(plan, number) for number in range(plan.apps + plan.waiting)]))
    return str(replies[0].page_url).rpartition("apps/")[0]


def _app(plan: ServiceBenchPlan, number: int) -> AppSpec:
    shape = JobShape(tasks=plan.gang_gpus, min_tasks=plan.gang_gpus)
    return AppSpec(
        name=f"bench-{number}",
        user=f"user-{number % 20}",
        tuner=TunerSpec(name="single"),
        program=ProgramSpec(name="replay"),
        # Sizes differ by up to a half, so that bids do.
        jobs=(JobSpec(job_id="job-0", shape=shape, iterations_total=round(_WORK_S * (1 + number % 97 / 194))),),
        estimate=Estimate(serial_iteration_s=float(plan.gang_gpus)),
        replay=True,
    )


def _wait_for_all(
    client: Connection, plan: ServiceBenchPlan, drivers: Sequence[subprocess.Popen[bytes]], log: Path
) -> int:
    """Wait until every app master that starts at first has registered, or too long. Returns how many have."""
    wanted = plan.first_app_masters
    deadline_s = time.monotonic() + _READY_S + _READY_S_AN_APP * (plan.apps + plan.waiting)
    while True:
        found = client.first((AppState.RUNNING.value,), most=1)
        registered = len(found.apps) + found.more
        if registered >= wanted or time.monotonic() > deadline_s:
            return registered
        if any(driver.poll() is not None for driver in drivers):
            raise ThemisError("a process that plays app masters ended early", value=last_line(log))
        time.sleep(_LOOK_S)


class Measured(Value, frozen=True, kw_only=True):
    """What the probes saw, between two times in seconds since the epoch."""

    began_at_s: float
    ended_at_s: float
    rest_s: tuple[float, ...]
    list_s: tuple[float, ...]
    cpu_s: float
    worker_cpu_s: float
    rss_mb: float
    worker_rss_mb: float


def _measure(client: Connection, service: Service, page_url: str, seconds: float) -> Measured:
    """Probe the service for some seconds."""
    process = service.process
    documents = ("apps", "cluster", f"apps/{client.first(most=1).apps[0].app_id}", "rounds")
    stop = threading.Event()
    rest_s: list[float] = []
    list_s: list[float] = []

    def fetch(turn: int) -> None:
        with urlopen(f"{page_url}api/v1/{documents[turn % len(documents)]}", timeout=60.0) as answer:
            answer.read()

    def probe(one: Callable[[int], object], took_s: list[float]) -> None:
        while not stop.is_set():
            begun_s = time.monotonic()
            # A request that ran into its time limit counts with that time.
            with suppress(ThemisError, OSError):
                one(len(took_s))
            took_s.append(time.monotonic() - begun_s)
            stop.wait(_PROBE_EVERY_S)

    began_at_s, cpu_s, workers_s = time.time(), _cpu_s(process), _workers_cpu_s(process)
    with ThreadPoolExecutor(2) as pool:
        probing = [
            pool.submit(probe, fetch, rest_s),
            pool.submit(probe, lambda _: client.first(most=_LISTED), list_s),
        ]
        try:
            time.sleep(seconds)
        finally:
            # Also after a Ctrl-C: the pool waits for both.
            stop.set()
    ended_at_s = time.time()
    for each in probing:
        each.result()
    return Measured(
        began_at_s=began_at_s,
        ended_at_s=ended_at_s,
        rest_s=tuple(rest_s),
        list_s=tuple(list_s),
        cpu_s=_cpu_s(process) - cpu_s,
        worker_cpu_s=_workers_cpu_s(process) - workers_s,
        rss_mb=_peak_mb(process),
        worker_rss_mb=sum(child.memory_info().rss for child in process.children(recursive=True)) / _MIB,
    )


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _workers_cpu_s(process: psutil.Process) -> float:
    """CPU seconds of the living children: a worker that was replaced does not count."""
    return sum(_cpu_s(child) for child in process.children(recursive=True))


def _peak_mb(process: psutil.Process) -> float:
    """Peak memory in MiB, by the kernel."""
    for line in Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float(process.memory_info().rss) / _MIB


class Rounds(Value, frozen=True, kw_only=True):
    """The rounds that ended between two times: seconds of each and of their steps, and the reports."""

    took_s: tuple[float, ...]
    steps_s: Mapping[str, tuple[float, ...]]
    reports: int
    reports_wanted: int


_STEPS = {"round_reported": "reports", "round_bids": "bids", "round_auctioned": "auction", "round_granted": "grants"}
"""Steps of a round by the event that ends each."""


def _rounds(path: Path, began_at_s: float, ended_at_s: float) -> Rounds:
    store = SqliteStore(path)
    took_s: list[float] = []
    steps_s: dict[str, list[float]] = {step: [] for step in _STEPS.values()}
    arrived = wanted = after = 0
    last_s = 0.0
    try:
        while events := store.events(after=after, app_id="", limit=_EVENTS_A_READ):
            after = events[-1].sequence
            for event in events:
                if not event.kind.startswith("round_"):
                    continue
                step_s, last_s = event.time_s - last_s, event.time_s
                if not began_at_s <= event.time_s <= ended_at_s:
                    continue
                detail: Mapping[str, Any] = event.detail
                if event.kind == "round_ended":
                    took_s.append(detail["duration_ms"] / 1e3)
                elif event.kind == "round_reported":
                    answered = len(detail["rho"]) - len(detail.get("kept", ())) - len(detail.get("not_asked", ()))
                    arrived += answered
                    wanted += answered + len(detail["absent"])
                if event.kind in _STEPS:
                    steps_s[_STEPS[event.kind]].append(step_s)
    finally:
        store.close()
    steps = {step: tuple(values) for step, values in steps_s.items()}
    return Rounds(took_s=tuple(took_s), steps_s=steps, reports=arrived, reports_wanted=wanted)
