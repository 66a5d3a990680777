"""The paper's two workloads (NSDI'20, section 6.1), made from public data (docs/reference/workloads.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from random import Random

from rm_plugin.arbiter.seeds import child_seed
from themis.apps import JobShape, TunerSpec
from themis.config.tuner_settings import SINGLE, SUCCESSIVE_HALVING
from themis.errors import InputError
from themis.sums import sum_in_order
from themis.values import Value
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload
from themis_lab.simulator.workloads.extract import ExtractApp, read_extract
from themis_lab.simulator.workloads.jobs import jobs_of_search, jobs_of_work, shape_of
from themis_lab.simulator.workloads.models import Model, draw_models, shared_out
from themis_lab.simulator.workloads.sampling import (
    APPS,
    MEDIAN_APP_GPU_S,
    SINGLE_SHARE,
    TAIL_FACTOR,
    lognormal,
    middle_share,
    search_jobs,
    tail_sigma,
)

W1_GPUS = (1, 2)
W2_GPUS: Mapping[str, float] = {"2": 1.0, "4": 1.0, "8": 1.0}
"""Tasks of a job in workload 2, each for equally many apps. The paper says only: more than in workload 1."""
SPREAD = 10.0

_MAX_JOBS = 10_000
"""Maximum jobs of an app: a hundred times the paper's largest."""

_SOURCE_1 = (
    "Workload 1, a stand-in: arrivals, order by size and spread within an app from bursts of Philly jobs (8 to 21 "
    "October 2017); job counts and GPU time set to the paper's distributions; models, 2-GPU jobs and loss curves drawn."
)
_SOURCE_2 = (
    "Workload 2, a stand-in: arrivals, job counts and GPU time of workload 1; successive halving, gangs of 2, 4 and 8 "
    "tasks; models, iteration times and loss curves drawn."
)


class PaperOptions(Value, frozen=True, kw_only=True):
    """How a workload differs from the paper's.

    Attributes:
        apps: The number of apps. With fewer than 85, arrivals move closer together in proportion: the load stays.
        scale: Divides all work, and the gaps between arrivals.
        stretch: Multiplies the gaps between arrivals: the load falls, the work stays.
        job_divisor: Divides the number of jobs, but not the app's work: its jobs become longer.
        network_intensive: Share of apps with models strict about placement; None for the paper's mix.
        rigid: Jobs need all their tasks. Otherwise any number up to them, as in the paper's formula.
        app_spread: Ratio of the work of the median app and the 5th percentile, and of the 95th and the median.
        job_spread: Maximum ratio of a job's duration to its app's median, up or down (workload 1).
    """

    apps: int = APPS
    scale: float = 1.0
    stretch: float = 1.0
    job_divisor: float = 1.0
    network_intensive: float | None = None
    rigid: bool = False
    app_spread: float = TAIL_FACTOR
    job_spread: float = SPREAD

    def __post_init__(self) -> None:
        if self.apps < 1:
            raise InputError("a workload needs at least one app", value=self.apps)
        factors = (self.scale, self.stretch, self.job_divisor)
        if not all(0.0 < factor < inf for factor in factors):
            raise InputError("scale, stretch and job_divisor must be above 0", value=factors)
        spreads = (self.app_spread, self.job_spread)
        if not all(1.0 <= spread < inf for spread in spreads):
            raise InputError("app_spread and job_spread must be 1 or more", value=spreads)


class Workload1Options(PaperOptions, frozen=True, kw_only=True):
    """Options of workload 1: also the share of the apps whose jobs have two GPUs.

    The default is an assumption: the paper says 1 or 2, and hardly any of Philly's bursts have 2.
    """

    two_gpu_share: float = 0.25

    def __post_init__(self) -> None:
        PaperOptions.__post_init__(self)
        if not 0.0 <= self.two_gpu_share <= 1.0:
            raise InputError("the share of apps with 2-GPU jobs must lie in 0 to 1", value=self.two_gpu_share)


class _Draft(Value, frozen=True, kw_only=True):
    """An app before its jobs are made; the same in both workloads."""

    name: str
    arrival_s: float
    jobs: int
    work_gpu_s: float
    model: Model
    origin: ExtractApp


def workload_1(seed: int, options: Workload1Options | None = None) -> Workload:
    """Make workload 1: searches of 1- and 2-GPU jobs in one phase. The trace's durations include early stops."""
    options = options or Workload1Options()
    drafts = _drafts(seed, options)
    shares = {"2": options.two_gpu_share, "1": 1.0 - options.two_gpu_share}
    gpus = _dealt(shares, len(drafts), Random(child_seed(seed, "w1", "gpus")))
    apps = []
    for draft, count in zip(drafts, gpus, strict=True):
        rng = Random(child_seed(seed, "w1", draft.name))
        apps.append(
            _app(draft, _ragged_jobs(draft, shape_of(count, rigid=options.rigid), options.job_spread, rng), SINGLE)
        )
    return Workload(name="w1", apps=tuple(apps), source=_SOURCE_1)


def workload_2(seed: int, options: PaperOptions | None = None) -> Workload:
    """Make workload 2: successive halving, and more tasks per job. All else is as in workload 1."""
    options = options or PaperOptions()
    drafts = _drafts(seed, options)
    gpus = _dealt(W2_GPUS, len(drafts), Random(child_seed(seed, "w2", "gpus")))
    tuner = TunerSpec(name=SUCCESSIVE_HALVING)
    apps = []
    for draft, count in zip(drafts, gpus, strict=True):
        rng = Random(child_seed(seed, "w2", draft.name))
        jobs = jobs_of_search(
            draft.jobs, draft.work_gpu_s, tuner, draft.model, shape_of(count, rigid=options.rigid), rng
        )
        apps.append(_app(draft, jobs, SUCCESSIVE_HALVING))
    return Workload(name="w2", apps=tuple(apps), source=_SOURCE_2)


def _app(draft: _Draft, jobs: tuple[JobTrace, ...], tuner: str) -> AppTrace:
    spec = TunerSpec(name=tuner)
    return AppTrace(name=draft.name, arrival_s=draft.arrival_s, jobs=jobs, tuner=spec, model=draft.model.name)


def _dealt(shares: Mapping[str, float], count: int, rng: Random) -> list[int]:
    """Return whole numbers in proportion to their shares, in random order."""
    dealt = [int(name) for name in shared_out(shares, count)]
    rng.shuffle(dealt)
    return dealt


def _drafts(seed: int, options: PaperOptions) -> list[_Draft]:
    chosen = _choose(options.apps, Random(child_seed(seed, "apps")))
    models = draw_models(len(chosen), Random(child_seed(seed, "models")), options.network_intensive)
    jobs, works = _job_counts(chosen), _works_gpu_s(chosen, tail_sigma(options.app_spread))
    pace = min(1.0, options.apps / APPS) * options.stretch / options.scale
    return [
        _Draft(
            name=f"app-{number:02d}",
            arrival_s=(app.arrival_s - chosen[0].arrival_s) * pace,
            jobs=_divided(jobs[app.name], options.job_divisor),
            work_gpu_s=works[app.name] / options.scale,
            model=model,
            origin=app,
        )
        for number, (app, model) in enumerate(zip(chosen, models, strict=True))
    ]


def _choose(count: int, rng: Random) -> list[ExtractApp]:
    """Choose `count` apps of the extract with jobs of 1 or 2 GPUs, in order of arrival. A tenth have one job."""
    fitting = [app for app in read_extract() if app.gpus in W1_GPUS]
    singles = [app for app in fitting if app.jobs == 1]
    searches = [app for app in fitting if app.jobs > 1]
    alone = round(count * SINGLE_SHARE)
    if alone > len(singles) or count - alone > len(searches):
        most = _most_apps(len(singles), len(searches))
        raise InputError("the extract of the trace has fewer apps", value=count, remedy=f"at most {most}")
    chosen = {app.name for app in (*rng.sample(singles, alone), *rng.sample(searches, count - alone))}
    return [app for app in fitting if app.name in chosen]


def _most_apps(singles: int, searches: int) -> int:
    """Return the maximum number of apps such that a tenth can have one job."""
    most = singles + searches
    while (alone := round(most * SINGLE_SHARE)) > singles or most - alone > searches:
        most -= 1
    return most


def _job_counts(chosen: Sequence[ExtractApp]) -> dict[str, int]:
    """Return the number of jobs of each search. The trace gives the ranks, the paper the number for each rank."""
    searches = sorted((app for app in chosen if app.jobs > 1), key=lambda app: (app.jobs, app.name))
    counts = {app.name: search_jobs(middle_share(rank, len(searches))) for rank, app in enumerate(searches)}
    return {app.name: counts.get(app.name, 1) for app in chosen}


def _works_gpu_s(chosen: Sequence[ExtractApp], sigma: float) -> dict[str, float]:
    """Return the GPU time of each app. The trace gives the ranks, the paper their times. Single jobs come first."""
    ordered = sorted(chosen, key=lambda app: (app.jobs > 1, app.gpu_s, app.name))
    return {
        app.name: lognormal(middle_share(rank, len(ordered)), MEDIAN_APP_GPU_S, sigma)
        for rank, app in enumerate(ordered)
    }


def _divided(jobs: int, divisor: float) -> int:
    divided = jobs if jobs == 1 else max(2.0, jobs / divisor)
    if divided > _MAX_JOBS:
        raise InputError("an app would have too many jobs", value=divided, remedy="choose a larger job_divisor")
    return round(divided)


def _ragged_jobs(draft: _Draft, shape: JobShape, spread: float, rng: Random) -> tuple[JobTrace, ...]:
    """Return job durations as unequal as the burst's deciles, in random order: the deciles do not identify jobs."""
    median_s = draft.origin.duration_s(0.5)
    low, high = median_s / spread, median_s * spread
    ragged = [min(max(draft.origin.duration_s(middle_share(job, draft.jobs)), low), high) for job in range(draft.jobs)]
    rng.shuffle(ragged)
    unit = draft.work_gpu_s / sum_in_order(ragged)
    return jobs_of_work([part * unit for part in ragged], draft.model, shape, rng)
