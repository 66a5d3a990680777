"""The arbiter: active apps, contention and leases, and what rounds do to them. Pure state: no clock, no I/O.

Every method takes the time and returns the lease changes that it made; the caller stores them and notifies the apps.
The live service and the simulator drive this same class.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from rm_plugin.arbiter.contention import Contention
from rm_plugin.arbiter.ended_apps import EndedApp, EndedApps
from rm_plugin.arbiter.lease_table import EndOf, LeaseTable
from rm_plugin.arbiter.round_values import (
    NO_RESOURCES,
    AppStanding,
    Decision,
    RemembersRuns,
    RoundSettings,
    RoundSnapshot,
)
from rm_plugin.arbiter.rounds import RoundResult
from rm_plugin.arbiter.seeds import child_seed
from themis.apps import TaskResources
from themis.bids import PlacedGang
from themis.choices import LeaseEnds
from themis.cluster import Allocation, Cluster, GpuId
from themis.errors import InputError, InvariantError
from themis.leases import Lease, LeaseChange, LeaseChangeKind, allocation_of, renewable_until_s
from themis.lifecycle import LeaseState
from themis.placement.gpu_choice import count_by_slot, masks_of
from themis.queues import NO_OWNER, AppOwner, Queues, Tenant
from themis.sums import sum_in_order
from themis.values import Value

MIN_LEASE_S = 1e-3
"""What is left at least of a lease before its lead: far more than `SAME_TIME_S`, by which times are one."""

MASTER_UNAVAILABLE = "its app master is unavailable"
"""Why a lease of a silent app is prolonged. After a restart the log's events with this reason tell which ones were."""


MASTER_STARTS = "its app master starts"
"""Why a lease of an app is prolonged whose app master has not registered yet: a start is no silence."""


class LeasePolicy(Value, frozen=True, kw_only=True):
    """How long leases last and when they end, in seconds."""

    duration_s: float = 600.0
    ends: LeaseEnds = LeaseEnds.ALIGNED
    checkpoint_lead_s: float = 30.0
    grace_s: float = 30.0

    def __post_init__(self) -> None:
        # The comparisons are false for NaN too. A lease that is all lead would be up again at once.
        if not (0.0 <= self.checkpoint_lead_s <= self.duration_s - MIN_LEASE_S and self.duration_s < math.inf):
            value = f"lead {self.checkpoint_lead_s:g} s, lease {self.duration_s:g} s"
            what = f"a lease must be longer than its lead, which is 0 or more, by {MIN_LEASE_S:g} s at least"
            raise InputError(what, value=value)
        if not 0.0 <= self.grace_s < math.inf:
            raise InputError("the grace must be 0 s or more", value=self.grace_s)


@dataclass(slots=True)
class _Account:
    """What the arbiter remembers of an active app. `attained_gpu_s` counts leases that ended.

    `waiting` are its leases that were prolonged once since its last report, as its app master was unavailable. While
    it is silent, its app master may still be starting, until `starting_until_s`.
    """

    submitted_at_s: float
    attained_gpu_s: float = 0.0
    owner: AppOwner = NO_OWNER
    resources: TaskResources = NO_RESOURCES
    silent: bool = False
    starting_until_s: float = -math.inf
    leaving: bool = False
    waiting: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Undo:
    """The arbiter's values at `begin`, which `undo` restores.

    `attained_gpu_s` holds the GPU time of ended leases of each app that had a lease end since then, and `waiting`
    the leases that were prolonged for an app master since then.
    """

    next_round_id: int
    up: tuple[int, ...]
    memory: Value | None
    attained_gpu_s: dict[str, float] = field(default_factory=dict)
    waiting: list[Lease] = field(default_factory=list)


class Arbiter:
    """Decides nothing by itself: it frames rounds and applies what a policy decided."""

    def __init__(
        self,
        cluster: Cluster,
        leases: LeasePolicy,
        rounds: RoundSettings,
        *,
        seed: int,
        grid_origin_s: float,
        table: LeaseTable | None = None,
        next_round_id: int = 1,
        memory: Value | None = None,
    ) -> None:
        self.cluster = cluster
        self.table = table if table is not None else LeaseTable(cluster)
        self._leases = leases
        self._rounds = rounds
        self._seed = seed
        self._origin_s = grid_origin_s
        self._next_round_id = next_round_id
        self._memory = memory
        self._contention = Contention(rounds.queues)
        self._ended = EndedApps()
        self._apps: dict[str, _Account] = {}
        self._paused: set[str] = set()
        # When the active apps of each tenant were submitted, sorted.
        self._arrivals: dict[Tenant, list[float]] = {}
        # Of every active app in their order, but without renewable leases; out of date of apps that are noted, or whose
        # leases the table says are touched.
        self._standings: dict[str, AppStanding] = {}
        self._noted: set[str] = set()
        # The renewable leases of the present round, in the order of the table.
        self._up: tuple[int, ...] = ()
        self._undo: _Undo | None = None

    # ---- changes that may have to be undone ----

    def begin(self) -> None:
        """Record the changes by rounds, ends of leases and lost machines from now on, until `keep` or `undo`.

        Apps that come, leave or end are not recorded, nor are new machines. Such a change is made only after `keep`.
        """
        self.table.begin()
        self._undo = _Undo(next_round_id=self._next_round_id, up=self._up, memory=self._memory)

    def keep(self) -> None:
        """Keep what was changed since `begin`."""
        self.table.keep()
        self._undo = None

    def undo(self) -> None:
        """Take back every recorded change since `begin`."""
        undo, self._undo = self._undo, None
        self.table.undo()
        if undo is not None:
            self._next_round_id, self._up, self._memory = undo.next_round_id, undo.up, undo.memory
            for lease in undo.waiting:
                self._apps[lease.app_id].waiting.discard(lease.lease_id)
            for app_id, attained_gpu_s in undo.attained_gpu_s.items():
                self._apps[app_id].attained_gpu_s = attained_gpu_s

    # ---- apps ----

    @property
    def active_apps(self) -> tuple[str, ...]:
        """Ids of the active apps, in order of submission."""
        return tuple(self._apps)

    @property
    def active_count(self) -> int:
        """The number of active apps."""
        return len(self._apps)

    @property
    def grid_origin_s(self) -> float:
        """The origin of the grid on which leases end: the first start of the service."""
        return self._origin_s

    @property
    def round_settings(self) -> RoundSettings:
        """The settings of rounds."""
        return self._rounds

    @property
    def policy_memory(self) -> Value | None:
        """What the policy remembers of the newest round."""
        return self._memory

    def add_app(
        self,
        app_id: str,
        *,
        now_s: float,
        attained_gpu_s: float = 0.0,
        owner: AppOwner = NO_OWNER,
        resources: TaskResources = NO_RESOURCES,
        arrived_at_s: float | None = None,
        waiting: Iterable[int] = (),
    ) -> None:
        """An app was accepted, or is resumed after a pause.

        Args:
            app_id: The app.
            now_s: The present time, from when on the app counts for contention.
            attained_gpu_s: GPU time that it had before.
            owner: Whose app it is.
            resources: What each of its tasks needs.
            arrived_at_s: Its submission as policies see it. By default now; of a resumed app it is earlier.
            waiting: After a restart, its leases that were prolonged since its last report.

        Raises:
            InvariantError: The app is active already: N_avg would count it twice.
        """
        if app_id in self._apps:
            raise InvariantError("the app is active already", value=app_id)
        self._apps[app_id] = _Account(
            submitted_at_s=now_s if arrived_at_s is None else arrived_at_s,
            attained_gpu_s=attained_gpu_s,
            owner=owner,
            resources=resources,
            waiting=set(waiting),
        )
        self._standings[app_id] = self._standing(app_id)
        tenant = self._rounds.queues.tenant(owner)
        self._arrive(app_id, tenant)
        self._paused.discard(app_id)
        # A resumed app counts by itself again.
        self._ended.discard(tenant, app_id)
        self._contention.enter(app_id, now_s, tenant)

    def end_app(self, app_id: str, *, now_s: float, reason: str, is_paused: bool = False) -> list[LeaseChange]:
        """An app ended or is paused, and nothing of it runs any more: its leases end."""
        self._paused.discard(app_id)
        if is_paused:
            self._paused.add(app_id)
        changes = self.release([lease.lease_id for lease in self.table.of_app(app_id)], now_s=now_s, reason=reason)
        account = self._apps.pop(app_id, None)
        self._standings.pop(app_id, None)
        if account is not None:
            tenant = self._rounds.queues.tenant(account.owner)
            arrivals = self._arrivals[tenant]
            del arrivals[bisect_left(arrivals, account.submitted_at_s)]
            if not arrivals:
                del self._arrivals[tenant]
            self.note_ended([EndedApp(app_id, account.owner, account.submitted_at_s, account.attained_gpu_s)])
        self._contention.leave(app_id, now_s)
        return changes

    def note_paused(self, app_ids: Iterable[str]) -> None:
        """After a restart, note which apps are paused, or wait to be admitted."""
        self._paused.update(app_ids)

    def note_ended(self, apps: Iterable[EndedApp]) -> None:
        """Count the GPU time of ended apps for their users, as long as an older app of the user is active."""
        for app in apps:
            tenant = self._rounds.queues.tenant(app.owner)
            if tenant[1]:
                since_s = next(iter(self._arrivals.get(tenant, ())), math.inf)
                self._ended.add(tenant, app, since_s)

    def set_silent(self, app_id: str, silent: bool) -> None:
        """An app master went away (its leases wait for it), or came back. An app that leaves stays silent."""
        if app_id in self._apps:
            account = self._apps[app_id]
            account.silent = silent or account.leaving
            account.starting_until_s = -math.inf
            self._noted.add(app_id)

    def set_starting(self, app_id: str, until_s: float) -> None:
        """The app master of a silent app starts. Its leases wait for it as often as needed, but no longer than this.

        Example: leases last 5 s and a start takes 12 s. Two prolongations later the app has its GPUs still, and its
        leases may be prolonged once more if its app master is unavailable then.
        """
        if app_id in self._apps:
            self._apps[app_id].starting_until_s = until_s

    def heard_of(self, app_ids: Iterable[str]) -> None:
        """Note that apps answered a round: their leases may be prolonged once more while they are unavailable."""
        for app_id in app_ids:
            if app_id in self._apps:
                self._apps[app_id].waiting.clear()

    def leave(self, app_id: str, *, now_s: float, reason: str) -> list[LeaseChange]:
        """An app is about to end: it is asked for nothing and given nothing any more, also by a round that goes on.

        What it has won and not got yet goes back; what it runs on stays its own until nothing of it runs there.
        """
        if app_id not in self._apps:
            return []
        self._apps[app_id].silent = self._apps[app_id].leaving = True
        self._noted.add(app_id)
        won = [lease.lease_id for lease in self.table.of_app(app_id) if lease.state is LeaseState.RESERVED]
        return self.release(won, now_s=now_s, reason=reason)

    def contention(self, app_id: str, now_s: float) -> float:
        """N_avg of an active app."""
        return self._contention.mean(app_id, now_s)

    def attained_gpu_s(self, app_id: str, now_s: float) -> float:
        """GPU time that an active app had so far, leases that still run included; 0 before it is active."""
        if app_id not in self._apps:
            return 0.0
        return self._apps[app_id].attained_gpu_s + _running_gpu_s(self.table.live_of(app_id), now_s)

    # ---- rounds ----

    def begin_round(self, now_s: float) -> tuple[RoundSnapshot, list[LeaseChange]]:
        """Frame a round: leases that end within the lead are renewable, and all free GPUs are on offer.

        Each lease of an app whose master is unavailable is prolonged in place, once until the app reports again: it
        waits for it, but an app cannot keep GPUs by its silence. While the app master starts, this does not count.
        Bound leases, whose jobs still run, are prolonged too, but for profiling runs. Leases on closed GPUs cannot be
        renewed: they begin to expire. All these are in the changes.
        """
        ending = self.table.ending(renewable_until_s(now_s, self._leases.checkpoint_lead_s))
        closed = self.table.closed
        runs: Mapping[str, str] = self._memory.runs if isinstance(self._memory, RemembersRuns) else {}
        starting: list[Lease] = []
        away: list[Lease] = []
        expiring: list[Lease] = []
        bound, renewable = [], []
        for lease in ending:
            if self._is_starting(lease.app_id, now_s):
                starting.append(lease)
            elif self._is_silent(lease.app_id):
                (expiring if lease.lease_id in self._apps[lease.app_id].waiting else away).append(lease)
            elif closed and lease.gpu in closed:
                expiring.append(lease)
            elif lease.job_id and lease.job_id != runs.get(lease.app_id):
                bound.append(lease)
            else:
                renewable.append(lease)
        changes = [
            *self.table.prolong(starting, now_s=now_s, end_s=self._end_of(now_s), reason=MASTER_STARTS),
            *self.table.prolong(away, now_s=now_s, end_s=self._end_of(now_s), reason=MASTER_UNAVAILABLE),
            *self.table.prolong(bound, now_s=now_s, end_s=self._end_of(now_s), reason="its job runs until it ends"),
            *self.table.expire(expiring),
        ]
        self._wait_with(away)
        self._up = tuple([lease.lease_id for lease in renewable])
        snapshot = RoundSnapshot(
            round_id=self._next_round_id,
            now_s=now_s,
            lease_s=self._leases.duration_s,
            cluster=self.cluster,
            machines=self.table.offered_machines(renewable),
            apps=self._standing_apps(renewable),
            settings=self._rounds,
            seed=child_seed(self._seed, "round", str(self._next_round_id)),
            contentions=self._contention.at(now_s),
            ended_gpu_s=self._ended.gpu_s(),
            paused=frozenset(self._paused),
            memory=self._memory,
        )
        self._next_round_id += 1
        return snapshot, changes

    def settle(self, result: RoundResult, *, now_s: float) -> list[LeaseChange]:
        """Apply a round's decision to the leases, as they are now.

        Between the snapshot and the decision apps may have ended, GPUs may have come back and machines may have been
        lost: what stands of the decision takes effect. Renewable leases are those that the round put up and that
        still run. What the policy remembers is kept for the next round.
        """
        snapshot = result.snapshot
        self._memory = result.decision.memory
        renewable = filter(None, map(self.table.find, self._up))
        grants = self._that_stand(result.decision.grants())
        grants = {app_id: tuple([self._not_too_short(gang) for gang in gangs]) for app_id, gangs in grants.items()}
        # No lease ends with it, so no app's account changes.
        return self.table.settle(
            grants,
            renewable,
            now_s=now_s,
            end_s=self._end_of(now_s),
            round_id=snapshot.round_id,
        )

    def what_stands(self, decision: Decision) -> Decision:
        """A decision without apps that have gone since or leave, and without gangs that lost machines have a part of.

        The very same where all of it stands.
        """
        auction, leftovers = self._that_stand(decision.auction), self._that_stand(decision.leftovers)
        if (auction, leftovers) == (decision.auction, decision.leftovers):
            return decision
        app_demands = tuple(app_demand for app_demand in decision.unserved if self._stays(app_demand.app_id))
        return replace(decision, auction=auction, leftovers=leftovers, unserved=app_demands)

    def lease_end_s(self, now_s: float, begins_s: float | None = None) -> float:
        """When a lease granted now ends.

        Aligned ends are on one grid. An end less than two leads away is skipped: the next round for it would begin
        within a lead, so such a lease would be all warning and no work. A staggered lease lasts its full length. It
        begins now, or with the end of the lease that it follows; the round for that end is held a lead before it.

        Example: leases of 600 s and a lead of 5 s on a grid from 0 s. A lease granted at 900 s ends at 1,200 s. One
        granted at 1,195 s ends at 1,800 s, because an end at 1,200 s would leave it less than two leads.
        """
        lease_s = self._leases.duration_s
        if self._leases.ends is LeaseEnds.STAGGERED:
            return (now_s if begins_s is None else begins_s) + lease_s
        earliest_s = now_s + 2 * self._leases.checkpoint_lead_s
        return self._origin_s + math.ceil(max(0.0, earliest_s - self._origin_s) / lease_s + 1e-9) * lease_s

    def next_lease_round_s(self) -> float | None:
        """When the next round for ending leases is due."""
        end_s = self.table.next_end_s()
        return None if end_s is None else end_s - self._leases.checkpoint_lead_s

    # ---- leases ----

    def release(self, lease_ids: Iterable[int], *, now_s: float, reason: str) -> list[LeaseChange]:
        """The holder gave GPUs back."""
        return self._account(self.table.release(lease_ids, now_s=now_s, reason=reason), now_s)

    def revoke(self, lease_ids: Iterable[int], *, now_s: float, reason: str) -> list[LeaseChange]:
        """GPUs were taken by force; nothing of the holder runs on them any more."""
        return self._account(self.table.revoke(lease_ids, now_s=now_s, reason=reason), now_s)

    def overdue(self, now_s: float) -> list[Lease]:
        """Leases past their end and the grace, whose holder did not give the GPU back."""
        return self.table.overdue(now_s, self._leases.grace_s)

    def overdue_apps(self, now_s: float) -> set[str]:
        """Apps with such a lease. Only leases that expire are looked at."""
        return {lease.app_id for lease in self.overdue(now_s)}

    # ---- queues ----

    @property
    def queues(self) -> Queues:
        """The queues and users that share the cluster."""
        return self._rounds.queues

    def requeue(self, queues: Queues, *, now_s: float) -> None:
        """Other queues, weights and limits hold from now on. A round that goes on keeps those of its snapshot."""
        self._rounds = replace(self._rounds, queues=queues)
        tenants = {app_id: queues.tenant(account.owner) for app_id, account in self._apps.items()}
        self._contention.requeue(queues, tenants, now_s)
        self._arrivals = {}
        for app_id, tenant in tenants.items():
            self._arrive(app_id, tenant)
        before, self._ended = self._ended, EndedApps()
        self.note_ended(before)

    # ---- machines ----

    @property
    def gpus_available(self) -> int:
        """The GPUs of all available machines: R_C, as sent to apps."""
        return self.table.gpus_available

    def machine_lost(self, machine_id: str, *, now_s: float, reason: str) -> list[LeaseChange]:
        """A machine is lost: its leases are revoked, and nothing on it is offered until it is back.

        Returns no changes if the machine is lost already. Raises UnknownNameError for an unknown machine.
        """
        return self._account(self.table.lose(machine_id, now_s=now_s, reason=reason), now_s)

    def machine_back(self, machine_id: str) -> None:
        """A machine is available again: its GPUs are free from now on. An unknown one raises UnknownNameError."""
        self.table.regain(machine_id)

    def close_gpus(self, gpus: Collection[GpuId]) -> None:
        """From now on exactly these GPUs are not given out, and leases on them not renewed. Not during a round."""
        self.table.close(gpus)

    def refit(self, cluster: Cluster) -> None:
        """The cluster has other machines from now on. Not during a round.

        Raises:
            InvariantError: A machine with leases is missing or changed: its leases have to end before.
        """
        self.table.refit(cluster)
        self.cluster = cluster

    # ---- invariants ----

    def validate(self, *, whole: bool = True) -> None:
        """Assert every invariant; a broken one raises InvariantError.

        Args:
            whole: Look at all leases; else at those of machines on which anything changed since the last time.
        """
        if whole:
            self.table.validate()
        else:
            self.table.validate_changes()
        holders, apps = self.table.holders, self._apps.keys()
        if not holders <= apps:
            raise InvariantError("leases of apps that are not active", value=sorted(holders - apps))

    # ---- inside ----

    def _arrive(self, app_id: str, tenant: Tenant) -> None:
        insort(self._arrivals.setdefault(tenant, []), self._apps[app_id].submitted_at_s)

    def _standing_apps(self, renewable: Iterable[Lease]) -> tuple[AppStanding, ...]:
        """All active apps as they stand; few of them have changed since the last round."""
        for app_id in self._noted | self.table.take_touched():
            if app_id in self._apps:
                self._standings[app_id] = self._standing(app_id)
        self._noted.clear()
        up: dict[str, list[Lease]] = {}
        for lease in renewable:
            if lease.app_id in self._standings:
                up.setdefault(lease.app_id, []).append(lease)
        some_up = {app_id: self._some_up(app_id, mine) for app_id, mine in up.items()}
        return tuple((self._standings | some_up if some_up else self._standings).values())

    def _standing(self, app_id: str) -> AppStanding:
        """An app's snapshot while none of its leases is renewable."""
        account, live = self._apps[app_id], self.table.live_of(app_id)
        return AppStanding(
            app_id=app_id,
            submitted_at_s=account.submitted_at_s,
            ended_gpu_s=account.attained_gpu_s,
            granted_at_s=tuple([lease.granted_at_s for lease in live]),
            kept=self.table.kept_by(app_id) if self.table.holds(app_id) else _NOTHING,
            silent=account.silent,
            owner=account.owner,
            bound=self.table.bound_to(app_id),
            resources=account.resources,
        )

    def _some_up(self, app_id: str, leases: Sequence[Lease]) -> AppStanding:
        """The snapshot of an app with renewable leases."""
        app_snapshot = self._standings[app_id]
        if any(lease.job_id for lease in leases):
            ending = [(lease.job_id, lease.gpu.machine_id) for lease in leases]
            app_snapshot = replace(app_snapshot, bound=tuple(pair for pair in app_snapshot.bound if pair not in ending))
        # Usually all leases of an app end with one round.
        mine = app_snapshot.kept if len(leases) == app_snapshot.kept.gpus else allocation_of(leases)
        kept = _NOTHING if mine is app_snapshot.kept else app_snapshot.kept - mine
        masks = masks_of([lease.gpu for lease in leases])
        slots = [(name, count_by_slot(self.cluster.machine(name).slots, mask)) for name, mask in masks.items()]
        return replace(app_snapshot, kept=kept, renewable=mine, renewable_slots=tuple(slots))

    def _that_stand(self, grants: Mapping[str, tuple[PlacedGang, ...]]) -> dict[str, tuple[PlacedGang, ...]]:
        return {app_id: self._there(gangs) for app_id, gangs in grants.items() if self._stays(app_id)}

    def _not_too_short(self, gang: PlacedGang) -> PlacedGang:
        """A gang whose shorter leases have the lead in addition: the round for their end begins a lead before it.

        They last two leads at least: one of them is warning, and work needs some time too.
        """
        if not gang.at_most_s:
            return gang
        lead_s = self._leases.checkpoint_lead_s
        return replace(gang, at_most_s=max(gang.at_most_s + lead_s, 2 * lead_s, MIN_LEASE_S))

    def _there(self, gangs: Iterable[PlacedGang]) -> tuple[PlacedGang, ...]:
        lost = self.table.lost
        if not lost:
            return tuple(gangs)
        return tuple(gang for gang in gangs if not any(machine_id in lost for machine_id, _ in gang.gpus))

    def _end_of(self, now_s: float) -> EndOf:
        return partial(self.lease_end_s, now_s)

    def _stays(self, app_id: str) -> bool:
        account = self._apps.get(app_id)
        return account is not None and not account.leaving

    def _wait_with(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._apps[lease.app_id].waiting.add(lease.lease_id)
        if self._undo is not None:
            self._undo.waiting += leases

    def _is_silent(self, app_id: str) -> bool:
        account = self._apps.get(app_id)
        return account is not None and account.silent

    def _is_starting(self, app_id: str, now_s: float) -> bool:
        account = self._apps.get(app_id)
        return account is not None and account.silent and not account.leaving and now_s < account.starting_until_s

    def _account(self, changes: list[LeaseChange], now_s: float) -> list[LeaseChange]:
        for change in changes:
            lease = change.lease
            if change.kind in _ENDS and not change.reserved and lease.app_id in self._apps:
                account = self._apps[lease.app_id]
                if self._undo is not None:
                    self._undo.attained_gpu_s.setdefault(lease.app_id, account.attained_gpu_s)
                account.attained_gpu_s += max(0.0, now_s - lease.granted_at_s)
        return changes


def _running_gpu_s(leases: Iterable[Lease], now_s: float) -> float:
    """GPU time of leases until now; a lease of a store whose clock was ahead has had none."""
    return sum_in_order([max(0.0, now_s - lease.granted_at_s) for lease in leases])


_NOTHING = Allocation()

_ENDS = (LeaseChangeKind.RELEASED, LeaseChangeKind.REVOKED)
