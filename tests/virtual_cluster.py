"""A cluster in virtual time: the production arbiter, policies, agent and planner, with jobs that are numbers.

Apps have one phase. Between two events every running job works at the pace that its gang gives; nothing takes time but
that work, restarts, and giving a GPU back.
"""

import math
from dataclasses import dataclass, field, replace

from am.agent.bidding import make_bid, make_report
from am.agent.views import AppView, JobView
from am.app_view import held_gang, surroundings
from am.jobs.planner import Holdings, PlannedJob, make_plan
from rm_plugin.arbiter.auction import run_auction
from rm_plugin.arbiter.core import Arbiter, LeasePolicy
from rm_plugin.arbiter.round_values import AskBids, AskReports, RoundSettings
from rm_plugin.arbiter.rounds import play_round
from rm_plugin.policies.registry import make_policy
from rm_plugin.solvers.highs import HighsSolver
from themis.bids import Offer
from themis.choices import BundleRule
from themis.lifecycle import LeaseState

RESTART_S = 8.0


@dataclass
class Job:
    view: JobView
    left_s: float
    gpus: tuple = ()
    ready_at_s: float = 0.0

    @property
    def done(self):
        return self.left_s <= 1e-6

    def now(self):
        """The job as the agent sees it: iterations of one second of one GPU."""
        return replace(self.view, iterations_left=max(1, math.ceil(self.left_s)), serial_iteration_s=1.0)


@dataclass
class App:
    """An app: jobs of one phase. An honest agent answers for it."""

    app_id: str
    jobs: list
    submitted_at_s: float = 0.0
    planned: dict = field(default_factory=dict)
    ended_at_s: float | None = None
    first_gpu_at_s: float | None = None
    work_s: float = 0.0

    def __post_init__(self):
        self.work_s = sum(job.left_s for job in self.jobs)

    @property
    def open(self):
        return [job for job in self.jobs if not job.done]


class World:
    """Apps on a cluster under a policy; `play` runs a round, `run` goes from event to event."""

    def __init__(self, cluster, policy="themis", *, seed=1, rounds=None, **leases):
        self.cluster = cluster
        self.policy = make_policy(policy)
        self.leases = LeasePolicy(**leases)
        self.arbiter = Arbiter(cluster, self.leases, rounds or RoundSettings(), seed=seed, grid_origin_s=0.0)
        self.now_s = 0.0
        self.apps = {}
        self.results = []
        self.changes = []

    # ---- apps and their agents ----

    def submit(self, app):
        app.submitted_at_s = self.now_s
        self.apps[app.app_id] = app
        self.arbiter.add_app(app.app_id, now_s=self.now_s)

    def view(self, app):
        up = {
            lease.gpu
            for lease in self.arbiter.table.of_app(app.app_id)
            if lease.state is LeaseState.GRANTED
            and lease.expires_at_s <= self.now_s + self.leases.checkpoint_lead_s + 1e-6
        }
        gangs = {job.view.job_id: job.gpus for job in app.open if job.gpus} | app.planned
        return AppView(
            app_id=app.app_id,
            elapsed_s=self.now_s - app.submitted_at_s,
            jobs=tuple(job.now() for job in app.open),
            work_total_gpu_s=app.work_s,
            demand_max_gpus=sum(job.view.shape.demand_max_gpus for job in app.jobs),
            reference=app.jobs[0].view,
            held=tuple(held_gang(job_id, gpus, up, self.cluster) for job_id, gpus in sorted(gangs.items())),
            restart_s=RESTART_S,
        )

    def around(self, snapshot, app_id):
        return surroundings(
            self.cluster,
            contention=snapshot.standing(app_id).contention,
            active_apps=len(snapshot.apps),
            lease_s=snapshot.lease_s,
            rule=BundleRule.CONTINUATION,
        )

    def report(self, snapshot, app_id):
        return make_report(self.view(self.apps[app_id]), self.around(snapshot, app_id), snapshot.round_id)

    def bid(self, snapshot, app_id):
        standing = snapshot.standing(app_id)
        offer = Offer(
            round_id=snapshot.round_id,
            now_s=snapshot.now_s,
            deadline_s=snapshot.now_s,
            lease_s=snapshot.lease_s,
            free=snapshot.free,
            slots={machine.machine_id: machine.free_slots for machine in snapshot.machines if machine.free},
            renewable=standing.renewable,
            kept=standing.kept,
            contention=standing.contention,
            active_apps=len(snapshot.apps),
        )
        return make_bid(self.view(self.apps[app_id]), offer, self.around(snapshot, app_id))

    # ---- rounds ----

    def decide(self, snapshot, policy=None):
        """Play a round on a snapshot without applying it."""
        round_ = play_round(snapshot, policy or self.policy)
        question = next(round_)
        while True:
            if isinstance(question, AskReports):
                answer = {app_id: self.report(snapshot, app_id) for app_id in question.app_ids}
            elif isinstance(question, AskBids):
                answer = {app_id: self.bid(snapshot, app_id) for app_id in question.app_ids}
            else:
                answer = run_auction(question.market, HighsSolver(), 30.0) if question.market.bids else None
            try:
                question = round_.send(answer)
            except StopIteration as end:
                return end.value

    def play(self):
        """A whole round: framed, decided, applied, and the apps act on it."""
        snapshot, prolonged = self.arbiter.begin_round(self.now_s)
        self.changes += prolonged
        result = self.decide(snapshot)
        self.changes += self.arbiter.settle(result, now_s=self.now_s)
        self.arbiter.validate()
        self.results.append(result)
        self.act()
        return result

    def act(self):
        """Every app's planner moves its jobs, and gives back what it should; until nothing changes."""
        moved = True
        while moved:
            moved = False
            for app in self.apps.values():
                moved |= app.ended_at_s is None and self._act(app)
            self.arbiter.validate()

    def _act(self, app):
        leases = self.arbiter.table.of_app(app.app_id)
        by_state = {
            state: frozenset(lease.gpu for lease in leases if lease.state is state)
            for state in (LeaseState.GRANTED, LeaseState.RESERVED, LeaseState.EXPIRING)
        }
        if by_state[LeaseState.GRANTED] and app.first_gpu_at_s is None:
            app.first_gpu_at_s = self.now_s
        holdings = Holdings(
            granted=by_state[LeaseState.GRANTED],
            reserved=by_state[LeaseState.RESERVED] - by_state[LeaseState.EXPIRING],
            expiring=by_state[LeaseState.EXPIRING],
        )
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

    def next_event_s(self):
        """When a job ends or leases are up, whichever is first; infinite when nothing will happen."""
        ends = [
            max(self.now_s, job.ready_at_s) + job.left_s / self._pace(job)
            for app in self.apps.values()
            for job in app.open
            if job.gpus
        ]
        due = self.arbiter.next_lease_round_s()
        return min([*ends, *([] if due is None else [max(due, self.now_s)])], default=math.inf)

    def advance(self, to_s):
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
                app.ended_at_s = to_s
                self.changes += self.arbiter.end_app(app.app_id, now_s=to_s, reason="it ended")
        self.act()

    def _pace(self, job):
        shape, level = job.view.shape, self.cluster.level_of_gpus(job.gpus)
        return shape.usable_gpus(len(job.gpus)) / job.view.slowdown.at(level)

    def run(self, arrivals=(), most_rounds=500, watch=None):
        """Go on until every app has ended. `arrivals` are (time, app) in order; `watch` sees every result."""
        arrivals = list(arrivals)
        for _ in range(most_rounds):
            next_s = self.next_event_s()
            if arrivals and arrivals[0][0] <= next_s:
                self.advance(max(self.now_s, arrivals[0][0]))
                self.submit(arrivals.pop(0)[1])
            elif math.isinf(next_s):
                if all(app.ended_at_s is not None for app in self.apps.values()):
                    return
            else:
                self.advance(next_s)
            if any(app.ended_at_s is None for app in self.apps.values()):
                result = self.play()
                if watch is not None:
                    watch(result)
        raise AssertionError("the apps did not end")
