"""Generate plausible runs: events and app statuses like those of a live run, for audit and report.

It is no model of Themis: GPUs go to apps in random order. It only keeps the promises that the audit checks.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from themis.apps import AppSpec, Estimate, JobShape, JobSpec, ProgramSpec, Slowdown, TunerSpec
from themis.cluster import Cluster, GpuId, Level, Machine
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message, scalars_to_messages
from themis_lab.testbed.audit_values import AuditedJob, AuditInput, AuditLimits
from themis_lab.testbed.events import Event

EPOCH_S = 1_790_000_000.0
STEP_S = 0.5
LIMITS = AuditLimits(lease_s=20.0, grace_s=5.0, round_s=4.0, f=0.0)


def sample_cluster(machines: int = 6) -> Cluster:
    members = tuple(
        Machine(
            machine_id=f"m{number:02d}", rack_id=f"rack{number % 3}", slots=(2, 2) if number % 3 else (2,), device="gpu"
        )
        for number in range(machines)
    )
    return Cluster(name="sample", machines=members)


@dataclass(kw_only=True)
class SampleApp:
    name: str
    at_s: float = 0.0
    jobs: int = 2
    tasks: int = 2
    iterations: int = 600
    serial_iteration_s: float = 0.1
    replay: bool = True


@dataclass(kw_only=True)
class SampleJob:
    app_id: str
    spec: JobSpec
    state: str = "WAITING"
    gpus: list[GpuId] = field(default_factory=list)
    level: Level = Level.SLOT
    done: float = 0.0
    safe: int = 0
    incarnation: int = 0
    restarts: int = 0
    loss: float = 2.3


class SyntheticRun:
    """Simulates apps on a cluster, second by second."""

    def __init__(self, apps: list[SampleApp], cluster: Cluster | None = None, seed: int = 0) -> None:
        self.cluster = cluster or sample_cluster()
        self.events: list[Event] = []
        self.rng = random.Random(seed)
        self.free = set(self.cluster.gpu_ids())
        self.leases: dict[GpuId, tuple[int, str]] = {}
        self.expires: dict[GpuId, float] = {}
        self.next_lease = self.round_id = 0
        self.now = 0.0
        self.dirty = False
        self.pending = sorted(apps, key=lambda app: app.at_s)
        self.specs: dict[str, AppSpec] = {}
        self.samples: dict[str, SampleApp] = {}
        self.jobs: dict[str, list[SampleJob]] = {}
        self.times: dict[str, list[float]] = {}
        self._play()

    # ---- what tests use

    def audit_input(self, limits: AuditLimits = LIMITS) -> AuditInput:
        jobs = {
            (app_id, job.spec.job_id): AuditedJob(
                state=job.state,
                target_iteration=job.spec.iterations_total,
                min_tasks=1,
                gpus_per_task=1,
            )
            for app_id, members in self.jobs.items()
            for job in members
        }
        gpus = tuple(str(gpu) for gpu in self.cluster.gpu_ids())
        return AuditInput(events=tuple(self.events), gpus=gpus, limits=limits, jobs=jobs)

    def statuses(self) -> list[pb.AppStatus]:
        return [self._status(app_id) for app_id in self.specs]

    def _status(self, app_id: str) -> pb.AppStatus:
        spec, times, jobs = self.specs[app_id], self.times[app_id], self.jobs[app_id]
        best = min(jobs, key=lambda job: job.loss)
        rho = 0.6 + 0.9 * self.rng.random()
        return pb.AppStatus(
            app_id=app_id,
            name=spec.name,
            user="user",
            state="FINISHED",
            tuner=spec.tuner.name,
            program=spec.program.name,
            replay=spec.replay,
            submitted_at_s=EPOCH_S + times[0],
            started_at_s=EPOCH_S + times[0] + 1,
            finished_at_s=EPOCH_S + times[1],
            progress=1.0,
            rho=rho,
            gpu_time_s=200.0,
            attempts=1,
            best=best.spec.job_id,
            jobs=[
                pb.JobStatus(
                    job_id=job.spec.job_id,
                    state=job.state,
                    iteration=int(job.done),
                    target_iteration=job.spec.iterations_total,
                    loss=job.loss,
                    has_loss=True,
                    accuracy=1 - job.loss / 5,
                    has_accuracy=True,
                    restarts=job.restarts,
                    hyper_parameters=scalars_to_messages(job.spec.hyper_parameters),
                )
                for job in jobs
            ],
            final_rho={
                "themis": rho,
                "fluid": rho,
                "isolated_fluid": rho * 0.7,
                "themis_fluid": rho * 1.3,
                "isolated_share": rho * 1.1,
                "placement_aware": rho * 1.05,
                "private_cluster": rho * 0.9,
                "attainable": rho * 0.8,
            },
            spec=app_to_message(spec),
            phase=1,
            phases=1,
        )

    # ---- playing

    def _tell(self, kind: str, app_id: str = "", **detail: object) -> None:
        self.events.append(
            Event(sequence=len(self.events) + 1, time_s=EPOCH_S + self.now, kind=kind, app_id=app_id, detail=detail)
        )

    def _play(self) -> None:
        self._tell(
            "rm_started",
            cluster=self.cluster.name,
            gpus=self.cluster.gpus,
            machines=len(self.cluster.machines),
            policy="themis",
            lease_s=LIMITS.lease_s,
            time_scale=30.0,
            seed=0,
            recovered=False,
        )
        steps = 0
        while self.pending or any(job.state != "FINISHED" for jobs in self.jobs.values() for job in jobs):
            steps += 1
            self.now = steps * STEP_S
            self._arrive()
            self._train()
            at_grid = self.now % LIMITS.lease_s == 0
            if at_grid or self.dirty:
                self._round(at_grid)

    def _arrive(self) -> None:
        while self.pending and self.pending[0].at_s <= self.now:
            app = self.pending.pop(0)
            app_id = f"app-{len(self.specs):04d}"
            self.specs[app_id] = _spec(app)
            self.samples[app_id] = app
            self.jobs[app_id] = [SampleJob(app_id=app_id, spec=job) for job in self.specs[app_id].jobs]
            self.times[app_id] = [self.now, math.nan]
            self._tell(
                "app_submitted",
                app_id,
                name=app.name,
                user="user",
                tuner="single",
                program="replay" if app.replay else "digits_cnn",
                replay=app.replay,
                jobs=app.jobs,
                demand_max_gpus=app.jobs * app.tasks,
            )
            self._tell("app_state", app_id, state="ACCEPTED", diagnostics="")
            self._tell("am_started", app_id, attempt=1, pid=1)
            self._tell("am_registered", app_id, attempt=1, pid=1)
            self._tell("app_state", app_id, state="RUNNING", diagnostics="")
            self._tell_plan(app_id)
            self.dirty = True

    def _train(self) -> None:
        for app_id, jobs in self.jobs.items():
            for job in jobs:
                if job.gpus:
                    self._advance(app_id, job)
            ended = self.times[app_id][1]
            if math.isnan(ended) and all(job.state == "FINISHED" for job in jobs):
                self._tell("app_state", app_id, state="FINISHED", diagnostics="")
                self.times[app_id][1] = self.now

    def _advance(self, app_id: str, job: SampleJob) -> None:
        app = self.samples[app_id]
        slowdown = (1.0, 1.1, 1.4, 1.8)[job.level] if len(job.gpus) > 1 else 1.0
        job.done += STEP_S * len(job.gpus) / (app.serial_iteration_s * slowdown)
        job.done = min(job.done, job.spec.iterations_total)
        speed = 0.5 + 2 * float(job.spec.hyper_parameters["learning_rate"])
        job.loss = 0.1 + 2.2 * math.exp(-2.5 * speed * job.done / job.spec.iterations_total)
        job.loss *= 1 + 0.03 * self.rng.random()
        if self.now % 1.0 == 0:
            self._tell(
                "job_progress",
                app_id,
                job_id=job.spec.job_id,
                iteration=int(job.done),
                loss=job.loss,
                iteration_s=app.serial_iteration_s,
                level=job.level.label,
                gpus=len(job.gpus),
            )
        if int(job.done) - job.safe >= 100:
            self._checkpoint(app_id, job)
        if job.done >= job.spec.iterations_total:
            self._stop(app_id, job, requested=False)
            self._tell("validation", app_id, job_id=job.spec.job_id, iteration=job.safe, loss=job.loss, accuracy=0.9)
            self._set(app_id, job, "FINISHED")
            self._tell_plan(app_id)
            self.dirty = True

    def _checkpoint(self, app_id: str, job: SampleJob) -> None:
        job.safe = int(job.done)
        self._tell(
            "checkpoint",
            app_id,
            job_id=job.spec.job_id,
            iteration=job.safe,
            seconds=0.02 + 0.05 * self.rng.random(),
            bytes=4096,
        )

    def _stop(self, app_id: str, job: SampleJob, *, requested: bool, release: bool = True) -> None:
        self._checkpoint(app_id, job)
        job.done = job.safe
        self._tell(
            "tasks_ended",
            app_id,
            job_id=job.spec.job_id,
            incarnation=job.incarnation,
            gpus=[str(gpu) for gpu in job.gpus],
            exit_codes=[75 if requested else 0] * len(job.gpus),
            requested=requested,
            iteration=job.safe,
        )
        if release:
            for gpu in job.gpus:
                self._release(gpu)
        job.gpus = []

    def _release(self, gpu: GpuId) -> None:
        lease_id, app_id = self.leases.pop(gpu)
        self._tell("lease_released", app_id, lease_id=lease_id, gpu=str(gpu), reason="done")
        self.free.add(gpu)

    def _tell_plan(self, app_id: str) -> None:
        running = [job.spec.job_id for job in self.jobs[app_id] if job.state != "FINISHED"]
        self._tell("tuner", app_id, phase=0, phases=1, running=running, stopped=[], best=None)

    def _set(self, app_id: str, job: SampleJob, state: str) -> None:
        job.state = state
        self._tell("job_state", app_id, job_id=job.spec.job_id, state=state)

    def _round(self, at_grid: bool) -> None:
        self.dirty = False
        self.round_id += 1
        active = [app_id for app_id in self.specs if math.isnan(self.times[app_id][1])]
        renewable = {gpu: app for gpu, (_, app) in self.leases.items()} if at_grid else {}
        offered = self.free | set(renewable)
        demand = {
            app_id: sum(
                job.spec.shape.tasks
                for job in self.jobs[app_id]
                if job.state != "FINISHED" and (at_grid or not job.gpus)
            )
            for app_id in active
        }
        wanting = [app_id for app_id in active if demand[app_id]]
        rho = {app_id: 0.5 + 3 * self.rng.random() for app_id in active}
        self._tell(
            "round_started",
            round_id=self.round_id,
            reasons=["lease ends" if at_grid else "app arrived"],
            free=_counts(offered),
            renewable={app: _counts(g for g, of in renewable.items() if of == app) for app in active},
            active=active,
        )
        self._tell("round_reported", round_id=self.round_id, rho=rho, absent=[], demand_gpus=demand)
        grants = self._divide(active, offered, at_grid)
        counts = {app: _counts(gpu for _, gpus in given for gpu in gpus) for app, given in grants.items()}
        if wanting:
            self._tell("round_offered", round_id=self.round_id, apps=wanting)
            bids = {
                app: {"rows": self.rng.randrange(12), "rows_dropped": 0, "empty_value": 0.4, "prepare_ms": 5.0}
                for app in wanting
            }
            self._tell("round_bids", round_id=self.round_id, bids=bids, absent={})
            self._tell(
                "round_auctioned",
                round_id=self.round_id,
                status="optimal",
                gap=0.0,
                solve_ms=10 + 40 * self.rng.random(),
                bidders=len(wanting),
                proportional_fair=counts,
                payments=dict.fromkeys(wanting, 0.9),
            )
        self._tell("round_granted", round_id=self.round_id, auction=counts, leftovers={}, usable_left=0)
        self._settle(grants, set(renewable))
        self._tell("round_ended", round_id=self.round_id, duration_ms=60.0, outcome="granted")

    def _divide(
        self, active: list[str], offered: set[GpuId], at_grid: bool
    ) -> dict[str, list[tuple[SampleJob, list[GpuId]]]]:
        room = sorted(offered)
        grants: dict[str, list[tuple[SampleJob, list[GpuId]]]] = {}
        jobs = [
            job
            for app_id in active
            for job in self.jobs[app_id]
            if job.state != "FINISHED" and (at_grid or not job.gpus)
        ]
        self.rng.shuffle(jobs)
        for job in jobs:
            kept = [gpu for gpu in job.gpus if gpu in room] if at_grid and self.rng.random() < 0.6 else []
            gpus = kept or room[: job.spec.shape.tasks]
            if gpus:
                room = [gpu for gpu in room if gpu not in gpus]
                grants.setdefault(job.app_id, []).append((job, gpus))
        return grants

    def _settle(self, grants: dict[str, list[tuple[SampleJob, list[GpuId]]]], renewable: set[GpuId]) -> None:
        kept = {id(job) for given in grants.values() for job, gpus in given if gpus == job.gpus}
        for app_id, jobs in self.jobs.items():
            for job in jobs:
                if job.gpus and renewable & set(job.gpus) and id(job) not in kept:
                    for gpu in job.gpus:
                        self._tell(
                            "lease_expiring", app_id, lease_id=self.leases[gpu][0], gpu=str(gpu), expires_at_s=0.0
                        )
                    self._stop(app_id, job, requested=True)
                    self._set(app_id, job, "WAITING")
        expires_at_s = EPOCH_S + (self.now // LIMITS.lease_s + 1) * LIMITS.lease_s
        for app_id, given in grants.items():
            for job, gpus in given:
                self._give(app_id, job, gpus, expires_at_s)

    def _give(self, app_id: str, job: SampleJob, gpus: list[GpuId], expires_at_s: float) -> None:
        for gpu in gpus:
            renewed = gpu in self.leases
            if not renewed:
                self.next_lease += 1
                self.leases[gpu] = (self.next_lease, app_id)
                self.free.discard(gpu)
            self._tell(
                "lease_renewed" if renewed else "lease_granted",
                app_id,
                lease_id=self.leases[gpu][0],
                gpu=str(gpu),
                expires_at_s=expires_at_s,
                round_id=self.round_id,
            )
        if not job.gpus:
            self._start(app_id, job, gpus)

    def _start(self, app_id: str, job: SampleJob, gpus: list[GpuId]) -> None:
        job.gpus, job.level = list(gpus), self.cluster.level_of_gpus(gpus)
        job.incarnation += 1
        self._set(app_id, job, "STARTING")
        self._tell(
            "tasks_started",
            app_id,
            job_id=job.spec.job_id,
            incarnation=job.incarnation,
            gpus=[str(gpu) for gpu in gpus],
            tasks=len(gpus),
            level=job.level.label,
            iteration=job.safe,
            pids=[],
        )
        self._set(app_id, job, "RUNNING")
        if job.incarnation > 1:
            self._tell(
                "resize",
                app_id,
                job_id=job.spec.job_id,
                seconds=0.3 + self.rng.random(),
                from_gpus=1,
                to_gpus=len(gpus),
            )


def _spec(app: SampleApp) -> AppSpec:
    jobs = tuple(
        JobSpec(
            job_id=f"job-{number:02d}",
            hyper_parameters={"learning_rate": round(0.01 + 0.9 * number / app.jobs, 3)},
            shape=JobShape(tasks=app.tasks),
            iterations_total=app.iterations,
        )
        for number in range(app.jobs)
    )
    return AppSpec(
        name=app.name,
        tuner=TunerSpec(name="single"),
        program=ProgramSpec(name="replay" if app.replay else "digits_cnn"),
        jobs=jobs,
        estimate=Estimate(serial_iteration_s=app.serial_iteration_s, slowdown=Slowdown(1.0, 1.1, 1.4, 1.8)),
        replay=app.replay,
    )


def _counts(gpus: object) -> dict[str, int]:
    counts: dict[str, int] = {}
    for gpu in gpus:  # type: ignore[attr-defined]
        counts[gpu.machine_id] = counts.get(gpu.machine_id, 0) + 1
    return counts


def twelve_apps(seed: int = 3) -> SyntheticRun:
    """Return a run of the main mix's size, to view the report."""
    machines = [Machine(machine_id=f"two{i:02d}", rack_id=f"rack{i % 3}", slots=(2,)) for i in range(8)]
    machines += [Machine(machine_id=f"four{i:02d}", rack_id=f"rack{i % 3}", slots=(2, 2)) for i in range(12)]
    rng = random.Random(seed)
    names = ["digits-cnn", "digits-dense", "resnet50", "bert", "vgg", "lm", "yolo", "neumf", "gnmt", "ds2", "tf", "r18"]
    apps = [
        SampleApp(
            name=name,
            at_s=6.0 * number,
            jobs=rng.choice([1, 3, 4, 8, 12]),
            tasks=rng.choice([1, 2, 4, 8]),
            iterations=rng.choice([800, 1500]),
            replay=number > 1,
        )
        for number, name in enumerate(names)
    ]
    return SyntheticRun(apps, Cluster(name="testbed-64", machines=tuple(machines)), seed)
