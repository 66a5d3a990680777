"""The policy `drf`: dominant resource fairness, for GPUs alone max-min fairness of GPUs held (NSDI'20, 3.1)."""

from __future__ import annotations

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.policies.demands import claims_of
from rm_plugin.policies.gang_allocator import GangAllocator
from rm_plugin.policies.greedy import Given, serve_step_by_step
from themis.bids import RhoOf


class DrfPolicy:
    """Free GPUs go one unit at a time to the app with the least share of the cluster's GPUs; ties by app id.

    DRF knows no leases. So all renewable GPUs that an app's jobs can still use are renewed in place first, apps in
    order of their ids. Only GPUs that jobs gave back are divided again.
    """

    name = "drf"
    rho_of = RhoOf.NO_APP

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Renew everything, then give unit by unit."""
        claims = claims_of(snapshot, {})
        allocator = GangAllocator(snapshot.machines, claims)
        held = {app.app_id: app.kept.gpus for app in snapshot.apps}
        for app_id in sorted(allocator.claims):
            allocator.renew(app_id)
            held[app_id] += allocator.given_gpus(app_id)

        def rank(app_id: str, given: Given, _ratio: float) -> tuple[float, ...]:
            return ((held[app_id] + given.gpus) / snapshot.cluster.gpus,)

        serve_step_by_step(allocator, rank)
        return allocator.decision()
