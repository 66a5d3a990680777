"""A run: the production arbiter, policy, auction and agents in virtual time, over apps whose jobs are numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec.structs import replace

from am.agent.model.fairness import declaration_of, rho_by_definition
from am.app_view import make_cluster_view
from am.tuners.port import TunerPlan
from rm_plugin.arbiter.auction import run_auction
from rm_plugin.arbiter.core import Arbiter
from rm_plugin.arbiter.round_values import AskBids, AskReports, RoundSnapshot
from rm_plugin.arbiter.rounds import Answer, Question, RoundResult, play_round
from rm_plugin.policies.port import Policy
from rm_plugin.policies.registry import make_policy
from rm_plugin.solvers.port import WinnerDetermination
from rm_plugin.solvers.registry import solver as solver_named
from themis.bids import AppReport, Bid, RhoOf
from themis.clock import VirtualClock
from themis.errors import InvariantError
from themis.fluid_cluster import Declaration, FluidCluster, FluidLife, fluid_ideals_s
from themis.leases import SAME_TIME_S, Lease, LeaseChange
from themis.sums import sum_in_order
from themis_lab.simulator.agents import Agent, HonestAgent
from themis_lab.simulator.app import SimApp
from themis_lab.simulator.bounds import least_rho
from themis_lab.simulator.cohort import Cohort
from themis_lab.simulator.events import EventQueue, InTurns, Phase
from themis_lab.simulator.jobs import SimJob
from themis_lab.simulator.observer import Observer
from themis_lab.simulator.record import AppOutcome, Counts, RoundRecord, RunRecord
from themis_lab.simulator.rounds import count_round, round_record
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.validation import check_fits
from themis_lab.simulator.workload import AppTrace, Workload

MakeAgent = Callable[[AppTrace], Agent]
Watch = Callable[["Simulation"], None]

_WHOLE_CHECK = 16
"""All leases are checked in every 16th round, in the others only those of machines with changes."""

_MAX_ROUNDS_AT_ONCE = 200
_MAX_DECLINED = 3
"""Rounds in a row at one moment whose GPUs were all returned at once: an agent lied, or believes what its planner does
not. Free GPUs then wait for the next event."""


class Simulation:
    """One run over one workload, used once. `run` continues to the end, also from the middle.

    Example: 900 apps of one job each. A job reaches its target (an event), so its app ends and returns 4 GPUs. The
    changed apps act, and the freed GPUs are a reason for a round: `arbiter.begin_round` gives a snapshot, `decide` asks
    the cohort for reports and bids, and the arbiter settles the decision as leases. The winners act once more, and
    their jobs schedule new events.

    Args:
        workload: The apps that arrive.
        settings: Cluster, policy and choices.
        make_agent: The agent of each app; honest by default.
        observer: Receives every round and lease as the run goes.
        solver: Holds the auctions instead of the one that the settings name.
    """

    def __init__(
        self,
        workload: Workload,
        settings: Settings,
        make_agent: MakeAgent | None = None,
        *,
        observer: Observer | None = None,
        solver: WinnerDetermination | None = None,
    ) -> None:
        check_fits(workload, settings)
        self.workload = workload
        self.settings = settings
        self.clock = VirtualClock()
        self.arbiter = Arbiter(
            settings.cluster, settings.leases, settings.rounds, seed=settings.seed, grid_origin_s=0.0
        )
        self.apps: dict[str, SimApp] = {}
        self.ended: list[AppOutcome] = []
        self.fluid = FluidCluster(settings.cluster.gpus, queues=settings.rounds.queues)
        self.rounds: list[RoundRecord] = []
        self.counts = Counts()
        self._policy = make_policy(settings.policy)
        self._watched = settings.record_rounds or observer is not None
        self._solver = solver or solver_named(settings.solver)
        self._observer = observer
        self._make_agent = make_agent or (lambda _: HonestAgent())
        self._queue: EventQueue[Callable[[], None]] = EventQueue()
        self._declarations: dict[str, Declaration] = {}
        self._reasons: list[str] = []
        self._first_reason_s = 0.0
        self._dirty = InTurns()
        self._unchecked: dict[str, None] = {}
        self._chances: dict[str, float] = {}
        self._without_chance: dict[str, None] = {}
        self._round_due_s = math.inf
        self._asked: tuple[str, ...] = ()
        cluster_view = make_cluster_view(
            settings.cluster,
            active_apps=1,
            lease_s=settings.leases.duration_s,
            rule=settings.bundle_rule,
        )
        # The whole cluster: a machine that is lost as an app ends must not make its ideal time longer.
        self._whole_cluster_view = cluster_view
        self._cohort = Cohort(self.apps, cluster_view, settings.leases.checkpoint_lead_s)
        self._schedule_all()

    @property
    def now_s(self) -> float:
        """The time in the run."""
        return self.clock.now_s()

    @property
    def next_s(self) -> float:
        """The time of the next event; infinite if there is none."""
        return min(self._queue.next_s(), self._round_due_s)

    @property
    def over(self) -> bool:
        """Whether every app of the workload has ended."""
        return len(self.ended) == len(self.workload.apps)

    def run(self, watch: Watch | None = None) -> RunRecord:
        """Run to the end. Calls `watch` after every round.

        Raises:
            InvariantError: Apps are left that nothing can ever finish.
        """
        started_s = time.perf_counter()
        while not self.over:
            self._next_moment(watch)
        if self.settings.validate:
            self._check(whole=True)
        return self._record(time.perf_counter() - started_s)

    def play_rounds(self, count: int) -> None:
        """Run `count` more rounds, and all further rounds of that moment. Stops when every app has ended."""
        enough = self.counts.rounds + count
        while not self.over and self.counts.rounds < enough:
            self._next_moment()

    def play_until(self, time_s: float) -> None:
        """Play all events up to a time, without the rounds of that very moment, which come next.

        Args:
            time_s: No earlier than now.
        """
        while self.next_s < time_s - SAME_TIME_S:
            self._next_moment()
        self.pass_time(time_s)

    def pass_time(self, until_s: float) -> None:
        """Advance to a time without rounds, as while an arbiter is down."""
        while self._queue.next_s() < until_s:
            self._moment(self._queue.next_s(), rounds=False)
        self._moment(until_s, rounds=False)
        self._round_due_s = self.now_s

    # ---- time ----

    def _schedule_all(self) -> None:
        for app in self.workload.apps:
            self._queue.add(app.arrival_s, Phase.ARRIVAL, lambda app=app: self._arrive(app))  # type: ignore[misc]
        # In order of time: where one outage begins as another ends, the machine is back before it is lost again.
        for outage in sorted(self.settings.outages, key=lambda outage: outage.lost_at_s):
            machine_id = outage.machine_id
            self._queue.add(outage.lost_at_s, Phase.MACHINE, lambda name=machine_id: self._lose_machine(name))  # type: ignore[misc]
            self._queue.add(outage.back_at_s, Phase.MACHINE, lambda name=machine_id: self._machine_back(name))  # type: ignore[misc]

    def _next_moment(self, watch: Watch | None = None) -> None:
        if math.isinf(self.next_s):
            raise InvariantError("apps are left that nothing will ever finish", value=sorted(self.apps))
        self._moment(self.next_s, watch)

    def _moment(self, at_s: float, watch: Watch | None = None, *, rounds: bool = True) -> None:
        """Play all events of one time, in phases, until there are no more; without rounds if `rounds` is False."""
        self.clock.advance_to(max(at_s, self.now_s))
        declined = 0
        for _ in range(_MAX_ROUNDS_AT_ONCE):
            while self._queue.next_s() <= self.now_s + SAME_TIME_S:
                self.counts.events += 1
                self._queue.pop()()
            self._act()
            if self._queue.next_s() <= self.now_s + SAME_TIME_S:
                continue
            if not (rounds and self._round_wanted()):
                return
            before = list(self.arbiter.table.live.values())
            self._run_round()
            self._act()
            if watch is not None:
                watch(self)
            declined = declined + 1 if _same_holders(before, self.arbiter.table.live.values()) else 0
            if declined == _MAX_DECLINED:
                self.counts.declined += 1
                self._reasons.clear()
        raise InvariantError("rounds without end at one moment", value=self.now_s, remedy="report this workload")

    def _round_wanted(self) -> bool:
        """Whether there is a reason for a round, there are free GPUs, and `coalesce_s` has passed since the reason."""
        due_s = self.arbiter.next_lease_round_s()
        self._round_due_s = math.inf if due_s is None else max(due_s, self.now_s)
        if due_s is not None and due_s <= self.now_s + SAME_TIME_S:
            self._wants_round("lease end")
        elif not (self._reasons and self.apps and self.arbiter.table.has_free_gpus):
            self._reasons.clear()
            return False
        if self.now_s + SAME_TIME_S >= self._first_reason_s + self.settings.coalesce_s:
            return True
        self._round_due_s = self._first_reason_s + self.settings.coalesce_s
        return False

    def _wants_round(self, reason: str) -> None:
        if not self._reasons:
            self._first_reason_s = self.now_s
        if reason not in self._reasons:
            self._reasons.append(reason)

    # ---- apps ----

    def _arrive(self, trace: AppTrace) -> None:
        app = SimApp(trace.name, trace, self.settings.cluster, trace.costs or self.settings.costs, self.now_s)
        self.apps[app.app_id] = app
        self._declarations[app.app_id] = declaration = declaration_of(app.whole_view(1.0), self._whole_cluster_view)
        self.fluid.arrive(app.app_id, declaration.phases, self.now_s, owner=trace.owner)
        self._without_chance[app.app_id] = None
        self._cohort.enter(app.app_id, self._make_agent(trace))
        self.arbiter.add_app(app.app_id, now_s=self.now_s, owner=trace.owner, resources=trace.resources)
        if trace.startup_s:
            self.arbiter.set_silent(app.app_id, True)
            self._queue.add(self.now_s + trace.startup_s, Phase.ARRIVAL, lambda: self._registered(app))
        else:
            self._wants_round("arrival")

    def _registered(self, app: SimApp) -> None:
        """An app's master is up."""
        self.arbiter.set_silent(app.app_id, False)
        self._wants_round("arrival")

    def _act(self) -> None:
        """Let changed apps act, until nothing changes."""
        while self._dirty:
            app = self.apps.get(self._dirty.pop())
            if app is None:
                continue
            self._note_change(app)
            if app.plan.finished:
                self._end(app)
                continue
            acted = app.act(self.now_s)
            for started in acted.started:
                self._queue.add(started.ends_at_s, Phase.TARGET, self._target_event(app, started.job))
            for job in acted.stopping:
                self._queue.add(self.now_s + app.costs.checkpoint_s, Phase.STOPPED, self._stop_event(app, job))
            if acted.returned:
                self._on_lease_changes(self.arbiter.release(acted.returned, now_s=self.now_s, reason="planned"))
                self._wants_round("GPUs came back")
            if acted.moved:
                self._dirty.add(app.app_id)

    def _target_event(self, app: SimApp, job: SimJob) -> Callable[[], None]:
        run = job.run

        def reach() -> None:
            if job.run == run and app.ended_at_s is None:
                before = app.plan
                app.target_reached(job, self.now_s)
                self._dirty.add(app.app_id)
                if _wants_more(before, app.plan):
                    self._wants_round("demand")

        return reach

    def _stop_event(self, app: SimApp, job: SimJob) -> Callable[[], None]:
        run = job.run

        def stopped() -> None:
            if job.run == run and app.ended_at_s is None:
                app.stopped(job)
                self._dirty.add(app.app_id)

        return stopped

    def _end(self, app: SimApp) -> None:
        app.ended_at_s = self.now_s
        self.ended.append(self._outcome(app))
        del self.apps[app.app_id]
        self._without_chance.pop(app.app_id, None)
        self._cohort.leave(app.app_id)
        self._on_lease_changes(self.arbiter.end_app(app.app_id, now_s=self.now_s, reason="it ended"))
        self._wants_round("an app ended")

    def _outcome(self, app: SimApp) -> AppOutcome:
        cluster_view = self._whole_cluster_view
        whole = app.whole_view(self.arbiter.contention(app.app_id, self.now_s))
        rho = rho_by_definition(whole, self.now_s - app.submitted_at_s, cluster_view)
        costs, tally = app.costs, app.tally
        start_s = costs.container_s + costs.restore_s
        phases = [jobs for jobs in app.phases if jobs]
        scored = tally.scored_gpu_s / tally.running_gpu_s if tally.running_gpu_s else 1.0
        return AppOutcome(
            name=app.trace.name,
            model=app.trace.model,
            jobs=len(app.trace.jobs),
            submitted_at_s=app.submitted_at_s,
            first_gpu_at_s=app.first_gpu_at_s,
            ended_at_s=self.now_s,
            rho={definition.value: value for definition, value in rho.items()},
            bound=least_rho(whole, phases, cluster_view, self._chances.get(app.app_id, 0.0), start_s),
            gpu_time_s=self.arbiter.attained_gpu_s(app.app_id, self.now_s),
            running_gpu_s=tally.running_gpu_s,
            ideal_gpu_s=sum_in_order(job.iteration * job.trace.serial_iteration_s for job in app.jobs.values()),
            placement_score=scored,
            restarts=tally.restarts,
            checkpoints=tally.checkpoints,
            lost_gpu_s=tally.lost_gpu_s,
            contention=whole.contention,
        )

    # ---- machines ----

    def _lose_machine(self, machine_id: str) -> None:
        for app in self.apps.values():
            app.machine_lost(machine_id, self.now_s)
            self._note_change(app)
            self._dirty.add(app.app_id)
        self._on_lease_changes(self.arbiter.machine_lost(machine_id, now_s=self.now_s, reason="its machine was lost"))
        self._cohort.set_cluster_gpus(self.arbiter.gpus_available)
        self.fluid.resize(self.arbiter.gpus_available, self.now_s)
        self._wants_round("a machine was lost")

    def _machine_back(self, machine_id: str) -> None:
        self.arbiter.machine_back(machine_id)
        self._cohort.set_cluster_gpus(self.arbiter.gpus_available)
        self.fluid.resize(self.arbiter.gpus_available, self.now_s)
        self._wants_round("a machine came back")

    # ---- rounds ----

    def _run_round(self) -> None:
        """Play a whole round: snapshot, decision, lease changes, records."""
        reasons, self._reasons = tuple(self._reasons), []
        snapshot, prolonged = self.arbiter.begin_round(self.now_s)
        self._on_lease_changes(prolonged)
        self._note_chances(snapshot)
        self._asked = ()
        result = self.decide(snapshot)
        changes = self.arbiter.settle(result, now_s=self.now_s)
        self._on_lease_changes(changes)
        count_round(self.counts, result, changes)
        if self.settings.record_rounds:
            end_s = self.arbiter.lease_end_s(self.now_s)
            self.rounds.append(round_record(result, changes, reasons, self._asked, end_s))
        if self.settings.validate:
            # What changed in this round, and everything in some rounds.
            self.counts.checks += 1
            self._check(whole=self.counts.checks % _WHOLE_CHECK == 0)
        if self._observer is not None:
            self._observer.round_played(result)

    def decide(self, snapshot: RoundSnapshot, policy: Policy | None = None) -> RoundResult:
        """Play a round on a snapshot of this moment without applying it; by another policy if one is given."""
        policy = policy or self._policy
        # Records and observers show the rho of all apps, also if the policy does not use it.
        round_ = play_round(snapshot, policy, RhoOf.EVERY_APP if self._watched else policy.rho_of)
        question = next(round_)
        while True:
            try:
                question = round_.send(self._answer(snapshot, question))
            except StopIteration as end:
                result: RoundResult = end.value
                return result

    def _answer(self, snapshot: RoundSnapshot, question: Question) -> Answer:
        if isinstance(question, AskReports):
            return self._cohort.reports(snapshot, question.app_ids, question.rho_of)
        if isinstance(question, AskBids):
            self._asked = question.app_ids
            # The bids of single jobs, which take little time each, are made and timed together.
            together = [app_id for app_id in question.app_ids if self._cohort.has_single_job(app_id)]
            bids = self._timed_bids(snapshot, together)
            return bids | {app_id: self.bid(snapshot, app_id) for app_id in question.app_ids if app_id not in bids}
        if not question.market.bids:
            return None
        started_s = time.perf_counter()
        outcome = run_auction(question.market, self._solver, self.settings.auction_limit_s)
        self.counts.auction_s.append(time.perf_counter() - started_s)
        return outcome

    def report(self, snapshot: RoundSnapshot, app_id: str) -> AppReport:
        """Return the report of an app for a round that begins with this snapshot."""
        return self._cohort.reports(snapshot, (app_id,), RhoOf.EVERY_APP)[app_id]

    def bid(self, snapshot: RoundSnapshot, app_id: str) -> Bid:
        """Return the bid of an app on the offer of this round."""
        return self._timed_bids(snapshot, (app_id,))[app_id]

    def _timed_bids(self, snapshot: RoundSnapshot, app_ids: Sequence[str]) -> dict[str, Bid]:
        """Bids that are made in one call, and count as having taken equally long."""
        started_s = time.perf_counter()
        bids = self._cohort.bids(snapshot, app_ids)
        self.counts.bid_s += [(time.perf_counter() - started_s) / max(1, len(bids))] * len(bids)
        return bids

    def _note_chances(self, snapshot: RoundSnapshot) -> None:
        """Seconds from each app's submission to the first round that had GPUs enough for its smallest gang."""
        if not self._without_chance:
            return
        free = snapshot.free.gpus
        for app_id in list(self._without_chance):
            app = self.apps[app_id]
            if free >= app.smallest_gang_gpus and not snapshot.standing(app_id).silent:
                self._chances[app_id] = self.now_s - app.submitted_at_s
                del self._without_chance[app_id]

    def _note_change(self, app: SimApp) -> None:
        """Note that what an app holds, runs or demands has changed, or is about to."""
        self._unchecked[app.app_id] = None
        self._cohort.mark_changed(app.app_id)

    def _on_lease_changes(self, changes: Sequence[LeaseChange]) -> None:
        if self._observer is not None and changes:
            self._observer.leases_changed(changes)
        for change in changes:
            app = self.apps.get(change.lease.app_id)
            if app is not None:
                self._unchecked[app.app_id] = None
                self._cohort.mark_changed(app.app_id)
                if app.on_lease_change(change):
                    self._dirty.add(app.app_id)

    def _check(self, *, whole: bool) -> None:
        """Check the invariants; a broken one is recorded with its time, and the run continues."""
        try:
            self.arbiter.validate(whole=whole)
            # What an app runs and holds changes only when a lease changes or it acts.
            for app_id in self._unchecked:
                if app_id in self.apps:
                    self.apps[app_id].validate()
            self._unchecked.clear()
            overdue = self.arbiter.overdue(self.now_s)
            if overdue:
                raise InvariantError("GPUs were not given back in time", value=[str(lease.gpu) for lease in overdue])
        except InvariantError as error:
            self.counts.violations.append(f"at {self.now_s:g} s: {error}")

    # ---- the end ----

    def _record(self, wall_s: float) -> RunRecord:
        first_s = min(app.submitted_at_s for app in self.ended)
        makespan_s = max(app.ended_at_s for app in self.ended) - first_s
        whole_gpu_s = max(self.settings.cluster.gpus * makespan_s, 1e-9)
        order = {app.name: place for place, app in enumerate(self.workload.apps)}
        lives = self.fluid.run_out()
        apps = [self._with_fluid_rho(app, lives[app.name]) for app in self.ended]
        return RunRecord(
            policy=self.settings.policy,
            cluster=self.settings.cluster.name,
            cluster_gpus=self.settings.cluster.gpus,
            cluster_cpu_nodes=self.settings.cluster.cpu_nodes,
            workload=self.workload.name,
            seed=self.settings.seed,
            apps=tuple(sorted(apps, key=lambda app: order[app.name])),
            counts=self.counts,
            makespan_s=makespan_s,
            leased_share=sum_in_order(app.gpu_time_s for app in self.ended) / whole_gpu_s,
            running_share=sum_in_order(app.running_gpu_s for app in self.ended) / whole_gpu_s,
            rounds=tuple(self.rounds),
            wall_s=wall_s,
        )

    def _with_fluid_rho(self, app: AppOutcome, life: FluidLife) -> AppOutcome:
        """Add rho by the definitions of the fluid cluster. They need all arrivals until the app ends there."""
        ideals_s = fluid_ideals_s(self._declarations[app.name], life)
        rho = {definition.value: app.completion_s / ideal_s for definition, ideal_s in ideals_s.items()}
        return replace(app, rho={**rho, **app.rho})


def _wants_more(before: TunerPlan, after: TunerPlan) -> bool:
    """Whether a plan may ask for more than the one before: it has a new phase, or another target for a job.

    A tuner without barriers promotes jobs within its only phase. The live arbiter sees no plans, so it compares unmet
    demands (`RoundRunner.demand_changed`). Here that would compute the demand of every app at every round. Both rules
    start a round whenever demand grows; docs/explanation/simulator.md says where they differ.
    """
    if after.phase != before.phase:
        return True
    return any(before.targets.get(job_id) != target for job_id, target in after.targets.items())


def _same_holders(before: Collection[Lease], after: Collection[Lease]) -> bool:
    """Whether the same apps hold the same GPUs for as long: a lease is of one app and one GPU."""
    # Usually the number of leases or an end differs, and not all has to be compared.
    if len(before) != len(after):
        return False
    for one, other in zip(before, after, strict=True):
        if one is not other and one.lease_id == other.lease_id and one.expires_at_s != other.expires_at_s:
            return False
    return _until(before) == _until(after)


def _until(leases: Iterable[Lease]) -> set[tuple[int, float]]:
    return {(lease.lease_id, lease.expires_at_s) for lease in leases}
