"""DRFA: online DRF where one GPU counts as beta CPU nodes, with beta the mean speedup of all jobs.

With g GPUs and c CPU nodes of G and C a user's share is max((g * beta + c) / (G * beta + C), memory share). DRFA needs
beta in advance, which no real system has. Live, it is the mean over the jobs that wait (`mean_speedups`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from rm_plugin.policies.allox.idle_machines import IdleMachines
from rm_plugin.policies.allox.values import Decision, Job, Snapshot, Start, arrival_order


def mean_speedups(jobs: Sequence[Job], types: Iterable[str], slowest: str) -> dict[str, float]:
    """The mean speedup of each type over the slowest one: the mean of p_slowest / p_type over the jobs.

    Jobs that cannot run on both types are left out. A type without any job left has speedup 1.
    """
    ratios = {name: [job.time_s(slowest) / job.time_s(name) for job in jobs] for name in types}
    usable = {name: [each for each in own if 0.0 < each < math.inf] for name, own in ratios.items()}
    return {name: statistics.fmean(own) if own else 1.0 for name, own in usable.items()}


def decide(snapshot: Snapshot, weights: Mapping[str, float]) -> Decision:
    """Start the shortest job of the user with the least share on the idle type with the largest weight.

    Args:
        snapshot: The cluster and the waiting jobs.
        weights: How many CPU nodes a machine of each type counts as: beta for a GPU, 1 for a CPU node.
    """
    idle = IdleMachines(snapshot)
    if not idle:
        return Decision()
    capacity = snapshot.capacity
    total = math.fsum(weights[name] * units for name, units in capacity.units.items())
    used: dict[str, tuple[float, float]] = {}

    def add(job: Job, type_name: str) -> None:
        units, memory_gb = used.get(job.user, (0.0, 0.0))
        configuration = job.configurations[type_name]
        used[job.user] = units + weights[type_name] * configuration.units, memory_gb + configuration.memory_gb

    def share(user: str) -> float:
        units, memory_gb = used.get(user, (0.0, 0.0))
        return max(units / total, memory_gb / capacity.memory_gb if capacity.memory_gb else 0.0)

    for running in snapshot.running:
        add(running.job, running.type_name)
    waiting: dict[str, list[Job]] = {}
    for job in sorted(snapshot.waiting, key=arrival_order):
        waiting.setdefault(job.user, []).append(job)
    starts: list[Start] = []
    while waiting and idle:
        user = min(waiting, key=lambda name: (share(name), arrival_order(waiting[name][0])))
        types = [name for name in idle.types() if any(name in job.configurations for job in waiting[user])]
        if not types:
            # None of this user's jobs can run on what is idle; others may.
            del waiting[user]
            continue
        type_name = max(types, key=lambda name: (weights[name], name))
        job = min(waiting[user], key=lambda job: (job.time_s(type_name), arrival_order(job)))
        starts.append(idle.take(job, type_name))
        add(job, type_name)
        waiting[user].remove(job)
        if not waiting[user]:
            del waiting[user]
    return Decision(starts=tuple(starts))
