"""A lower bound on the rho that any policy could give an app: `least_rho` has the formula."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from am.agent.model.fairness import ideal_time_s
from am.agent.model.views import AppView, ClusterView, JobView
from themis.sums import sum_in_order


def least_rho(
    whole: AppView, phases: Iterable[Sequence[JobView]], cluster: ClusterView, first_chance_s: float, start_s: float
) -> float:
    """Return (first chance + start + sum over phases of max(longest job, work / GPUs)) / t_ideal.

    Example: one phase of four jobs of 100 GPU seconds, each on one GPU, on a cluster of 8 GPUs. GPUs were free at once,
    and a start costs 10 s. The longest job takes 100 s, as does all the work on four GPUs. With N_avg = 2, t_ideal is
    2 * 400 / 4 = 200 s, so no policy could reach a rho below (0 + 10 + 100) / 200 = 0.55.

    Args:
        whole: The app as submitted.
        phases: For each phase that the search went through, its jobs with what they had to do in it. Which jobs go on
            depends on their losses alone, never on the schedule.
        cluster: The cluster, with N_avg of the app's life.
        first_chance_s: Seconds from submission until GPUs for its smallest gang were free or renewable.
        start_s: What starting a job costs.
    """
    gpus = min(cluster.cluster_gpus, whole.demand_max_gpus)
    phases_s = []
    for jobs in phases:
        longest_s = max(_fastest_s(job, cluster) for job in jobs)
        phases_s.append(max(longest_s, sum_in_order(job.serial_work_s / job.speeds.highest for job in jobs) / gpus))
    return (first_chance_s + start_s + sum_in_order(phases_s)) / ideal_time_s(whole, cluster)


def _fastest_s(job: JobView, cluster: ClusterView) -> float:
    """A job's time on the gang and type that are fastest for it: its S may make fewer GPUs faster than more."""
    sizes = range(job.shape.demand_min_gpus, job.shape.demand_max_gpus + 1, job.shape.gpus_per_task)
    best = min(job.serial_work_s * job.slowdown.at(cluster.nearest_level(size)) / size for size in sizes)
    return best / job.speeds.highest
