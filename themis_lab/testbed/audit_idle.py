"""No GPU idles while an app could use it: after a round, between rounds, and under a lease."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from themis_lab.testbed.audit_values import AuditedJob, AuditInput, Findings, JobKey
from themis_lab.testbed.events import Event
from themis_lab.testbed.intervals import Interval, without
from themis_lab.testbed.spans import LEASE_ENDS, is_final, lease_spans, task_spans

NOTHING_USABLE = "a round leaves no GPU that an app could use"
NOT_IDLE = "no GPU stays free while a job waits that fits"
LEASE_USED = "no GPU stays leased without tasks for a lease's length"

CRASH_PAUSE_S = 2.0
"""Longest pause of a job between a crash and its restart."""

LEASED_IDLE = "leased_but_idle_gpu_s"
LEASED = "leased_gpu_s"


def check_idle_leases(run: AuditInput, findings: Findings) -> None:
    """Measure leased GPUs without tasks (while tasks start or checkpoints are written).

    Longer than one lease is a violation.
    """
    findings.announce(LEASE_USED)
    ran: dict[tuple[str, str], list[Interval]] = defaultdict(list)
    for span in task_spans(run.events):
        for gpu in span.gpus:
            ran[span.app_id, gpu].append(Interval(span.start_s, span.end_s))
    for lease in lease_spans(run.events):
        whole = Interval(lease.start_s, min(lease.end_s, run.end_s))
        idle = without(whole, ran[lease.app_id, lease.gpu])
        findings.measure(LEASED, whole.length_s)
        findings.measure(LEASED_IDLE, sum(part.length_s for part in idle))
        longest_s = max((part.length_s for part in idle), default=0.0)
        text = f"{lease.app_id} held {lease.gpu} for {longest_s:.1f} s and ran nothing on it"
        findings.look(LEASE_USED, longest_s <= run.limits.lease_s + run.limits.round_s, text)


def check_idle_gpus(run: AuditInput, findings: Findings) -> None:
    """Check free GPUs against waiting jobs.

    After each round the arbiter's own count of usable GPUs must be 0. A second rule also holds between rounds: no GPU
    may stay free for longer than a round takes while a job waits whose smallest gang fits into the free GPUs. A job
    waits if its tuner wants it to run, its app master is registered, and no tasks of it run. Jobs that fit on GPUs
    which their app already holds or has reserved do not wait. Only the first rule covers growth of running jobs:
    whether one more GPU makes a job faster depends on its slowdown.

    A policy that is not work-conserving may let a job wait beside an idle GPU: then there is nothing to check. The
    event of the start says so.
    """
    findings.announce(NOTHING_USABLE, NOT_IDLE)
    if any(event.kind == "rm_started" and event.detail.get("work_conserving") is False for event in run.events):
        return
    watch = _Watch(run, findings)
    for event in run.events:
        if event.kind == "round_granted":
            usable = int(event.detail["usable_left"])
            text = f"round {event.detail['round_id']} left {usable} usable GPUs"
            findings.look(NOTHING_USABLE, usable == 0, text)
        watch.take(event)
    watch.finish()


@dataclass(slots=True)
class _Watch:
    """Follow the events: which GPUs are free although a job could use them, and since when.

    Attributes:
        owner: The app that holds or has reserved each GPU that is not free.
        planned: The jobs that each app's tuner wants to run.
        running: The GPUs of each job with tasks, by app.
        ready_s: The time before which a crashed job does not want GPUs.
        since: For each waiting job, the free GPUs that it could use, with the time since when.
    """

    run: AuditInput
    findings: Findings
    owner: dict[str, str] = field(default_factory=dict)
    leases: dict[int, tuple[str, str]] = field(default_factory=dict)
    registered: set[str] = field(default_factory=set)
    planned: dict[str, set[str]] = field(default_factory=dict)
    running: dict[str, dict[str, set[str]]] = field(default_factory=lambda: defaultdict(dict))
    ready_s: dict[JobKey, float] = field(default_factory=dict)
    since: dict[JobKey, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))

    def take(self, event: Event) -> None:
        """Apply one event."""
        if event.kind == "rm_started":
            # Without a ResourceManager no GPU could be granted.
            self.since.clear()
        elif not self._applies(event):
            return
        wanted = self._wanted()
        for key in list(self.since):
            self._close(key, self.since[key].keys() - wanted.get(key, ()), event.time_s)
        for key, gpus in wanted.items():
            for gpu in gpus:
                self.since[key].setdefault(gpu, event.time_s)

    def finish(self) -> None:
        """Close all open cases at the end of the record."""
        for key in list(self.since):
            self._close(key, self.since[key].keys(), self.run.end_s)

    def _close(self, key: JobKey, gpus: Iterable[str], now_s: float) -> None:
        """Close a case: these GPUs are no longer both free and wanted by the job.

        GPUs with equal times are one case.
        """
        spans: dict[float, list[str]] = defaultdict(list)
        for gpu in sorted(gpus):
            spans[max(self.since[key].pop(gpu), self.ready_s.get(key, 0.0))].append(gpu)
        if not self.since[key]:
            del self.since[key]
        for since_s, (gpu, *more) in spans.items():
            text = f"{gpu} free from {self.findings.at(since_s)} to {self.findings.at(now_s)}"
            text += f" while a job of {key[0]} waits ({key[1]}, {len(more)} more GPUs like this)"
            self.findings.look(NOT_IDLE, now_s - since_s <= self.run.limits.round_s, text)

    def _applies(self, event: Event) -> bool:
        detail, app_id = event.detail, event.app_id
        if event.kind in ("lease_granted", "lease_reserved"):
            self.owner[str(detail["gpu"])] = app_id
            self.leases[int(detail["lease_id"])] = str(detail["gpu"]), app_id
        elif event.kind in LEASE_ENDS:
            self._freed(event)
        elif event.kind == "am_registered":
            self.registered.add(app_id)
        elif event.kind == "tuner":
            self.planned[app_id] = {str(job_id) for job_id in detail["running"]}
        elif event.kind == "tasks_started":
            self.running[app_id][str(detail["job_id"])] = {str(gpu) for gpu in detail["gpus"]}
        elif event.kind == "tasks_ended":
            self.running[app_id].pop(str(detail["job_id"]), None)
        elif event.kind == "job_restarted":
            self.ready_s[app_id, str(detail["job_id"])] = event.time_s + CRASH_PAUSE_S
        elif event.kind == "am_lost" or is_final(event):
            # It requests nothing until it is back and its tuner has reported again.
            self.registered.discard(app_id)
            self.planned.pop(app_id, None)
            self.running.pop(app_id, None)
        else:
            return False
        return True

    def _freed(self, event: Event) -> None:
        # A GPU reserved by another app passes to that app now, and is never free.
        gpu, _ = self.leases.pop(int(event.detail["lease_id"]), ("", ""))
        self.owner.pop(gpu, None)
        self.owner.update(lease for lease in self.leases.values() if lease[0] == gpu)

    def _wanted(self) -> dict[JobKey, list[str]]:
        """Free GPUs that waiting jobs could use, by job."""
        free = by_machine(gpu for gpu in self.run.gpus if gpu not in self.owner)
        if not free:
            return {}
        gangs: dict[tuple[int, int, tuple[str, ...]], list[str]] = {}
        wanted: dict[JobKey, list[str]] = {}
        for key, job in self._waiting():
            gang = job.min_tasks, job.gpus_per_task, job.devices
            if gang not in gangs:
                gangs[gang] = fitting(free, job, self.run.device_of)
            if gangs[gang]:
                wanted[key] = gangs[gang]
        return wanted

    def _waiting(self) -> Iterator[tuple[JobKey, AuditedJob]]:
        """Jobs that want GPUs beyond those of their app. The app's own GPUs go to its smallest gangs first."""
        for app_id in self.registered & self.planned.keys():
            running = self.running[app_id]
            keys = [(app_id, job_id) for job_id in sorted(self.planned[app_id] - running.keys())]
            jobs = [(key, self.run.jobs.get(key, AuditedJob())) for key in keys]
            used = {gpu for gpus in running.values() for gpu in gpus}
            spare = sum(owner == app_id and gpu not in used for gpu, owner in self.owner.items()) if jobs else 0
            for key, job in sorted(jobs, key=lambda pair: pair[1].min_tasks * pair[1].gpus_per_task):
                spare -= job.min_tasks * job.gpus_per_task
                if spare < 0:
                    yield key, job


def by_machine(gpus: Iterable[str]) -> dict[str, list[str]]:
    """GPUs by machine."""
    machines: dict[str, list[str]] = defaultdict(list)
    for gpu in gpus:
        machines[gpu.rpartition("/")[0]].append(gpu)
    return machines


def fitting(free: Mapping[str, list[str]], job: AuditedJob, device_of: Mapping[str, str]) -> list[str]:
    """The free GPUs that could be part of a job's smallest gang, which has one device type. Empty if no gang fits."""
    by_type: dict[str, list[list[str]]] = defaultdict(list)
    for machine, gpus in free.items():
        device = device_of.get(machine, "")
        if len(gpus) >= job.gpus_per_task and (not job.devices or not device or device in job.devices):
            by_type[device].append(gpus)
    return [
        gpu
        for machines in by_type.values()
        if sum(len(gpus) // job.gpus_per_task for gpus in machines) >= job.min_tasks
        for gpus in machines
        for gpu in gpus
    ]
