"""The policy `tiresias`: least attained service first (LAS, without Gittins), as the paper compares with."""

from __future__ import annotations

from rm_plugin.arbiter.leftovers import serve_in_order
from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.policies.demands import claims_of, gangs_of, unserved


class TiresiasPolicy:
    """Apps are served whole in the order of the GPU time that they had so far, least first; ties by app id."""

    name = "tiresias"

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Serve the apps in order, each renewing in place first, then taking what has least S."""
        attained = {app.app_id: app.attained_gpu_s for app in snapshot.apps}
        claims = sorted(claims_of(snapshot, {}), key=lambda claim: (attained[claim.app_id], claim.app_id))
        served = serve_in_order(snapshot.machines, claims)
        return Decision(auction=gangs_of(served), unserved=unserved(claims, served))
