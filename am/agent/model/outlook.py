"""What reports and bids need of an app, computed once for as long as nothing happens to the app."""

from __future__ import annotations

import math

from am.agent.model.demands import empty_bundle_s, phases_left, unmet_demands
from am.agent.model.division_times import CERTAIN
from am.agent.model.fairness import least_share_s
from am.agent.model.finish_time import CountTimes
from am.agent.model.views import AppView, ClusterView
from themis.bids import GangDemand, PhaseLeft


class Outlook:
    """An app with its demands, the work left, and its times on the GPUs it keeps and on its fair share.

    An outlook stays valid until something happens to the app: a job makes progress, starts or stops, or a lease
    changes. Time, N_avg, the number of active apps and of the cluster's GPUs may change. The owner of an app knows
    such events and keeps the outlook: an app master for one message, the simulator for as long as the app waits.

    Args:
        app: The app. Its elapsed time and N_avg may be out of date.
        around: The cluster. Only the levels at which gangs fit into the empty cluster are kept.
    """

    __slots__ = ("_around", "_count_times", "_empty_bundle_s", "_phases_left", "app", "demands")

    def __init__(self, app: AppView, around: ClusterView) -> None:
        self.app = app
        self.demands: tuple[GangDemand, ...] = unmet_demands(app)
        self._around = around
        self._count_times: CountTimes | None = None
        self._empty_bundle_s: tuple[float, float] | None = None
        self._phases_left: tuple[PhaseLeft, ...] | None = None

    @property
    def phases_left(self) -> tuple[PhaseLeft, ...]:
        """The work left of the search, phase by phase."""
        if self._phases_left is None:
            self._phases_left = phases_left(self.app)
        return self._phases_left

    @property
    def empty_bundle_s(self) -> tuple[float, float]:
        """T of what the app keeps if it wins nothing, and the restart that losing the rest costs, in seconds."""
        if self._empty_bundle_s is None:
            self._empty_bundle_s = empty_bundle_s(self.app, self._around)
        return self._empty_bundle_s

    def share_s(self, around: ClusterView, longest_s: float = math.inf) -> float:
        """T on the fair share R/N, in seconds.

        Args:
            around: The cluster now.
            longest_s: If T on the share is provably longer, infinity is returned: t_shared of bundles on which the
                app takes no longer than that does not depend on the share then, and packing many jobs takes time.
        """
        if longest_s < math.inf and least_share_s(self.app, around) * CERTAIN > longest_s:
            return math.inf
        if self._count_times is None:
            self._count_times = CountTimes(self.app, self._around)
        return self._count_times.on_count_s(around.share_gpus)
