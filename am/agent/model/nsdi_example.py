"""The paper's worked example (NSDI'20, section 4.3.3), computed by the agent's own code."""

from __future__ import annotations

from typing import TypedDict

from am.agent.model.fairness import ideal_time_s
from am.agent.model.finish_time import time_on_count_s
from am.agent.model.views import AppView, ClusterView, JobView
from am.tuners.port import Phase
from themis.apps import JobShape, Slowdown
from themis.choices import BundleRule

_PHASES = (Phase(jobs=4, iterations=8), Phase(jobs=2, iterations=16), Phase(jobs=1, iterations=36))
_SERIAL_S = (80.0, 100.0, 100.0, 120.0)
_SHAPE = JobShape(tasks=8)
_FLAT = Slowdown(1.0, 1.0, 1.0, 1.0)

NSDI_CLUSTER_VIEW = ClusterView(cluster_gpus=16, active_apps=4, lease_s=600.0, rule=BundleRule.LEXICOGRAPHIC)
"""16 GPUs, 4 apps; an allocation is held to the end, as the paper's tables assume."""


def nsdi_app(phase: int = 0, serial_s: tuple[float, ...] = _SERIAL_S) -> AppView:
    """The example's app at the beginning of a phase, with the jobs of these serial iteration times in it."""
    jobs = tuple(
        JobView(
            job_id=f"job-{number}",
            iterations_left=_PHASES[phase].iterations,
            serial_iteration_s=serial,
            slowdown=_FLAT,
            shape=_SHAPE,
        )
        for number, serial in enumerate(serial_s)
    )
    work_gpu_s = sum(_PHASES[0].iterations * serial for serial in _SERIAL_S)
    work_gpu_s += sum(later.jobs * later.iterations * 100.0 for later in _PHASES[1:])
    return AppView(
        app_id="nsdi",
        elapsed_s=0.0,
        contention=4.0,
        jobs=jobs,
        later_phases=_PHASES[phase + 1 :],
        work_total_gpu_s=work_gpu_s,
        demand_max_gpus=len(_SERIAL_S) * _SHAPE.demand_max_gpus,
    )


class RhoTable(TypedDict):
    """t_ideal in seconds, and rho by number of GPUs."""

    t_ideal_s: float
    rho: dict[str, float]


def nsdi_table() -> RhoTable:
    """The paper's table 2, with the ideal time that it rests on."""
    app = nsdi_app()
    ideal_s = ideal_time_s(app, NSDI_CLUSTER_VIEW)
    rho = {str(gpus): time_on_count_s(app, gpus, NSDI_CLUSTER_VIEW) / ideal_s for gpus in (1, 2, 4, 8, 16)}
    return {"t_ideal_s": ideal_s, "rho": rho}
