"""Queues of machines to which jobs are bound at arrival: common to BF and JSQ+."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rm_plugin.policies.allox.progress import value_of
from rm_plugin.policies.allox.values import Decision, Job, Machine, Snapshot, Start, arrival_order

Choose = Callable[[Job, Mapping[Machine, float]], Machine]
"""Chooses a job's machine; gets the seconds until each machine that can run it has finished its queue."""


def decide_by_queues(snapshot: Snapshot, choose: Choose) -> Decision:
    """Bind new jobs in the order of arrival, then start the first job of each idle machine's queue.

    A job whose machine has left the cluster, or can no longer run it, is bound again.
    """
    machines = {each.machine_id: each for each in sorted(snapshot.machines, key=lambda each: each.machine_id)}
    backlog_s = {
        name: 0.0 if each.is_idle else max(0.0, each.available_s - snapshot.now_s) for name, each in machines.items()
    }
    waiting = sorted(snapshot.waiting, key=arrival_order)
    bindings: dict[str, str] = {}
    queues: dict[str, list[Job]] = {name: [] for name in machines}
    bound_to = {
        job.job_id: machines[machine_id]
        for job in waiting
        if (machine_id := snapshot.bindings.get(job.job_id)) in machines
        and machines[machine_id].type_name in job.configurations
    }
    for job in sorted(waiting, key=lambda job: job.job_id not in bound_to):
        if job.job_id in bound_to:
            machine_id = bound_to[job.job_id].machine_id
        else:
            fits = {each: backlog_s[name] for name, each in machines.items() if each.type_name in job.configurations}
            if not fits:
                continue
            machine_id = bindings[job.job_id] = choose(job, fits).machine_id
        queues[machine_id].append(job)
        backlog_s[machine_id] += job.time_s(machines[machine_id].type_name)
    starts = [
        Start(
            job=queue[0],
            machine_id=machine_id,
            type_name=machines[machine_id].type_name,
            value=value_of(queue[0], machines[machine_id].type_name, snapshot.capacity),
        )
        for machine_id, queue in queues.items()
        if queue and machines[machine_id].is_idle
    ]
    return Decision(starts=tuple(starts), bindings=bindings)
