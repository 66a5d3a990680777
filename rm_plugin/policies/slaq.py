"""The policy `slaq`: by the forecast decrease of the loss, as the paper compares with (NSDI'20, section 8.1)."""

from __future__ import annotations

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.policies.demands import app_demands_of
from rm_plugin.policies.gang_allocator import GangAllocator, Prospect
from rm_plugin.policies.greedy import serve_best_first
from rm_plugin.policies.users import users_of
from themis.bids import GangDemand, RhoOf


class SlaqPolicy:
    """Jobs are served by how much their loss falls on the offered GPUs within one lease, most first.

    SLAQ divides a decrease by the largest decrease of the job, so that losses of all models are comparable. Our choice:
    the largest decrease is that of one GPU in a lease from the first iteration on, so the size of an iteration does not
    matter. Work counts up to the end of the job's phase. A job without a forecast counts as if at its steepest, so that
    it soon has one. Decreases count by the weight of the app's user, twice for weight 2. Ties go to the job that renews
    in place, then to the app submitted first, then to the app id; of an app's jobs to the longest.
    """

    name = "slaq"
    rho_of = RhoOf.NO_APP

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Serve job by job, each renewing in place first."""
        app_demands = app_demands_of(snapshot, {})
        allocator = GangAllocator.for_baseline(snapshot, app_demands)
        submitted = sorted(snapshot.apps, key=lambda app: (app.submitted_at_s, app.app_id))
        order = [app.app_id for app in submitted if app.app_id in allocator.app_demands]

        weights = users_of(snapshot).relative_weights()

        def rank(app_id: str, demand: GangDemand, prospect: Prospect) -> tuple[float, ...]:
            before = loss_decrease(demand, prospect.speed_before, snapshot.lease_s)
            decrease = loss_decrease(demand, prospect.speed, snapshot.lease_s) - before
            return (-weights[app_id] * decrease, not prospect.renews)

        serve_best_first(allocator, order, rank, lambda demand: (demand.forecast, demand.work_left_gpu_s))
        return allocator.decision()


def loss_decrease(demand: GangDemand, speed: float, lease_s: float) -> float:
    """Decrease of a job's loss in one lease, divided by the largest that one GPU made in a lease; 0 or more, no unit.

    Args:
        demand: The job.
        speed: Throughput in units of one GPU at S = 1.
        lease_s: Length of the lease, in seconds.
    """
    if speed <= 0.0:
        return 0.0
    worked_gpu_s = min(speed * lease_s, demand.work_left_gpu_s)
    curve = demand.forecast
    if curve is None:
        # A convex curve is steepest, and nearly straight, at its beginning.
        return worked_gpu_s / lease_s
    largest = curve.decrease(0.0, lease_s / curve.serial_iteration_s)
    if largest <= 0.0:
        return 0.0
    return curve.decrease(curve.iteration, worked_gpu_s / curve.serial_iteration_s) / largest
