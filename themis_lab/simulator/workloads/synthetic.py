"""Generate workloads: Poisson arrivals, with the work that gives a cluster a chosen load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from random import Random

from rm_plugin.arbiter.seeds import child_seed
from themis.apps import JobShape, TunerSpec
from themis.cluster import Cluster
from themis.config.tuner_settings import SUCCESSIVE_HALVING
from themis.errors import InputError
from themis.sums import sum_in_order
from themis.values import Value
from themis_lab.simulator.workload import AppTrace, Workload
from themis_lab.simulator.workloads.jobs import jobs_of_search, shape_of
from themis_lab.simulator.workloads.models import Model, draw_models
from themis_lab.simulator.workloads.sampling import MEDIAN_TASK_GPU_S, SINGLE_SHARE, TAIL_SIGMA

GANGS = (1, 2, 4)

RANGES: Mapping[str, tuple[float, float]] = {
    "apps": (1, 100_000),
    "load": (1e-4, 1e4),
    "jobs": (1, 10_000),
    "single_share": (0.0, 1.0),
    "task_gpu_s": (1e-3, 1e9),
    "sigma": (0.0, 5.0),
}
"""Limits of the options: far beyond any use, but small enough that numbers do not overflow."""


class SyntheticOptions(Value, frozen=True, kw_only=True):
    """The options of the generator.

    Attributes:
        apps: The number of apps.
        load: All work divided by the cluster's GPU time between the first and the last arrival; 1 keeps it just busy.
        jobs: Mean jobs of a search; each has 0.5 to 1.5 times as many.
        single_share: Share of the apps with one job.
        task_gpu_s: Median over apps of the work per job and GPU, in GPU seconds.
        sigma: Sigma of its lognormal spread. By default the 5th and 95th percentiles differ tenfold from the median.
        tuner: `successive_halving` or `single`.
        network_intensive: Share of apps with models strict about placement; None for the paper's mix.
        rigid: Jobs need all their tasks.
    """

    apps: int = 40
    load: float = 1.0
    jobs: int = 12
    single_share: float = SINGLE_SHARE
    task_gpu_s: float = MEDIAN_TASK_GPU_S
    sigma: float = TAIL_SIGMA
    tuner: str = SUCCESSIVE_HALVING
    network_intensive: float | None = None
    rigid: bool = False

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if not least <= value <= most:
                what = f"option {name} of workload synthetic must lie in {least:g} to {most:g}"
                raise InputError(what, value=value)


class _Draft(Value, frozen=True, kw_only=True):
    """An app before its jobs are made."""

    name: str
    jobs: int
    work_gpu_s: float
    model: Model
    shape: JobShape


def synthetic(seed: int, cluster: Cluster, options: SyntheticOptions | None = None) -> Workload:
    """Generate a workload for this cluster. Gangs of 1, 2 and 4 GPUs are equally likely, none larger than the cluster.

    The first app arrives at 0. Gaps between arrivals are exponential. One factor then scales all gaps, so that the work
    divided by the time of the arrivals is exactly `load` times the cluster's GPUs.
    """
    options = options or SyntheticOptions()
    rng = Random(child_seed(seed, "synthetic"))
    models = draw_models(options.apps, Random(child_seed(seed, "models")), options.network_intensive)
    gangs = [gpus for gpus in GANGS if gpus <= cluster.gpus]
    drafts = [_draft(f"app-{number:03d}", model, gangs, options, rng) for number, model in enumerate(models)]
    span_s = sum_in_order(draft.work_gpu_s for draft in drafts) / (options.load * cluster.gpus)
    arrivals_s = _arrivals_s(len(drafts), span_s, rng)
    apps = tuple(_app(draft, at_s, options.tuner, seed) for draft, at_s in zip(drafts, arrivals_s, strict=True))
    source = f"Generated: Poisson arrivals at a load of {options.load:g} on {cluster.gpus} GPUs, work lognormal."
    return Workload(name="synthetic", apps=apps, source=source)


def _arrivals_s(count: int, span_s: float, rng: Random) -> list[float]:
    """Draw the arrivals, from 0 to `span_s`."""
    reached = [0.0, *accumulate(rng.expovariate(1.0) for _ in range(count - 1))]
    unit_s = span_s / reached[-1] if count > 1 else 0.0
    return [place * unit_s for place in reached]


def _draft(name: str, model: Model, gangs: Sequence[int], options: SyntheticOptions, rng: Random) -> _Draft:
    gpus = rng.choice(gangs)
    jobs = 1 if rng.random() < options.single_share else max(1, round(options.jobs * rng.uniform(0.5, 1.5)))
    work_gpu_s = jobs * gpus * options.task_gpu_s * rng.lognormvariate(0.0, options.sigma)
    shape = shape_of(gpus, rigid=options.rigid)
    return _Draft(name=name, jobs=jobs, work_gpu_s=work_gpu_s, model=model, shape=shape)


def _app(draft: _Draft, arrival_s: float, tuner: str, seed: int) -> AppTrace:
    rng = Random(child_seed(seed, "synthetic", draft.name))
    spec = TunerSpec(name=tuner)
    jobs = jobs_of_search(draft.jobs, draft.work_gpu_s, spec, draft.model, draft.shape, rng)
    return AppTrace(name=draft.name, arrival_s=arrival_s, jobs=jobs, tuner=spec, model=draft.model.name)
