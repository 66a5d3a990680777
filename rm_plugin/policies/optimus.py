"""The policy `optimus`: by throughput scaling, as the paper compares with (NSDI'20, section 8.1)."""

from __future__ import annotations

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.arbiter.user_ranks import UserKey
from rm_plugin.policies.demands import app_demands_of
from rm_plugin.policies.gang_allocator import GangAllocator
from rm_plugin.policies.greedy import Given, serve_step_by_step
from rm_plugin.policies.users import users_of
from themis.bids import RhoOf
from themis.sums import sum_in_order


class OptimusPolicy:
    """GPUs go one unit at a time to the job with the highest ratio of throughput with it to throughput without it.

    Our choice: a job without GPUs has no throughput, so its smallest gang has an infinite ratio: every job that fits
    starts before any job grows, as in Optimus itself. Ties go to the user, then to the app, with the least throughput
    so far, where kept GPUs count as one each: for equal gangs the app's own ratio is highest there. Then the earlier
    submission, then the app id; of an app's jobs the longest.
    """

    name = "optimus"
    rho_of = RhoOf.NO_APP

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Give unit by unit, each app renewing in place first."""
        app_demands = app_demands_of(snapshot, {})
        allocator = GangAllocator.for_baseline(snapshot, app_demands)
        apps = {app.app_id: app for app in snapshot.apps}
        users = users_of(snapshot)
        speeds: dict[UserKey, dict[str, float]] = {}
        for app_id, user in users.of.items():
            speeds.setdefault(user, {})[app_id] = float(apps[app_id].kept.gpus)

        def rank(app_id: str, given: Given, ratio: float) -> tuple[float, ...]:
            app, user = apps[app_id], users.of[app_id]
            speeds[user][app_id] = speed = app.kept.gpus + given.speed
            return (-ratio, sum_in_order(speeds[user].values()) / users.weights[user], speed, app.submitted_at_s)

        serve_step_by_step(allocator, rank)
        return allocator.decision()
