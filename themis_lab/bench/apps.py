"""Random apps at some moment of their search, without GPUs (docs/reference/benchmarks.md, Markets)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from random import Random

from msgspec.structs import replace

from am.agent.model.fairness import ideal_time_s
from am.agent.model.views import AppView, ClusterView, JobView
from am.tuners.port import Phase
from am.tuners.successive_halving import successive_halving
from tf_jobs.tables_reader import read_speeds
from themis.apps import CRUDE_SLOWDOWN, JobShape, JobSpec, Slowdown
from themis_lab.simulator.workloads.sampling import search_jobs

ELASTIC_SHARE = 0.2
"""Share of the apps whose jobs are elastic."""

_ITERATIONS = 4096
_TASK_GPU_S = 3.75 * 3600
_RESTART_S = 30.0
_SINGLE_JOB_SHARE = 0.1
_WIDE_UNIT_SHARE = 0.25
_TAIL_SIGMA = 1.4  # a tenth and ten times the median are the 5th and the 95th percentile
_JOB_SIGMA = 0.15

# Domains by share, and their models; a model that the measured tables lack stands with the crude S.
_DOMAINS: Mapping[tuple[str, ...], float] = {
    ("inception3", "alexnet", "resnet50", "vgg16", "vgg19"): 0.1,
    ("bi_att_flow", "lm", "gnmt", "transformer"): 0.6,
    ("wavenet", "deepspeech2"): 0.3,
}


class GangMix(StrEnum):
    """Sizes of the gangs of the apps' jobs: 1, 2, 4 or 8 GPUs, or anything from 1 to 8."""

    POWERS = "powers"
    ANY = "any"

    @property
    def gpus(self) -> tuple[int, ...]:
        """The sizes, each equally likely."""
        return (1, 2, 4, 8) if self is GangMix.POWERS else tuple(range(1, 9))


def draw_app(
    app_id: str,
    rng: Random,
    gangs: GangMix,
    cluster_view: ClusterView,
    contention: float,
    *,
    elastic_share: float = ELASTIC_SHARE,
) -> AppView:
    """Return a random app that searches by successive halving. Its phase is random, weighted by the phases' work.

    Jobs: one in a tenth of the apps, else 20 to 102 with a median of 75 over all apps. Work: 3.75 GPU hours a GPU that
    the app asks for, lognormal, a tenth and ten times that at the 5th and the 95th percentile. Of the jobs of the
    phase half to all are unfinished, half of these partly done. Elapsed: 0.8 to 3 times the ideal time of the work
    done, and up to two leases.
    """
    shape = _draw_shape(rng, gangs, elastic=rng.random() < elastic_share)
    jobs = 1 if rng.random() < _SINGLE_JOB_SHARE else search_jobs(rng.random())
    phases = _phases(jobs)
    work_gpu_s = jobs * shape.demand_max_gpus * _TASK_GPU_S * rng.lognormvariate(0.0, _TAIL_SIGMA)
    serial_s = work_gpu_s / sum(phase.jobs * phase.iterations for phase in phases)
    now = rng.choices(range(len(phases)), [phase.jobs * phase.iterations for phase in phases])[0]
    current = _draw_jobs(rng, phases[now], shape, serial_s, _draw_slowdown(rng))
    app = AppView(
        app_id=app_id,
        elapsed_s=0.0,
        contention=contention,
        jobs=current,
        later_phases=phases[now + 1 :],
        work_total_gpu_s=work_gpu_s,
        demand_max_gpus=jobs * shape.demand_max_gpus,
        restart_s=_RESTART_S,
    )
    ideal_s = ideal_time_s(app, cluster_view) * _done_share(app, serial_s)
    return replace(app, elapsed_s=ideal_s * rng.uniform(0.8, 3.0) + cluster_view.lease_s * rng.uniform(0.0, 2.0))


def _draw_shape(rng: Random, gangs: GangMix, *, elastic: bool) -> JobShape:
    """Return a random gang of tasks.

    Elastic jobs of `powers` have two tasks and may shrink to one, so that all gangs are powers of two.
    """
    gpus = rng.choice([size for size in gangs.gpus if size > 1 or not elastic])
    if elastic and gangs is GangMix.POWERS:
        return JobShape(tasks=2, min_tasks=1, gpus_per_task=gpus // 2)
    if elastic:
        return JobShape(tasks=gpus, min_tasks=rng.randint(1, gpus - 1))
    unit = 2 if gpus % 2 == 0 and rng.random() < _WIDE_UNIT_SHARE else 1
    return JobShape(tasks=gpus // unit, min_tasks=gpus // unit, gpus_per_task=unit)


def _draw_slowdown(rng: Random) -> Slowdown:
    models = rng.choices(list(_DOMAINS), list(_DOMAINS.values()))[0]
    return _slowdowns().get(rng.choice(models), CRUDE_SLOWDOWN)


@cache
def _slowdowns() -> dict[str, Slowdown]:
    """Measured S by model."""
    return {model: Slowdown(**speed.slowdown) for model, speed in read_speeds().items()}


@cache
def _phases(jobs: int) -> tuple[Phase, ...]:
    specs = [JobSpec(job_id=f"j{number:03d}", iterations_total=_ITERATIONS) for number in range(jobs)]
    return successive_halving(specs).plan().phases


def _draw_jobs(rng: Random, phase: Phase, shape: JobShape, serial_s: float, slowdown: Slowdown) -> tuple[JobView, ...]:
    unfinished = max(1, round(phase.jobs * rng.uniform(0.5, 1.0)))
    return tuple(
        JobView(
            job_id=f"j{number:03d}",
            iterations_left=max(1, round(phase.iterations * min(1.0, rng.uniform(0.0, 2.0)))),
            serial_iteration_s=serial_s * rng.lognormvariate(0.0, _JOB_SIGMA),
            slowdown=slowdown,
            shape=shape,
        )
        for number in range(unfinished)
    )


def _done_share(app: AppView, serial_s: float) -> float:
    left = sum(job.serial_work_s for job in app.jobs)
    left += sum(phase.jobs * phase.iterations for phase in app.later_phases) * serial_s
    return max(0.0, 1.0 - left / app.work_total_gpu_s)
