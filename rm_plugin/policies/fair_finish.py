"""The policy `fair_finish`: every app should end by the time at which it would end on a fair share of the cluster.

Shortest remaining service first gives the best mean completion, and lets large apps starve. So each app has a due date:
its end on the fluid fair cluster (`themis.fluid_cluster`), where all apps share the GPUs fairly at every moment. No
schedule can move it. In each round:

    1. An app is pressed if it keeps no GPUs and its laxity, due - now - time left, is less than a lease and a restart.
       Each user that keeps no GPUs gets one gang, for the longest job of its most pressed app. First comes the app that
       would be latest, relative to its time until the due date, if it waited one more lease: a lease matters more to a
       short app.
    2. All users get all that they can use: the one with the least service left first. Of its apps the pressed ones get
       one gang each first; then the app with the least service left comes first. An app that holds GPUs counts as
       having less service left, so that few jobs restart: by the preemption margin m if it holds all that it can use,
       by m / 2 if it holds half of that.

So to split an app into several makes it neither shorter nor more pressed. An app without a user has one of its own.

Ties go to the smaller app id. Of an app's jobs the longest comes first, of equal ones that of the smaller job id.

Before that, the apps whose whole demand certainly fits renew in place. Otherwise an app that takes a new gang could
take the place of one that would be served as well, and restart it for nothing. Not so with several device types: there
an app that holds fast GPUs could keep them from one with less service left.

One gang is often enough for the pressed: what makes an app late is its critical path, the longest job of its phases. An
app of many jobs can still be late. All that it can use would let one late app hold the whole cluster.

The policy believes what an app declares in its first report, once. What is left of it is metered: GPU time that the
arbiter granted, at the speed and S of the granted gangs. So to report more or less work later changes nothing. An app
that used more than it declared is assumed to need as much again as it has had, and one that used far more three times
as much: a lie that gains a place is paid for before the app ends.

Sources: due dates from a fair simulation are those of the fair sojourn protocol (Friedman and Henderson, 2003), which
HFSP (Pastorelli et al., 2013) brought to Hadoop. One gang for the pressed, and shortest first otherwise, are ours:
docs/explanation/fair-finish.md has the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rm_plugin.arbiter.fair_finish_order import Contender, Turn, fair_finish_order, latest_pressing_due_s
from rm_plugin.arbiter.leftovers import AppDemand
from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.policies.demands import app_demands_of
from rm_plugin.policies.due_dates import DueDateMemory, MeteredApp, advance, due_times_s
from rm_plugin.policies.gang_allocator import GangAllocator
from rm_plugin.policies.users import users_of
from themis.bids import GangDemand, PlacedGang, RhoOf
from themis.cluster import Cluster
from themis.fluid_cluster import FluidCluster

_ROUNDING_S = 1.0
"""More than sums of seconds since the epoch can be rounded by."""


class FairFinishPolicy:
    """Shortest remaining service first; an app that would miss its fair end gets a gang before."""

    name = "fair_finish"
    rho_of = RhoOf.NO_APP
    memory_type = DueDateMemory

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Serve the pressed, then all in the order of the service that they have left."""
        fluid, memory = advance(snapshot)
        app_demands = app_demands_of(snapshot, {})
        allocator = GangAllocator(snapshot.machines, app_demands, snapshot.lease_s)
        turns = fair_finish_order(
            _contenders(snapshot, fluid, memory.apps, allocator.app_demands),
            users_of(snapshot),
            now_s=snapshot.now_s,
            lease_s=snapshot.lease_s,
            preemption_margin=snapshot.settings.preemption_margin,
        )
        # An app that never reported its phases cannot be metered, and comes last.
        turns += [Turn(app_id=app_id, one_gang=False) for app_id in sorted(allocator.app_demands.keys() - memory.apps)]
        turns = [turn for turn in turns if turn.app_id in allocator.app_demands]
        _renew_certain_winners(snapshot.cluster, allocator, turns)
        for turn in turns:
            if not allocator.free_gpus:
                break
            if turn.one_gang:
                _take_gang(allocator, turn.app_id, _longest_job(allocator, turn.app_id))
                continue
            for job in range(len(allocator.jobs(turn.app_id))):
                while _take_gang(allocator, turn.app_id, job):
                    pass

        decision = allocator.decision()
        paces = _paces(snapshot, memory.apps, allocator)
        granted = {app_id: replace(memory.apps[app_id], pace=pace) for app_id, pace in paces.items()}
        return replace(decision, memory=replace(memory, apps={**memory.apps, **granted}))


def _contenders(
    snapshot: RoundSnapshot,
    fluid: FluidCluster,
    metered: Mapping[str, MeteredApp],
    app_demands: Mapping[str, AppDemand],
) -> list[Contender]:
    """The active apps that reported their phases.

    The fluid cluster is played only as far ahead as an app can be due and pressed. In a crowded cluster few of the apps
    that wait end there by then: they run fast if they run, and slowly on a share of all.
    """
    contenders = []
    for app_id, app in metered.items():
        standing, demand = snapshot.standing(app_id), app_demands.get(app_id)
        share_left = app.left_gpu_s / app.work_gpu_s if app.work_gpu_s > 0.0 else 0.0
        contender = Contender(
            app_id=app_id,
            submitted_at_s=standing.submitted_at_s,
            due_s=math.inf,
            left_gpu_s=app.left_gpu_s,
            time_left_s=app.whole_time_s * share_left,
            restart_s=demand.restart_s if demand else 0.0,
            kept_gpus=standing.kept.gpus,
            held_gpus=standing.kept.gpus + standing.renewable.gpus,
            wanted_gpus=standing.kept.gpus + sum(job.max_gpus for job in (demand.demands if demand else ())),
            overran=app.overran,
        )
        contenders.append(contender)
    until_s = latest_pressing_due_s(contenders, now_s=snapshot.now_s, lease_s=snapshot.lease_s)
    if until_s is None:
        return contenders
    due_s = due_times_s(fluid, metered, until_s + _ROUNDING_S)
    # Most end there later than that.
    return [replace(each, due_s=due_s[each.app_id]) if each.app_id in due_s else each for each in contenders]


def _longest_job(allocator: GangAllocator, app_id: str) -> int:
    """The index of an app's job with the most work left."""
    demands = allocator.jobs(app_id)
    return max(range(len(demands)), key=lambda job: (demands[job].work_left_gpu_s, -job))


def _take_gang(allocator: GangAllocator, app_id: str, job: int) -> bool:
    """Give a job the best gang that it can use. Returns whether there is one."""
    proposal = allocator.propose(app_id, job)
    if proposal is not None:
        allocator.take(app_id, job, proposal.gang)
    return proposal is not None


def _renew_certain_winners(cluster: Cluster, allocator: GangAllocator, turns: Sequence[Turn]) -> None:
    """Renew in place the first apps whose whole demand fits in addition to one gang of each pressed app.

    Does nothing on a cluster of several device types.
    """
    if len(cluster.gpus_by_device) > 1:
        return
    pressed = [turn.app_id for turn in turns if turn.one_gang]
    gang_gpus = {app_id: allocator.jobs(app_id)[_longest_job(allocator, app_id)].max_gpus for app_id in pressed}
    spare_gpus = allocator.free_gpus - sum(gang_gpus.values())
    for app_id in (turn.app_id for turn in turns if not turn.one_gang):
        spare_gpus -= sum(demand.max_gpus for demand in allocator.jobs(app_id)) - gang_gpus.get(app_id, 0)
        if spare_gpus < 0:
            return
        allocator.renew(app_id)


def _paces(snapshot: RoundSnapshot, metered: Mapping[str, MeteredApp], allocator: GangAllocator) -> dict[str, float]:
    """Work for each GPU second by app: the mean over the gangs that it was granted and the GPUs that it keeps."""
    paces = {}
    for app_id, gangs in allocator.gangs().items():
        if app_id in metered:
            demands = {demand.job_id: demand for demand in allocator.jobs(app_id)}
            granted = [(gang.gpus.gpus, _pace(gang, demands[job_id])) for job_id, gang in gangs.items()]
            kept = snapshot.standing(app_id).kept.gpus
            paces[app_id] = _mean([*granted, (kept, metered[app_id].pace)])
    return paces


def _pace(gang: PlacedGang, demand: GangDemand) -> float:
    return demand.speeds.on(gang.device) / demand.slowdown.at(gang.level)


def _mean(weighted: Sequence[tuple[int, float]]) -> float:
    return math.fsum(gpus * pace for gpus, pace in weighted) / sum(gpus for gpus, _ in weighted)
