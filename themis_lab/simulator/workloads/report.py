"""Compare a workload with the distributions in the paper, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from am.tuners.port import Phase
from am.tuners.registry import make_tuner
from themis.apps import JobSpec
from themis.sums import sum_in_order
from themis.values import Value
from themis_lab.simulator.metrics import percentile
from themis_lab.simulator.workload import AppTrace, Workload
from themis_lab.simulator.workloads.models import CATEGORY_SHARES, read_models
from themis_lab.simulator.workloads.sampling import (
    APPS,
    DAY_S,
    HOUR_S,
    MEDIAN_APP_GPU_S,
    MEDIAN_JOBS,
    MEDIAN_TASK_GPU_S,
    SINGLE_SHARE,
    TAIL_FACTOR,
)

USUAL_GANGS = (1, 2, 4, 8)
DEMAND_GPUS = 50
"""The paper's mean demand of the apps of its trace, in GPUs (NSDI'20, section 2.2)."""


class ReportRow(Value, frozen=True, kw_only=True):
    """One quantity with its unit: the paper's value, or None if it gives none, and the workload's value."""

    quantity: str
    paper: float | None
    ours: float


def report(workload: Workload, cluster_gpus: Sequence[int] = ()) -> tuple[ReportRow, ...]:
    """Return the table of a workload. For each number of GPUs it also has the load: work per GPU time of the arrivals.

    Work is the GPU seconds at S = 1 that the tuners plan to run. The paper's tails ("10X shorter", "10X longer") are
    read as the 5th and the 95th percentile.
    """
    return (
        *_counts(workload),
        *_spread("GPU days an app", [planned_work_gpu_s(app) for app in workload.apps], DAY_S, MEDIAN_APP_GPU_S),
        *_spread("GPU hours a task", _tasks_gpu_s(workload), HOUR_S, MEDIAN_TASK_GPU_S),
        *_gangs(workload),
        *_models(workload),
        *_loads(workload, cluster_gpus),
    )


def planned_work_gpu_s(app: AppTrace) -> float:
    """Return the GPU seconds at S = 1 that the app's tuner plans to run, whichever jobs survive."""
    return sum_in_order(_planned_runs_gpu_s(app))


def _planned_runs_gpu_s(app: AppTrace) -> list[float]:
    """Return the planned work of each job. If a tuner stops jobs, survivors are assumed to be like the others."""
    specs = [JobSpec(job_id=job.job_id, iterations_total=job.iterations_total, shape=job.shape) for job in app.jobs]
    phases = make_tuner(app.tuner, specs).plan().phases
    if len(phases) == 1:
        return [min(phases[0].iterations, job.iterations_total) * job.serial_iteration_s for job in app.jobs]
    mean_s = sum_in_order(job.serial_iteration_s for job in app.jobs) / len(app.jobs)
    return [iterations * mean_s for iterations in _iterations(phases)]


def _iterations(phases: Sequence[Phase]) -> Iterator[int]:
    """Return the iterations of each job. A job that ends after a phase has run this phase and all earlier ones."""
    done = 0
    leaving = [phase.jobs for phase in phases[1:]] + [0]
    for phase, kept in zip(phases, leaving, strict=True):
        done += phase.iterations
        yield from [done] * (phase.jobs - kept)


def _tasks_gpu_s(workload: Workload) -> list[float]:
    """Return the GPU seconds of each task: its share of its job."""
    return [
        work_gpu_s / app.jobs[0].shape.tasks
        for app in workload.apps
        for work_gpu_s in _planned_runs_gpu_s(app)
        for _ in range(app.jobs[0].shape.tasks)
    ]


def _counts(workload: Workload) -> Iterator[ReportRow]:
    counts = [len(app.jobs) for app in workload.apps]
    yield ReportRow(quantity="apps", paper=APPS, ours=len(counts))
    alone = counts.count(1) / len(counts)
    yield ReportRow(quantity="apps of one job, %", paper=100 * SINGLE_SHARE, ours=100 * alone)
    yield ReportRow(quantity="jobs an app, median", paper=MEDIAN_JOBS, ours=percentile(counts, 0.5))
    yield ReportRow(quantity="jobs an app, most", paper=100, ours=max(counts))


def _spread(quantity: str, values: Sequence[float], unit: float, median: float) -> Iterator[ReportRow]:
    quantiles = (("5 %", 0.05, median / TAIL_FACTOR), ("median", 0.5, median), ("95 %", 0.95, median * TAIL_FACTOR))
    for label, share, paper in quantiles:
        yield ReportRow(quantity=f"{quantity}, {label}", paper=paper / unit, ours=percentile(values, share) / unit)


def _gangs(workload: Workload) -> Iterator[ReportRow]:
    gangs = Counter(job.shape.demand_max_gpus for app in workload.apps for job in app.jobs)
    for gpus in sorted({*USUAL_GANGS, *gangs}):
        unit = "GPU" if gpus == 1 else "GPUs"
        yield ReportRow(quantity=f"jobs of {gpus} {unit}, %", paper=None, ours=100 * gangs[gpus] / gangs.total())


def _models(workload: Workload) -> Iterator[ReportRow]:
    models = read_models()
    known = [models[app.model] for app in workload.apps if app.model in models]
    for category, share in CATEGORY_SHARES.items():
        ours = sum(model.category == category for model in known) / len(workload.apps)
        yield ReportRow(quantity=f"apps of {category}, %", paper=100 * share, ours=100 * ours)
    strict = sum(model.strict for model in known) / len(workload.apps)
    yield ReportRow(quantity="network-intensive apps, %", paper=None, ours=100 * strict)


def _loads(workload: Workload, cluster_gpus: Sequence[int]) -> Iterator[ReportRow]:
    """Return the work divided by the time over which the apps arrive."""
    span_s = workload.apps[-1].arrival_s - workload.apps[0].arrival_s
    if span_s <= 0.0:
        return
    demand = sum_in_order(planned_work_gpu_s(app) for app in workload.apps) / span_s
    yield ReportRow(quantity="work by the time of the arrivals, GPUs", paper=DEMAND_GPUS, ours=demand)
    for gpus in cluster_gpus:
        yield ReportRow(quantity=f"load on {gpus} GPUs", paper=None, ours=demand / gpus)
