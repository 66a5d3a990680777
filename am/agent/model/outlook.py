"""What reports and bids need of an app, computed once for as long as nothing happens to the app."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from am.agent.model.demands import empty_bundle_s, phases_left, unmet_demands
from am.agent.model.division_times import CERTAIN
from am.agent.model.fairness import cluster_time_s
from am.agent.model.finish_time import in_proportion_s, smallest_gang_gpus, time_on_whole_s
from am.agent.model.views import AppView, ClusterView
from themis.bids import GangDemand, PhaseLeft
from themis.sums import sum_in_order
from themis.values import Value

Seconds = NDArray[np.float64]
_Times = tuple[float, float, float, float, int]
"""T of the empty bundle, its restart, t_cluster, T on the share, and the GPUs below which the latter is scaled."""

_Share = tuple[int, int, bool]
"""What T on the fair share depends on: the share's whole GPUs, the cluster's GPUs, and `share_if_sooner`."""


class Outlook:
    """An app with its demands, the work left, and its times on the GPUs it keeps and on its fair share.

    An outlook stays valid until something happens to the app: a job makes progress, starts or stops, or a lease
    changes. Time, N_avg, the number of active apps and of the cluster's GPUs may change. The owner of an app knows
    such events and keeps the outlook: an app master for one message, the simulator for as long as the app waits.

    Example: an app waits for GPUs during ten rounds. Its demands and T on the fair share come from one outlook. Its rho
    grows from round to round, since `make_reports` takes the present elapsed time and N_avg.

    Args:
        app: The app. Its elapsed time and N_avg may be out of date.
        cluster: The cluster. Only the levels at which gangs fit into the empty cluster are kept.
    """

    __slots__ = ("_cluster", "_empty_bundle_s", "_times", "app", "demands", "phases_left")

    def __init__(self, app: AppView, cluster: ClusterView) -> None:
        self.app = app
        self.demands: tuple[GangDemand, ...] = unmet_demands(app)
        self.phases_left: tuple[PhaseLeft, ...] = phases_left(app)
        self._cluster = cluster
        self._empty_bundle_s: tuple[float, float] | None = None
        self._times: dict[_Share, _Times] = {}

    def times(self, cluster: ClusterView, share: _Share) -> _Times:
        """The times of this app for `times_of`, computed once for each share."""
        times = self._times.get(share)
        if times is not None:
            return times
        whole_gpus, _, if_sooner = share
        if self._empty_bundle_s is None:
            self._empty_bundle_s = empty_bundle_s(self.app, self._cluster)
        empty_s, switch_s = self._empty_bundle_s
        share_s, smallest_gpus = math.inf, 1
        if not if_sooner or empty_s >= _least_s(self.app, whole_gpus + 1) * CERTAIN:
            smallest_gpus = smallest_gang_gpus(self.app)
            share_s = time_on_whole_s(self.app, max(whole_gpus, smallest_gpus), self._cluster)
        times = self._times[share] = empty_s, switch_s, cluster_time_s(self.app, cluster), share_s, smallest_gpus
        return times


class Times(Value, frozen=True, kw_only=True):
    """Times of N apps, in seconds.

    Attributes:
        empty_s: T of what each app keeps if it wins nothing [N].
        switch_s: The restart that losing the rest costs [N].
        share_s: T on the fair share R/N [N].
        cluster_s: t_cluster [N].
    """

    empty_s: Seconds
    switch_s: Seconds
    share_s: Seconds
    cluster_s: Seconds


def times_of(outlooks: Sequence[Outlook], cluster: ClusterView, *, share_if_sooner: bool = False) -> Times:
    """The times of at least one app.

    The share changes with every app that comes or goes, its whole GPUs seldom. T on the share follows from T on those.

    Args:
        outlooks: The N apps.
        cluster: The cluster now.
        share_if_sooner: Whether T on the share matters only if it is less than T of the empty bundle. Then infinity may
            replace a longer time, since packing many jobs takes time. The empty bundle's t_shared is the same.
    """
    share = int(cluster.share_gpus), cluster.cluster_gpus, share_if_sooner
    rows = chain.from_iterable([outlook.times(cluster, share) for outlook in outlooks])
    empty_s, switch_s, cluster_s, whole_s, smallest_gpus = (
        np.fromiter(rows, np.float64, 5 * len(outlooks)).reshape(len(outlooks), 5).T
    )
    share_s = in_proportion_s(whole_s, smallest_gpus, cluster.share_gpus)
    return Times(empty_s=empty_s, switch_s=switch_s, share_s=share_s, cluster_s=cluster_s)


def _least_s(app: AppView, gpus: int) -> float:
    """A lower bound on T on `gpus` GPUs, in seconds: all of them work on the jobs at S = 1, at their highest speed."""
    return sum_in_order([job.serial_work_s / job.speeds.highest for job in app.jobs]) / gpus
