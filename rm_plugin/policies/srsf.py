"""The policy `srsf`: shortest remaining service first, as the paper compares with (NSDI'20, section 8.1)."""

from __future__ import annotations

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.policies.demands import app_demands_of
from rm_plugin.policies.gang_allocator import GangAllocator
from rm_plugin.policies.greedy import Given, serve_step_by_step
from rm_plugin.policies.users import users_of
from themis.bids import RhoOf


class SrsfPolicy:
    """GPUs go one unit at a time to the app with the least service left, later phases included; ties by app id.

    Users come first (`users`): those whose apps have the least service left together.

    Our choice: service is GPU time at S = 1, since future placements are unknown. An app uses its units as under all
    step-by-step policies: first a smallest gang for each of its jobs, longest job first; then units where they add most
    to a job's throughput.
    """

    name = "srsf"
    rho_of = RhoOf.NO_APP

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Give unit by unit, each app renewing in place first."""
        app_demands = app_demands_of(snapshot, {})
        allocator = GangAllocator.for_baseline(snapshot, app_demands)
        work_left = {each.app_id: snapshot.reports[each.app_id].work_left_gpu_s for each in app_demands}
        left = users_of(snapshot).ranks(work_left)

        def rank(app_id: str, _given: Given, _ratio: float) -> tuple[float, ...]:
            return left[app_id][:-1]

        serve_step_by_step(allocator, rank)
        return allocator.decision()
