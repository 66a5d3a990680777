"""Small AlloX instances, and brute force over all their schedules."""

import itertools
import math

import numpy as np

from rm_plugin.policies.allox.values import Capacity, Configuration, Job, Machine, Snapshot, UserState


def job(job_id, user="u", arrival_s=0.0, memory_gb=0.0, **time_s):
    """A job with a time by device type, None for a type that it cannot run on."""
    return Job(
        job_id=job_id,
        user=user,
        arrival_s=arrival_s,
        configurations={
            name: Configuration(time_s=float(seconds), memory_gb=memory_gb)
            for name, seconds in time_s.items()
            if seconds is not None
        },
    )


def machine(machine_id, type_name, available_s=0.0, now_s=0.0, is_idle=None):
    return Machine(
        machine_id=machine_id,
        type_name=type_name,
        available_s=available_s,
        is_idle=available_s <= now_s if is_idle is None else is_idle,
    )


def cluster(gpus=0, cpus=0, **more):
    """Idle machines g0, g1, .. and c0, c1, .., and more by type."""
    counts = {"gpu": gpus, "cpu": cpus, **more}
    return tuple(machine(f"{name[0]}{index}", name) for name, count in counts.items() for index in range(count))


def snapshot(jobs, machines, now_s=0.0, **more):
    units = {name: float(sum(each.type_name == name for each in machines)) for name in {m.type_name for m in machines}}
    more.setdefault("capacity", Capacity(units=units))
    return Snapshot(now_s=now_s, machines=tuple(machines), waiting=tuple(jobs), **more)


def progress(**by_user):
    return {user: UserState(progress=value, last_start_s=0.0) for user, value in by_user.items()}


def ends_of(queues, times_s, machine_types, wait_s):
    """End of each job, from the time of the decision, by index."""
    ends = {}
    for queue, kind, at_s in zip(queues, machine_types, wait_s, strict=True):
        for index in queue:
            at_s += times_s[index][kind]
            ends[index] = at_s
    return ends


def all_schedules(jobs, machines):
    """Every schedule: an assignment to machines, and an order on each."""
    for assignment in itertools.product(range(machines), repeat=jobs):
        queues = [[j for j in range(jobs) if assignment[j] == i] for i in range(machines)]
        yield from itertools.product(*(itertools.permutations(queue) for queue in queues))


def brute_force_s(times_s, machine_types, wait_s):
    """The least total completion time. Shortest first on each machine is optimal, so only assignments are tried."""
    jobs, least_s = len(times_s), math.inf
    for assignment in itertools.product(range(len(machine_types)), repeat=jobs):
        total_s = 0.0
        for place, (kind, at_s) in enumerate(zip(machine_types, wait_s, strict=True)):
            for seconds in sorted(times_s[j][kind] for j in range(jobs) if assignment[j] == place):
                at_s += seconds
                total_s += at_s
        least_s = min(least_s, total_s)
    return least_s


def array(times_s):
    return np.array(times_s, dtype=float)


TABLE_1 = (
    job("J1", "User 1", gpu=10, cpu=15),
    job("J2", "User 2", gpu=8, cpu=10),
    job("J3", "User 1", gpu=10, cpu=50),
    job("J4", "User 2", gpu=5, cpu=75),
    job("J5", "User 1", gpu=10, cpu=15),
    job("J6", "User 2", gpu=10, cpu=15),
)
"""Table 1 of the paper, in minutes."""
