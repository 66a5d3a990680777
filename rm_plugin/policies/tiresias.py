"""The policy `tiresias`: least attained service first (LAS, without Gittins), as the paper compares with."""

from __future__ import annotations

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.policies.demands import app_demands_of
from rm_plugin.policies.gang_allocator import GangAllocator
from rm_plugin.policies.users import users_of
from themis.bids import RhoOf


class TiresiasPolicy:
    """Whole apps are served in order of the GPU time that they had so far, least first; ties by app id.

    Users come first (`users`): those with the least GPU time of their active apps. Apps that have ended count too if
    they were submitted after the oldest active app of their user. Otherwise the parts of an app that was split would
    become younger when one of them ends.
    """

    name = "tiresias"
    rho_of = RhoOf.NO_APP

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Serve the apps in order, each renewing in place first, then taking what has least S."""
        attained = {app.app_id: app.attained_gpu_s(snapshot.now_s) for app in snapshot.apps}
        allocator = GangAllocator.for_baseline(snapshot, app_demands_of(snapshot, {}))
        rank = users_of(snapshot).ranks(attained, snapshot.ended_gpu_s)
        return allocator.serve_in_order(sorted(allocator.app_demands, key=rank.__getitem__))
