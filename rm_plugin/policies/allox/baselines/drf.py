"""Online dominant resource fairness: again and again, the user with the least share starts its first job.

If that job does not fit, nothing more starts: the head of the line blocks, as in the authors' simulator. Common to DRFF
and DRFS, which differ in a user's order of jobs and in the type that a job takes.
"""

from __future__ import annotations

from collections.abc import Callable

from rm_plugin.policies.allox.idle_machines import IdleMachines
from rm_plugin.policies.allox.values import Decision, Job, Snapshot, Start, arrival_order

Order = Callable[[Job], tuple[float, float, str]]


def decide_by_shares(snapshot: Snapshot, order: Order, type_of: Callable[[Job], str]) -> Decision:
    """Start jobs of the users with the least dominant share, each user's in an order, each job on a type."""
    idle = IdleMachines(snapshot)
    starts: list[Start] = []
    if not idle:
        return Decision()
    used: dict[str, dict[str, float]] = {}
    queues: dict[str, list[Job]] = {}
    for job in snapshot.waiting:
        if not job.configurations.keys() & snapshot.capacity.units.keys():
            # Its types have all left the cluster: it waits for them to return, and blocks no other job.
            continue
        queues.setdefault(job.user, []).append(job)
    for running in snapshot.running:
        _add(used.setdefault(running.job.user, {}), running.job, running.type_name)
    for queue in queues.values():
        # The next job is the last of the list, so that taking it is cheap.
        queue.sort(key=order, reverse=True)
    while queues:
        user = min(queues, key=lambda name: (_share(snapshot, used.get(name, {})), arrival_order(queues[name][-1])))
        job = queues[user][-1]
        type_name = type_of(job)
        if not idle.has(type_name):
            break
        starts.append(idle.take(job, type_name))
        _add(used.setdefault(user, {}), job, type_name)
        queues[user].pop()
        if not queues[user]:
            del queues[user]
    return Decision(starts=tuple(starts))


_MEMORY, _CORES = "", " "
"""Keys of memory and cores among the device types."""


def _add(used: dict[str, float], job: Job, type_name: str) -> None:
    configuration = job.configurations[type_name]
    used[type_name] = used.get(type_name, 0.0) + configuration.units
    used[_MEMORY] = used.get(_MEMORY, 0.0) + configuration.memory_gb
    used[_CORES] = used.get(_CORES, 0.0) + configuration.cores


def _share(snapshot: Snapshot, used: dict[str, float]) -> float:
    """The dominant share: the largest share of any device type, of memory or of cores."""
    capacity = snapshot.capacity
    totals = {**capacity.units, _MEMORY: capacity.memory_gb, _CORES: capacity.cores}
    return max((used.get(name, 0.0) / total for name, total in totals.items() if total), default=0.0)
