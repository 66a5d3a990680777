"""The policy `fair_finish`: every app should end by the time at which it would end on a fair share of the cluster.

Shortest remaining service first gives the best mean completion, and lets large apps starve. So each app has a due date:
its end on the fluid fair cluster (`themis.fluid_cluster`), where all apps share the GPUs fairly at every moment. No
schedule can move it. In each round:

    1. An app is pressed if its laxity, due - now - time left, is less than a lease and a restart. The pressed apps
       get one gang each, for their longest job. First comes the app that would be latest, relative to its time until
       the due date, if it waited one more lease: a lease matters more to a short app.
    2. All apps get all that they can use: those of the user with the least service left first, of one user the app
       with the least. So to split an app into several does not make it shorter.

Ties go to the smaller app id. Of an app's jobs the longest comes first, of equal ones that of the smaller job id.

Before that, the apps whose whole demand certainly fits renew in place. Otherwise an app that takes a new gang could
take the place of one that would be served as well, and restart it for nothing. Not so with several device types: there
an app that holds fast GPUs could keep them from one with less service left.

One gang is enough for the pressed: what makes an app late is its critical path, the longest job of its phases. All that
it can use would let one late app hold the whole cluster.

The policy believes what an app declares in its first report, once. What is left of it is metered: GPU time that the
arbiter granted, at the speed and S of the granted gangs. So to report more or less work later changes nothing. An app
that used more than it declared is assumed to need as much again, and one that used far more is served last: a lie that
gains a place is paid for before the app ends.

Sources: due dates from a fair simulation are those of the fair sojourn protocol (Friedman and Henderson, 2003), which
HFSP (Pastorelli et al., 2013) brought to Hadoop. One gang for the pressed, and shortest first otherwise, are ours:
docs/explanation/fair-finish.md has the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from rm_plugin.arbiter.due_dates import lateness_after_lease
from rm_plugin.arbiter.round_values import AppStanding, AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.policies.demands import claims_of
from rm_plugin.policies.gang_allocator import GangAllocator
from themis.bids import AppReport, GangDemand, PlacedGang, RhoOf
from themis.cluster import Cluster
from themis.fluid_cluster import FluidCluster, FluidPhase, FluidState
from themis.values import Value

_DOUBTED, _OVERRUN, _SLACK_GPU_S = 1.05, 1.25, 600.0
"""Once an app has done more than 1.05 times its declared work plus 600 reference GPU seconds, its declaration was too
small, and it is assumed to need as much again. Beyond 1.25 times, with the same slack, it is served last. Honest
estimates err, and short apps err by whole restarts."""


class MeteredApp(Value, frozen=True, kw_only=True):
    """What an app declared in its first report, and what it has done since.

    Attributes:
        work_gpu_s: The work of all its phases, in reference GPU seconds at S = 1.
        whole_time_s: Seconds that it would take alone on the whole cluster.
        fair_end_s: When it ended on the fluid cluster. None as long as it has not.
        attained_gpu_s: GPU time that it had until the last round.
        done_gpu_s: Work that it did in that time, estimated from where its gangs were placed.
        pace: Work for each GPU second on the gangs that it holds: their speed over S.
    """

    work_gpu_s: float
    whole_time_s: float
    fair_end_s: float | None = None
    attained_gpu_s: float = 0.0
    done_gpu_s: float = 0.0
    pace: float = 1.0

    @property
    def left_gpu_s(self) -> float:
        """Declared work that is not done yet. Of an app that did more than it declared, its whole declaration."""
        if self.done_gpu_s > _DOUBTED * self.work_gpu_s + _SLACK_GPU_S:
            return self.work_gpu_s
        return max(0.0, self.work_gpu_s - self.done_gpu_s)

    @property
    def overran(self) -> bool:
        """Whether it has done far more work than it declared."""
        return self.done_gpu_s > _OVERRUN * self.work_gpu_s + _SLACK_GPU_S

    def after(self, attained_gpu_s: float) -> MeteredApp:
        """The app after the GPU time that it had since the last round."""
        done_gpu_s = self.done_gpu_s + (attained_gpu_s - self.attained_gpu_s) * self.pace
        return replace(self, attained_gpu_s=attained_gpu_s, done_gpu_s=done_gpu_s)


class FairFinishMemory(Value, frozen=True, kw_only=True):
    """The fluid cluster, and the declared work of each active app."""

    fluid: FluidState
    apps: Mapping[str, MeteredApp] = msgspec.field(default_factory=dict)


class FairFinishPolicy:
    """Shortest remaining service first; an app that would miss its fair end gets a gang before."""

    name = "fair_finish"
    rho_of = RhoOf.NO_APP
    memory_type = FairFinishMemory

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Serve the pressed, then all in the order of the service that they have left."""
        fluid, metered = advance(snapshot)
        due_s = due_times_s(fluid, metered)
        claims = claims_of(snapshot, {})
        allocator = GangAllocator(snapshot.machines, claims, snapshot.lease_s)
        known = [claim for claim in claims if claim.app_id in metered]

        pressed = []
        for claim in known:
            app, standing = metered[claim.app_id], snapshot.standing(claim.app_id)
            lateness = lateness_after_lease(
                submitted_at_s=standing.submitted_at_s,
                due_s=due_s[claim.app_id],
                now_s=snapshot.now_s,
                left_s=_time_left_s(app, standing, claim.restart_s),
                lease_s=snapshot.lease_s,
                restart_s=claim.restart_s,
            )
            if lateness is not None and not app.overran:
                pressed.append((-lateness, claim.app_id))

        user_left_gpu_s = _left_by_user(snapshot, metered)

        def service_left(app_id: str) -> tuple[bool, float, float, str]:
            # An app that never reported its phases cannot be metered.
            app = metered.get(app_id)
            if app is None:
                return True, math.inf, math.inf, app_id
            user = snapshot.standing(app_id).owner.user
            return app.overran, user_left_gpu_s.get(user, app.left_gpu_s), app.left_gpu_s, app_id

        in_order = sorted(allocator.claims, key=service_left)
        most_pressed_first = [app_id for _, app_id in sorted(pressed)]
        _renew_certain_winners(snapshot.cluster, allocator, in_order, most_pressed_first)
        for app_id in most_pressed_first:
            job = _longest_job(allocator, app_id)
            if (proposal := allocator.propose(app_id, job)) is not None:
                allocator.take(app_id, job, proposal.gang)
        for app_id in in_order:
            for job in range(len(allocator.jobs(app_id))):
                while (proposal := allocator.propose(app_id, job)) is not None:
                    allocator.take(app_id, job, proposal.gang)

        decision = allocator.decision()
        paces = _paces(snapshot, metered, allocator)
        apps = {app_id: replace(app, pace=paces.get(app_id, app.pace)) for app_id, app in metered.items()}
        return replace(decision, memory=FairFinishMemory(fluid=fluid.state(), apps=apps))


def advance(snapshot: RoundSnapshot) -> tuple[FluidCluster, dict[str, MeteredApp]]:
    """The fluid cluster now, with the apps that reported for the first time; and all active apps, metered until now."""
    memory = snapshot.memory
    if not isinstance(memory, FairFinishMemory):
        memory = FairFinishMemory(fluid=FluidState(gpus=snapshot.cluster.gpus, now_s=0.0))
    fluid, apps = FluidCluster.restored(memory.fluid), dict(memory.apps)
    if memory.fluid.gpus != snapshot.cluster.gpus:
        fluid.resize(snapshot.cluster.gpus, memory.fluid.now_s)
    # What an app did under another policy is not metered: it arrives now, with what it has left.
    attained = {app.app_id: app.attained_gpu_s(snapshot.now_s) for app in snapshot.apps}
    arrived_s = {app.app_id: snapshot.now_s if attained[app.app_id] else app.submitted_at_s for app in snapshot.apps}
    for app_id in sorted(arrived_s, key=lambda app_id: (arrived_s[app_id], app_id)):
        report = snapshot.reports.get(app_id)
        if app_id not in apps and report is not None and report.demands and report.phases_left:
            phases = _declared_phases(report, snapshot.cluster)
            # An app may report late; fluid time does not run back.
            fluid.arrive(app_id, phases, max(arrived_s[app_id], fluid.now_s))
            apps[app_id] = MeteredApp(
                work_gpu_s=report.work_left_gpu_s,
                whole_time_s=math.fsum(phase.time_s for phase in phases),
                attained_gpu_s=attained[app_id],
            )
    fluid.advance(snapshot.now_s)
    metered = {}
    for app in snapshot.apps:
        if app.app_id in apps:
            known = apps[app.app_id].after(attained[app.app_id])
            life = fluid.ended.get(app.app_id)
            metered[app.app_id] = known if life is None else replace(known, fair_end_s=life.ends_s)
    return fluid, metered


def due_times_s(fluid: FluidCluster, metered: Mapping[str, MeteredApp]) -> dict[str, float]:
    """When each app ends on the fluid cluster, or has ended there."""
    due_s = {app_id: life.ends_s for app_id, life in fluid.forecast().items()}
    return due_s | {app_id: app.fair_end_s for app_id, app in metered.items() if app.fair_end_s is not None}


def _declared_phases(report: AppReport, cluster: Cluster) -> tuple[FluidPhase, ...]:
    """The phases that an app has left, on the whole cluster, at the S of its first job's largest gang placed nearest.

    A phase stops getting faster at the GPUs that it keeps busy on average. On a cluster of several types these are a
    share of the cluster, as the first job's speeds see it.
    """
    first = report.demands[0]
    reference_gpus = math.fsum(machine.gpus * first.speeds.on(machine.device) for machine in cluster.machines)
    slowdown = first.slowdown.at(cluster.nearest_level_for(min(first.max_gpus, cluster.gpus)))
    phases = []
    for phase in report.phases_left:
        time_s = phase.time_s(max(1, round(reference_gpus)))
        if time_s > 0.0:
            share = min(1.0, phase.work_gpu_s / time_s / max(1.0, reference_gpus))
            phases.append(FluidPhase(slowdown * time_s, share * cluster.gpus))
    return tuple(phases)


def _time_left_s(app: MeteredApp, standing: AppStanding, restart_s: float) -> float:
    """Seconds that an app still needs with all that it can use, and a restart if it holds nothing."""
    holds = standing.kept or standing.renewable
    share_left = app.left_gpu_s / app.work_gpu_s if app.work_gpu_s > 0.0 else 0.0
    return app.whole_time_s * share_left + (0.0 if holds else restart_s)


def _left_by_user(snapshot: RoundSnapshot, metered: Mapping[str, MeteredApp]) -> dict[str, float]:
    """Declared work that is not done yet, of all active apps of each user. Apps without a user are left out."""
    left_gpu_s: dict[str, float] = {}
    for app in snapshot.apps:
        if app.owner.user and app.app_id in metered:
            left_gpu_s[app.owner.user] = left_gpu_s.get(app.owner.user, 0.0) + metered[app.app_id].left_gpu_s
    return left_gpu_s


def _longest_job(allocator: GangAllocator, app_id: str) -> int:
    """The index of an app's job with the most work left."""
    demands = allocator.jobs(app_id)
    return max(range(len(demands)), key=lambda job: (demands[job].work_left_gpu_s, -job))


def _renew_certain_winners(
    cluster: Cluster, allocator: GangAllocator, in_order: Sequence[str], pressed: Sequence[str]
) -> None:
    """Renew in place the first apps whose whole demand fits in addition to that of the pressed apps.

    Does nothing on a cluster of several device types.
    """
    if len(cluster.gpus_by_device) > 1:
        return
    gang_gpus = {app_id: allocator.jobs(app_id)[_longest_job(allocator, app_id)].max_gpus for app_id in pressed}
    spare_gpus = allocator.free_gpus - sum(gang_gpus.values())
    for app_id in in_order:
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
