"""Jobs that can run on a GPU or on a CPU node, as in the evaluation of AlloX (EuroSys 2020). They follow from a seed.

The paper's trace is not public in full. `large` keeps its size and load: 10 users, GPU load about 1.25 if the CPU nodes
are idle, mean times of 58 s on a GPU and about 215 s on a CPU node, and a few jobs that are faster on a CPU node.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.allox.values import Capacity, Configuration, Job, Machine, Snapshot
from themis.values import Value

GPU, CPU = "gpu", "cpu"

USERS = 10
_SHARED_GPU_S, _LONG_USERS_GPU_S = 58.0, 32.0
"""Mean time on a GPU: of nine users, and of user 9, whose jobs are the longest on CPU nodes."""


class TraceJob(Value, frozen=True, kw_only=True):
    """A job of a workload.

    Attributes:
        job_id: Unique id; in the order of ids jobs arrive in order.
        user: Who submits it.
        arrival_s: When.
        true_s: Its processing time by device type. Policies see estimates only.
        memory_gb: Memory that it occupies by device type.
    """

    job_id: str
    user: str
    arrival_s: float
    true_s: Mapping[str, float]
    memory_gb: Mapping[str, float]


class Trace(Value, frozen=True, kw_only=True):
    """A workload and the cluster that it runs on.

    Attributes:
        jobs: By arrival.
        machines: Number of machines by device type.
        memory_gb: Memory of the cluster.
    """

    jobs: tuple[TraceJob, ...]
    machines: Mapping[str, int]
    memory_gb: float

    @property
    def users(self) -> tuple[str, ...]:
        """All users, by name."""
        return tuple(sorted({job.user for job in self.jobs}))


def large(seed: int, jobs_per_user: int = 1000) -> Trace:
    """The simulations of section 5.2.2: 20 GPUs, 20 CPU nodes, and 10 users with 1000 jobs each in 22,520 s.

    With fewer jobs the time shrinks in proportion, so the load stays the same.
    """
    rng = random.Random(child_seed(seed, "allox", "large"))
    span_s = 22.52 * jobs_per_user
    drawn = sorted(
        (rng.uniform(0.0, span_s), user, *_times(rng, user), rng.uniform(1.0, 16.0))
        for user in range(USERS)
        for _ in range(jobs_per_user)
    )
    return Trace(
        jobs=tuple(
            TraceJob(
                job_id=f"j{place:05}",
                user=f"u{user}",
                arrival_s=arrival_s,
                true_s={GPU: gpu_s, CPU: cpu_s},
                memory_gb={GPU: 2.0, CPU: cpu_gb},
            )
            for place, (arrival_s, user, gpu_s, cpu_s, cpu_gb) in enumerate(drawn)
        ),
        machines={GPU: 20, CPU: 20},
        memory_gb=1280.0,
    )


def _times(rng: random.Random, user: int) -> tuple[float, float]:
    """Seconds on a GPU and on a CPU node."""
    spread = 0.5 + 0.04 * user
    mean_s = _LONG_USERS_GPU_S if user == USERS - 1 else _SHARED_GPU_S
    gpu_s = rng.lognormvariate(math.log(mean_s) - spread**2 / 2.0, spread)
    cpu_s = rng.gauss(81.0 + 30.0 * user, 20.0)
    return min(400.0, max(6.0, gpu_s)), max(41.0, cpu_s)


def with_longer_user(seed: int, factor: float = 10.0, jobs_per_user: int = 100) -> Trace:
    """`large`, scaled down, with all times of user 9 multiplied: the starvation experiment of section 5.2.3."""
    trace = large(seed, jobs_per_user)
    longest = trace.users[-1]
    jobs = tuple(
        TraceJob(
            job_id=job.job_id,
            user=job.user,
            arrival_s=job.arrival_s,
            true_s={name: seconds * (factor if job.user == longest else 1.0) for name, seconds in job.true_s.items()},
            memory_gb=job.memory_gb,
        )
        for job in trace.jobs
    )
    return Trace(jobs=jobs, machines=trace.machines, memory_gb=trace.memory_gb)


def small_cluster(seed: int) -> Trace:
    """The experiments of section 5.2.1: 4 GPU and 8 CPU nodes, 4 users with 10 jobs each, all at time 0.

    Speedups are drawn between the paper's 1.8 and 10, their logarithms evenly. Our choice: times on a GPU are drawn as
    those of `large`, because the paper does not state them.
    """
    rng = random.Random(child_seed(seed, "allox", "small"))
    jobs = []
    for place in range(40):
        gpu_s, _ = _times(rng, place % 4)
        speedup = math.exp(rng.uniform(math.log(1.8), math.log(10.0)))
        jobs.append(
            TraceJob(
                job_id=f"j{place:02}",
                user=f"u{place % 4}",
                arrival_s=0.0,
                true_s={GPU: gpu_s, CPU: gpu_s * speedup},
                memory_gb={GPU: 2.0, CPU: rng.uniform(1.0, 16.0)},
            )
        )
    return Trace(jobs=tuple(jobs), machines={GPU: 4, CPU: 8}, memory_gb=8 * 64.0 + 4 * 61.0)


def queued(seed: int, jobs: int, machines: int, busy: float = 0.0) -> Snapshot:
    """Jobs of the simulations' workload, all waiting, on half GPUs and half CPU nodes.

    Args:
        seed: Of the jobs and the machines.
        jobs: How many wait.
        machines: How many there are.
        busy: Share of them that run a job, for up to 200 s more.
    """
    trace = large(seed, -(-jobs // 10))
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
