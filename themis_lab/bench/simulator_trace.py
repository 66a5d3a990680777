"""Make a random trace in Gavel's format that resembles the public one of 120 jobs, from its statistics."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random

from rm_plugin.arbiter.seeds import child_seed
from themis.values import Value
from themis_lab.simulator.workloads.gavel import DEFAULT_GPU_TYPE
from themis_lab.simulator.workloads.models import DATA

STATISTICS_GPUS = 32
"""GPUs of the cluster for which the public trace was made."""

_THROUGHPUT_COLUMNS = (
    "model", "batch_size", "num_gpus", "gpu_type", "steps_per_s_consolidated", "steps_per_s_unconsolidated",
)  # fmt: skip


class DrawnJob(Value, frozen=True, kw_only=True):
    """A job: seconds on its GPUs on one server, steps per second there, and the slowdown on several servers."""

    gpus: int
    run_s: float
    steps_per_s: float
    across: float
    arrival_s: float


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


def write_trace(jobs: Sequence[DrawnJob], folder: Path, name: str) -> tuple[Path, Path]:
    """Write the jobs as a trace and its table of throughputs. Returns both paths."""
    trace, table = folder / f"{name}.trace", folder / f"{name}.csv"
    trace.write_text("".join(_line(number, job) for number, job in enumerate(jobs)), encoding="utf-8")
    with table.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(_THROUGHPUT_COLUMNS)
        for number, job in enumerate(jobs):
            speeds = (job.steps_per_s, job.steps_per_s / job.across)
            writer.writerow((_model(number), "", job.gpus, DEFAULT_GPU_TYPE, *speeds))
    return trace, table


def _line(number: int, job: DrawnJob) -> str:
    steps = max(1, round(job.run_s * job.steps_per_s))
    words = (_model(number), "-", "-", "--steps", 1, steps, job.gpus, "static", 1, -1.0, job.run_s, job.arrival_s)
    return "\t".join(map(str, words)) + "\n"


def _model(number: int) -> str:
    return f"drawn-{number:04d}"
