"""The policy `drf`: dominant resource fairness over device types. On one type it is max-min fairness (NSDI'20, 3.1)."""

from __future__ import annotations

from collections import Counter

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.policies.demands import app_demands_of
from rm_plugin.policies.gang_allocator import GangAllocator
from rm_plugin.policies.greedy import Given, serve_step_by_step
from themis.bids import RhoOf


class DrfPolicy:
    """Free GPUs go one unit at a time to the app with the least dominant share; ties by app id.

    The resources are the device types. An app's dominant share is the largest part that it has of one type, as in
    AlloX's comparison (EuroSys'20). Example: an app has 2 of 4 GPUs and 2 of 16 CPU nodes: its dominant share is 1/2.

    DRF knows no leases. So all renewable GPUs that an app's jobs can still use are renewed in place first, apps in
    order of their ids. Only GPUs that jobs gave back are divided again.
    """

    name = "drf"
    rho_of = RhoOf.NO_APP

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Renew everything, then give unit by unit."""
        allocator = GangAllocator.for_baseline(snapshot, app_demands_of(snapshot, {}))
        kept = {app.app_id: app.kept for app in snapshot.apps}
        for app_id in sorted(allocator.app_demands):
            allocator.renew(app_id)
        device_of = {machine.machine_id: machine.device for machine in snapshot.cluster.machines}
        totals = snapshot.cluster.gpus_by_device

        def dominant_share(app_id: str) -> float:
            held = Counter[str]()
            for machine_id, count in sum(allocator.given(app_id), kept[app_id]):
                held[device_of[machine_id]] += count
            return max([count / totals[device] for device, count in held.items()], default=0.0)

        shares: dict[tuple[str, int], float] = {}

        def rank(app_id: str, given: Given, _ratio: float) -> tuple[float, ...]:
            # The share changes only with what the app got.
            key = app_id, given.gpus
            if key not in shares:
                shares[key] = dominant_share(app_id)
            return (shares[key],)

        serve_step_by_step(allocator, rank)
        return allocator.decision()
