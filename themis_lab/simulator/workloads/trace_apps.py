"""Make apps from the bursts of a trace. The trace does not name models, so they come from the paper's mix."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from rm_plugin.arbiter.seeds import child_seed
from themis.errors import InputError
from themis.sums import sum_in_order
from themis_lab.simulator.workload import AppTrace, Workload
from themis_lab.simulator.workloads.extract import ExtractApp, read_extract
from themis_lab.simulator.workloads.jobs import jobs_of_work, shape_of
from themis_lab.simulator.workloads.models import Model, draw_models
from themis_lab.simulator.workloads.philly import Burst
from themis_lab.simulator.workloads.sampling import middle_share

_SOURCE = (
    "bursts of Philly jobs stand in for apps; a job's work is its duration times its GPUs, as if its placement had "
    "cost nothing; it needs all its GPUs; models and loss curves drawn"
)


def from_bursts(bursts: Sequence[Burst], seed: int, name: str, least_jobs: int = 1, gaps: str = "") -> Workload:
    """Return the apps of a trace, from its first arrival. Smaller bursts are left out and counted.

    Args:
        bursts: The bursts, in order of submission.
        seed: The seed of all draws.
        name: The name of the workload.
        least_jobs: The minimum number of jobs of a burst.
        gaps: The parts of the trace that are in no burst, as in a Workload.

    Raises:
        InputError: No burst is left.
    """
    kept = [burst for burst in bursts if len(burst.jobs) >= least_jobs]
    if not bursts:
        raise InputError(f"{name} holds no job that ran")
    if not kept:
        remedy = f"its largest has {max(len(burst.jobs) for burst in bursts)}"
        raise InputError(f"{name} has no burst of at least this many jobs", value=least_jobs, remedy=remedy)
    models = draw_models(len(kept), Random(child_seed(seed, "models")))
    width = len(str(len(kept) - 1))
    apps = [
        _app(
            f"app-{number:0{width}d}",
            burst.submitted_s - kept[0].submitted_s,
            [job.duration_s for job in burst.jobs],
            burst.gpus,
            model,
            seed,
        )
        for number, (burst, model) in enumerate(zip(kept, models, strict=True))
    ]
    small = len(bursts) - len(kept)
    left_out = f"{small} of the {len(bursts)} bursts have fewer than {least_jobs} jobs: left out" if small else ""
    gaps = "; ".join(filter(None, (gaps, left_out)))
    return Workload(name=name, apps=tuple(apps), source=f"{name}: {_SOURCE}.", gaps=gaps)


def from_extract(seed: int) -> Workload:
    """Return the whole built-in extract of Philly: original job counts and GPU time, durations from its deciles."""
    extract = read_extract()
    models = draw_models(len(extract), Random(child_seed(seed, "models")))
    apps = [
        _app(app.name, app.arrival_s - extract[0].arrival_s, _durations_s(app), app.gpus, model, seed)
        for app, model in zip(extract, models, strict=True)
    ]
    return Workload(name="philly", apps=tuple(apps), source=f"The extract of Philly, 8 to 21 October 2017: {_SOURCE}.")


def _durations_s(app: ExtractApp) -> list[float]:
    """Return durations interpolated between the deciles, scaled to the app's GPU time."""
    drawn = [app.duration_s(middle_share(job, app.jobs)) for job in range(app.jobs)]
    factor = app.gpu_s / (app.gpus * sum_in_order(drawn))
    return [duration_s * factor for duration_s in drawn]


def _app(name: str, arrival_s: float, durations_s: Sequence[float], gpus: int, model: Model, seed: int) -> AppTrace:
    shape = shape_of(gpus, rigid=True)
    works = [duration_s * gpus for duration_s in durations_s]
    jobs = jobs_of_work(works, model, shape, Random(child_seed(seed, "trace", name)))
    return AppTrace(name=name, arrival_s=arrival_s, jobs=jobs, model=model.name)
