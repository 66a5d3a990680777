"""No GPU has two owners: checked by leases, by tasks, and for each task by its app's leases.

Two orders can prove that one thing came after another: their times, and the order in which the ResourceManager received
them. Clocks of app masters differ a little, and late messages (after a broken stream) arrive out of order. So only what
contradicts both orders is a violation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from themis_lab.testbed.audit_values import AuditInput, AuditLimits, Findings
from themis_lab.testbed.spans import LEASE_ENDS, LeaseSpan, TaskSpan, lease_spans, task_spans

ONE_LEASE = "a GPU has one lease at a time"
ONE_TASK = "a GPU runs one job at a time"
WITHIN_LEASE = "tasks run only on leased GPUs"
BOUND_JOB = "a GPU that is bound to a job runs that job only"
BOUND_KEPT = "no round takes a GPU from the job that it is bound to"


def check_leases_per_gpu(run: AuditInput, findings: Findings) -> None:
    """Each grant finds its GPU without a lease. The ResourceManager's own order decides, so no clock is needed."""
    findings.announce(ONE_LEASE)
    owner: dict[str, tuple[int, str]] = {}
    for event in run.events:
        if event.kind == "lease_granted":
            gpu, lease_id = str(event.detail["gpu"]), int(event.detail["lease_id"])
            held_id, held_by = owner.get(gpu, (lease_id, ""))
            text = f"{gpu} granted to {event.app_id} at {findings.at(event.time_s)} while {held_by} holds it"
            findings.look(ONE_LEASE, held_id == lease_id, text)
            owner[gpu] = (lease_id, event.app_id)
        elif event.kind in LEASE_ENDS:
            gpu = str(event.detail["gpu"])
            if owner.get(gpu, (0, ""))[0] == int(event.detail["lease_id"]):
                del owner[gpu]


def check_tasks_per_gpu(run: AuditInput, findings: Findings) -> None:
    """Tasks on a GPU never overlap, by the reports of the app masters and whatever the leases are."""
    findings.announce(ONE_TASK)
    by_gpu: dict[str, list[TaskSpan]] = defaultdict(list)
    for span in task_spans(run.events):
        for gpu in span.gpus:
            by_gpu[gpu].append(span)
    for gpu in sorted(by_gpu):
        last: TaskSpan | None = None
        for span in sorted(by_gpu[gpu], key=lambda each: each.start_s):
            if last is not None:
                after = span.start_s >= last.end_s - _slack_s(last, run.limits)
                free = after or span.start_sequence > last.end_sequence
                text = f"{gpu} runs {_name(span)} from {findings.at(span.start_s)}, and {_name(last)} still"
                findings.look(ONE_TASK, free, text)
            if last is None or span.end_s > last.end_s:
                last = span


def check_tasks_within_leases(run: AuditInput, findings: Findings) -> None:
    """Each GPU of a gang was leased to its app for the whole time.

    Tasks start after the grant is recorded, and their end is reported before the release. So neither order needs a
    tolerance. If a lease was revoked, or no app master was left to report, the end of the tasks may be noticed later
    (`notice_s`).
    """
    findings.announce(WITHIN_LEASE)
    held: dict[tuple[str, str], list[LeaseSpan]] = defaultdict(list)
    for lease in lease_spans(run.events):
        held[lease.app_id, lease.gpu].append(lease)
    for span in task_spans(run.events):
        end_s = min(span.end_s, run.end_s)
        for gpu in span.gpus:
            leases = held[span.app_id, gpu]
            slack_s = _slack_s(span, run.limits, leases)
            inside = any(_covers(chain, span, end_s, run.limits.clock_s, slack_s) for chain in _chains(leases))
            text = f"{_name(span)} on {gpu} from {findings.at(span.start_s)} to {findings.at(end_s)} without a lease"
            findings.look(WITHIN_LEASE, inside, text)


def check_bound_leases(run: AuditInput, findings: Findings) -> None:
    """A bound lease serves its job alone, and no round lets it expire. It may expire if its GPU is closed."""
    findings.announce(BOUND_JOB, BOUND_KEPT)
    bound: dict[tuple[str, str], list[LeaseSpan]] = defaultdict(list)
    for lease in lease_spans(run.events):
        if lease.job_id:
            bound[lease.app_id, lease.gpu].append(lease)
    for span in task_spans(run.events):
        for gpu in span.gpus:
            for lease in bound.get((span.app_id, gpu), ()):
                if lease.bound_sequence < span.start_sequence < lease.end_sequence:
                    text = f"{_name(span)} on {gpu}, which is bound to {lease.job_id}"
                    findings.look(BOUND_JOB, span.job_id == lease.job_id, text)
    for event in run.events:
        if event.kind == "lease_expiring" and event.detail.get("job_id"):
            text = f"{event.detail['gpu']} of {event.app_id} expires by round {event.detail.get('round_id')}"
            findings.look(BOUND_KEPT, not event.detail.get("round_id"), text)
        elif event.kind == "lease_released" and event.detail.get("job_id"):
            findings.look(BOUND_KEPT, True, "")


def _chains(leases: Iterable[LeaseSpan]) -> list[list[LeaseSpan]]:
    """Leases of one app on one GPU. Those that follow each other without a gap count as one."""
    chains: list[list[LeaseSpan]] = []
    for lease in leases:
        if chains and chains[-1][-1].end_s == lease.start_s:
            chains[-1].append(lease)
        else:
            chains.append([lease])
    return chains


def _covers(chain: Sequence[LeaseSpan], span: TaskSpan, end_s: float, clock_s: float, slack_s: float) -> bool:
    first, last = chain[0], chain[-1]
    begun = first.start_s - clock_s <= span.start_s or first.start_sequence < span.start_sequence
    over = end_s <= last.end_s + slack_s or span.end_sequence < last.end_sequence
    # A task that began after the lease had ended is not covered by it, in whatever order they ended.
    return begun and over and span.start_sequence < last.end_sequence


def _slack_s(span: TaskSpan, limits: AuditLimits, leases: Iterable[LeaseSpan] = ()) -> float:
    reported = span.end_kind == "tasks_ended" or span.end_s == math.inf
    forced = any(lease.end_kind == "lease_revoked" for lease in leases)
    return limits.clock_s if reported and not forced else limits.notice_s


def _name(span: TaskSpan) -> str:
    return f"{span.app_id}/{span.job_id} #{span.incarnation}"
