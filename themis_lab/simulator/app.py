"""A simulated app master: the production tuner, planner and agent view over jobs that are numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from am.agent.model.demands import is_satisfied
from am.agent.model.views import AppView, HeldGang, JobView
from am.app_view import (
    app_view,
    at_once_gpus,
    held_gang,
    is_bound,
    reference_job,
    renewable_gpus,
    whole_view,
    work_gpu_s,
)
from am.jobs.planner import NOWHERE, Holdings, Plan, make_plan
from am.tuners.port import Observation, ObservationKind, TunerPlan
from am.tuners.registry import make_tuner
from themis.cluster import Cluster, GpuId
from themis.errors import InvariantError
from themis.leases import Lease, LeaseChange, LeaseChangeKind
from themis.speeds import speeds_in
from themis.values import Value
from themis_lab.simulator.costs import Costs
from themis_lab.simulator.jobs import SimJob
from themis_lab.simulator.workload import AppTrace


@dataclass(slots=True, kw_only=True)
class Tally:
    """Sums over an app's life, in GPU seconds unless the name says otherwise."""

    running_gpu_s: float = 0.0
    scored_gpu_s: float = 0.0
    lost_gpu_s: float = 0.0
    restarts: int = 0
    checkpoints: int = 0


class Started(Value, frozen=True, kw_only=True):
    """A running job. `ends_at_s` is when it reaches its target, or reports to its tuner, if nothing happens before."""

    job: SimJob
    ends_at_s: float


class Acted(Value, frozen=True, kw_only=True):
    """What an app did: jobs started, jobs that write a checkpoint before they stop, ids of leases to return.

    `moved`: whether jobs without anything to save stopped, so that there may be more to do at once.
    """

    moved: bool = False
    started: tuple[Started, ...] = ()
    stopping: tuple[SimJob, ...] = ()
    returned: tuple[int, ...] = ()


_NOTHING_DONE = Acted()


class _Holds(Value, frozen=True, kw_only=True):
    """Gangs of an app, valid for rounds that renew leases by a time from `at_s` on and before `until_s`.

    `satisfied`: whether they are all that its jobs can use.
    """

    gangs: tuple[HeldGang, ...]
    satisfied: bool
    at_s: float
    until_s: float


class SimApp:
    """One app. Times are on the run's clock.

    Args:
        app_id: Its id in the arbiter.
        trace: Its jobs as they really are.
        cluster: The cluster.
        costs: What starting and stopping costs.
        submitted_at_s: Now.
    """

    def __init__(self, app_id: str, trace: AppTrace, cluster: Cluster, costs: Costs, submitted_at_s: float) -> None:
        self.app_id = app_id
        self.trace = trace
        self.submitted_at_s = submitted_at_s
        self.first_gpu_at_s: float | None = None
        self.ended_at_s: float | None = None
        self.tally = Tally()
        self.leases: dict[GpuId, Lease] = {}
        self._reserved: set[GpuId] = set()
        self._cluster = cluster
        self.costs = costs
        self._restart_s = costs.restart_s
        specs = [job.spec for job in trace.jobs]
        self._tuner = make_tuner(trace.tuner, specs)
        self.plan: TunerPlan = self._tuner.plan()
        self.first_phases = self.plan.phases
        self._at_once_gpus = at_once_gpus(specs, self.first_phases[0])
        self.jobs = {
            job.job_id: SimJob(job, speeds_in(job.spec, cluster))
            for job in sorted(trace.jobs, key=lambda job: job.job_id)
        }
        self._gangs: dict[tuple[str, int], tuple[tuple[tuple[GpuId, ...], list[GpuId], bool], HeldGang]] = {}
        self._still: tuple[JobView, ...] | None = None
        self._median: dict[frozenset[str], JobView] = {}
        self._reference_now: JobView | None = None
        self._planned: Mapping[str, tuple[GpuId, ...]] = {}
        self._moving: Mapping[str, tuple[GpuId, ...]] = NOWHERE
        self._holds: _Holds | None = None
        self._warm: set[GpuId] = set()
        self._just_ready: list[SimJob] = []
        self.work_total_gpu_s = work_gpu_s(self.jobs, self.first_phases)
        self.phases: list[tuple[JobView, ...]] = []
        self._follow_plan()

    # ---- for the agent ----

    def view(self, now_s: float, renewable_until_s: float, contention: float) -> AppView:
        """The app as its agent sees it; leases that end by `renewable_until_s` are renewable, `contention` is N_avg."""
        return app_view(
            self.app_id,
            self.plan,
            self.jobs_at(now_s),
            self._reference_now or self._reference(),
            elapsed_s=now_s - self.submitted_at_s,
            contention=contention,
            work_total_gpu_s=self.work_total_gpu_s,
            demand_max_gpus=self._at_once_gpus,
            held=self._held_now(renewable_until_s).gangs if self.leases or self._planned else (),
            restart_s=self._restart_s,
        )

    @property
    def has_single_job(self) -> bool:
        """Whether one job is left, and no later phase."""
        return len(self._pending) == 1 and len(self.plan.phases) <= 1

    def unchanged_until_s(self, renewable_until_s: float) -> float:
        """The lease end, in seconds, until which the app's demands stay the same if no event changes the app.

        Infinite for an app that waits without GPUs. For a satisfied app, which holds all that its jobs can use and none
        of it renewable, it is its next lease end. For any other app it is `renewable_until_s`, the lease ends of this
        round.
        """
        if not (self.leases or self._planned):
            return math.inf if self._pending else renewable_until_s
        holds = self._held_now(renewable_until_s)
        return holds.until_s if self.leases and holds.satisfied else renewable_until_s

    def jobs_at(self, now_s: float) -> tuple[JobView, ...]:
        """The jobs of the phase as the agent sees them; the same tuple as long as none of them runs."""
        still = self._still
        if still is not None and not (self.leases and _one_runs(self._pending)):
            return still
        views = tuple([job.view(now_s) for job in self._pending])
        if still is None or not all(map(operator.is_, views, still)):
            self._still = still = views
        return still

    def whole_view(self, contention: float) -> AppView:
        """The app as submitted, with all its work still to do, and N_avg of its life."""
        return whole_view(
            self.app_id,
            self.jobs,
            self.first_phases,
            contention=contention,
            work_total_gpu_s=self.work_total_gpu_s,
            demand_max_gpus=self._at_once_gpus,
            restart_s=self._restart_s,
        )

    # ---- leases ----

    @property
    def smallest_gang_gpus(self) -> int:
        """GPUs of the smallest gang that one of the jobs can start with."""
        return min(job.shape.demand_min_gpus for job in self.trace.jobs)

    def on_lease_change(self, change: LeaseChange) -> bool:
        """Note a changed lease of the app. Returns whether the app must act on it: True except for a renewal."""
        lease = change.lease
        self._holds = None
        if change.kind in (LeaseChangeKind.RELEASED, LeaseChangeKind.REVOKED):
            if change.reserved:
                self._reserved.discard(lease.gpu)
            else:
                self.leases.pop(lease.gpu, None)
                self._warm.discard(lease.gpu)
        elif change.kind is LeaseChangeKind.RESERVED:
            self._reserved.add(lease.gpu)
        else:
            self._reserved.discard(lease.gpu)
            self.leases[lease.gpu] = lease
        return change.kind is not LeaseChangeKind.RENEWED

    # ---- what happens to jobs ----

    def target_reached(self, job: SimJob, now_s: float) -> None:
        """Act on a job that reached its tuner's target, or an iteration at which it reports to the tuner."""
        self._holds = None
        iteration = job.iteration_at(now_s)
        if self.plan.loss_every and iteration < job.target:
            self._progressed(job, iteration, now_s)
            return
        self._count_run(job, now_s)
        job.halt(job.target, interrupted=False)
        self.tally.checkpoints += 1
        loss = job.trace.curve.at(job.iteration)
        self._observe(ObservationKind.TARGET_REACHED, job, job.iteration, loss)

    def stopped(self, job: SimJob) -> None:
        """Free the GPUs of a job whose checkpoint is written."""
        self._holds = None
        job.freed()

    def machine_lost(self, machine_id: str, now_s: float) -> None:
        """Return jobs on a lost machine to their newest checkpoint. Their other GPUs are idle at once."""
        self._holds = None
        for job in (*self._pending, *self._losers()):
            if any(gpu.machine_id == machine_id for gpu in job.gpus):
                self._lose(job, now_s)

    def validate(self) -> None:
        """Assert that every job is on GPUs of the app, and no GPU has two jobs; else InvariantError."""
        busy = list(chain.from_iterable([job.gpus for job in self.jobs.values()]))
        gpus = set(busy)
        if len(busy) != len(gpus):
            raise InvariantError(f"two jobs of app {self.app_id} share a GPU", value=sorted(map(str, busy)))
        if not gpus <= self.leases.keys():
            stray = [str(gpu) for gpu in busy if gpu not in self.leases]
            raise InvariantError(f"jobs of app {self.app_id} run on GPUs that it does not hold", value=stray)

    # ---- acting ----

    def act(self, now_s: float) -> Acted:
        """Follow tuner and leases: start, stop and move jobs, and say which leases to return."""
        self._holds = None
        if not (self.leases or self._reserved or self._just_ready) and not self._busy():
            # Like every app that returned all its GPUs.
            self._planned, self._moving = {}, NOWHERE
            return _NOTHING_DONE
        if self.leases and self.first_gpu_at_s is None:
            self.first_gpu_at_s = now_s
        holdings = Holdings.of(self.leases, self._reserved)
        plan = self._make_plan(holdings, now_s)
        if not (plan.stop or plan.start or plan.release or holdings.expiring or self._just_ready):
            # Usually an app continues as it is after an event.
            self._planned, self._moving = plan.expected, plan.move
            return _NOTHING_DONE
        ending = [job_id for job_id in plan.stop if not self.jobs[job_id].stopping]
        stopping = tuple(job for job_id in ending if self._stop(job := self.jobs[job_id], now_s))
        ready = tuple(self._started(job, now_s) for job in self._just_ready if job.running)
        self._just_ready.clear()
        started = ready + tuple(self._start(self.jobs[job_id], gpus, now_s) for job_id, gpus in plan.start.items())
        self._planned, self._moving = plan.expected, plan.move
        busy = self._busy()
        back = {*plan.release, *(holdings.expiring - busy)}
        returned = tuple(sorted(self.leases[gpu].lease_id for gpu in back if gpu in self.leases))
        return Acted(moved=len(stopping) < len(ending), started=started, stopping=stopping, returned=returned)

    # ---- inside ----

    def _observe(self, kind: ObservationKind, job: SimJob, iteration: int, loss: float) -> None:
        self._tuner.observe(Observation(kind=kind, job_id=job.job_id, iteration=iteration, loss=loss))
        self.plan = self._tuner.plan()
        self._follow_plan()

    def _progressed(self, job: SimJob, iteration: int, now_s: float) -> None:
        """Report a running job to the tuner, which may stop it. The app ends at once with its last job."""
        self._observe(ObservationKind.PROGRESS, job, iteration, job.trace.curve.at(iteration))
        if self.plan.finished:
            self._stop(job, now_s)
        elif job.job_id in self.plan.targets:
            self._just_ready.append(job)

    def _losers(self) -> list[SimJob]:
        """Jobs that their tuner stopped while they ran and whose GPUs are not free yet."""
        if not self.plan.loss_every:
            return []
        return [job for job_id, job in self.jobs.items() if job.gpus and job_id not in self.plan.targets]

    def _busy(self) -> set[GpuId]:
        """GPUs that jobs occupy."""
        return {gpu for job in (*self._pending, *self._losers()) for gpu in job.gpus}

    def _follow_plan(self) -> None:
        """Adopt the targets of the tuner's plan; jobs that are not in it do not run."""
        self._pending = [self.jobs[job_id] for job_id in sorted(self.plan.targets)]
        self._still = self._reference_now = None
        for job in self._pending:
            job.aim(self.plan.targets[job.job_id], self.plan.latest.get(job.job_id))
        if self.plan.loss_every:
            # Which jobs are stopped, and when, depends on the schedule: no work is the same in every schedule.
            return
        if len(self.phases) <= self.plan.phase and self._pending:
            self.phases += [()] * (self.plan.phase - len(self.phases))
            self.phases.append(tuple(job.view_with(job.target - job.iteration) for job in self._pending))

    def _make_plan(self, holdings: Holdings, now_s: float) -> Plan:
        planned = [job.planned(now_s) for job in self._pending]
        losers = {job.job_id: job.gpus for job in self._losers()}
        return make_plan(planned, losers, holdings, self._cluster, self._restart_s, self._moving)

    def _start(self, job: SimJob, gpus: tuple[GpuId, ...], now_s: float) -> Started:
        cold = not self._warm.issuperset(gpus)
        self._warm.update(gpus)
        self.tally.restarts += job.interrupted
        job.interrupted = False
        delay_s = self.costs.restore_s + (self.costs.container_s if cold else 0.0)
        device = self._cluster.machine(gpus[0].machine_id).device
        named = device if self._cluster.has_types else ""
        job.start(gpus, self._cluster.level_of_gpus(gpus), now_s, delay_s, job.speeds.on(device), named)
        return self._started(job, now_s)

    def _started(self, job: SimJob, now_s: float) -> Started:
        """The next event of a running job: its target, or a report to its tuner."""
        heard_at = job.iteration_at(now_s) + self.plan.loss_every
        if self.plan.loss_every and heard_at < job.target:
            return Started(job=job, ends_at_s=job.ready_at_s + (heard_at - job.iteration) * job.iteration_s)
        return Started(job=job, ends_at_s=job.reaches_at_s + self.costs.finish_s)

    def _stop(self, job: SimJob, now_s: float) -> bool:
        """Stop a job. Returns False if it has nothing to save and is gone at once."""
        self._still = None
        reached = job.iteration_at(now_s)
        progressed = reached > job.iteration
        self._count_run(job, now_s)
        self.tally.lost_gpu_s += _unfinished_gpu_s(job, reached, now_s)
        saving = progressed and self.costs.checkpoint_s > 0.0
        kept = job.iteration + self._saved_iterations(job, now_s)
        job.halt(reached, interrupted=reached > 0, saving=saving, saved=kept)
        self.tally.checkpoints += progressed
        return saving

    def _lose(self, job: SimJob, now_s: float) -> None:
        """Return a job whose machine is lost to its newest complete save."""
        self._still = None
        reached = job.iteration_at(now_s)
        kept = job.saved if job.stopping else job.iteration + self._saved_iterations(job, now_s)
        lost_gpu_s = (reached - kept) * job.trace.serial_iteration_s
        self.tally.checkpoints -= job.stopping
        self._count_run(job, now_s)
        self.tally.lost_gpu_s += lost_gpu_s + _unfinished_gpu_s(job, reached, now_s)
        job.halt(kept, interrupted=reached > 0)

    def _saves(self, job: SimJob, now_s: float) -> int:
        """Return the number of saves of a running job since it started."""
        every_s = self.costs.checkpoint_every_s
        return int(job.ran_s(now_s) // every_s) if every_s else 0

    def _saved_iterations(self, job: SimJob, now_s: float) -> int:
        """Iterations since its start that its newest save contains."""
        saves = self._saves(job, now_s)
        return int(saves * self.costs.checkpoint_every_s / job.iteration_s) if saves else 0

    def _count_run(self, job: SimJob, now_s: float) -> None:
        """Add the run that ends now to the app's sums."""
        self.tally.checkpoints += self._saves(job, now_s)
        gpu_s = len(job.gpus) * job.ran_s(now_s)
        self.tally.running_gpu_s += gpu_s
        self.tally.scored_gpu_s += gpu_s / job.trace.slowdown.at(job.level)

    def _held_now(self, renewable_until_s: float) -> _Holds:
        """Return the held gangs. They are computed again after an event, or if another lease is renewable."""
        holds = self._holds
        if holds is None or not holds.at_s <= renewable_until_s < holds.until_s:
            ends_s = [lease.expires_at_s for lease in self.leases.values() if lease.expires_at_s > renewable_until_s]
            gangs = tuple(self._held(renewable_until_s))
            satisfied = is_satisfied([job.trace.shape for job in self._pending], gangs)
            until_s = min(ends_s, default=math.inf)
            holds = self._holds = _Holds(gangs=gangs, satisfied=satisfied, at_s=renewable_until_s, until_s=until_s)
        return holds

    def _held(self, renewable_until_s: float) -> Iterator[HeldGang]:
        for job in self._pending:
            gpus = job.gpus if job.running else self._planned.get(job.job_id, ())
            if gpus:
                renewable = renewable_gpus(gpus, self.leases, self._reserved, renewable_until_s)
                if renewable is not None:
                    yield self._gang(job.job_id, gpus, renewable)

    def _gang(self, job_id: str, gpus: tuple[GpuId, ...], renewable: list[GpuId]) -> HeldGang:
        """The gang as the agent sees it; usually the same as in the round before."""
        known = self._gangs.get((job_id, len(renewable)))
        bound = is_bound(gpus, self.leases)
        if known is None or known[0] != (gpus, renewable, bound):
            known = (gpus, renewable, bound), held_gang(job_id, gpus, renewable, self._cluster, bound=bound)
            self._gangs[job_id, len(renewable)] = known
        return known[1]

    def _reference(self) -> JobView:
        """The median job of those still in the search; it represents the jobs of later phases."""
        stopped = self.plan.stopped
        if stopped not in self._median:
            self._median = {stopped: reference_job(self.jobs, stopped)}
        self._reference_now = self._median[stopped]
        return self._reference_now


def _one_runs(jobs: Iterable[SimJob]) -> bool:
    """Whether one of the jobs runs. Called for every app and round: `any` takes three times as long."""
    for job in jobs:  # noqa: SIM110
        if job.gpus and not job.stopping:
            return True
    return False


def _unfinished_gpu_s(job: SimJob, reached: int, now_s: float) -> float:
    """Work at S = 1 of the iteration that a stop interrupts."""
    if not job.running:
        return 0.0
    share = job.ran_s(now_s) / job.iteration_s - (reached - job.iteration)
    return max(0.0, min(1.0, share)) * job.trace.serial_iteration_s
