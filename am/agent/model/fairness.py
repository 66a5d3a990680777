"""Finish-time fairness: ideal times and rho by the definitions that an app can compute alone, never mixed.

What it declares to the fluid fair cluster gives the others (docs/explanation/simulator.md, Definitions of rho).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from am.agent.model.finish_time import later_job, smallest_gang_gpus, time_on_count_s, times_of_phases_s
from am.agent.model.views import AppView, ClusterView, JobView
from themis.choices import BundleRule
from themis.fluid_cluster import Declaration, FluidPhase
from themis.rho import RhoDefinition
from themis.speeds import SAME_SPEED
from themis.sums import sum_in_order
from themis.values import Value

Seconds = NDArray[np.float64]

_LEXICOGRAPHIC, _IDLE_THEN_SHARE = BundleRule.LEXICOGRAPHIC, BundleRule.IDLE_THEN_SHARE
"""Looked up for every report. Before Python 3.12 a member by its class takes four times as long."""


def cluster_time_s(app: AppView, cluster: ClusterView) -> float:
    """t_cluster = B / min(R_C, app_demand_max), in seconds (equation 2).

    On a cluster of several device types, or of another speed than 1, the GPUs are those on which the app's median job
    is fastest, and each counts by its speed.
    """
    return app.work_total_gpu_s / _reference_gpus(app, cluster, app.demand_max_gpus)


def _reference_gpus(app: AppView, cluster: ClusterView, gpus: int) -> float:
    """At most `gpus` GPUs of the cluster in units of a reference GPU, by the speeds of the app's median job."""
    usable_gpus = min(gpus, cluster.cluster_gpus)
    speeds = app.median_job.speeds if app.jobs or app.reference is not None else SAME_SPEED
    return cluster.reference_gpus(usable_gpus, speeds) if speeds.by_type else usable_gpus


def ideal_time_s(app: AppView, cluster: ClusterView) -> float:
    """t_ideal = t_cluster * N_avg, in seconds: the definition `themis`.

    For example, the paper's app has 10,000 GPU s of work, on a cluster of 16 GPUs that it shares with three others:

        >>> from am.agent.model.nsdi_example import NSDI_CLUSTER_VIEW, nsdi_app
        >>> cluster_time_s(nsdi_app(), NSDI_CLUSTER_VIEW), ideal_time_s(nsdi_app(), NSDI_CLUSTER_VIEW)
        (625.0, 2500.0)
    """
    return cluster_time_s(app, cluster) * app.contention


def ideal_times_s(whole: AppView, cluster: ClusterView) -> dict[RhoDefinition, float]:
    """t_ideal in seconds by every definition that depends on the schedule.

    `whole` is the app as submitted, with all its work still to do.
    """
    return {definition: rule(whole, cluster) for definition, rule in _IDEALS.items()}


def rho_by_definition(whole: AppView, completion_s: float, cluster: ClusterView) -> dict[RhoDefinition, float]:
    """Rho at completion by these definitions: seconds from submission to end over each t_ideal.

    Example: four jobs of 1,200 s on one GPU each, 8 GPUs, N_avg = 4, S = 1. `themis` has t_ideal = 4800 / 4 * 4 =
    4800 s. `isolated_share` and `private_cluster` have 2400 s: an isolated share of 2 GPUs runs two jobs at a time. An
    app that ends after 2400 s has rho 0.5 by `themis`, and 1 by the other two.
    """
    return {definition: completion_s / ideal_s for definition, ideal_s in ideal_times_s(whole, cluster).items()}


def declaration_of(whole: AppView, cluster: ClusterView) -> Declaration:
    """Return an app's declaration to the fluid fair cluster. `whole` is the app as submitted, on the whole cluster."""
    return Declaration(
        phases=fluid_phases(whole, cluster),
        cluster_time_s=cluster_time_s(whole, cluster),
        share_demand=min(1.0, whole.demand_max_gpus / cluster.cluster_gpus),
    )


def fluid_phases(app: AppView, cluster: ClusterView) -> tuple[FluidPhase, ...]:
    """Return the remaining phases of an app in the form that the fluid fair cluster uses.

    A phase stops getting faster at the GPUs that it keeps busy on average: its work, S included, over its time on the
    whole cluster. On a cluster of several device types both are in the app's own reference units.

    Example: 8 GPUs, S = 1, a phase with a job of 100 s and two of 25 s on one GPU each. It takes 100 s on the whole
    cluster, with 150 GPU s of work. So it stops getting faster at 1.5 GPUs.
    """
    capacity = _reference_gpus(app, cluster, cluster.cluster_gpus)
    gpus = max(cluster.cluster_gpus, smallest_gang_gpus(app))
    jobs_by_phase = [app.jobs, *([later_job(app, phase)] * phase.jobs for phase in app.later_phases)]
    phases = []
    for jobs, time_s in zip(jobs_by_phase, times_of_phases_s(app, gpus, cluster), strict=True):
        if time_s <= 0.0:
            continue
        work_gpu_s = sum_in_order(job.serial_work_s * _nearest_slowdown(job, cluster) for job in jobs)
        demand = _reference_gpus(app, cluster, sum(job.shape.demand_max_gpus for job in jobs))
        share = min(1.0, demand / capacity, work_gpu_s / time_s / capacity)
        phases.append(FluidPhase(time_s, share * cluster.cluster_gpus))
    return tuple(phases)


def _nearest_slowdown(job: JobView, cluster: ClusterView) -> float:
    """S of the largest gang of a job, placed as near as it fits."""
    return job.slowdown.at(cluster.nearest_level(job.shape.demand_max_gpus))


class Valuer(Value, frozen=True, kw_only=True):
    """Turns T on a bundle into t_shared and V = 1/rho, for one app at one moment.

    Example: 100 s have elapsed and t_ideal is 400 s. A bundle with T = 200 s has rho = (100 + 200) / 400 = 0.75, with a
    restart of 20 s 0.8. Its value is 1.33, or 1.25 with the restart.

    Attributes:
        elapsed_s: Seconds since the app was submitted.
        ideal_s: t_ideal, in seconds.
        share_s: T on the fair share R/N, in seconds.
        lease_s: Seconds of a lease.
        rule: What becomes of an app after its lease.
    """

    elapsed_s: float
    ideal_s: float
    share_s: float
    lease_s: float
    rule: BundleRule

    @classmethod
    def of(cls, app: AppView, cluster: ClusterView) -> Valuer:
        """The valuer of an app at the moment of its view."""
        return cls(
            elapsed_s=app.elapsed_s,
            ideal_s=ideal_time_s(app, cluster),
            share_s=time_on_count_s(app, cluster.share_gpus, cluster),
            lease_s=cluster.lease_s,
            rule=cluster.rule,
        )

    def shared_s(self, time_s: float, switch_s: float = 0.0) -> float:
        """t_shared of a bundle, in seconds; see `shared_times_s`."""
        times_s, spent_s = np.array([time_s]), self.elapsed_s + switch_s
        return float(shared_times_s(self.rule, times_s, spent_s=spent_s, share_s=self.share_s, lease_s=self.lease_s)[0])

    def rho(self, time_s: float, switch_s: float = 0.0) -> float:
        """Finish-time fairness of a bundle; infinite if the app would never end."""
        return self.shared_s(time_s, switch_s) / self.ideal_s

    def value(self, time_s: float, switch_s: float = 0.0) -> float:
        """V = 1/rho of a bundle; 0 if the app would never end."""
        return float(values_of(self.ideal_s, np.array([self.shared_s(time_s, switch_s)]))[0])


def values_of(ideal_s: float | Seconds, shared_s: Seconds) -> Seconds:
    """V = 1/rho = t_ideal / t_shared of bundles; 0 where t_shared is infinite."""
    values: Seconds = ideal_s / np.maximum(shared_s, 1e-9)
    return values


def shared_times_s(
    rule: BundleRule, times_s: Seconds, *, spent_s: float | Seconds, share_s: float | Seconds, lease_s: float
) -> Seconds:
    """t_shared of bundles, in seconds: the seconds from submission to the end if the app wins the bundle.

    `continuation`: the app holds the bundle for one lease, then the larger of it and its fair share
    (docs/decisions/0003-continuation-rule.md): spent + min(T, lease + min(T, T_share) * (1 - lease / T)), since a
    lease does lease/T of the work. Example: T = 2000 s, a lease of 600 s and T_share = 1000 s make
    600 + 1000 * 0.7 = 1300 s, on top of the seconds spent.

    Args:
        rule: What becomes of an app after its lease.
        times_s: T on each bundle, in seconds; infinite for the empty one.
        spent_s: Seconds since the app was submitted, and those of a restart; one number or one for each bundle.
        share_s: T on the fair share, in seconds; one number or one for each bundle.
        lease_s: Seconds of a lease.
    """
    if rule is _LEXICOGRAPHIC:
        return spent_s + times_s
    if rule is _IDLE_THEN_SHARE:
        return spent_s + np.where(np.isfinite(times_s), times_s, lease_s + share_s)
    longer = times_s > lease_s
    left = 1.0 - lease_s / np.where(longer, times_s, 1.0)
    after_s = lease_s + np.minimum(times_s, share_s) * left
    return spent_s + np.where(longer, np.minimum(times_s, after_s), times_s)


def _exclusive_s(whole: AppView, cluster: ClusterView) -> float:
    return time_on_count_s(whole, cluster.cluster_gpus, cluster)


def _isolated_share_s(whole: AppView, cluster: ClusterView) -> float:
    demand_share = cluster.cluster_gpus / min(cluster.cluster_gpus, whole.demand_max_gpus)
    return _exclusive_s(whole, cluster) * max(1.0, whole.contention / demand_share)


def _placement_aware_s(whole: AppView, cluster: ClusterView) -> float:
    # The best S that any gang of the app can have.
    return ideal_time_s(whole, cluster) * _nearest_slowdown(whole.median_job, cluster)


def _private_cluster_s(whole: AppView, cluster: ClusterView) -> float:
    return time_on_count_s(whole, cluster.cluster_gpus / whole.contention, cluster)


def _attainable_s(whole: AppView, cluster: ClusterView) -> float:
    return max(ideal_time_s(whole, cluster), _exclusive_s(whole, cluster) + whole.restart_s)


_IDEALS: Mapping[RhoDefinition, Callable[[AppView, ClusterView], float]] = MappingProxyType(
    {
        RhoDefinition.THEMIS: ideal_time_s,
        RhoDefinition.ISOLATED_SHARE: _isolated_share_s,
        RhoDefinition.PLACEMENT_AWARE: _placement_aware_s,
        RhoDefinition.PRIVATE_CLUSTER: _private_cluster_s,
        RhoDefinition.ATTAINABLE: _attainable_s,
    }
)
