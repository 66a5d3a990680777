"""Workloads of one-job apps that resemble Gavel's public trace of 120 jobs, drawn from its statistics."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from random import Random

from rm_plugin.arbiter.seeds import child_seed
from themis.cluster import Cluster
from themis.errors import InputError
from themis.values import Value
from themis_lab.simulator.workload import Workload
from themis_lab.simulator.workloads.gavel import GavelJob, Throughput, from_gavel
from themis_lab.simulator.workloads.models import DATA

STATISTICS_GPUS = 32
"""GPUs of the cluster for which the public trace was made."""

_MAX_JOBS = 100_000


class GavelSampleOptions(Value, frozen=True, kw_only=True):
    """The number of jobs."""

    jobs: int = 120

    def __post_init__(self) -> None:
        if not 1 <= self.jobs <= _MAX_JOBS:
            raise InputError(f"jobs must be 1 to {_MAX_JOBS:,}", value=self.jobs)


class DrawnJob(Value, frozen=True, kw_only=True):
    """A job: seconds on its GPUs on one server, steps per second there, and the slowdown on several servers."""

    gpus: int
    run_s: float
    steps_per_s: float
    across: float
    arrival_s: float

    @property
    def steps(self) -> int:
        """Its steps, at least one."""
        return max(1, round(self.run_s * self.steps_per_s))

    @property
    def steps_per_s_across(self) -> float:
        """Steps per second on several servers."""
        return self.steps_per_s / self.across


def gavel_sample(seed: int, cluster: Cluster, options: GavelSampleOptions) -> Workload:
    """Return drawn jobs as a workload, with the load of the public trace whatever the size of the cluster."""
    drawn = draw_jobs(options.jobs, cluster.gpus, seed)
    jobs = tuple(
        GavelJob(
            model=model_name(number),
            batch="",
            steps=job.steps,
            gpus=job.gpus,
            duration_s=job.run_s,
            arrival_s=job.arrival_s,
        )
        for number, job in enumerate(drawn)
    )
    throughputs = {
        (model_name(number), "", job.gpus): Throughput(
            consolidated=job.steps_per_s, unconsolidated=job.steps_per_s_across
        )
        for number, job in enumerate(drawn)
    }
    return from_gavel(jobs, throughputs, seed, "gavel")


def model_name(number: int) -> str:
    """The name of the model of a drawn job."""
    return f"drawn-{number:04d}"


@cache
def read_statistics() -> Mapping[str, tuple[float, ...]]:
    """The statistics of the public trace by name (themis_lab/simulator/workloads/data/SOURCES.md)."""
    with (DATA / "gavel_statistics.csv").open(newline="", encoding="utf-8") as stream:
        return {row["statistic"]: tuple(map(float, row["values"].split())) for row in csv.DictReader(stream)}


def draw_jobs(count: int, gpus: int, seed: int) -> tuple[DrawnJob, ...]:
    """`count` random jobs for a cluster of `gpus` GPUs, with the load of the public trace on its 32 GPUs.

    Poisson arrivals, with a mean gap inversely proportional to the cluster. GPUs, seconds, steps per second and the
    slowdown across servers are independent, from the trace's deciles, linear in logs between them.
    """
    known, rng = read_statistics(), Random(child_seed(seed, "bench trace", str(count)))
    gap_s = known["mean_gap_s"][0] * STATISTICS_GPUS / gpus
    arrivals_s = [0.0, *accumulate(rng.expovariate(1.0 / gap_s) for _ in range(count - 1))]
    return tuple(_draw(known, at_s, rng) for at_s in arrivals_s)


def _draw(known: Mapping[str, tuple[float, ...]], arrival_s: float, rng: Random) -> DrawnJob:
    return DrawnJob(
        gpus=int(rng.choices(known["gpus"], known["jobs_by_gpus"])[0]),
        run_s=_quantile(known["run_s_deciles"], rng),
        steps_per_s=_quantile(known["steps_per_s_deciles"], rng),
        across=_quantile(known["across_servers_deciles"], rng),
        arrival_s=arrival_s,
    )


def _quantile(deciles: Sequence[float], rng: Random) -> float:
    place = rng.random() * (len(deciles) - 1)
    low, high = (math.log(deciles[int(place) + step]) for step in (0, 1))
    return math.exp(low + (high - low) * (place - int(place)))
