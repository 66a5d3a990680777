"""What the service believes of an app's reports and bids. Pure: claims and facts go in, believed claims come out.

An app master belongs to a user, who may change it. So its claims count only as far as nothing speaks against them. The
service knows the specification, the leases, the metered GPU time, N_avg, and the time since the submission. What goes
beyond these facts is cut to them, and a note says what was cut. An honest report or bid is cut by rule 2 for reports
alone, and never below what the app can use (`tests/property/test_honest_claims.py`).

Rules for reports:
    1. Each job demands once, in its own unit, and at most what its specification allows beyond the gang that it holds.
    2. All demands and the GPUs that the app keeps are together at most the GPUs that all its jobs can use.
    3. A gang that a job is said to hold must be among the app's leases.
    4. A restart costs at most a lease, or a minute. S is at most `MAX_SLOWDOWN`. Speeds are within `MAX_SPEED_ERROR`
       times of the specification's.
    5. Phases have at most the jobs of the app, and gangs of its largest job.
    6. An app declares the work of its whole search, and may declare more until half of that is metered
       (`is_declared_anew`). One that overran its declaration has at least as much work left as it has had.
    7. t_ideal is at least N_avg times the time of the work left, or of what the meter has seen, on all usable GPUs. For
       an app that overran, the two are added.
    8. t_shared is at most the time since the submission, plus a restart, a lease, and the time of the work left on the
       fair share of the GPUs that are not lost, by the app's own S.
    9. No job demands more than the engine is believed to grant (`grant_limit`).

Rules for bids:
    1. A row asks for at most the GPUs that the app can use and the engine is believed to grant, in gangs that one of
       its jobs can use.
    2. 1/rho of a row is at most that of the work left on all its GPUs, without any loss.
    3. The empty bundle is worth what the report said.

Example: an app of one job on up to 4 GPUs, of which it holds 3, claims that it could use 64 more. It is believed to
demand one. It then claims rho 1000, 60 s after its submission, with 400 GPU seconds left. N_avg is 2 on 8 GPUs, and
leases last 600 s. So t_ideal is at least 2 * 400 / 1.05 / 4 = 190 s. The share is 4 GPUs: t_shared is at most 60 +
1.25 * 600 + 1.25 * 400 / 4 s = 935 s, and rho at most 4.9.

What is not checked here is private to the app, such as S below its bound or a forecast of its loss. Hidden payments
(NSDI'20, section 5.2) make lies about that unprofitable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from themis.apps import AppSpec, JobShape, Slowdown
from themis.bids import AppReport, Bid, BidRow, GangDemand, PhaseLeft
from themis.choices import BundleRule
from themis.cluster import Allocation, Cluster, Level
from themis.speeds import speed_on
from themis.sums import sum_in_order
from themis.values import Value, cached_property

MAX_SLOWDOWN = 10.0
"""The largest S that is believed. Gangs that are slower than this on many machines would not be spread."""

MAX_SPEED_ERROR = 10.0
"""How many times higher or lower than the specification's speeds a measured one is believed to be."""

SLOW_RESTART_S = 60.0
"""A restart of this time is believed also if leases are shorter, as in tests: a busy machine starts programs slowly."""

OVERRUN, SLACK_GPU_S = 1.25, 600.0
"""An app overran its declaration if the meter shows more than 1.25 times as much, plus 600 reference GPU seconds.
Honest estimates err, and short apps err by whole restarts. The policy `fair_finish` has the same factor."""

_OPEN_SHARE = 0.5
"""An app may declare more work until this share of its declaration is metered. An honest app knows the pace of its jobs
by then. So an app that declares more again and again must each time declare as much left as it has had."""

_DECLARED_AGAIN = 1.05
"""A declaration is replaced by one that is larger by this factor. Each is written to the store."""

_METERED_SLOWDOWN = 1.5
"""The largest S by which metered GPU time counts as less work. An app could claim any."""

WITHIN_APP = "has as many GPUs as all its jobs can use"
"""In the note of a cut that an honest app master meets, too: while a job moves, it demands GPUs that it has already."""

NOT_GRANTED = "the engine would not grant it"
"""In the note of a cut that an honest app meets, too: it does not know what the engine grants."""

_MIN_MEAN_PACE = 0.5
"""Work for a metered GPU second that is surely done, as a share of that at the lowest speed and the worst S. The rest
is left for starts, and for work that is lost with a task."""

_CLAIMED_IDEAL = 1 / 1.05
"""Share of the work left that t_ideal must hold. An app master declares its work again once it has seen 5 % more
(`REESTIMATE` of `am.app_view`), so the work left is at most that."""

_PATIENCE = 1.25
"""How much longer than a lease an app may expect to wait."""

_UNKNOWN_SLOWDOWN = Slowdown(1.25, 1.25, 1.25, 1.25)
"""S of a job of which nothing else is known."""

_EMPTY_SHARE = 0.9
"""Share of 1/rho of the report that the empty bundle is worth at least. Jobs go on between report and bid."""

_MARGIN = 1.0 + 1e-6
"""Room for rounding."""


class AppFacts(Value, frozen=True, dict=True, kw_only=True):
    """What the service knows of an app when a round asks it.

    Attributes:
        spec: Its specification.
        cluster: All machines.
        available_gpus: All GPUs but those of lost machines, as they were sent to apps. Fair shares are parts of them.
        free_gpus: GPUs on offer, renewable ones included.
        kept: GPUs that the app has beyond this round.
        elapsed_s: Seconds since its submission.
        attained_gpu_s: GPU time that it has had, as metered from its leases.
        contention: N_avg, as it was sent to the app.
        active_apps: The number of active apps.
        lease_s: Seconds of a lease.
        rule: How the values of bundles count time after a lease.
        claimed_gpu_s: The work of its whole search that it declared, in reference GPU seconds; None before its first
            report.
        grantable_gpus: The most GPUs that the engine is believed to grant it; None without a limit.
    """

    spec: AppSpec
    cluster: Cluster
    available_gpus: int
    free_gpus: int
    kept: Allocation
    elapsed_s: float
    attained_gpu_s: float
    contention: float
    active_apps: int
    lease_s: float
    rule: BundleRule
    claimed_gpu_s: float | None = None
    grantable_gpus: int | None = None

    @property
    def room_gpus(self) -> float:
        """The GPUs that the engine is believed to grant it beyond those that it keeps."""
        return math.inf if self.grantable_gpus is None else self.grantable_gpus - self.kept.gpus

    @cached_property
    def shapes(self) -> Mapping[str, JobShape]:
        """The shapes of its jobs."""
        return {job.job_id: job.shape for job in self.spec.jobs}

    @cached_property
    def usable_gpus(self) -> int:
        """The most GPUs on offer that it can use."""
        return min(self.free_gpus, self.spec.demand_max_gpus)

    @cached_property
    def max_gang_gpus(self) -> int:
        """The most GPUs that one of its jobs can use."""
        return max(shape.demand_max_gpus for shape in self.shapes.values())

    @cached_property
    def speeds(self) -> tuple[float, float]:
        """The lowest and the highest speed of its jobs on present devices, by specification and cluster; 1 if none."""
        known = [speed_on(job, device) for job in self.spec.jobs for device in self.cluster.present_devices]
        usable = [speed for speed in known if speed > 0.0] or [1.0]
        return min(usable), max(usable)


Cuts = tuple[str, ...]
"""What was cut from a claim, in words for the log. Empty if all of it is believed."""


# ---- reports --------------------------------------------------------------------------------------------------------


def checked_report(report: AppReport, facts: AppFacts) -> tuple[AppReport, Cuts]:
    """Return a report as far as it is believed, and what was cut.

    Args:
        report: The answer to the round's question. Its jobs must be jobs of the app (`message_checks`).
        facts: What the service knows of the app.
    """
    content = checked_content(report, facts)
    return content.believed(report, facts.contention, facts.elapsed_s, facts.active_apps)


def checked_content(report: AppReport, facts: AppFacts) -> CheckedContent:
    """Check all of a report but its times; see `checked_report`."""
    cuts: list[str] = []
    demands = _checked_demands(report.demands, facts, cuts)
    phases = _checked_phases(report.phases_left, facts, cuts)
    used_gpu_s = metered_gpu_s(facts, demands)
    demands, phases = _checked_work(demands, phases, used_gpu_s, facts, cuts)
    restart_s = min(report.restart_s, max(facts.lease_s, SLOW_RESTART_S))
    if restart_s < report.restart_s:
        cuts.append(f"a restart of {report.restart_s:g} s, {restart_s:g} s is believed")
    if not cuts:
        demands, phases = report.demands, report.phases_left
    return CheckedContent(
        demands=demands,
        phases_left=phases,
        restart_s=restart_s,
        used_gpu_s=used_gpu_s,
        cuts=tuple(cuts),
        bounds=_bounds(demands, phases, used_gpu_s, facts),
    )


class CheckedContent(Value, frozen=True, kw_only=True):
    """What is believed of a report but for its times, and bounds on these.

    It holds for every later report of the same demands, work left and restart, as long as no fact of the app changes
    but N_avg, the time, and the number of active apps: those are arguments of `believed`.

    Example: an app waits for an hour and nothing happens to it. Its content is checked in the first round. In later
    rounds only its rho is compared with the bounds.

    `used_gpu_s` is what is metered of the work of the app (`metered_gpu_s`).
    """

    demands: tuple[GangDemand, ...]
    phases_left: tuple[PhaseLeft, ...]
    restart_s: float
    used_gpu_s: float
    cuts: Cuts
    bounds: _Bounds

    def believed(
        self, report: AppReport, contention: float, elapsed_s: float, active_apps: int
    ) -> tuple[AppReport, Cuts]:
        """Return a report of this content as far as it is believed, and what was cut.

        The rho of an app without demands is shown only, and that as it is.
        """
        if self.cuts:
            report = replace(report, demands=self.demands, phases_left=self.phases_left, restart_s=self.restart_s)
        if not report.demands or math.isnan(report.rho):
            return report, self.cuts
        ideal_s, shared_s = report.t_ideal_s, report.t_shared_s
        if (min_s := self.bounds.min_ideal_s(contention)) > ideal_s * _MARGIN:
            ideal_s = min_s
        if (max_s := self.bounds.max_shared_s(elapsed_s, self.restart_s, active_apps)) * _MARGIN < shared_s:
            shared_s = max_s
        rho = shared_s / ideal_s if ideal_s > 0.0 else math.inf
        if rho == report.rho or math.isclose(rho, report.rho, rel_tol=1e-6) or math.isnan(rho):
            return report, self.cuts
        cut = f"rho {report.rho:g}, {rho:g} is believed"
        return replace(report, rho=rho, t_ideal_s=ideal_s, t_shared_s=shared_s), (*self.cuts, cut)


def _checked_demands(demands: Iterable[GangDemand], facts: AppFacts, cuts: list[str]) -> tuple[GangDemand, ...]:
    believed: dict[str, GangDemand] = {}
    for demand in demands:
        if demand.job_id in believed:
            cuts.append(f"a second demand of {demand.job_id}")
            continue
        checked = _checked_demand(demand, facts)
        if checked != demand:
            cuts.append(f"the demand of {demand.job_id} for {demand.max_gpus} GPUs")
        if checked is not None:
            believed[demand.job_id] = checked
    return _within_app(_grantable(believed, facts, cuts), facts, cuts)


def _grantable(demands: Mapping[str, GangDemand], facts: AppFacts, cuts: list[str]) -> dict[str, GangDemand]:
    """Return the demands as far as the engine is believed to grant each of them (rule 9)."""
    grantable: dict[str, GangDemand] = {}
    for job_id, demand in demands.items():
        if demand.max_gpus > facts.room_gpus:
            cuts.append(f"the demand of {job_id} for {demand.max_gpus} GPUs: {NOT_GRANTED}")
            if demand.min_gpus > facts.room_gpus:
                continue
            units = int(facts.room_gpus - demand.min_gpus) // demand.unit_gpus
            demand = replace(demand, max_gpus=demand.min_gpus + units * demand.unit_gpus)
        grantable[job_id] = demand
    return grantable


def _checked_demand(demand: GangDemand, facts: AppFacts) -> GangDemand | None:
    """Return a demand within its job's specification, or None if the job can use no more than it holds."""
    shape = facts.shapes[demand.job_id]
    kept = facts.kept.by_machine()
    held = demand.held
    if any(gpus > kept.get(machine, 0) for machine, gpus in held):
        held = Allocation.of({machine: min(gpus, kept.get(machine, 0)) for machine, gpus in held})
    unit = shape.gpus_per_task
    most = shape.demand_max_gpus - held.gpus
    least = max(unit, shape.demand_min_gpus - held.gpus)
    if most < least:
        return None
    max_gpus = max(least, min(demand.max_gpus, most))
    slowdown = _checked_slowdown(demand.slowdown)
    min_gpus = max(least, min(demand.min_gpus, max_gpus))
    if (held, unit, max_gpus, min_gpus, slowdown) == (
        demand.held,
        demand.unit_gpus,
        demand.max_gpus,
        demand.min_gpus,
        demand.slowdown,
    ):
        return demand
    return replace(demand, held=held, unit_gpus=unit, max_gpus=max_gpus, min_gpus=min_gpus, slowdown=slowdown)


def _checked_slowdown(slowdown: Slowdown) -> Slowdown:
    if slowdown.cluster <= MAX_SLOWDOWN:
        return slowdown
    factors = (slowdown.slot, slowdown.machine, slowdown.rack, slowdown.cluster)
    return Slowdown(*[min(factor, MAX_SLOWDOWN) for factor in factors])


def _within_app(demands: Mapping[str, GangDemand], facts: AppFacts, cuts: list[str]) -> tuple[GangDemand, ...]:
    """Cut demands so that the app gets at most the GPUs of all its jobs, those that it keeps included.

    Kept GPUs on which a job cannot run, as they are what is left of its gang, do not count.
    """
    anew = [facts.shapes[job_id] for job_id, demand in demands.items() if not demand.held.counts]
    unusable = _unusable_gpus(anew, facts.kept)
    wanted = sum(demand.max_gpus for demand in demands.values())
    excess = facts.kept.gpus + wanted - facts.spec.demand_max_gpus - unusable
    believed = list(demands.values())
    while believed and excess > 0:
        last = believed.pop()
        less = last.max_gpus - math.ceil(excess / last.unit_gpus) * last.unit_gpus
        if less >= last.min_gpus:
            believed.append(replace(last, max_gpus=less))
        excess -= last.max_gpus
        cuts.append(f"the demand of {last.job_id}: the app {WITHIN_APP}")
    return tuple(believed)


def _unusable_gpus(shapes: Sequence[JobShape], kept: Allocation) -> int:
    """The most kept GPUs on which no job can run: gangs of too few tasks, and parts of tasks on a machine."""
    if not shapes:
        return 0
    task_gpus = max(shape.gpus_per_task for shape in shapes)
    parts = sum(count % task_gpus for _, count in kept)
    return parts + sum((shape.min_tasks - 1) * shape.gpus_per_task for shape in shapes)


def _checked_phases(phases: tuple[PhaseLeft, ...], facts: AppFacts, cuts: list[str]) -> tuple[PhaseLeft, ...]:
    max_jobs, max_gpus = len(facts.shapes), facts.max_gang_gpus
    believed = []
    for phase in phases:
        jobs, gang_gpus = min(phase.jobs, max_jobs), min(phase.gang_gpus, max_gpus)
        longest = min(phase.longest_gpu_s, phase.work_gpu_s)
        if longest * _MARGIN < phase.longest_gpu_s or (jobs, gang_gpus) != (phase.jobs, phase.gang_gpus):
            phase = replace(phase, jobs=jobs, gang_gpus=gang_gpus, longest_gpu_s=longest)
            cuts.append(f"a phase of {phase.jobs} jobs")
        believed.append(phase)
    return tuple(believed)


def _checked_work(
    demands: tuple[GangDemand, ...],
    phases: tuple[PhaseLeft, ...],
    used_gpu_s: float,
    facts: AppFacts,
    cuts: list[str],
) -> tuple[tuple[GangDemand, ...], tuple[PhaseLeft, ...]]:
    """Return the work left of an app that overran its declaration as at least what it has had."""
    left_gpu_s = sum_in_order(phase.work_gpu_s for phase in phases)
    if not _overran(facts, used_gpu_s) or left_gpu_s >= used_gpu_s or not phases:
        return demands, phases
    cuts.append(f"{left_gpu_s:g} GPU s left after {used_gpu_s:g}, more than the {facts.claimed_gpu_s:g} it declared")
    share = used_gpu_s / len(demands) if demands else 0.0
    first = replace(phases[0], work_gpu_s=used_gpu_s, longest_gpu_s=max(phases[0].longest_gpu_s, share))
    more = [replace(each, work_left_gpu_s=max(each.work_left_gpu_s, share)) for each in demands]
    return tuple(more), (first, *phases[1:])


def is_declared_anew(
    declared_gpu_s: float | None,
    used_gpu_s: float,
    left_gpu_s: float,
    *,
    was_guess: bool = False,
    is_guess: bool = False,
) -> bool:
    """Return whether the work of a report, done and left, replaces what its app has declared.

    Example: an app declares 10,000 GPU seconds. After 3,000 it reports that 12,000 are left: it has declared 15,000.
    After 6,000 more it reports that 20,000 are left. That changes nothing, as more than half of 15,000 is metered.

    Args:
        declared_gpu_s: The work of the whole search that it has declared; None before its first report.
        used_gpu_s: What is metered of it (`metered_gpu_s`).
        left_gpu_s: The work left by the report.
        was_guess: Whether the declaration is a guess, because the pace of a job was unknown.
        is_guess: Whether the report is one.
    """
    if declared_gpu_s is None:
        return True
    if is_guess:
        # As under `fair_finish`. With what was done, each report of an app that guesses for ever would be larger.
        return was_guess and left_gpu_s > declared_gpu_s and not _has_overrun(declared_gpu_s, used_gpu_s)
    is_open = used_gpu_s < _OPEN_SHARE * declared_gpu_s
    return was_guess or (is_open and used_gpu_s + left_gpu_s > _DECLARED_AGAIN * declared_gpu_s)


def _has_overrun(declared_gpu_s: float, used_gpu_s: float) -> bool:
    return used_gpu_s > OVERRUN * declared_gpu_s + SLACK_GPU_S


def metered_gpu_s(facts: AppFacts, demands: Iterable[GangDemand] = ()) -> float:
    """Return the work that the metered GPU time did if little of it was lost, in reference GPU seconds."""
    slowdown = min(_worst_slowdown(facts, demands, Level.CLUSTER), _METERED_SLOWDOWN)
    return facts.attained_gpu_s * facts.speeds[0] / slowdown


def _overran(facts: AppFacts, used_gpu_s: float) -> bool:
    declared = facts.claimed_gpu_s
    return declared is not None and _has_overrun(declared, used_gpu_s)


def surely_done_gpu_s(facts: AppFacts, demands: Iterable[GangDemand] = ()) -> float:
    """Return the work that the metered GPU time did at the least, in reference GPU seconds."""
    return facts.attained_gpu_s * facts.speeds[0] * _MIN_MEAN_PACE / _worst_slowdown(facts, demands, Level.CLUSTER)


def _worst_slowdown(facts: AppFacts, demands: Iterable[GangDemand], level: Level) -> float:
    """The worst S at a level, by the specification and by the app."""
    known = facts.spec.estimate.slowdown or _UNKNOWN_SLOWDOWN
    return max([known.at(level), *[demand.slowdown.at(level) for demand in demands]])


class _Bounds(Value, frozen=True, kw_only=True):
    """Bounds on the times of a report, from the work left and what is known of the app.

    Attributes:
        work_gpu_s: The least work of the whole search.
        usable_gpus: All GPUs that the app can use, each by the highest speed.
        phases_left: The work left.
        cluster: All machines.
        available_gpus: The GPUs that apps share.
        shapes: The different shapes of its jobs.
        slowdown: The worst S of its jobs at each level.
        lowest_speed: The lowest speed of its jobs.
        lease_s: Seconds of a lease.
        rule: How the values of bundles count time after a lease.
    """

    work_gpu_s: float
    usable_gpus: float
    phases_left: tuple[PhaseLeft, ...]
    cluster: Cluster
    available_gpus: int
    shapes: tuple[JobShape, ...]
    slowdown: Slowdown
    lowest_speed: float
    lease_s: float
    rule: BundleRule

    def min_ideal_s(self, contention: float) -> float:
        """N_avg times the time of the work on all usable GPUs."""
        return max(1.0, contention) * self.work_gpu_s / self.usable_gpus

    def max_shared_s(self, elapsed_s: float, restart_s: float, active_apps: int) -> float:
        """The latest end of the work left: an idle lease, then all phases on the fair share or the smallest gang.

        While the last job of a phase waits, all gangs work on the others. So it begins after at most the time of the
        work of the others on all gangs. Later phases run on no more GPUs than the first, as in `am.agent.model`.
        """
        if self.rule is BundleRule.LEXICOGRAPHIC:
            return math.inf
        share_gpus = max(1, self.available_gpus) / active_apps
        smallest_gpus = max([shape.demand_min_gpus for shape in self.shapes])
        gpus: float = max(smallest_gpus, int(share_gpus))
        level = Level.SLOT
        if self.rule is BundleRule.IDLE_THEN_SHARE:
            # What it keeps counts to its end, not for a lease only.
            gpus, level = min([shape.demand_min_gpus for shape in self.shapes]), Level.CLUSTER
        left_s = 0.0
        for phase in self.phases_left:
            gpus, gangs, nearest = self._gangs(phase.jobs, gpus)
            level = max(level, nearest)
            left_s += self.slowdown.at(level) * (phase.work_gpu_s + (gangs - 1) * phase.longest_gpu_s) / gpus
        share_s = left_s / self.lowest_speed * max(1.0, smallest_gpus / share_gpus)
        return elapsed_s + restart_s + _PATIENCE * self.lease_s + share_s

    def _gangs(self, jobs: int, gpus: float) -> tuple[float, float, Level]:
        """The GPUs in use, their gangs, and the level of the largest if `gpus` are split evenly over a phase's jobs.

        Of unlike jobs or devices it is believed that one job runs at a time, on what the smallest can use, far apart.
        """
        if len(self.shapes) == len(self.cluster.gpus_by_device) == 1:
            (shape,) = self.shapes
            tasks = int(gpus) // shape.gpus_per_task
            gangs = min(jobs, tasks // shape.min_tasks)
            tasks = min(tasks, gangs * shape.tasks)
            largest_gpus = math.ceil(tasks / gangs) * shape.gpus_per_task
            return tasks * shape.gpus_per_task, gangs, self.cluster.nearest_level_for(largest_gpus)
        return max(1.0, min([gpus, *[shape.demand_max_gpus for shape in self.shapes]])), 1.0, Level.CLUSTER


def _bounds(
    demands: tuple[GangDemand, ...], phases: tuple[PhaseLeft, ...], used_gpu_s: float, facts: AppFacts
) -> _Bounds:
    """The bounds. The work is at least a share of what is left, and what was done."""
    lowest, highest = _speeds(demands, facts)
    left_gpu_s = math.fsum(phase.work_gpu_s for phase in phases)
    done_gpu_s = (surely_done_gpu_s(facts, demands) - SLACK_GPU_S) / OVERRUN
    if _overran(facts, used_gpu_s):
        done_gpu_s = left_gpu_s + used_gpu_s
    return _Bounds(
        work_gpu_s=max(_CLAIMED_IDEAL * left_gpu_s, done_gpu_s),
        usable_gpus=min(facts.cluster.gpus, facts.spec.demand_max_gpus) * highest,
        phases_left=phases,
        cluster=facts.cluster,
        available_gpus=facts.available_gpus,
        shapes=tuple(dict.fromkeys(facts.shapes.values())),
        slowdown=Slowdown(*[_worst_slowdown(facts, demands, level) for level in Level]),
        lowest_speed=lowest,
        lease_s=facts.lease_s,
        rule=facts.rule,
    )


def _speeds(demands: Iterable[GangDemand], facts: AppFacts) -> tuple[float, float]:
    """The lowest and the highest speed on present devices, as the specification says or as the app measured it."""
    present = facts.cluster.gpus_by_device
    measured = [speed for demand in demands for device, speed in demand.speeds.by_type if device in present]
    lowest, highest = facts.speeds
    # Speeds may be relative to that on the type of the gang that the job holds.
    ratio = MAX_SPEED_ERROR * max(highest, 1.0) / min(lowest, 1.0)
    return max(min([lowest, *measured]), 1.0 / ratio), min(max([highest, *measured]), ratio)


# ---- bids -----------------------------------------------------------------------------------------------------------


def checked_bid(bid: Bid, report: AppReport, facts: AppFacts) -> tuple[Bid, Cuts]:
    """Return a bid as far as it is believed, and what was cut.

    Args:
        bid: The answer to the round's offer.
        report: The app's report of the same round, as far as it is believed.
        facts: What the service knows of the app.
    """
    cuts: list[str] = []
    rows = []
    # A round has thousands of rows: what is the same for all of an app is computed once.
    work_left_gpu_s, speed = report.work_left_gpu_s, _speeds(report.demands, facts)[1]
    kept_gpus, share_gpus = facts.kept.gpus, facts.cluster.gpus / facts.active_apps
    for row in bid.rows:
        gpus = row.gpus
        problem = _problem_of_row(row, gpus, facts)
        if problem:
            cuts.append(problem)
            continue
        # t_ideal over the least possible time: the work left on these GPUs and those kept, or on the fair share.
        left_s = work_left_gpu_s / (speed * max(kept_gpus + gpus, share_gpus))
        most = report.t_ideal_s / max(1e-9, facts.elapsed_s + left_s)
        if row.value > most * _MARGIN:
            cuts.append(f"a row of {gpus} GPUs of value {row.value:g}, {most:g} is believed")
            row = replace(row, value=most)
        rows.append(row)
    empty_value = max(bid.empty_value, _min_empty_value(bid, report))
    if empty_value > bid.empty_value:
        cuts.append(f"an empty bundle of value {bid.empty_value:g}, the report says {empty_value:g}")
    if not cuts:
        return bid, ()
    return replace(bid, rows=tuple(rows), empty_value=empty_value), tuple(cuts)


def _problem_of_row(row: BidRow, gpus: int, facts: AppFacts) -> str:
    """Return why a row of this many GPUs cannot be meant, or nothing."""
    if gpus > facts.usable_gpus:
        return f"a row of {gpus} GPUs, more than are on offer or than the app can use"
    if gpus > facts.room_gpus:
        return f"a row of {gpus} GPUs: {NOT_GRANTED}"
    if max([gang.gpus for gang in row.gangs], default=0) > facts.max_gang_gpus:
        return "a gang that is larger than any job's"
    if sum([gang.count for gang in row.gangs]) > len(facts.shapes):
        return "more gangs than the app has jobs"
    return ""


def _min_empty_value(bid: Bid, report: AppReport) -> float:
    """Most of 1/rho of the report, of which the empty bundle is the value; 0 if either is none."""
    if bid.empty_value <= 0.0 or not 0.0 < report.rho < math.inf:
        return 0.0
    return _EMPTY_SHARE / report.rho
