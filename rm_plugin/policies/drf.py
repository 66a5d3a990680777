"""The policy `drf`: dominant resource fairness over device types. On one type it is max-min fairness (NSDI'20, 3.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.arbiter.user_ranks import UserKey
from rm_plugin.policies.demands import app_demands_of
from rm_plugin.policies.gang_allocator import GangAllocator
from rm_plugin.policies.greedy import Given, serve_step_by_step
from rm_plugin.policies.users import users_of
from themis.bids import RhoOf
from themis.cluster import Allocation


class DrfPolicy:
    """Free GPUs go one unit at a time to the app with the least dominant share; ties by app id.

    Users come first (`users`): those with the least dominant share of all their apps.

    The resources are the device types. An app's dominant share is the largest part that it has of one type, as in
    AlloX's comparison (EuroSys'20). Example: an app has 2 of 4 GPUs and 2 of 16 CPU nodes: its dominant share is 1/2.

    DRF knows no leases. So all renewable GPUs that an app's jobs can still use are renewed in place first, and no gang
    moves. Only GPUs that jobs gave back are divided again.
    """

    name = "drf"
    rho_of = RhoOf.NO_APP

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Renew everything, then give unit by unit."""
        allocator = GangAllocator.for_baseline(snapshot, app_demands_of(snapshot, {}), moves=False)
        for app_id in sorted(allocator.app_demands):
            allocator.renew(app_id)
        device_of = {machine.machine_id: machine.device for machine in snapshot.cluster.machines}
        totals = snapshot.cluster.gpus_by_device
        users = users_of(snapshot)

        def by_device(allocations: Iterable[Allocation]) -> Counter[str]:
            held = Counter[str]()
            for machine_id, count in Allocation.sum_of(allocations):
                held[device_of[machine_id]] += count
            return held

        def dominant_share(held: Counter[str]) -> float:
            return max([count / totals[device] for device, count in held.items()], default=0.0)

        held = {app.app_id: by_device([app.kept]) for app in snapshot.apps}
        of_user: dict[UserKey, Counter[str]] = {}
        for app_id, user in users.of.items():
            of_user.setdefault(user, Counter()).update(held[app_id])
        given_gpus = dict.fromkeys(held, 0)

        def rank(app_id: str, given: Given, _ratio: float) -> tuple[float, ...]:
            user = users.of[app_id]
            # What the app holds changes only with what it got.
            if given.gpus != given_gpus[app_id] or not given.gpus:
                given_gpus[app_id] = given.gpus
                of_user[user].subtract(held[app_id])
                held[app_id] = by_device([*allocator.given(app_id), snapshot.standing(app_id).kept])
                of_user[user].update(held[app_id])
            return (dominant_share(of_user[user]) / users.weights[user], dominant_share(held[app_id]))

        serve_step_by_step(allocator, rank)
        return allocator.decision()
