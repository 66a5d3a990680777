"""A generator: Poisson arrivals, with as much work as keeps a cluster busy to a given degree."""

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
"""The least and the most that options may be: far beyond what anybody asks for, short of where numbers overflow."""


class SyntheticOptions(Value, frozen=True, kw_only=True):
    """What to generate.

    Attributes:
        apps: How many.
        load: All work by the cluster's GPU time from the first arrival to the last: 1 would keep it just busy.
        jobs: Mean jobs of a search; each has half to one and a half times as many.
        single_share: Share of the apps that have one job.
        task_gpu_s: Median work of an app by its jobs and their GPUs, in GPU seconds.
        sigma: How wide that is spread, lognormal; the default puts the 5th and 95th percentile ten times away.
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
    """A workload for this cluster: gangs of 1, 2 and 4 GPUs drawn alike often, none larger than the cluster.

    The first app arrives at 0. Gaps between arrivals are exponential, then brought to the length, one factor for all,
    that makes all work by the time of the arrivals exactly `load` times the cluster's GPUs.
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
    """From 0 to `span_s`."""
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
