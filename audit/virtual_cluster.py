"""A cluster in virtual time: the production arbiter, policies, agent and planner, with jobs that are numbers.

Apps have one phase. Between two events every running job works at the pace that its gang gives; nothing takes time but
that work, restarts, and giving a GPU back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from am.agent.bidding import make_bid, make_report
from am.agent.views import AppView, JobView, Surroundings
from am.app_view import held_gang, surroundings
from am.jobs.planner import Holdings, PlannedJob, make_plan
from rm_plugin.arbiter.auction import AuctionOutcome, run_auction
from rm_plugin.arbiter.core import Arbiter, LeasePolicy
from rm_plugin.arbiter.round_values import AskBids, AskReports, RoundSettings, RoundSnapshot
from rm_plugin.arbiter.rounds import Answer, Question, RoundResult, play_round
from rm_plugin.policies.port import Policy
from rm_plugin.policies.registry import make_policy
from rm_plugin.solvers.highs import HighsSolver
from rm_plugin.solvers.port import WinnerDetermination
from themis.bids import AppReport, Bid, Market
from themis.choices import BundleRule
from themis.cluster import Cluster, GpuId
from themis.errors import InvariantError
from themis.leases import Lease, LeaseChange
from themis.lifecycle import LeaseState

RESTART_S = 8.0
_AUCTION_LIMIT_S = 30.0


@dataclass(slots=True)
class Job:
    """A job: `left_s` is its work in seconds of one GPU at S = 1; it runs on `gpus` from `ready_at_s` on."""

    view: JobView
    left_s: float
    gpus: tuple[GpuId, ...] = ()
    ready_at_s: float = 0.0

    @property
    def done(self) -> bool:
        """True when no work is left."""
        return self.left_s <= 1e-6

    def now(self) -> JobView:
        """The job as the agent sees it: iterations of one second of one GPU."""
        return replace(self.view, iterations_left=max(1, math.ceil(self.left_s)), serial_iteration_s=1.0)


@dataclass(slots=True)
class App:
    """An app: jobs of one phase. An honest agent answers for it. Times are on the world's clock; `work_s` is B."""

    app_id: str
    jobs: list[Job]
    submitted_at_s: float = 0.0
    planned: Mapping[str, tuple[GpuId, ...]] = field(default_factory=dict)
    ended_at_s: float | None = None
    first_gpu_at_s: float | None = None
    work_s: float = 0.0

    def __post_init__(self) -> None:
        self.work_s = sum(job.left_s for job in self.jobs)

    @property
    def open(self) -> list[Job]:
        """Jobs that are not done."""
        return [job for job in self.jobs if not job.done]

    @property
    def demand_max_gpus(self) -> int:
        """The most GPUs that all jobs together can use."""
        return sum(job.view.shape.demand_max_gpus for job in self.jobs)


class World:
    """Apps on a cluster under a policy; `play` runs a round, `run` goes from event to event."""

    def __init__(
        self,
        cluster: Cluster,
        policy: str = "themis",
        *,
        seed: int = 1,
        rounds: RoundSettings | None = None,
        make_solver: Callable[[], WinnerDetermination] = HighsSolver,
        leases: LeasePolicy | None = None,
    ) -> None:
        self.cluster = cluster
        self.policy = make_policy(policy)
        self.leases = leases or LeasePolicy()
        self.arbiter = Arbiter(cluster, self.leases, rounds or RoundSettings(), seed=seed, grid_origin_s=0.0)
        self.now_s = 0.0
        self.apps: dict[str, App] = {}
        self.results: list[RoundResult] = []
        self.changes: list[LeaseChange] = []
        self.rho: dict[str, float] = {}
        self._make_solver = make_solver

    # ---- apps and their agents ----

    def submit(self, app: App) -> None:
        """An app arrives."""
        app.submitted_at_s = self.now_s
        self.apps[app.app_id] = app
        self.arbiter.add_app(app.app_id, now_s=self.now_s)

    def view(self, app: App) -> AppView:
        """The app as its agent sees it now."""
        up = {
            lease.gpu
            for lease in self.arbiter.table.of_app(app.app_id)
            if lease.state is LeaseState.GRANTED
            and lease.expires_at_s <= self.now_s + self.leases.checkpoint_lead_s + 1e-6
        }
        gangs = {job.view.job_id: job.gpus for job in app.open if job.gpus} | dict(app.planned)
        return AppView(
            app_id=app.app_id,
            elapsed_s=self.now_s - app.submitted_at_s,
            jobs=tuple(job.now() for job in app.open),
            work_total_gpu_s=app.work_s,
            demand_max_gpus=app.demand_max_gpus,
            reference=app.jobs[0].view,
            held=tuple(held_gang(job_id, gpus, up, self.cluster) for job_id, gpus in sorted(gangs.items())),
            restart_s=RESTART_S,
        )

    def around(self, snapshot: RoundSnapshot, app_id: str) -> Surroundings:
        """What an app's agent is told of the cluster."""
        return surroundings(
            self.cluster,
            contention=snapshot.standing(app_id).contention,
            active_apps=len(snapshot.apps),
            lease_s=snapshot.lease_s,
            rule=BundleRule.CONTINUATION,
        )

    def report(self, snapshot: RoundSnapshot, app_id: str) -> AppReport:
        """An app's answer when a round begins."""
        return make_report(self.view(self.apps[app_id]), self.around(snapshot, app_id), snapshot.round_id)

    def bid(self, snapshot: RoundSnapshot, app_id: str) -> Bid:
        """An app's answer to the offer of a round."""
        offer = snapshot.offer_to(app_id, deadline_s=snapshot.now_s)
        return make_bid(self.view(self.apps[app_id]), offer, self.around(snapshot, app_id))

    # ---- rounds ----

    def decide(self, snapshot: RoundSnapshot, policy: Policy | None = None) -> RoundResult:
        """Play a round on a snapshot without applying it."""
        round_ = play_round(snapshot, policy or self.policy)
        question = next(round_)
        while True:
            try:
                question = round_.send(self._answer(snapshot, question))
            except StopIteration as end:
                result: RoundResult = end.value
                return result

    def _answer(self, snapshot: RoundSnapshot, question: Question) -> Answer:
        if isinstance(question, AskReports):
            return {app_id: self.report(snapshot, app_id) for app_id in question.app_ids}
        if isinstance(question, AskBids):
            return {app_id: self.bid(snapshot, app_id) for app_id in question.app_ids}
        return self._auction(question.market)

    def _auction(self, market: Market) -> AuctionOutcome | None:
        return run_auction(market, self._make_solver(), _AUCTION_LIMIT_S) if market.bids else None

    def play(self) -> RoundResult:
        """A whole round: framed, decided, applied, and the apps act on it."""
        snapshot, prolonged = self.arbiter.begin_round(self.now_s)
        self.changes += prolonged
        result = self.decide(snapshot)
        self.changes += self.arbiter.settle(result, now_s=self.now_s)
        self.arbiter.validate()
        self.results.append(result)
        self.act()
        return result

    def act(self) -> None:
        """Every app's planner moves its jobs, and gives back what it should; until nothing changes."""
        moved = True
        while moved:
            moved = False
            for app in self.apps.values():
                moved |= app.ended_at_s is None and self._act(app)
            self.arbiter.validate()

    def _act(self, app: App) -> bool:
        leases = self.arbiter.table.of_app(app.app_id)
        holdings = _holdings(leases)
        if holdings.granted and app.first_gpu_at_s is None:
            app.first_gpu_at_s = self.now_s
        planned = [PlannedJob(view=job.now(), gpus=job.gpus) for job in app.open]
        plan = make_plan(planned, {}, holdings, self.cluster, RESTART_S)
        jobs = {job.view.job_id: job for job in app.jobs}
        for job_id in plan.stop:
            jobs[job_id].gpus = ()
        for job_id, gpus in plan.start.items():
            jobs[job_id].gpus, jobs[job_id].ready_at_s = gpus, self.now_s + RESTART_S
        app.planned = dict(plan.wait)
        busy = {gpu for job in app.jobs for gpu in job.gpus}
        back = {*plan.release, *(holdings.expiring - busy)}
        ids = [lease.lease_id for lease in leases if lease.gpu in back and lease.state is not LeaseState.RESERVED]
        self.changes += self.arbiter.release(ids, now_s=self.now_s, reason="planned")
        return bool(plan.stop or plan.start or ids)

    # ---- time ----

    def next_event_s(self) -> float:
        """When a job ends or leases are up, whichever is first; infinite when nothing will happen."""
        ends = [
            max(self.now_s, job.ready_at_s) + job.left_s / self._pace(job)
            for app in self.apps.values()
            for job in app.open
            if job.gpus
        ]
        due = self.arbiter.next_lease_round_s()
        return min([*ends, *([] if due is None else [max(due, self.now_s)])], default=math.inf)

    def advance(self, to_s: float) -> None:
        """Let the jobs work until then; jobs and apps that are done end."""
        for app in self.apps.values():
            for job in app.open:
                if job.gpus:
                    worked_s = max(0.0, to_s - max(self.now_s, job.ready_at_s))
                    job.left_s = max(0.0, job.left_s - worked_s * self._pace(job))
                    if job.done:
                        job.gpus = ()
        self.now_s = to_s
        for app in self.apps.values():
            if app.ended_at_s is None and not app.open:
                self._end(app)
        self.act()

    def _end(self, app: App) -> None:
        app.ended_at_s = self.now_s
        ideal_s = app.work_s / min(self.cluster.gpus, app.demand_max_gpus)
        ideal_s *= self.arbiter.contention(app.app_id, self.now_s)
        self.rho[app.app_id] = (self.now_s - app.submitted_at_s) / ideal_s
        self.changes += self.arbiter.end_app(app.app_id, now_s=self.now_s, reason="it ended")

    def _pace(self, job: Job) -> float:
        shape, level = job.view.shape, self.cluster.level_of_gpus(job.gpus)
        return shape.usable_gpus(len(job.gpus)) / job.view.slowdown.at(level)

    def run(
        self,
        arrivals: Iterable[tuple[float, App]] = (),
        most_rounds: int = 500,
        watch: Callable[[RoundResult], None] | None = None,
    ) -> None:
        """Go on until every app has ended. `arrivals` are (time, app) in order; `watch` sees every result.

        Raises:
            InvariantError: The apps did not end within so many rounds.
        """
        waiting = list(arrivals)
        for _ in range(most_rounds):
            next_s = self.next_event_s()
            if waiting and waiting[0][0] <= next_s:
                self.advance(max(self.now_s, waiting[0][0]))
                self.submit(waiting.pop(0)[1])
            elif math.isinf(next_s):
                if all(app.ended_at_s is not None for app in self.apps.values()):
                    return
            else:
                self.advance(next_s)
            if any(app.ended_at_s is None for app in self.apps.values()):
                result = self.play()
                if watch is not None:
                    watch(result)
        raise InvariantError("the apps of a virtual cluster did not end", value=most_rounds)


def _holdings(leases: Iterable[Lease]) -> Holdings:
    by_state: dict[LeaseState, frozenset[GpuId]] = {
        state: frozenset(lease.gpu for lease in leases if lease.state is state)
        for state in (LeaseState.GRANTED, LeaseState.RESERVED, LeaseState.EXPIRING)
    }
    return Holdings(
        granted=by_state[LeaseState.GRANTED],
        reserved=by_state[LeaseState.RESERVED] - by_state[LeaseState.EXPIRING],
        expiring=by_state[LeaseState.EXPIRING],
    )
