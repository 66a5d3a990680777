"""No GPU idles while an app could use it: after a round, between rounds, and under a lease."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from testbed.audit_values import AuditedJob, AuditInput, Findings
from testbed.events import Event
from testbed.intervals import Interval, without
from testbed.rounds import granted_gpus
from testbed.spans import LEASE_ENDS, is_final, lease_spans, task_spans

NOTHING_USABLE = "a round leaves no GPU that an app could use"
NOT_IDLE = "no GPU stays free while a job waits that fits"
LEASE_USED = "no GPU stays leased without tasks for a lease's length"

LEASED_IDLE = "leased_but_idle_gpu_s"
LEASED = "leased_gpu_s"


def check_idle_leases(run: AuditInput, findings: Findings) -> None:
    """Measure leased GPUs that run nothing (tasks come up, checkpoints are written); past one lease it is a fault."""
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
    """Free GPUs against waiting jobs.

    After each round the arbiter's own count of usable GPUs must be 0. Independently, no GPU may stay free for longer
    than a round takes while a job waits whose smallest gang fits into the free GPUs. A job waits when its tuner has it
    run, no tasks of it do, and the last round left demand of its app unmet. Growth of running jobs is left to the first
    rule: whether one more GPU makes a job faster depends on its slowdown.
    """
    findings.announce(NOTHING_USABLE, NOT_IDLE)
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
    """Follows the events: which GPUs are free since when although a job could use them."""

    run: AuditInput
    findings: Findings
    owner: dict[str, str] = field(default_factory=dict)
    leases: dict[int, str] = field(default_factory=dict)
    unmet: dict[str, int] = field(default_factory=dict)
    planned: dict[str, set[str]] = field(default_factory=dict)
    running: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    since: dict[str, tuple[float, str]] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Apply one event."""
        if not self._applies(event):
            return
        wanted = self._wanted()
        for gpu in list(self.since):
            if gpu not in wanted:
                self._close(gpu, event.time_s)
        for gpu, app_id in wanted.items():
            self.since.setdefault(gpu, (event.time_s, app_id))

    def finish(self) -> None:
        """The record ends."""
        for gpu in list(self.since):
            self._close(gpu, self.run.end_s)

    def _close(self, gpu: str, now_s: float) -> None:
        since_s, app_id = self.since.pop(gpu)
        text = f"{gpu} free from {self.findings.at(since_s)} to {self.findings.at(now_s)} while a job of {app_id} waits"
        self.findings.look(NOT_IDLE, now_s - since_s <= self.run.limits.round_s, text)

    def _applies(self, event: Event) -> bool:
        detail = event.detail
        if event.kind in ("lease_granted", "lease_reserved"):
            self.owner[str(detail["gpu"])] = event.app_id
            self.leases[int(detail["lease_id"])] = str(detail["gpu"])
        elif event.kind in LEASE_ENDS:
            self._freed(event)
        elif event.kind == "round_reported":
            self.unmet = {str(app): int(gpus) for app, gpus in detail["demand_gpus"].items()}
        elif event.kind == "round_granted":
            for app, gpus in granted_gpus(detail).items():
                self.unmet[app] = self.unmet.get(app, 0) - gpus
        elif event.kind == "tuner":
            self.planned[event.app_id] = {str(job_id) for job_id in detail["running"]}
        elif event.kind == "tasks_started":
            self.running[event.app_id].add(str(detail["job_id"]))
        elif event.kind == "tasks_ended":
            self.running[event.app_id].discard(str(detail["job_id"]))
        elif event.kind == "am_lost" or is_final(event):
            # Until it is back and reports again it asks for nothing.
            self.unmet.pop(event.app_id, None)
            self.running.pop(event.app_id, None)
        else:
            return False
        return True

    def _freed(self, event: Event) -> None:
        # A GPU that another app has reserved passes to it at this moment and is never free.
        gpu = self.leases.pop(int(event.detail["lease_id"]), "")
        if self.owner.get(gpu) == event.app_id:
            del self.owner[gpu]

    def _wanted(self) -> dict[str, str]:
        """Free GPUs that some waiting job could use, with its app."""
        free = by_machine(gpu for gpu in self.run.gpus if gpu not in self.owner)
        wanted: dict[str, str] = {}
        for app_id, unmet in self.unmet.items():
            waiting = self.planned.get(app_id, set()) - self.running[app_id]
            for job in (self.run.jobs.get((app_id, job_id), AuditedJob()) for job_id in sorted(waiting)):
                gpus = fitting(free, job)
                if gpus and unmet >= job.min_tasks * job.gpus_per_task:
                    wanted |= dict.fromkeys(gpus, app_id)
        return wanted


def by_machine(gpus: Iterable[str]) -> dict[str, list[str]]:
    """GPUs by their machine."""
    machines: dict[str, list[str]] = defaultdict(list)
    for gpu in gpus:
        machines[gpu.rpartition("/")[0]].append(gpu)
    return machines


def fitting(free: Mapping[str, list[str]], job: AuditedJob) -> list[str]:
    """The free GPUs that could serve as part of a job's smallest gang; none when the gang does not fit."""
    usable = {machine: gpus for machine, gpus in free.items() if len(gpus) >= job.gpus_per_task}
    units = sum(len(gpus) // job.gpus_per_task for gpus in usable.values())
    return [gpu for gpus in usable.values() for gpu in gpus] if units >= job.min_tasks else []
