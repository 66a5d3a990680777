"""The policies `oef` and `oef_noncooperative`: efficiency with fairness on GPUs of several types (Middleware'24).

A round of OEF begins when leases end: all their GPUs are divided again, and deviations count. GPUs that come free
between such rounds go to the tenants with the largest claims until the leases end. They do not count in deviations.

    0. with profiling runs: apps whose speeds were not measured yet get a lease on the next type (oef_profiles.py)
    1. tenants with speedups from the demands, or from the profiles (oef_tenants.py)
    2. fair shares, if a tenant, speedup, weight, demand or capacity changed (oef/evaluator.py)
    3. whole GPUs by tenant and type (oef/rounding.py)
    4. jobs that run on them, longest starved apps first, and their places (oef_gangs.py)
    5. GPUs that are left go to the tenants with the largest backlogs that can use them: no usable GPU is idle
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from rm_plugin.arbiter.leftovers import AppDemand
from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from rm_plugin.policies.demands import app_demands_of, capacity_after, gangs_of
from rm_plugin.policies.gang_allocator import GangAllocator
from rm_plugin.policies.oef.decision import OefMemory, with_fair_shares
from rm_plugin.policies.oef.evaluator import Rule
from rm_plugin.policies.oef.profiling import Profiles, ProfileState
from rm_plugin.policies.oef.rounding import Shares, Whole, grant_claims, settle_claims
from rm_plugin.policies.oef_explanation import explain_app
from rm_plugin.policies.oef_figures import RoundCounts, figures_of
from rm_plugin.policies.oef_gangs import Gangs, choose_jobs, place_gangs
from rm_plugin.policies.oef_profiles import present_types, start_runs, updated_profiles
from rm_plugin.policies.oef_tenants import TenantsOfRound, counts_by_type, tenants_of, types_of
from rm_plugin.policies.port import Explanation, Figure
from themis.bids import PlacedGang, RhoOf
from themis.cluster import Allocation
from themis.values import Value


class OefPolicyMemory(Value, frozen=True, kw_only=True):
    """What OEF remembers between rounds.

    Attributes:
        rule: The name of the policy that wrote it. Another one computes the shares again, and keeps the deviations.
        types: Device types, the slowest first. All vectors are in this order.
        shares: Fair shares and deviations by virtual tenant.
        speedups: Speedup vectors by app.
        tenants: Virtual tenants by app.
        starved: Rounds since an app last had GPUs, for apps that wait.
        profiles: Profiles by app, with profiling runs.
        counts: Counts of the newest round in which leases ended, and totals, for operators.
    """

    rule: str
    types: tuple[str, ...]
    shares: OefMemory
    speedups: Mapping[str, tuple[float, ...]] = msgspec.field(default_factory=dict)
    tenants: Mapping[str, str] = msgspec.field(default_factory=dict)
    starved: Mapping[str, int] = msgspec.field(default_factory=dict)
    profiles: Profiles = msgspec.field(default_factory=dict)
    counts: RoundCounts = msgspec.field(default_factory=RoundCounts)

    @property
    def runs(self) -> Mapping[str, str]:
        """The job by app whose bound leases are profiling runs: they end with their time."""
        return {app_id: profile.job_id for app_id, profile in self.profiles.items() if profile.job_id}


class OefPolicy:
    """OEF under one of its modes, or a baseline's rule in its place.

    Args:
        name: The name of the policy.
        rule: From `rule_named`.
    """

    rho_of = RhoOf.NO_APP
    memory_type = OefPolicyMemory

    def __init__(self, name: str, rule: Rule) -> None:
        self.name = name
        self._rule = rule

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Decide a round, in the steps of this module."""
        memory = self._memory(snapshot)
        app_demands = _by_starvation(snapshot, app_demands_of(snapshot, {}), memory.starved)
        # Step 0: profiling runs. What they leave of the GPUs is shared.
        rest, runs, profiles = self._profiled(snapshot, memory, app_demands)
        memory = replace(memory, profiles=profiles or {})
        # Step 1: the tenants.
        tenants = tenants_of(rest, memory.speedups, profiles, memory.tenants)
        if tenants.instance is None:
            # No app has a profile yet, or none has or wants a GPU that there is.
            return replace(_fill(rest, app_demands, {}, runs), memory=memory if snapshot.apps else None)
        # Step 2: their fair shares.
        former = replace(memory.shares, deviation=_carried_over(memory, tenants.by_app))
        fair, shares = with_fair_shares(former, tenants.instance, self._rule)
        if fair is not None:
            memory = replace(memory, counts=replace(memory.counts, programmes=memory.counts.programmes + 1))
        # Step 3: whole GPUs.
        owed = tenants.claims(shares.share, shares.deviation)
        granted = grant_claims(tenants.offered, owed, tenants.limits)
        # Step 4: jobs, and their places.
        gangs = place_gangs(rest, choose_jobs(app_demands, granted, tenants.by_app, memory.types))
        # Step 5: what is left, to the largest backlog first.
        backlog = _backlog(owed, _used(snapshot, gangs_of(gangs), tenants, memory.types))
        first = sorted(app_demands, key=lambda app_demand: -backlog.get(tenants.by_app.get(app_demand.app_id, ""), 0.0))
        decision = _fill(rest, first, gangs, runs)
        return replace(decision, memory=self._after(snapshot, memory, tenants, shares, owed, decision))

    def explain(self, memory: Value, app_id: str) -> Explanation:
        """Return an app's tenant, speedups, fair share and what it is owed."""
        if not isinstance(memory, OefPolicyMemory):
            return ()
        return explain_app(
            app_id,
            types=memory.types,
            shares=memory.shares,
            tenants=memory.tenants,
            speedups=memory.speedups,
            starved=memory.starved,
            profile=memory.profiles.get(app_id),
        )

    def figures(self, memory: Value) -> tuple[Figure, ...]:
        """Return efficiency, sharing incentive, envy, deviations and starvation."""
        if not isinstance(memory, OefPolicyMemory):
            return ()
        return figures_of(memory.types, memory.shares, memory.starved, memory.profiles, memory.counts)

    def _profiled(
        self, snapshot: RoundSnapshot, memory: OefPolicyMemory, app_demands: Sequence[AppDemand]
    ) -> tuple[RoundSnapshot, Gangs, Profiles | None]:
        """Start profiling runs. Returns what they leave of the round, their gangs, and the profiles.

        Without profiling runs in the settings there are no profiles, and nothing is taken.
        """
        if not snapshot.settings.profiling_runs:
            return snapshot, {}, None
        present = present_types(snapshot, memory.types)
        profiles = updated_profiles(snapshot, memory.profiles, present, short_apps=False)
        earliest_first = sorted(
            app_demands, key=lambda each: (snapshot.standing(each.app_id).submitted_at_s, each.app_id)
        )
        runs, profiles = start_runs(snapshot, earliest_first, profiles, memory.types)
        machines = capacity_after(snapshot.machines, gangs_of(runs)).machines()
        return replace(snapshot, machines=machines), runs, profiles

    def _memory(self, snapshot: RoundSnapshot) -> OefPolicyMemory:
        """The memory of the last round for the present types and rule; an empty one in the first round.

        If types or the rule changed, shares are computed again. Deviations of the types that are still there count on.
        """
        types, memory = types_of(snapshot.cluster), snapshot.memory
        if not isinstance(memory, OefPolicyMemory):
            return OefPolicyMemory(rule=self.name, types=types, shares=OefMemory())
        if (memory.rule, memory.types) == (self.name, types):
            return memory
        deviation = {tenant: _of_types(owed, memory.types, types) for tenant, owed in memory.shares.deviation.items()}
        speedups = {app_id: _of_types(own, memory.types, types) for app_id, own in memory.speedups.items()}
        return replace(memory, rule=self.name, types=types, shares=OefMemory(deviation=deviation), speedups=speedups)

    def _after(
        self,
        snapshot: RoundSnapshot,
        memory: OefPolicyMemory,
        tenants: TenantsOfRound,
        shares: OefMemory,
        owed: Shares,
        decision: Decision,
    ) -> OefPolicyMemory:
        """The memory after a round. Apps that are gone are forgotten; silent ones keep what they are owed."""
        granted = decision.grants()
        starved = {app.app_id: memory.starved.get(app.app_id, 0) for app in snapshot.apps}
        deviation, counts = shares.deviation, memory.counts
        if _leases_end(snapshot):
            starved = {
                app_id: rounds + 1 if app_id in snapshot.answered and snapshot.answered[app_id].demands else rounds
                for app_id, rounds in starved.items()
            }
            used = _used(snapshot, granted, tenants, memory.types)
            deviation = {**deviation, **settle_claims(owed, used, tenants.limits)}
            gangs = [gang for mine in granted.values() for gang in mine]
            split = sum(len(gang.gpus.counts) > 1 for gang in gangs)
            counts = replace(counts, granted=used, gangs=len(gangs), split_gangs=split)
        served = {app.app_id for app in snapshot.apps if app.kept or granted.get(app.app_id)}
        known = set(tenants.by_app.values())
        return replace(
            memory,
            shares=replace(shares, deviation={each: deviation[each] for each in sorted(known & deviation.keys())}),
            speedups=dict(sorted(tenants.speedups.items())),
            tenants=dict(sorted(tenants.by_app.items())),
            starved={app_id: rounds for app_id, rounds in sorted(starved.items()) if rounds and app_id not in served},
            counts=counts,
        )


def _of_types(numbers: Sequence[float], former: Sequence[str], types: Sequence[str]) -> tuple[float, ...]:
    """Numbers by former type as numbers by present type; 0 for a type that is new."""
    by_name = dict(zip(former, numbers, strict=True))
    return tuple(by_name.get(name, 0.0) for name in types)


def _carried_over(memory: OefPolicyMemory, by_app: Mapping[str, str]) -> Shares:
    """Deviations under the present names of tenants.

    A virtual tenant has another name once its speedups differ much, because they were measured or a type joined. It
    keeps what it is owed if all its apps are in one virtual tenant now that was not there before.
    """
    now: dict[str, set[str]] = {}
    for app_id, former in memory.tenants.items():
        if app_id in by_app:
            now.setdefault(former, set()).add(by_app[app_id])
    known = memory.shares.deviation
    carried: dict[str, tuple[float, ...]] = {}
    for former, owed in sorted(known.items()):
        present = now.get(former, set())
        name = present.pop() if len(present) == 1 and present.isdisjoint(known) else former
        carried[name] = tuple(map(sum, zip(carried.get(name, (0.0,) * len(owed)), owed, strict=True)))
    return carried


def _leases_end(snapshot: RoundSnapshot) -> bool:
    """Whether this is a round of OEF: leases end, but for profiling runs, or no app holds a GPU yet."""
    former = snapshot.memory.profiles if isinstance(snapshot.memory, OefPolicyMemory) else {}
    profiled = {app_id for app_id, profile in former.items() if profile.state is ProfileState.RUNNING}
    return any(app.renewable for app in snapshot.apps if app.app_id not in profiled) or not any(
        app.kept for app in snapshot.apps
    )


def _by_starvation(
    snapshot: RoundSnapshot, app_demands: Sequence[AppDemand], starved: Mapping[str, int]
) -> list[AppDemand]:
    """Demands in the order in which a tenant serves its apps: longest starved, then by submission and id."""

    def rank(app_demand: AppDemand) -> tuple[float, ...]:
        return -starved.get(app_demand.app_id, 0), snapshot.standing(app_demand.app_id).submitted_at_s

    return sorted(app_demands, key=lambda app_demand: (rank(app_demand), app_demand.app_id))


def _used(
    snapshot: RoundSnapshot, gangs: Mapping[str, Sequence[PlacedGang]], tenants: TenantsOfRound, types: Sequence[str]
) -> Whole:
    """GPUs of the round that each virtual tenant got, by type."""
    gpus = dict.fromkeys(tenants.limits, Allocation())
    for app_id, mine in gangs.items():
        tenant = tenants.by_app.get(app_id)
        if tenant in gpus:
            gpus[tenant] = sum((gang.gpus for gang in mine), gpus[tenant])
    return {tenant: counts_by_type(snapshot.cluster, types, each) for tenant, each in gpus.items()}


def _backlog(owed: Shares, used: Whole) -> dict[str, float]:
    """GPUs that each virtual tenant should have in addition; rounded, so that the solver's noise decides no tie."""
    return {tenant: round(math.fsum(claims) - sum(used[tenant]), 9) for tenant, claims in owed.items()}


def _fill(snapshot: RoundSnapshot, app_demands: Sequence[AppDemand], gangs: Gangs, runs: Gangs) -> Decision:
    """Give the gangs and the runs, and what is left to the apps in the order of `app_demands`. No run grows."""
    app_demands = [
        replace(
            app_demand,
            demands=tuple(each for each in app_demand.demands if each.job_id not in runs.get(app_demand.app_id, ())),
        )
        for app_demand in app_demands
    ]
    allocator = GangAllocator(snapshot.machines, app_demands, snapshot.lease_s)
    numbers = {
        app_demand.app_id: {demand.job_id: n for n, demand in enumerate(app_demand.demands)}
        for app_demand in app_demands
    }
    placed = [(gang, app_id, numbers[app_id][job]) for app_id, mine in gangs.items() for job, gang in mine.items()]
    # Gangs in a slot first: the others can use any slot, and must leave those slots alone.
    for gang, app_id, number in sorted(placed, key=lambda each: (each[0].slot is None, each)):
        allocator.take(app_id, number, gang)
    decision = allocator.serve_in_order([app_demand.app_id for app_demand in app_demands])
    given = gangs_of(runs)
    auction = {
        app_id: (*given.get(app_id, ()), *decision.auction.get(app_id, ())) for app_id in {*given, *decision.auction}
    }
    return replace(decision, auction=dict(sorted(auction.items())))
