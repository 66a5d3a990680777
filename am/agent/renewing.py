"""Apps of one job all of whose GPUs are up for renewal: until something else happens, only the work left changes.

As leases end, nothing has happened to most apps of a busy cluster since their last ones began. One of a single job
then says that it would have its gang again. What such apps report is what `demands` makes of their views, to the last
bit, which tests hold it to; their rho is worked out at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from am.agent.demands import job_left
from am.agent.figure_reports import FigureReports, Figures, figures_of
from am.agent.finish_time import job_pace
from am.agent.views import AppView, JobView, Surroundings
from themis.bids import GangDemand, PhaseLeft, RhoOf


class Renewing:
    """An app of one job, all of whose gang is up for renewal, as long as only the work left changes.

    Args:
        app: It, at any moment of that time; `suits` tells which apps there are such of.
        around: The cluster, whose machines stay the same.
    """

    __slots__ = ("_job", "_pace", "_smallest_gpus", "app_id", "gpus", "most_gpus", "restart_s", "work_total_gpu_s")

    def __init__(self, app: AppView, around: Surroundings) -> None:
        self.app_id, self.restart_s = app.app_id, app.restart_s
        # GPUs that it holds.
        self.gpus = app.held[0].gpus.gpus
        self.work_total_gpu_s, self.most_gpus = app.work_total_gpu_s, app.demand_max_gpus
        self._job = app.jobs[0]
        self._pace = job_pace(self._job, app.median_job.shape, around)
        self._smallest_gpus = self._pace.smallest_gpus

    @staticmethod
    def suits(app: AppView) -> bool:
        """True for an app of one job, of the shape of the median one, whose gang is up for renewal as a whole."""
        if len(app.jobs) != 1 or app.later_phases or len(app.held) != 1:
            return False
        job, gang = app.jobs[0], app.held[0]
        return (
            gang.renewable and gang.up == gang.gpus and gang.job_id == job.job_id and app.median_job.shape == job.shape
        )

    def pace_on_share(self, whole_gpus: int, around: Surroundings) -> tuple[float, int, int]:
        """S and the GPUs that the job can use on a fair share of so many whole GPUs, and 0.

        Where its smallest gang is more, those of its smallest gang, and its GPUs.
        """
        smallest = self._smallest_gpus
        part = smallest if whole_gpus < smallest else 0
        for slowdown, usable in self._pace.on(self._job, part or whole_gpus, around):
            if usable:
                return slowdown, usable, part
        return math.inf, 1, part


class _AtWork:
    """A renewing app with its job as it is at one moment."""

    __slots__ = ("_job", "app_id", "demands", "restart_s")

    def __init__(self, app: Renewing, job: JobView) -> None:
        self.app_id, self.restart_s = app.app_id, app.restart_s
        self._job = job
        self.demands: tuple[GangDemand, ...] = (job.demand,)

    @property
    def phases_left(self) -> tuple[PhaseLeft, ...]:
        """What its search has still to do."""
        return (job_left(self._job),)


def renewing_reports(
    apps: Sequence[Renewing],
    jobs: Sequence[JobView],
    elapsed_s: Sequence[float],
    contentions: Sequence[float],
    around: Surroundings,
    round_id: int,
    rho_of: RhoOf = RhoOf.EVERY_APP,
) -> FigureReports:
    """What apps report whose leases end with a round.

    Args:
        apps: The apps, at least one.
        jobs: The job of each as it is now.
        elapsed_s: Seconds since each was submitted.
        contentions: N_avg of each.
        around: The cluster now.
        round_id: The round that asks.
        rho_of: Whose rho it asks for: all of them could use more GPUs, since they may lose what they hold.
    """
    told = tuple([_AtWork(app, job) for app, job in zip(apps, jobs, strict=True)])
    places = {app.app_id: place for place, app in enumerate(apps)}
    wanting = [(app.app_id, app.demands) for app in told]
    if rho_of is RhoOf.NO_APP:
        return FigureReports(round_id, told, places, wanting, np.full((3, len(apps)), math.nan))
    spent_s = np.array(elapsed_s) + np.array([app.restart_s for app in apps])
    share_s, ideal_s = _share_s(apps, jobs, around), _ideal_s(apps, contentions, around)
    figures = figures_of(spent_s, share_s, ideal_s, around)
    return FigureReports(round_id, told, places, wanting, figures)


def _share_s(apps: Sequence[Renewing], jobs: Sequence[JobView], around: Surroundings) -> Figures:
    """T of each on the fair share R/N, in seconds: as `finish_time.time_on_count_s` has it."""
    share_gpus = around.share_gpus
    whole = int(share_gpus)
    slowdowns, usables, parts = np.array([app.pace_on_share(whole, around) for app in apps]).T
    share_s: Figures = np.array([job.serial_work_s for job in jobs]) * slowdowns / usables
    return np.where(parts > 0, share_s * parts / share_gpus, share_s)


def _ideal_s(apps: Sequence[Renewing], contentions: Sequence[float], around: Surroundings) -> Figures:
    """t_ideal of each, in seconds: as `fairness.ideal_time_s` has it."""
    works_gpu_s, most_gpus = np.array([(app.work_total_gpu_s, app.most_gpus) for app in apps]).T
    return np.asarray(works_gpu_s / np.minimum(most_gpus, around.cluster_gpus) * np.array(contentions))
