"""Seeded snapshots of a loaded cluster, to time decisions."""

from __future__ import annotations

import random

from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.allox.values import Capacity, Configuration, Job, Machine, Snapshot
from themis_lab.paper.allox.workload import CPU, GPU, Trace, large


def queued(seed: int, jobs: int, machines: int, busy: float = 0.0) -> Snapshot:
    """Jobs of the simulations' workload, all waiting, on half GPUs and half CPU nodes.

    Args:
        seed: Of the jobs and the machines.
        jobs: How many wait.
        machines: How many there are.
        busy: Share of them that run a job, for up to 200 s more.
    """
    trace: Trace = large(seed, -(-jobs // 10))
    rng = random.Random(child_seed(seed, "allox queued"))
    now_s = trace.jobs[-1].arrival_s
    nodes = []
    for place in range(machines):
        is_idle = rng.random() >= busy
        available_s = now_s if is_idle else now_s + rng.uniform(0.0, 200.0)
        nodes.append(
            Machine(
                machine_id=f"m{place:05}",
                type_name=GPU if place % 2 else CPU,
                available_s=available_s,
                is_idle=is_idle,
            )
        )
    return Snapshot(
        now_s=now_s,
        machines=tuple(nodes),
        waiting=tuple(
            Job(
                job_id=job.job_id,
                user=job.user,
                arrival_s=job.arrival_s,
                configurations={name: Configuration(time_s=seconds) for name, seconds in job.true_s.items()},
            )
            for job in trace.jobs[:jobs]
        ),
        capacity=Capacity(units={GPU: machines / 2, CPU: machines / 2}),
    )
