"""A chaos run: short apps are submitted all the time, faults strike by plan, and witnesses look on."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import random
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import grpc
from authorized_stub import LocalStub
from embedded_service import TIME_SCALE, EmbeddedService
from fault_plan import Fault
from job_witness import CHECKPOINT_EVERY, broken_rules
from process_witness import ProcessWitness, now_s

from themis.addresses import grpc_target, keepalive_options
from themis.apps import AppSpec, Estimate, JobShape, JobSpec, ProgramSpec, TaskResources, TunerSpec
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.values import app_to_message

SERIAL_ITERATION_S = 1.5
ENDED = ("FINISHED", "FAILED", "KILLED")
ACTIVE_APPS = 5
CALL_S = 2.0
VICTIM_S = 60.0
"""How long a fault waits for a process of its kind: longer than the service may be unavailable."""

END_S = 180.0
_OWN_ERROR = re.compile(r"exit code ([1-9]|[1-9]\d)\b")
"""Kills are -9 or 137, and YARN's own reasons are negative."""

UNWANTED = 0.01
"""Share of the looks at the list after which an app is killed by its user."""


@dataclass(slots=True)
class Struck:
    """A fault that happened: between which moments, and when the service then served again."""

    fault: Fault
    begun_s: float
    ended_s: float


@dataclass(slots=True)
class ChaosRun:
    """Plays a plan against a service. `play` returns once every app has ended or time is up."""

    service: EmbeddedService
    plan: tuple[Fault, ...]
    seed: int
    struck: list[Struck] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    unwanted: set[str] = field(default_factory=set)
    """Apps whose kill was accepted while they were active."""
    perhaps_unwanted: set[str] = field(default_factory=set)
    """Apps whose kill may have been accepted: no answer came."""
    states: dict[str, pb.AppStatus] = field(default_factory=dict)
    listed_s: list[float] = field(default_factory=list)
    """When a list was asked for that came."""
    tried_s: list[float] = field(default_factory=list)
    """When a submission was sent."""
    submitted_s: list[float] = field(default_factory=list)
    """When a submission was sent that was accepted."""
    troubles: list[str] = field(default_factory=list)
    read_logs: list[str] = field(default_factory=list)
    _no_more: threading.Event = field(default_factory=threading.Event)
    _done: threading.Event = field(default_factory=threading.Event)

    def play(self) -> ProcessWitness:
        witness = ProcessWitness(self.service.run_id)
        witness.start()
        client = threading.Thread(target=self._use, daemon=True)
        client.start()
        try:
            self._until(lambda: witness.tasks(), "a task runs")
            self._strike(witness)
            last_s = max((each.ended_s for each in self.struck), default=now_s())
            self._until(lambda: self._served_since(witness, last_s), "the service serves after the last fault", END_S)
            self._no_more.set()
            self._until(self._all_ended, "every app has ended", END_S)
            self._until(lambda: not witness.living(), "no process of an app is left", END_S, witness.living)
            self._read_logs(witness)
        finally:
            self._done.set()
            client.join()
            if self.service.stop() != 0:
                self.troubles.append("the ResourceManager did not stop in good order")
            time.sleep(0.5)
            self.troubles += [f"an orphan: {each.owner} (pid {each.pid})" for each in witness.living()]
            witness.stop()
        return witness

    # ---- load ----

    def _use(self) -> None:
        """Ask for the list all the time, and submit an app whenever there are few."""
        numbers = itertools.count(1)
        rng = random.Random(self.seed)
        address, channel = "", None
        while not self._done.wait(0.1):
            if self.service.address() not in ("", address):
                address = self.service.address()
                options = [("grpc.max_reconnect_backoff_ms", 500), *keepalive_options(address)]
                channel = grpc.insecure_channel(grpc_target(address), options=options)
            if channel is None:
                continue
            stub = LocalStub(rpc.ClientServiceStub(channel), address)
            with contextlib.suppress(grpc.RpcError):
                sent_s = now_s()
                reply = stub.List(pb.ListRequest(), timeout=CALL_S)
                self.listed_s.append(sent_s)
                self.states |= {app.app_id: app for app in reply.apps}
                active = sum(app.state not in ENDED for app in reply.apps)
                if active < ACTIVE_APPS and not self._no_more.is_set():
                    sent_s = now_s()
                    self.tried_s.append(sent_s)
                    spec = chaos_app(f"app{next(numbers)}", rng)
                    self.accepted.append(
                        stub.Submit(pb.SubmitRequest(spec=app_to_message(spec)), timeout=CALL_S).app_id
                    )
                    self.submitted_s.append(sent_s)
                if rng.random() < UNWANTED and (running := [a.app_id for a in reply.apps if a.state == "RUNNING"]):
                    victim = rng.choice(running)
                    self.perhaps_unwanted.add(victim)
                    if stub.Kill(pb.KillRequest(app_id=victim), timeout=CALL_S).state not in ENDED:
                        self.unwanted.add(victim)

    def _read_logs(self, witness: ProcessWitness) -> None:
        """Ask for the logs of finished apps: on YARN, they come to this machine when asked for.

        There, an app master that is killed within ten seconds can take the logs of its tasks with it. So an app must
        have logs only if its last app master ran a task.
        """
        address = self.service.address()
        with grpc.insecure_channel(grpc_target(address)) as channel:
            stub = LocalStub(rpc.ClientServiceStub(channel), address)
            for app_id, app in self.states.items():
                if app.state == "FINISHED" and witness.ran_in_last_attempt(app_id):
                    self.read_logs.append(app_id)
                    if not any(stub.Logs(pb.LogsRequest(app_id=app_id), timeout=60)):
                        self.troubles.append(f"{app_id} has no logs")

    def _all_ended(self) -> bool:
        return set(self.accepted) <= self.states.keys() and all(app.state in ENDED for app in self.states.values())

    # ---- faults ----

    def _strike(self, witness: ProcessWitness) -> None:
        # An outage lasts while further faults strike; two outages follow each other.
        outage: threading.Thread | None = None
        for fault in self.plan:
            time.sleep(fault.pause_s)
            if fault.is_kill:
                begun_s = now_s()
                self._kill(fault, witness)
                self.struck.append(Struck(fault, begun_s, now_s()))
                continue
            if outage is not None:
                outage.join()
            outage = threading.Thread(target=self._outage, args=(fault, witness), daemon=True)
            outage.start()
        if outage is not None:
            outage.join()

    def _kill(self, fault: Fault, witness: ProcessWitness) -> None:
        if fault.kind == "kill node":
            self.service.cut_node(fault.pick)
            return
        candidates: Callable[[], list[int]] = {
            "kill resource manager": lambda: [self.service.process.pid],
            "kill app master": lambda: [each.pid for each in witness.masters()],
            "kill task": lambda: [each.pid for each in witness.tasks()],
            "kill auction worker": self.service.auction_workers,
        }[fault.kind]
        killed = False
        while not killed:
            pid = self._victim(fault, candidates)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed = True

    def _victim(self, fault: Fault, candidates: Callable[[], list[int]]) -> int:
        self._until(lambda: bool(candidates()), f"there is a process to {fault.kind}", VICTIM_S)
        found = candidates()
        return found[int(fault.pick * len(found))] if found else self._victim(fault, candidates)

    def _outage(self, fault: Fault, witness: ProcessWitness) -> None:
        begun_s = now_s()
        service = self.service
        if fault.kind == "clock step":
            service.step_clock(fault.step_s)
        else:
            if fault.kind == "stop resource manager":
                outage = service.stopped(service.process.pid)
            elif fault.kind == "stop app master":
                outage = service.stopped(self._victim(fault, lambda: [each.pid for each in witness.masters()]))
            else:
                outage = {
                    "full disk": service.full_disk,
                    "locked store": service.locked_store,
                    "stop YARN": service.stopped_yarn,
                }[fault.kind]()
            try:
                with outage:
                    time.sleep(fault.length_s)
            except ProcessLookupError:
                # It died in this very moment, which is a fault too.
                pass
        self.struck.append(Struck(fault, begun_s, now_s()))

    def _until(
        self,
        condition: Callable[[], object],
        what: str,
        limit_s: float = 90.0,
        found: Callable[[], object] = lambda: "",
    ) -> None:
        deadline_s = now_s() + limit_s
        while not condition():
            if now_s() > deadline_s:
                raise AssertionError(f"not within {limit_s:g} s: {what} {found()}\n{self.service.log()[-8000:]}")
            time.sleep(0.1)

    # ---- what became of it ----

    def served(self, witness: ProcessWitness, since_s: float) -> dict[str, float]:
        """Seconds after `since_s` until the service answered, took an app, and had a task started.

        A submission is sent only while few apps are active. So the time until one is accepted counts from the first.
        """
        starts_s = [each.started_s for each in witness.seen if each.is_task]
        tried_after_s = _first_after(self.tried_s, since_s)
        return {
            "answers": _first_after(self.listed_s, since_s),
            "takes an app": _first_after(self.submitted_s, since_s + tried_after_s) if self.tried_s else math.inf,
            "starts a task": _first_after(starts_s, since_s),
        }

    def _served_since(self, witness: ProcessWitness, since_s: float) -> bool:
        return max(self.served(witness, since_s).values()) < float("inf")

    def lost_apps(self) -> list[str]:
        """Apps that were accepted, or known, and neither finished nor were killed by their user."""
        known = set(self.accepted) | self.states.keys()
        finished = {app_id for app_id, app in self.states.items() if app.state == "FINISHED"} - self.unwanted
        finished |= {app_id for app_id in self.perhaps_unwanted if self.states[app_id].state == "KILLED"}
        return [
            f"{app_id}: {self.states.get(app_id, pb.AppStatus()).diagnostics}" for app_id in sorted(known - finished)
        ]

    def gave_up(self) -> list[str]:
        """App masters that ended by themselves with an error, by the exit codes that the engine reported."""
        with contextlib.closing(sqlite3.connect(self.service.state / "rm.sqlite")) as store:
            rows = store.execute("SELECT app_id, detail FROM events WHERE kind = 'am_lost'").fetchall()
        reasons = [(app_id, str(json.loads(detail)["reason"])) for app_id, detail in rows]
        return [f"{app_id}: {reason}" for app_id, reason in reasons if _OWN_ERROR.match(reason)]

    def broken_jobs(self, witness: ProcessWitness) -> list[str]:
        """What is wrong with the jobs of finished apps, by their own files."""
        found = []
        for app_id, app in sorted(self.states.items()):
            for job in app.jobs if app.state == "FINISHED" else ():
                tasks = 1 + int(job.job_id[-1]) % 2
                folder = self.service.state / "apps" / app_id / "jobs" / job.job_id
                iterations_per_s = tasks * TIME_SCALE / SERIAL_ITERATION_S
                full = self._met_full_disk(witness, app_id, job.job_id)
                saved = self.service.newest_checkpoint(app_id, job.job_id)
                found += broken_rules(
                    folder, iterations_of(job.job_id), iterations_per_s, saved=saved, disk_was_full=full
                )
        return found

    def _met_full_disk(self, witness: ProcessWitness, app_id: str, job_id: str) -> bool:
        """Whether the disk was full while a task of the job lived."""
        outages = [(each.begun_s, each.ended_s) for each in self.struck if each.fault.kind == "full disk"]
        tasks = [each for each in witness.seen if each.owner[:2] == (app_id, job_id)]
        return any(
            task.started_s <= ended_s and begun_s <= task.last_seen_s for task in tasks for begun_s, ended_s in outages
        )

    def report(self, witness: ProcessWitness) -> str:
        """A table: how often each fault struck, and the worst times to serve again, in seconds."""
        rows = [f"{'fault':24}{'times':>6}{'answers':>9}{'takes':>9}{'starts':>9}"]
        kinds = sorted({each.fault.kind for each in self.struck})
        for kind in kinds:
            served = [self.served(witness, each.ended_s) for each in self.struck if each.fault.kind == kind]
            worst = [max(each[name] for each in served) for name in ("answers", "takes an app", "starts a task")]
            rows.append(f"{kind:24}{len(served):6}" + "".join(f"{seconds:9.1f}" for seconds in worst))
        kills = sum(each.fault.is_kill for each in self.struck)
        processes = len(witness.seen)
        disk = "a tmpfs" if self.service.has_own_disk else "a limit on the ResourceManager's files"
        rows.append(
            f"seed {self.seed}: {kills} kills, {len(self.struck) - kills} outages, {len(self.states)} apps,"
            f" {processes} processes seen, {self.service.starts} starts of the ResourceManager; full disk: {disk}"
        )
        return "\n".join(rows)


def iterations_of(job_id: str) -> int:
    """Iterations of a job, by its name `job-TENS-NUMBER`."""
    return 10 * int(job_id.split("-")[1])


def chaos_app(name: str, rng: random.Random) -> AppSpec:
    """One to three jobs of one or two tasks, each of two to six seconds of training."""
    jobs = []
    for number in range(rng.randint(1, 3)):
        tasks = 1 + number % 2
        tens = rng.randint(6, 12)
        rate = 0.01 * (number + 1)
        jobs.append(
            JobSpec(
                job_id=f"job-{tens}-{number}",
                shape=JobShape(tasks=tasks),
                iterations_total=10 * tens,
                hyper_parameters={"learning_rate": rate},
            )
        )
    return AppSpec(
        name=name,
        tuner=TunerSpec(name="single"),
        program=ProgramSpec(name="replay", arguments={"model": "resnet50", "serial_iteration_s": SERIAL_ITERATION_S}),
        jobs=tuple(jobs),
        resources=TaskResources(memory_mb=256),
        estimate=Estimate(serial_iteration_s=SERIAL_ITERATION_S),
        checkpoint_every=CHECKPOINT_EVERY,
        max_task_restarts=1000,
        replay=True,
    )


def _first_after(moments_s: Iterable[float], since_s: float) -> float:
    return min((each for each in moments_s if each >= since_s), default=float("inf")) - since_s
