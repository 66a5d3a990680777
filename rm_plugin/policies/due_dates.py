"""Due dates: when each app ends on the fluid fair cluster, and how much of its declared work is done by now.

An app declares its phases in its first report, once. `advance` lets it arrive on the fluid cluster then, and from then
on meters what it does. So reports of more or less work later change neither its due date nor the work that it has left.
After a pause it has the same declaration, and what it has done. A first report that rests on a guess is
provisional: when the app knows its pace, it declares what it has left, once. Until then a larger guess replaces a
smaller one, and what the app has done by then counts on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, partial

import msgspec
from msgspec.structs import replace

from rm_plugin.arbiter.fair_finish_order import OVERRUN_LEFT
from rm_plugin.arbiter.round_values import RoundSnapshot
from themis.bids import AppReport
from themis.cluster import Cluster
from themis.fluid_cluster import FluidCluster, FluidPhase, FluidState
from themis.speeds import Speeds
from themis.values import Value

_DOUBTED, _OVERRUN, _SLACK_GPU_S = 1.05, 1.25, 600.0
"""Once an app has done more than 1.05 times its declared work plus 600 reference GPU seconds, its declaration was too
small, and it is assumed to need as much again as it has done. Beyond 1.25 times, with the same slack, it overran: three
times as much again, and it is never pressed. So a lie is paid for before the app ends, and an honest error can be
borne, such as starts of short jobs that take longer than their work."""


class MeteredApp(Value, frozen=True, kw_only=True):
    """What an app declared in its first report, and what it has done since.

    Attributes:
        work_gpu_s: The work of all its phases, in reference GPU seconds at S = 1.
        whole_time_s: Seconds that it would take alone on the whole cluster.
        provisional: Whether this rests on a guess of its pace. Then `work_gpu_s` is the largest guess.
        fair_end_s: When it ended on the fluid cluster. None as long as it has not.
        attained_gpu_s: GPU time that it had until the last round.
        done_gpu_s: Work that it did in that time, estimated from where its gangs were placed.
        pace: Work for each GPU second on the gangs that it holds: their speed over S.
    """

    work_gpu_s: float
    whole_time_s: float
    provisional: bool = False
    fair_end_s: float | None = None
    attained_gpu_s: float = 0.0
    done_gpu_s: float = 0.0
    pace: float = 1.0

    @property
    def left_gpu_s(self) -> float:
        """Declared work that is not done yet. Of an app that did more than it declared, what it is assumed to need."""
        if self.overran:
            return OVERRUN_LEFT * self.done_gpu_s
        if self.done_gpu_s > _DOUBTED * self.work_gpu_s + _SLACK_GPU_S:
            return self.done_gpu_s
        return max(0.0, self.work_gpu_s - self.done_gpu_s)

    @property
    def overran(self) -> bool:
        """Whether it has done far more work than it declared."""
        return self.done_gpu_s > _OVERRUN * self.work_gpu_s + _SLACK_GPU_S

    def after(self, attained_gpu_s: float) -> MeteredApp:
        """The app after the GPU time that it had since the last round: the very same if it had none."""
        if attained_gpu_s == self.attained_gpu_s:
            return self
        done_gpu_s = self.done_gpu_s + (attained_gpu_s - self.attained_gpu_s) * self.pace
        return replace(self, attained_gpu_s=attained_gpu_s, done_gpu_s=done_gpu_s)


class DueDateMemory(Value, frozen=True, kw_only=True):
    """The fluid cluster, and the declared work of each active app.

    `paused` are the apps that declared their work and are paused, or have not reported since they were resumed.
    """

    fluid: FluidState
    apps: Mapping[str, MeteredApp] = msgspec.field(default_factory=dict)
    paused: Mapping[str, MeteredApp] = msgspec.field(default_factory=dict)


def has_overrun(memory: Value | None, app_id: str) -> bool:
    """Whether an app did far more work than it declared, by the memory of the newest round."""
    return isinstance(memory, DueDateMemory) and app_id in memory.apps and memory.apps[app_id].overran


def advance(snapshot: RoundSnapshot) -> tuple[FluidCluster, DueDateMemory]:
    """The fluid cluster now, with the apps that reported for the first time; and its state, with the metered apps."""
    memory = snapshot.memory
    if not isinstance(memory, DueDateMemory):
        memory = DueDateMemory(fluid=FluidState(gpus=snapshot.cluster.gpus, now_s=0.0))
    fluid, apps = FluidCluster.restored(memory.fluid, snapshot.settings.queues), dict(memory.apps)
    if memory.fluid.gpus != snapshot.cluster.gpus:
        fluid.resize(snapshot.cluster.gpus, memory.fluid.now_s)
    # What an app did under another policy is not metered: it arrives now, with what it has left.
    attained = {app.app_id: app.attained_gpu_s(snapshot.now_s) for app in snapshot.apps}
    new = [app for app in snapshot.apps if _declares(apps.get(app.app_id), snapshot.reports.get(app.app_id))]
    arrived_s = {app.app_id: snapshot.now_s if attained[app.app_id] else app.submitted_at_s for app in new}
    away = {**memory.paused, **{app_id: app for app_id, app in apps.items() if app_id not in attained}}
    paused = {app_id: app for app_id, app in away.items() if app_id in snapshot.paused or app_id in attained}
    # Thousands of apps may arrive at once, and most jobs have equal speeds.
    reference_gpus = cache(partial(_reference_gpus, snapshot.cluster))
    for app_id in sorted(arrived_s, key=lambda app_id: (arrived_s[app_id], app_id)):
        report = snapshot.reports[app_id]
        phases = _declared_phases(report, snapshot.cluster, reference_gpus(report.demands[0].speeds))
        # An app may report late; fluid time does not run back.
        at_s = max(arrived_s[app_id], fluid.now_s)
        arrival = _Arrival(
            report=report,
            phases=phases,
            attained_gpu_s=attained[app_id],
            guessed=apps.get(app_id),
            resumed=paused.pop(app_id, None),
        )
        apps[app_id] = arrival.metered()
        fluid.forget(app_id, at_s)
        fluid.arrive(app_id, arrival.fluid_phases(), at_s, owner=snapshot.standing(app_id).owner)
    fluid.advance(snapshot.now_s)
    metered = {}
    for app in snapshot.apps:
        if app.app_id in apps:
            known = apps[app.app_id].after(attained[app.app_id])
            life = fluid.ended.get(app.app_id)
            metered[app.app_id] = known if life is None else replace(known, fair_end_s=life.ends_s)
    return fluid, DueDateMemory(fluid=fluid.state(), apps=metered, paused=paused)


class _Arrival(Value, frozen=True, kw_only=True):
    """An app that declares itself, and so arrives on the fluid cluster: it is new, guessed before, or was paused.

    Attributes:
        report: The report by which it declares itself.
        phases: The phases that this report says it has left.
        attained_gpu_s: GPU time that it has had.
        guessed: What is known of an app that guessed before.
        resumed: What is known of an app that was paused. It is as before the pause: otherwise an app could claim a
            little, do it, pause, and claim a little again.
    """

    report: AppReport
    phases: tuple[FluidPhase, ...]
    attained_gpu_s: float
    guessed: MeteredApp | None
    resumed: MeteredApp | None

    def metered(self) -> MeteredApp:
        """The app from now on."""
        known = self.resumed or self.guessed
        if known is not None and not known.provisional:
            return replace(known.after(self.attained_gpu_s), fair_end_s=None)
        if known is None or not self.report.provisional:
            known = MeteredApp(work_gpu_s=0.0, whole_time_s=0.0, attained_gpu_s=self.attained_gpu_s)
        # A larger guess forgets nothing of what the app has done.
        return replace(
            known,
            work_gpu_s=max(self.report.work_left_gpu_s, known.work_gpu_s),
            whole_time_s=math.fsum(phase.time_s for phase in self.phases),
            provisional=self.report.provisional,
            fair_end_s=None,
        )

    def fluid_phases(self) -> tuple[FluidPhase, ...]:
        """Its phases on the fluid cluster. Of a resumed app they hold all work left: no pause makes it due earlier."""
        reported_gpu_s = self.report.work_left_gpu_s
        if self.resumed is None or reported_gpu_s <= 0.0:
            return self.phases
        longer = max(1.0, self.metered().left_gpu_s / reported_gpu_s)
        return tuple(replace(phase, time_s=longer * phase.time_s) for phase in self.phases)


def _declares(known: MeteredApp | None, report: AppReport | None) -> bool:
    """Whether a report is an app's declaration: the first one, a larger guess, or the first one that is no guess."""
    if known is not None and not known.provisional:
        return False
    if report is None or not report.demands or not report.phases_left:
        return False
    return known is None or not report.provisional or report.work_left_gpu_s > known.work_gpu_s


def due_times_s(fluid: FluidCluster, metered: Mapping[str, MeteredApp], until_s: float = math.inf) -> dict[str, float]:
    """Play the fluid cluster until a time. Returns when each app ends there that does so by then, or has done so."""
    fluid.play(until_s)
    due_s = {app_id: life.ends_s for app_id, life in fluid.ended.items()}
    return due_s | {app_id: app.fair_end_s for app_id, app in metered.items() if app.fair_end_s is not None}


def _reference_gpus(cluster: Cluster, speeds: Speeds) -> float:
    """The GPUs of the whole cluster as a job of these speeds sees them."""
    return math.fsum(machine.gpus * speeds.on(machine.device) for machine in cluster.machines)


def _declared_phases(report: AppReport, cluster: Cluster, reference_gpus: float) -> tuple[FluidPhase, ...]:
    """The phases that an app has left, on the whole cluster, at the S of its first job's largest gang placed nearest.

    A phase stops getting faster at the GPUs that it keeps busy on average. On a cluster of several types these are a
    share of the cluster, as the first job's speeds see it.
    """
    first = report.demands[0]
    slowdown = first.slowdown.at(cluster.nearest_level_for(min(first.max_gpus, cluster.gpus)))
    phases = []
    for phase in report.phases_left:
        time_s = phase.time_s(max(1, round(reference_gpus)))
        if time_s > 0.0:
            share = min(1.0, phase.work_gpu_s / time_s / max(1.0, reference_gpus))
            phases.append(FluidPhase(slowdown * time_s, share * cluster.gpus))
    return tuple(phases)
