"""The tenants and jobs of the evaluation: the paper's cluster and models; what the paper leaves open is drawn by seed.

The paper prints two speedups of an RTX 3090 over a 3070: 1.39 for VGG and 2.15 for LSTM. Other models get one between
them, and an RTX 3080 gets 35 to 65 % of the gain of a 3090.
"""

from __future__ import annotations

import math
from random import Random

from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.oef.placement import Host
from themis.values import Value

TYPES = ("rtx3070", "rtx3080", "rtx3090")
HOSTS = tuple(Host(host_id=f"host{number}", type_number=number // 2, gpus=4) for number in range(6))
"""Eight GPUs of each type, four of one type on a host (section 6.1.1)."""

CAPACITY = (8, 8, 8)
ROUND_S = 300.0

VGG, LSTM = 1.39, 2.15
"""Speedups of a 3090 over a 3070, from section 2.2."""

MODELS = ("vgg", "resnet", "densenet", "rnn", "transformer", "lstm")

GANGS, GANG_ODDS = (1, 2, 4), (0.5, 0.3, 0.2)
"""Workers of a job, and how frequent they are."""

ENDLESS_S = 1e12
"""Work of jobs that should not end within an experiment."""


class Job(Value, frozen=True, kw_only=True):
    """A training job: `work_s` seconds on its whole gang of the slowest type on one host."""

    job_id: str
    gang: int
    work_s: float
    arrival_s: float


class TenantLoad(Value, frozen=True, kw_only=True):
    """A virtual tenant: jobs with one speedup vector.

    Attributes:
        tenant_id: Its name.
        speedup: What its jobs really gain on each type.
        claimed: What it says; None if it is honest.
        weight: Its part of the cluster.
        jobs: By arrival.
        arrives_s: When it joins.
        leaves_s: When it leaves, finished or not.
    """

    tenant_id: str
    speedup: tuple[float, ...]
    jobs: tuple[Job, ...]
    claimed: tuple[float, ...] | None = None
    weight: float = 1.0
    arrives_s: float = 0.0
    leaves_s: float = math.inf


def speedup_of(fastest: float, rng: Random) -> tuple[float, ...]:
    """A speedup vector from its largest entry."""
    return (1.0, 1.0 + (fastest - 1.0) * rng.uniform(0.35, 0.65), fastest)


def model_speedup(model: str, rng: Random) -> tuple[float, ...]:
    """The speedups of a model."""
    published = {"vgg": VGG, "lstm": LSTM}
    return speedup_of(published[model] if model in published else rng.uniform(VGG, LSTM), rng)


def endless_jobs(tenant_id: str, rng: Random, *, single: bool = False) -> tuple[Job, ...]:
    """Enough jobs to use any share, which do not end: of 1, 2 and 4 workers, or all of one."""
    return tuple(
        Job(
            job_id=f"{tenant_id}-{number}",
            gang=1 if single else rng.choices(GANGS, GANG_ODDS)[0],
            work_s=ENDLESS_S,
            arrival_s=0.0,
        )
        for number in range(sum(CAPACITY) if single else 12)
    )


def four_tenants(seed: int, *, ascending: bool, single: bool = False) -> list[TenantLoad]:
    """The small experiments' tenants: VGG, LSTM and two models between, in ascending or descending order of speedup.

    Section 6.2.1 has LSTM as user 1 and VGG as user 4, section 6.2.2 the fastest as user 4.
    """
    rng = Random(child_seed(seed, "four tenants"))
    fastest = sorted([VGG, LSTM, *(rng.uniform(VGG, LSTM) for _ in range(2))], reverse=not ascending)
    return [
        TenantLoad(
            tenant_id=f"user{number}",
            speedup=speedup_of(value, rng),
            jobs=endless_jobs(f"user{number}", rng, single=single),
        )
        for number, value in enumerate(fastest, start=1)
    ]


def many_tenants(seed: int, count: int) -> list[TenantLoad]:
    """Tenants with one of the paper's models each, and enough jobs to use any share."""
    rng = Random(child_seed(seed, "many tenants"))
    tenants = []
    for number in range(1, count + 1):
        name = f"user{number:02d}"
        speedup = model_speedup(rng.choice(MODELS), rng)
        tenants.append(TenantLoad(tenant_id=name, speedup=speedup, jobs=endless_jobs(name, rng)))
    return tenants


def trace(seed: int, *, tenants: int, jobs: int, median_s: float, arrivals_s: float) -> list[TenantLoad]:
    """Tenants whose jobs arrive over time and end; a tenant leaves when its jobs are done.

    Args:
        seed: Of all random choices.
        tenants: Number of tenants.
        jobs: Mean number of jobs of a tenant; from three quarters to five quarters of it.
        median_s: Of a job's time on its gang of the slowest type; log-normal with sigma 0.6.
        arrivals_s: Jobs arrive uniformly over this time.
    """
    rng = Random(child_seed(seed, "trace"))
    loads = []
    for number in range(1, tenants + 1):
        name = f"user{number:02d}"
        speedup = model_speedup(rng.choice(MODELS), rng)
        own = [
            (
                rng.uniform(0.0, arrivals_s),
                rng.choices(GANGS, GANG_ODDS)[0],
                rng.lognormvariate(math.log(median_s), 0.6),
            )
            for _ in range(rng.randint(math.ceil(0.75 * jobs), math.floor(1.25 * jobs)))
        ]
        made = tuple(
            Job(job_id=f"{name}-{place}", gang=gang, work_s=work_s, arrival_s=arrival_s)
            for place, (arrival_s, gang, work_s) in enumerate(sorted(own))
        )
        loads.append(TenantLoad(tenant_id=name, speedup=speedup, jobs=made))
    return loads
