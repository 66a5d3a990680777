"""Make the jobs of an app from its model and work: a limited number of whole iterations, and seeded loss curves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

from am.tuners.registry import make_tuner
from themis.apps import JobShape, JobSpec, TunerSpec
from themis.sums import sum_in_order
from themis_lab.simulator.workload import JobTrace, LossCurve
from themis_lab.simulator.workloads.models import Model

MAX_ITERATIONS = 100_000
MIN_ITERATIONS = 1024
"""Limits of the iterations of an app's longest job. Within them an iteration takes as long as the model's."""

ITERATION_SIGMA = 0.15
"""Sigma of the lognormal iteration times of one search's jobs, which differ with their hyper-parameters."""


@cache
def shape_of(gpus: int, *, rigid: bool) -> JobShape:
    """Return the shape of jobs of exactly, or up to, `gpus` GPUs. Equal shapes are one object, the key of caches."""
    return JobShape(tasks=gpus, min_tasks=gpus if rigid else 1)


def jobs_of_work(
    works_gpu_s: Sequence[float], model: Model, shape: JobShape, rng: Random, *, prefix: str = "j"
) -> tuple[JobTrace, ...]:
    """Return jobs that run to their own end, each with its GPU seconds of work at S = 1, with one iteration time."""
    longest = max(works_gpu_s)
    serial_s = longest / whole_iterations(longest, model.serial_iteration_s)
    return tuple(
        JobTrace(
            job_id=f"{prefix}{number:03d}",
            iterations_total=max(1, round(work_gpu_s / serial_s)),
            serial_iteration_s=serial_s,
            slowdown=model.slowdown,
            shape=shape,
            curve=draw_curve(longest / serial_s, rng),
        )
        for number, work_gpu_s in enumerate(works_gpu_s)
    )


def jobs_of_search(
    count: int, work_gpu_s: float, tuner: TunerSpec, model: Model, shape: JobShape, rng: Random, *, prefix: str = "j"
) -> tuple[JobTrace, ...]:
    """Return jobs of equal iterations that a tuner searches in phases, with `work_gpu_s` of work in total.

    The work of a search is the sum over its phases of jobs times iterations, at the mean iteration time.
    """
    per_iteration = search_iterations(count, MAX_ITERATIONS, tuner) / MAX_ITERATIONS
    total = whole_iterations(work_gpu_s / per_iteration, model.serial_iteration_s)
    factors = [rng.lognormvariate(0.0, ITERATION_SIGMA) for _ in range(count)]
    mean_s = work_gpu_s / search_iterations(count, total, tuner)
    scale_s = mean_s * count / sum_in_order(factors)
    return tuple(
        JobTrace(
            job_id=f"{prefix}{number:03d}",
            iterations_total=total,
            serial_iteration_s=scale_s * factor,
            slowdown=model.slowdown,
            shape=shape,
            curve=draw_curve(total, rng),
        )
        for number, factor in enumerate(factors)
    )


def search_iterations(count: int, total: int, tuner: TunerSpec) -> int:
    """Return the iterations that a search of `jobs` jobs, of `total` iterations each, runs over all its phases."""
    specs = [JobSpec(job_id=f"j{number:06d}", iterations_total=total) for number in range(count)]
    return sum(phase.jobs * phase.iterations for phase in make_tuner(tuner, specs).plan().phases)


def whole_iterations(work_gpu_s: float, serial_iteration_s: float) -> int:
    """Return the iterations of the longest job: by the model's iteration time, within the limits above."""
    return min(max(round(work_gpu_s / serial_iteration_s), MIN_ITERATIONS), MAX_ITERATIONS)


def draw_curve(iterations: float, rng: Random) -> LossCurve:
    """Draw a loss curve for a run of about `iterations` iterations. It falls fast for 1 % to 20 % of them."""
    return LossCurve(
        floor=rng.uniform(0.05, 1.0),
        drop=rng.uniform(1.0, 4.0),
        scale=iterations * rng.uniform(0.01, 0.2),
        power=rng.uniform(0.5, 1.5),
    )
