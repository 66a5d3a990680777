"""From an app's jobs, search and leases to the view that its agent evaluates. Pure; for live and simulated apps."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from am.agent.model.views import AppView, ClusterView, HeldGang, JobView, TypeView, median_job
from am.tuners.port import Phase, TunerPlan
from themis.apps import AppSpec, JobSpec
from themis.choices import BundleRule
from themis.cluster import Allocation, Cluster, GpuId
from themis.errors import InputError
from themis.leases import Lease
from themis.lifecycle import LeaseState
from themis.sums import sum_in_order
from themis.values import Value

if TYPE_CHECKING:
    from am.profiler.profile import JobProfile

DEFAULT_LEASE_S = 600.0
"""Seconds of a lease, where none is given."""

UNKNOWN_PACE_S = 86_400.0
"""Assumed run time, on its largest gang, of a job of unknown pace that had time to report: one day."""

_LEAST_GPU_S = 1.0
"""GPU seconds that a job that has ended counts for at least."""

REESTIMATE = 1.05
"""B grows only if the measured work exceeds it by this factor, so that noise does not raise it step by step."""


class AppJob(Protocol):
    """A job of an app: measured by its app master, or simulated."""

    @property
    def iterations_total(self) -> int:
        """Iterations of the whole job."""
        ...

    def view_with(self, iterations_left: int) -> JobView:
        """The job with these iterations left, at the pace that is known by now, without a forecast of its loss."""
        ...


class JobProgress(Value, frozen=True, kw_only=True):
    """A job that an app master runs, as far as the agent cares.

    `silent`: neither its log nor the user says its pace, though it has run for long enough to report.
    `ended`: its program has exited with 0.
    `siblings_iteration_s`: the mean of the jobs of its app that have ended, in GPU seconds per iteration.
    `lease_s`: seconds of a lease.
    """

    spec: JobSpec
    profile: JobProfile
    silent: bool = False
    ended: bool = False
    siblings_iteration_s: float | None = None
    lease_s: float = DEFAULT_LEASE_S

    @property
    def iterations_total(self) -> int:
        """Iterations of the whole job."""
        return self.spec.iterations_total

    @property
    def serial_iteration_s(self) -> float:
        """Measured, else that of another job of the app, else the user's estimate, else a prior.

        A job of unknown pace is assumed to run for twice as long as it has run by now, but at least for as long as the
        jobs of its app that have ended took. While none has ended, and once it has run for twice as long as they did:
        at least a lease, so that it soon gets GPUs to report with; and once it had time to report, at least a day. A
        long job has a lower rho than a short one that waited as long, and less of a claim to GPUs, so silence gains an
        app none. For a job that has ended, its own time counts.

        Example: leases last 600 s. A command of one iteration on 4 GPUs counts as 4 * 600 GPU s before it runs, and as
        4 * 86,400 after ten minutes of silence, when it has used 2,400. Another job of its app ends after 2,000 GPU s:
        now it counts as 4,800, twice what it has used, and one that waits as 2,000.
        """
        known_s = self._known_s
        if known_s is not None:
            return known_s
        ran_gpu_s = self.profile.ran_gpu_s
        if self.ended:
            return max(ran_gpu_s, _LEAST_GPU_S) / (self.iterations_done or self.iterations_total)
        least_s = self._siblings_s
        if least_s is None:
            prior_s = UNKNOWN_PACE_S if self.silent or self._logs_without_length else self.lease_s
            least_s = prior_s * self.spec.shape.demand_max_gpus / self.iterations_total
        return max(least_s, 2.0 * ran_gpu_s / self.iterations_total)

    @property
    def iterations_done(self) -> int:
        """Iterations done, at most `iterations_total`. 0 for a running job without a length."""
        if self._logs_without_length and not self.ended:
            return 0
        return min(self.profile.iteration, self.iterations_total)

    @property
    def pace_known(self) -> bool:
        """Whether its pace was measured or estimated, in iterations of the job."""
        # Steps that a job without a length logs say nothing of its one iteration.
        return self.profile.estimated_iteration_s is not None if self.spec.has_no_length else self.profile.pace_known

    @property
    def pace_guessed(self) -> bool:
        """Whether nothing is known of its pace, neither from itself nor from the jobs of its app that have ended."""
        return self._known_s is None and self._siblings_s is None and not self.ended

    @property
    def _siblings_s(self) -> float | None:
        """What ended jobs of its app took, None once it has run for twice as long: it is unlike them."""
        took_s = self.siblings_iteration_s
        if took_s is None or self.profile.ran_gpu_s > 2.0 * took_s * self.iterations_total:
            return None
        return took_s

    @property
    def _logs_without_length(self) -> bool:
        return self.spec.has_no_length and self.profile.logged > 1

    @property
    def _known_s(self) -> float | None:
        if self.spec.has_no_length:
            return self.profile.estimated_iteration_s
        # A silent job counts as a long one, whatever another job reports.
        return None if self.silent and not self.profile.pace_known else self.profile.serial_iteration_s

    def view_with(self, iterations_left: int) -> JobView:
        """The job with these iterations left, by its measurements, without a forecast of its loss."""
        serial_iteration_s = self.serial_iteration_s
        return JobView(
            job_id=self.spec.job_id,
            iterations_left=iterations_left,
            serial_iteration_s=serial_iteration_s,
            slowdown=self.profile.slowdown(),
            shape=self.spec.shape,
            speeds=self.profile.speeds(),
            samples=self.profile.samples(self.iterations_total, serial_iteration_s),
            measured=self.profile.timed_devices,
            pace_guessed=self.pace_guessed,
        )


def _types(cluster: Cluster) -> tuple[TypeView, ...]:
    return tuple(
        TypeView(device=device, gpus=gpus, fitting_level=cluster.of_type(device).fitting_levels)
        for device, gpus in cluster.gpus_by_device.items()
    )


def iterations_left(iteration: int, target: int, latest: int | None) -> int:
    """Iterations that a job counts: to its target, or to the latest at which its tuner may stop it. At least one."""
    return max(1, (target if latest is None else min(target, latest)) - iteration)


def phase_views(jobs: Mapping[str, JobProgress], plan: TunerPlan) -> tuple[JobView, ...]:
    """The unfinished jobs of the current phase, in the order of their ids."""
    views = []
    for job_id, target in sorted(plan.targets.items()):
        job = jobs[job_id]
        left = iterations_left(job.profile.iteration, target, plan.latest.get(job_id))
        views.append(replace(job.view_with(left), forecast=job.profile.forecast(job.serial_iteration_s)))
    return tuple(views)


def first_phase_views(jobs: Mapping[str, AppJob], first: Phase) -> tuple[JobView, ...]:
    """The jobs of the first phase. Of many that a tuner tries a few at a time, those whose pace is no guess go first.

    These have run. Of guesses the longest go first. Otherwise a search whose running jobs are silent would declare the
    short prior of its other jobs.
    """
    views = [job.view_with(min(first.iterations, job.iterations_total)) for _, job in sorted(jobs.items())]
    return tuple(sorted(views, key=_guess)[: first.jobs])


def _guess(view: JobView) -> tuple[bool, float]:
    return view.pace_guessed, -view.serial_iteration_s if view.pace_guessed else 0.0


def reference_job(jobs: Mapping[str, AppJob], stopped: Collection[str] = ()) -> JobView:
    """The median of the jobs that are not stopped, or of all if all are. It represents the jobs of later phases.

    Jobs that are done with the current phase count, too. A guessed pace counts only where all are guesses: the longest.
    """
    views = {job_id: job.view_with(1) for job_id, job in sorted(jobs.items())}
    remaining = [view for job_id, view in views.items() if job_id not in stopped] or list(views.values())
    known = tuple([view for view in remaining if not view.pace_guessed])
    return median_job(known) if known else min(remaining, key=_guess)


def at_once_gpus(jobs: Iterable[JobSpec], first: Phase) -> int:
    """The most GPUs that an app can use at once: those of all its jobs, or of as many as its tuner runs at once."""
    return sum(sorted(job.shape.demand_max_gpus for job in jobs)[-first.jobs :])


def work_gpu_s(jobs: Mapping[str, AppJob], phases: Sequence[Phase]) -> float:
    """B, the work of a search in GPU seconds at S = 1 (NSDI'20, section 4.3.3).

    The first phase counts by its own jobs, later ones by the reference job.
    """
    own = sum_in_order(job.serial_work_s for job in first_phase_views(jobs, phases[0]))
    return own + _later_iterations(phases) * reference_job(jobs).serial_iteration_s


def work_seen_gpu_s(jobs: Mapping[str, JobProgress], plan: TunerPlan) -> float:
    """Work done so far and work still to do, in GPU seconds at S = 1."""
    done = sum_in_order(job.iterations_done * job.serial_iteration_s for job in jobs.values())
    now = sum_in_order(view.serial_work_s for view in phase_views(jobs, plan))
    later = _later_iterations(plan.phases) * reference_job(jobs, plan.stopped).serial_iteration_s
    return done + now + later


def _later_iterations(phases: Sequence[Phase]) -> int:
    return sum(phase.jobs * phase.iterations for phase in phases[1:])


def app_view(
    app_id: str,
    plan: TunerPlan,
    jobs: tuple[JobView, ...],
    reference: JobView,
    *,
    elapsed_s: float,
    contention: float,
    work_total_gpu_s: float,
    demand_max_gpus: int,
    held: tuple[HeldGang, ...],
    restart_s: float,
) -> AppView:
    """The app now.

    Args:
        app_id: The app's id.
        plan: What its tuner wants.
        jobs: The unfinished jobs of the plan's current phase: `phase_views`.
        reference: The job that represents those of later phases: `reference_job` without the plan's stopped jobs.
        elapsed_s: Seconds since it was submitted.
        contention: N_avg so far. Less than 1, as if clocks differ slightly, counts as 1.
        work_total_gpu_s: B, in GPU seconds at S = 1: `work_gpu_s`.
        demand_max_gpus: The most GPUs that it can use: `at_once_gpus`.
        held: The gangs of its jobs.
        restart_s: Seconds that moving a running job costs.
    """
    return AppView(
        app_id=app_id,
        elapsed_s=elapsed_s,
        contention=max(1.0, contention),
        jobs=jobs,
        later_phases=plan.phases[1:],
        work_total_gpu_s=work_total_gpu_s,
        demand_max_gpus=demand_max_gpus,
        reference=reference,
        held=held,
        restart_s=restart_s,
    )


def whole_view(
    app_id: str,
    jobs: Mapping[str, AppJob],
    phases: Sequence[Phase],
    *,
    contention: float,
    work_total_gpu_s: float,
    demand_max_gpus: int,
    restart_s: float,
) -> AppView:
    """The app as submitted, with all its work still to do, at the pace and the N_avg that are known by now."""
    return AppView(
        app_id=app_id,
        elapsed_s=0.0,
        contention=max(1.0, contention),
        jobs=first_phase_views(jobs, phases[0]),
        later_phases=tuple(phases[1:]),
        work_total_gpu_s=work_total_gpu_s,
        demand_max_gpus=demand_max_gpus,
        reference=reference_job(jobs),
        restart_s=restart_s,
    )


def view_to_bytes(view: AppView) -> bytes:
    """A view as MessagePack."""
    return msgspec.msgpack.encode(view)


def view_from_bytes(content: bytes, spec: AppSpec, first_phases: Sequence[Phase]) -> AppView:
    """The view that an app master made of an app that holds nothing.

    It is checked against the specification, so that the agent takes no longer for it than for the app as submitted.

    Args:
        content: What `view_to_bytes` returned.
        spec: The app's specification.
        first_phases: The phases of its search before it began.

    Raises:
        InputError: It cannot be a view of this app.
    """
    try:
        view = msgspec.msgpack.decode(content, type=AppView)
    except (msgspec.DecodeError, ValueError) as error:
        raise InputError("not a view of an app", value=type(error).__name__) from error
    shapes = {job.job_id: job.shape for job in spec.jobs}
    known = (*view.jobs, *([] if view.reference is None else [view.reference]))
    numbers = [view.work_total_gpu_s, view.restart_s, *[job.serial_iteration_s for job in known]]
    if (
        not view.jobs
        or view.held
        or len({job.job_id for job in view.jobs}) < len(view.jobs)
        or any(shapes.get(job.job_id) != job.shape or job.iterations_left < 1 for job in known)
        or len(view.later_phases) >= len(first_phases)
        or any(not 1 <= phase.jobs <= len(shapes) or phase.iterations < 1 for phase in view.later_phases)
        or not all(0.0 < number < math.inf for number in numbers)
    ):
        raise InputError("not a view of this app", value=view.app_id)
    return replace(view, demand_max_gpus=at_once_gpus(spec.jobs, first_phases[0]))


def renewable_gpus(
    gpus: Iterable[GpuId], leases: Mapping[GpuId, Lease], reserved: Collection[GpuId], until_s: float
) -> list[GpuId] | None:
    """The GPUs of a gang whose leases end by a time, and may be renewed.

    A bound lease is among them only if it is a profiling run: others are prolonged before a round asks for demands.
    Returns None unless the app holds all GPUs of the gang or they are reserved for it: then it has no such gang.
    """
    renewable = []
    for gpu in gpus:
        lease = leases.get(gpu)
        if lease is None:
            if gpu not in reserved:
                return None
        elif lease.expires_at_s <= until_s and lease.state is LeaseState.GRANTED:
            renewable.append(gpu)
    return renewable


def held_gang(
    job_id: str, gpus: Iterable[GpuId], renewable: Iterable[GpuId], cluster: Cluster, *, bound: bool = False
) -> HeldGang:
    """A gang that a job runs on, with those of its GPUs that are renewable, and whether its leases are bound to it."""
    members = tuple(gpus)
    return HeldGang(
        job_id=job_id,
        gpus=Allocation.of_gpus(members),
        level=cluster.level_of_gpus(members),
        renewable_gpus=Allocation.of_gpus(set(renewable) & set(members)),
        device=cluster.machine(members[0].machine_id).device if cluster.has_types else "",
        bound=bound,
    )


def is_bound(gpus: Iterable[GpuId], leases: Mapping[GpuId, Lease]) -> bool:
    """Whether leases bind a gang to its job."""
    return any(gpu in leases and leases[gpu].job_id for gpu in gpus)


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
