"""The policy `srtf`: shortest remaining time first, as the paper compares with (NSDI'20, section 8.1)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.arbiter.user_ranks import UserKey
from rm_plugin.policies.demands import app_demands_of
from rm_plugin.policies.gang_allocator import GangAllocator
from rm_plugin.policies.users import users_of
from themis.bids import AppReport, GangDemand, PhaseLeft, RhoOf


class SrtfPolicy:
    """Whole apps are served in order of the time that they still need, least first; ties by app id.

    That is the time with the GPUs that the app keeps and all offered ones, for all remaining phases. An offer that
    scatters its gangs makes it longer.

    Users come first (`users`): those whose apps, as if they were one, need the least time.
    """

    name = "srtf"
    rho_of = RhoOf.NO_APP

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Serve the apps in order, each renewing in place first, then taking what has least S."""
        allocator = GangAllocator.for_baseline(snapshot, app_demands_of(snapshot, {}))
        kept = {app.app_id: app.kept.gpus for app in snapshot.apps}
        reports = {app_id: snapshot.reports[app_id] for app_id in allocator.app_demands}
        users = users_of(snapshot)
        apps_of: dict[UserKey, list[AppReport]] = {}
        for app_id, report in reports.items():
            apps_of.setdefault(users.of[app_id], []).append(report)

        def remaining_s(apps: Sequence[AppReport]) -> float:
            return remaining_time_s(allocator, apps, sum(kept[report.app_id] for report in apps))

        of_user = {user: remaining_s(apps) / users.weights[user] for user, apps in apps_of.items()}
        rank = {
            app_id: (of_user[users.of[app_id]], *users.app_rank(app_id, remaining_s([report])))
            for app_id, report in reports.items()
        }
        return allocator.serve_in_order(sorted(allocator.app_demands, key=rank.__getitem__))


def remaining_time_s(allocator: GangAllocator, apps: Sequence[AppReport], kept_gpus: int) -> float:
    """Seconds that apps still need on the GPUs that they keep and all free GPUs that they can use.

    Our choice: all work has the S and the speed of the best gang that the longest job of the first app finds (or the
    next job that finds one). The time is infinite if no job finds a gang, since no offered GPU makes such apps faster.
    Several apps count as one that runs their first phases at once, then their second ones.

    Example: an app keeps two GPUs, two are free, and two jobs with 100 GPU seconds each can use up to four. The best
    gang has S = 1.2. On 4 GPUs the work takes 200 / 4 = 50 s at S = 1, so 60 s remain.
    """
    jobs = [(report.app_id, job, demand) for report in apps for job, demand in _jobs(allocator, report)]
    gangs = ((allocator.anywhere(app_id, job), demand) for app_id, job, demand in jobs)
    factors = (
        demand.slowdown.at(found.prospect.level) / demand.speeds.on(found.gang.device)
        for found, demand in gangs
        if found is not None
    )
    factor = next(factors, math.inf)
    if math.isinf(factor):
        return math.inf
    gpus = kept_gpus + min(allocator.free_gpus, sum(demand.max_gpus for _, _, demand in jobs))
    return factor * math.fsum(phase.time_s(gpus) for phase in _phases_at_once(apps))


def _jobs(allocator: GangAllocator, report: AppReport) -> Iterator[tuple[int, GangDemand]]:
    return enumerate(allocator.jobs(report.app_id))


def _phases_at_once(apps: Sequence[AppReport]) -> Iterator[PhaseLeft]:
    """The phases of apps that run at the same time."""
    for phases in zip_longest(*[report.phases_left for report in apps]):
        present = [phase for phase in phases if phase is not None]
        yield PhaseLeft(
            jobs=sum(phase.jobs for phase in present),
            work_gpu_s=sum(phase.work_gpu_s for phase in present),
            longest_gpu_s=max(phase.longest_gpu_s for phase in present),
            gang_gpus=max(phase.gang_gpus for phase in present),
        )
