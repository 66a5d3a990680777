"""SRPT: shortest remaining processing time, with free preemption and migration. A goal for AlloX, not a rival.

It is greedy, so it is no strict bound on the mean completion time.
"""

from __future__ import annotations

from collections import Counter

from rm_plugin.policies.allox.progress import value_of
from rm_plugin.policies.allox.values import Decision, Job, Snapshot, Start, arrival_order


def decide(snapshot: Snapshot) -> Decision:
    """Assign all jobs again: of all pairs (job, type) the smallest remaining time first.

    A running job that keeps its type keeps its machine. Others are preempted, and continue or wait.
    """
    held = {running.machine_id: running for running in snapshot.running}
    usable = [machine for machine in snapshot.machines if machine.is_idle or machine.machine_id in held]
    free = Counter(machine.type_name for machine in usable)
    left = {job.job_id: (job, snapshot.fraction_left.get(job.job_id, 1.0)) for job in snapshot.waiting}
    left |= {running.job.job_id: (running.job, running.fraction_left) for running in snapshot.running}
    pairs = sorted(
        (fraction * configuration.time_s, arrival_order(job), name)
        for job, fraction in left.values()
        for name, configuration in job.configurations.items()
    )
    assigned: dict[str, str] = {}
    for _, (_, job_id), type_name in pairs:
        if free[type_name] and job_id not in assigned:
            assigned[job_id] = type_name
            free[type_name] -= 1
    kept = {each.machine_id for each in held.values() if assigned.get(each.job.job_id) == each.type_name}
    rooms: dict[str, list[str]] = {}
    for machine in sorted(usable, key=lambda machine: machine.machine_id, reverse=True):
        if machine.machine_id not in kept:
            rooms.setdefault(machine.type_name, []).append(machine.machine_id)
    staying = {held[machine_id].job.job_id for machine_id in kept}

    def start(job: Job, type_name: str) -> Start:
        value = value_of(job, type_name, snapshot.capacity)
        return Start(job=job, machine_id=rooms[type_name].pop(), type_name=type_name, value=value)

    return Decision(
        starts=tuple(start(left[job_id][0], name) for job_id, name in assigned.items() if job_id not in staying),
        preempted=tuple(each.job.job_id for each in held.values() if each.machine_id not in kept),
    )
