"""The policy `worst_rho_first`: Themis without its auction, to measure what the auction adds."""

from __future__ import annotations

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.policies.demands import app_demands_of
from rm_plugin.policies.gang_allocator import GangAllocator
from rm_plugin.policies.users import rho_as_one_app
from themis.bids import RhoOf


class WorstRhoFirstPolicy:
    """Whole apps are served in order of their reported rho (`rho_as_one_app`), worst first; ties by app id.

    Apps neither bid nor pay, so an app gains if it reports a worse rho than it has.
    """

    name = "worst_rho_first"
    rho_of = RhoOf.APPS_WITH_DEMAND

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Serve the apps in order, each renewing in place first, then taking what has least S."""
        rho = rho_as_one_app(snapshot)
        allocator = GangAllocator.for_baseline(snapshot, app_demands_of(snapshot, {}))
        return allocator.serve_in_order(sorted(allocator.app_demands, key=lambda app_id: (-rho[app_id], app_id)))
