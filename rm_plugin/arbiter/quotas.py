"""GPUs by queue and user: cut what apps demand in a round to what their queues and users may have. Pure.

Policies see demands that are within all limits, so no policy needs to know of limits. Which of several apps may use
what is left of a limit is decided here: users come first, in the order of the GPUs that they have per weight, and of a
user the apps by priority, then by GPU time so far.

While a queue has less than its guaranteed GPUs and demands more, these demands are served first: those of all others
together are cut to the other GPUs on offer. Otherwise no demand is cut but by a limit, so no GPU stays idle for a queue
that could not use it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from rm_plugin.arbiter.round_values import AppStanding, RoundSnapshot
from themis.bids import AppReport, Bid, GangDemand
from themis.queues import Queue, Tenant

Scope = str | Tenant
"""A queue by name, or a user within a queue. What it may have is limited."""


def within_quotas(snapshot: RoundSnapshot, reports: Mapping[str, AppReport]) -> Mapping[str, AppReport]:
    """The reports of a round with demands within the GPUs that queues and users may have.

    Example: the queue `vision` may have 8 GPUs and keeps 4. Its apps a and b demand a gang of 4 each. Only that of the
    user who has fewer GPUs remains.
    """
    if not any(map(_limits_gpus, snapshot.settings.queues.queues.values())):
        return reports
    filling = _Filling(snapshot, reports)
    filling.guarantees()
    filling.others()
    return {app_id: filling.cut(report) for app_id, report in reports.items()}


def bids_within_quotas(snapshot: RoundSnapshot, bids: Mapping[str, Bid]) -> Mapping[str, Bid]:
    """The bids without rows of more GPUs than the reports demand. An agent knows no limits of queues."""
    if not any(map(_limits_gpus, snapshot.settings.queues.queues.values())):
        return bids
    within = {}
    for app_id, bid in bids.items():
        most = sum(demand.max_gpus for demand in snapshot.reports[app_id].demands)
        rows = tuple(row for row in bid.rows if row.gpus <= most)
        within[app_id] = bid if len(rows) == len(bid.rows) else replace(bid, rows=rows)
    return within


def _limits_gpus(queue: Queue) -> bool:
    users = [queue.each_user, *[user.limits for user in queue.users.values()]]
    return bool(queue.guaranteed_gpus) or any(each.max_gpus is not None for each in (queue.limits, *users))


class _Filling:
    """GPUs of each scope, and what each demand may have of its `max_gpus`."""

    def __init__(self, snapshot: RoundSnapshot, reports: Mapping[str, AppReport]) -> None:
        self._snapshot, self._reports = snapshot, reports
        self._queues = snapshot.settings.queues
        self._gpus: Counter[Scope] = Counter()
        self._allowed: Counter[tuple[str, str]] = Counter()
        self._guaranteed_gpus = 0
        for app in snapshot.apps:
            self._add(app, app.kept.gpus)

    def guarantees(self) -> None:
        """Allow demands of queues that are below their guarantee, up to it."""
        for app, demand in self._in_order():
            leaf = self._queues.tenant(app.owner)[0]
            missing = max(queue.guaranteed_gpus - self._gpus[queue.name] for queue in self._queues.above(leaf))
            if missing > 0:
                # A gang that does not fit into the guarantee is part of it: otherwise a small one could not be used.
                self._guaranteed_gpus += self._allow(app, demand, max(missing, demand.min_gpus))

    def others(self) -> None:
        """Allow all demands within the limits, and within the GPUs that guaranteed ones leave if there are any."""
        left = self._snapshot.free_gpus - self._guaranteed_gpus
        for app, demand in self._in_order():
            most = demand.max_gpus if not self._guaranteed_gpus else left
            left -= self._allow(app, demand, most)

    def cut(self, report: AppReport) -> AppReport:
        """The report with what its demands may have."""
        demands = [(demand, self._allowed[report.app_id, demand.job_id]) for demand in report.demands]
        if all(demand.max_gpus == allowed for demand, allowed in demands):
            return report
        return replace(
            report,
            demands=tuple(
                demand if demand.max_gpus == allowed else replace(demand, max_gpus=allowed)
                for demand, allowed in demands
                if allowed
            ),
        )

    def _in_order(self) -> Iterator[tuple[AppStanding, GangDemand]]:
        """The demands of all apps: always the next one of the user with the least GPUs per weight."""
        heap = []
        for app in self._snapshot.apps:
            report = self._reports.get(app.app_id)
            if report is not None and report.demands:
                within_user = (-app.owner.priority, app.attained_gpu_s(self._snapshot.now_s), app.app_id)
                heap.append((self._per_weight(app), within_user, 0, app))
        heapq.heapify(heap)
        while heap:
            per_weight, within_user, job, app = heap[0]
            now = self._per_weight(app)
            if now > per_weight:
                heapq.heapreplace(heap, (now, within_user, job, app))
                continue
            demands = self._reports[app.app_id].demands
            if job + 1 < len(demands):
                heapq.heapreplace(heap, (now, within_user, job + 1, app))
            else:
                heapq.heappop(heap)
            yield app, demands[job]

    def _per_weight(self, app: AppStanding) -> float:
        tenant = self._queues.tenant(app.owner)
        return self._gpus[tenant] / self._queues.user_weight(tenant)

    def _allow(self, app: AppStanding, demand: GangDemand, most: int) -> int:
        """Allow more of a demand, at most `most` GPUs. Returns how many."""
        key = (app.app_id, demand.job_id)
        had = self._allowed[key]
        gpus = min(demand.max_gpus - had, most, *self._rooms(app))
        gpus -= gpus % demand.unit_gpus
        if gpus <= 0 or had + gpus < demand.min_gpus:
            return 0
        self._allowed[key] += gpus
        self._add(app, gpus)
        return gpus

    def _rooms(self, app: AppStanding) -> Iterator[int]:
        """GPUs that the limits of an app's queues and user leave."""
        leaf, user = self._queues.tenant(app.owner)
        yield self._snapshot.cluster.gpus
        for queue in self._queues.above(leaf):
            if queue.limits.max_gpus is not None:
                yield queue.limits.max_gpus - self._gpus[queue.name]
            of_user = queue.limits_of(user).max_gpus
            if of_user is not None:
                yield of_user - self._gpus[queue.name, user]

    def _add(self, app: AppStanding, gpus: int) -> None:
        leaf, user = self._queues.tenant(app.owner)
        for queue in self._queues.above(leaf):
            self._gpus[queue.name] += gpus
            self._gpus[queue.name, user] += gpus
