"""From what runs to what the agent reasons about: the app's view at one moment. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from am.agent.model.views import AppView, ClusterView, HeldGang, JobView, TypeView, median_job
from am.tuners.port import Phase, TunerPlan
from themis.apps import AppSpec, JobSpec
from themis.choices import BundleRule
from themis.cluster import Allocation, Cluster, GpuId
from themis.sums import sum_in_order
from themis.values import Value

if TYPE_CHECKING:
    from am.profiler.profile import JobProfile

PRIOR_SERIAL_ITERATION_S = 0.1
"""Serial seconds per iteration of a job without an estimate that has not run yet."""

REESTIMATE = 1.05
"""B grows only if the measured work exceeds it by this factor, so that noise does not raise it step by step."""


class JobProgress(Value, frozen=True, kw_only=True):
    """A job as far as the agent cares."""

    spec: JobSpec
    profile: JobProfile

    @property
    def serial_iteration_s(self) -> float:
        """Measured, else the user's estimate, else the prior."""
        serial_s = self.profile.serial_iteration_s
        return PRIOR_SERIAL_ITERATION_S if serial_s is None else serial_s


def _types(cluster: Cluster) -> tuple[TypeView, ...]:
    return tuple(
        TypeView(device=device, gpus=gpus, fitting_level=cluster.of_type(device).fitting_levels)
        for device, gpus in cluster.gpus_by_device.items()
    )


def job_view(progress: JobProgress, iterations_left: int) -> JobView:
    """A job of the current phase."""
    serial_s = progress.serial_iteration_s
    return JobView(
        job_id=progress.spec.job_id,
        iterations_left=iterations_left,
        serial_iteration_s=serial_s,
        slowdown=progress.profile.slowdown(),
        shape=progress.spec.shape,
        forecast=progress.profile.forecast(serial_s),
        speeds=progress.profile.speeds(),
    )


def phase_views(jobs: Mapping[str, JobProgress], plan: TunerPlan) -> tuple[JobView, ...]:
    """The unfinished jobs of the current phase by their ids, each to its target or where it may stop at the latest."""
    return tuple(
        job_view(jobs[job_id], max(1, min(target, plan.latest.get(job_id, target)) - jobs[job_id].profile.iteration))
        for job_id, target in sorted(plan.targets.items())
    )


def work_gpu_s(jobs: Mapping[str, JobProgress], phases: Sequence[Phase]) -> float:
    """The whole search's work in GPU seconds at S = 1: the first phase by its own jobs, later ones by the median."""
    views = [job_view(job, first_iterations(job.spec, phases[0])) for job in _first(jobs, phases[0])]
    return search_work_gpu_s(views, phases[1:], reference_job(jobs))


def at_once_gpus(jobs: Iterable[JobSpec], first: Phase) -> int:
    """The most GPUs that an app can use at once: those of all its jobs, or of as many as its tuner runs at once."""
    return sum(sorted(job.shape.demand_max_gpus for job in jobs)[-first.jobs :])


def _first(jobs: Mapping[str, JobProgress], first: Phase) -> list[JobProgress]:
    """The jobs of the first phase. Those with the first ids stand for any that a tuner tries a few at a time."""
    return [job for _, job in sorted(jobs.items())][: first.jobs]


def search_work_gpu_s(first: Iterable[JobView], later: Iterable[Phase], reference: JobView) -> float:
    """B of a search (NSDI'20, section 4.3.3): the first phase by its jobs, later ones by the median job."""
    own = sum_in_order(job.serial_work_s for job in first)
    return own + sum(phase.jobs * phase.iterations for phase in later) * reference.serial_iteration_s


def first_iterations(spec: JobSpec, first: Phase) -> int:
    """Iterations that a job has to do in the first phase: no more than it has."""
    return min(first.iterations, spec.iterations_total)


def work_seen_gpu_s(jobs: Mapping[str, JobProgress], plan: TunerPlan) -> float:
    """Work done so far and work still to do, in GPU seconds at S = 1."""
    done = sum_in_order(job.profile.iteration * job.serial_iteration_s for job in jobs.values())
    now = sum_in_order(view.serial_work_s for view in phase_views(jobs, plan))
    median_s = reference_job(jobs).serial_iteration_s
    return done + now + sum(phase.jobs * phase.iterations for phase in plan.phases[1:]) * median_s


def reference_job(jobs: Mapping[str, JobProgress]) -> JobView:
    """The median job of all, which stands for the jobs of later phases."""
    return median_job(tuple(job_view(job, 1) for _, job in sorted(jobs.items())))


def app_view(
    spec: AppSpec,
    app_id: str,
    jobs: Mapping[str, JobProgress],
    plan: TunerPlan,
    *,
    elapsed_s: float,
    contention: float,
    work_total_gpu_s: float,
    held: Iterable[HeldGang],
    restart_s: float,
    first: Phase | None = None,
) -> AppView:
    """The app now, of whose search `first` was the first phase; by default all jobs took part in it.

    The reference is the median of the jobs still in the search, those done with this phase included.
    """
    current = phase_views(jobs, plan)
    survivors = {job_id: job for job_id, job in jobs.items() if job_id not in plan.stopped} or dict(jobs)
    return AppView(
        app_id=app_id,
        elapsed_s=elapsed_s,
        contention=max(1.0, contention),
        jobs=current,
        later_phases=plan.phases[1:],
        work_total_gpu_s=work_total_gpu_s,
        demand_max_gpus=spec.demand_max_gpus if first is None else at_once_gpus(spec.jobs, first),
        reference=reference_job(survivors),
        held=tuple(held),
        restart_s=restart_s,
    )


def whole_view(
    spec: AppSpec,
    app_id: str,
    jobs: Mapping[str, JobProgress],
    phases: Sequence[Phase],
    work_total_gpu_s: float,
    restart_s: float,
    contention: float,
) -> AppView:
    """The app as submitted, with all its work still to do, at the pace and the N_avg that are known by now."""
    return AppView(
        app_id=app_id,
        elapsed_s=0.0,
        contention=max(1.0, contention),
        jobs=tuple(job_view(job, first_iterations(job.spec, phases[0])) for job in _first(jobs, phases[0])),
        later_phases=tuple(phases[1:]),
        work_total_gpu_s=work_total_gpu_s,
        demand_max_gpus=at_once_gpus(spec.jobs, phases[0]),
        reference=reference_job(jobs),
        restart_s=restart_s,
    )


def held_gang(job_id: str, gpus: Iterable[GpuId], renewable: Iterable[GpuId], cluster: Cluster) -> HeldGang:
    """A gang that a job runs on, with those of its GPUs that are renewable."""
    members = tuple(gpus)
    return HeldGang(
        job_id=job_id,
        gpus=Allocation.of_gpus(members),
        level=cluster.level_of_gpus(members),
        renewable_gpus=Allocation.of_gpus(set(renewable) & set(members)),
        device=cluster.machine(members[0].machine_id).device if cluster.has_types else "",
    )


def make_cluster_view(cluster: Cluster, *, active_apps: int, lease_s: float, rule: BundleRule) -> ClusterView:
    """Return the ResourceManager's facts about the cluster, for the agent."""
    return ClusterView(
        cluster_gpus=cluster.gpus,
        active_apps=max(1, active_apps),
        lease_s=lease_s,
        fitting_level=tuple(cluster.nearest_level_for(gpus) for gpus in range(1, cluster.gpus + 1)),
        rack_of={machine.machine_id: machine.rack_id for machine in cluster.machines},
        types=_types(cluster) if cluster.has_types else (),
        device_of={machine.machine_id: machine.device for machine in cluster.machines} if cluster.has_types else {},
        rule=rule,
    )
