"""The policy `gandiva`: packing and migration by placement preference, as the paper compares with (NSDI'20, 8.1)."""

from __future__ import annotations

from collections.abc import Mapping

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.policies.demands import app_demands_of
from rm_plugin.policies.gang_allocator import GangAllocator, Proposal, Prospect
from rm_plugin.policies.greedy import serve_best_first
from rm_plugin.policies.users import users_of
from themis.bids import AppReport, GangDemand, RhoOf


class GandivaPolicy:
    """Jobs are served by the placement score 1/S of the best gang that they find on free GPUs, highest first.

    A job whose app's old GPUs are free renews in place, unless a gang of less S saves more than a restart costs: then
    it migrates. Ties: jobs that renew first, then the user of more weight, the larger gang, the app submitted first,
    the app id, and of an app's jobs the longest. There is no time slicing and no sharing of GPUs, as in the paper.
    """

    name = "gandiva"
    rho_of = RhoOf.NO_APP

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Serve job by job."""
        app_demands = app_demands_of(snapshot, {})
        allocator = GangAllocator.for_baseline(snapshot, app_demands)
        submitted = sorted(snapshot.apps, key=lambda app: (app.submitted_at_s, app.app_id))
        order = [app.app_id for app in submitted if app.app_id in allocator.app_demands]

        def propose(allocator: GangAllocator, app_id: str, job: int) -> Proposal | None:
            return stay_or_move(allocator, app_id, job, snapshot.reports)

        weights = users_of(snapshot).relative_weights()

        def rank(app_id: str, demand: GangDemand, prospect: Prospect) -> tuple[float, ...]:
            return (demand.slowdown.at(prospect.level), not prospect.renews, -weights[app_id], -prospect.gpus)

        serve_best_first(allocator, order, rank, propose, lambda _demand: ())
        return allocator.decision()


def stay_or_move(allocator: GangAllocator, app_id: str, job: int, reports: Mapping[str, AppReport]) -> Proposal | None:
    """Propose a renewal in place, unless the best gang elsewhere has less S and recovers the cost of a restart."""
    stay = allocator.renewal(app_id, job)
    if stay is None:
        return allocator.anywhere(app_id, job)
    demand = allocator.jobs(app_id)[job]
    if demand.slowdown.at(stay.prospect.level) <= demand.slowdown.slot:
        return stay
    move = allocator.anywhere(app_id, job)
    if move is None or not _moving_pays(demand, stay.prospect, move.prospect, reports[app_id].restart_s):
        return stay
    return move


def _moving_pays(demand: GangDemand, stay: Prospect, move: Prospect, restart_s: float) -> bool:
    if demand.slowdown.at(move.level) >= demand.slowdown.at(stay.level):
        return False
    return demand.work_left_gpu_s / stay.speed - demand.work_left_gpu_s / move.speed > restart_s
