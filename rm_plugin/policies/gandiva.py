"""The policy `gandiva`: packing and migration by placement preference, as the paper compares with (NSDI'20, 8.1)."""

from __future__ import annotations

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.policies.demands import app_demands_of
from rm_plugin.policies.gang_allocator import GangAllocator, Prospect
from rm_plugin.policies.greedy import serve_best_first
from rm_plugin.policies.users import users_of
from themis.bids import GangDemand, RhoOf


class GandivaPolicy:
    """Jobs are served by the placement score 1/S of the best gang that they find on free GPUs, highest first.

    As under every policy that serves gangs, a job renews in place or migrates (`GangAllocator.renewal`). Ties: jobs
    that renew first, then the user of more weight, the larger gang, the app submitted first, the app id, and of an
    app's jobs the longest. There is no time slicing and no sharing of GPUs, as in the paper.
    """

    name = "gandiva"
    rho_of = RhoOf.NO_APP

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Serve job by job."""
        app_demands = app_demands_of(snapshot, {})
        allocator = GangAllocator.for_baseline(snapshot, app_demands)
        submitted = sorted(snapshot.apps, key=lambda app: (app.submitted_at_s, app.app_id))
        order = [app.app_id for app in submitted if app.app_id in allocator.app_demands]

        weights = users_of(snapshot).relative_weights()

        def rank(app_id: str, demand: GangDemand, prospect: Prospect) -> tuple[float, ...]:
            return (demand.slowdown.at(prospect.level), not prospect.renews, -weights[app_id], -prospect.gpus)

        serve_best_first(allocator, order, rank, lambda _demand: ())
        return allocator.decision()
