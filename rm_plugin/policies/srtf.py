"""The policy `srtf`: shortest remaining time first, as the paper compares with (NSDI'20, section 8.1)."""

from __future__ import annotations

import math

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.policies.demands import app_demands_of
from rm_plugin.policies.gang_allocator import GangAllocator
from themis.bids import AppReport, RhoOf


class SrtfPolicy:
    """Whole apps are served in order of the time that they still need, least first; ties by app id.

    That is the time with the GPUs that the app keeps and all offered ones, for all remaining phases. An offer that
    scatters its gangs makes it longer.
    """

    name = "srtf"
    rho_of = RhoOf.NO_APP

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Serve the apps in order, each renewing in place first, then taking what has least S."""
        allocator = GangAllocator.for_baseline(snapshot, app_demands_of(snapshot, {}))
        kept = {app.app_id: app.kept.gpus for app in snapshot.apps}
        remaining_s = {
            app_id: remaining_time_s(allocator, snapshot.reports[app_id], kept[app_id])
            for app_id in allocator.app_demands
        }
        return allocator.serve_in_order(sorted(allocator.app_demands, key=lambda app_id: (remaining_s[app_id], app_id)))


def remaining_time_s(allocator: GangAllocator, report: AppReport, kept_gpus: int) -> float:
    """Seconds that an app still needs on the GPUs that it keeps and all free GPUs that it can use.

    Our choice: all work has the S and the speed of the best gang that its longest job finds (or the next job that finds
    one). The time is infinite if no job finds a gang, since no offered GPU makes such an app faster.

    Example: an app keeps two GPUs, two are free, and two jobs with 100 GPU seconds each can use up to four. The best
    gang has S = 1.2. On 4 GPUs the work takes 200 / 4 = 50 s at S = 1, so 60 s remain.
    """
    jobs = allocator.jobs(report.app_id)
    gangs = (allocator.anywhere(report.app_id, job) for job in range(len(jobs)))
    pairs = zip(gangs, jobs, strict=True)
    factors = (
        demand.slowdown.at(found.prospect.level) / demand.speeds.on(found.gang.device)
        for found, demand in pairs
        if found is not None
    )
    factor = next(factors, math.inf)
    if math.isinf(factor):
        return math.inf
    gpus = kept_gpus + min(allocator.free_gpus, sum(demand.max_gpus for demand in jobs))
    return factor * math.fsum(phase.time_s(gpus) for phase in report.phases_left)
