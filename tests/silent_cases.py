"""A cluster of 8 GPUs in seconds: apps whose jobs say nothing of their pace, and honest ones, under a policy."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

from agent_cases import cluster_of

from am.agent.bids.reports import make_report
from am.app_view import held_gang, make_cluster_view
from am.jobs.search_state import SearchState
from am.journal import Journal
from am.journal_store import EmptyJournal
from am.searched_app import SearchedApp
from rm_plugin.arbiter.round_values import AppStanding, RoundSettings, RoundSnapshot
from rm_plugin.policies.registry import make_policy
from themis.apps import AppSpec, Estimate, JobShape, JobSpec, ProgramSpec, TunerSpec
from themis.bids import FreeMachine
from themis.choices import BundleRule
from themis.cluster import Allocation, GpuId
from themis.lifecycle import JobState

CLUSTER = cluster_of((4,), (4,))
GPUS = tuple(GpuId(machine.machine_id, place) for machine in CLUSTER.machines for place in range(machine.gpus))
LEASE_S, LEAD_S = 20, 3


class TimedApp:
    """An app of jobs that take a time on their gang, and never log anything. Honest if it states that time."""

    def __init__(self, name, *, jobs=1, gang=4, takes_s=120.0, states_s=None, submitted_s=0, lease_s=LEASE_S):
        serial_s = None if states_s is None else states_s * gang
        shape = JobShape(tasks=gang, min_tasks=gang)
        spec = AppSpec(
            name=name,
            tuner=TunerSpec(name="single"),
            program=ProgramSpec(name="p"),
            jobs=tuple(JobSpec(job_id=f"j{place:02}", iterations_total=1, shape=shape) for place in range(jobs)),
            estimate=Estimate(serial_iteration_s=serial_s),
        )
        view = make_cluster_view(CLUSTER, active_apps=1, lease_s=float(lease_s), rule=BundleRule.CONTINUATION)
        journal = Journal(EmptyJournal())
        self.search = SearchState(spec, Path(), 1.0, journal, lambda _: None, lease_s=float(lease_s))
        self.search.fit_cluster(CLUSTER)
        self.app = SearchedApp(
            name, spec, self.search, view, submitted_at_s=submitted_s, contention=1.0, checkpoint_uri=""
        )
        self.name, self.gang, self.takes_s, self.submitted_s = name, gang, takes_s, submitted_s
        self.running = {}
        self.ran_s = Counter()

    @property
    def gpus(self):
        return {gpu for gang in self.running.values() for gpu in gang}

    @property
    def over(self):
        return not self.search.plan().targets

    def run(self, now_s):
        """One second."""
        for job_id in list(self.running):
            job = self.search.jobs[job_id]
            self.ran_s[job_id] += 1
            job.profile.look(float(now_s))
            if self.ran_s[job_id] >= self.takes_s:
                del self.running[job_id]
                job.gpus = ()
                self.search.target_reached(job)

    def report(self, active, now_s, renewable):
        self.app.set_contention(contention=float(active), active_apps=active)
        self.search.remeasure()
        held = tuple(
            held_gang(job_id, gpus, gpus if renewable else (), CLUSTER) for job_id, gpus in sorted(self.running.items())
        )
        return make_report(self.app.view_at(float(now_s), held), self.app.cluster_view, 1)

    def take(self, gpus, now_s):
        """Hold just these GPUs from now on. Jobs that keep their gangs go on, others start on what is left."""
        left = set(gpus)
        for job_id, gang in list(self.running.items()):
            if left.issuperset(gang):
                left -= set(gang)
            else:
                del self.running[job_id]
                self.search.jobs[job_id].gpus = ()
                self.search.turn(self.search.jobs[job_id], JobState.CHECKPOINTING)
                self.search.turn(self.search.jobs[job_id], JobState.WAITING)
        for job_id in sorted(self.search.plan().targets):
            if job_id not in self.running and len(left) >= self.gang:
                gang = tuple(sorted(left)[: self.gang])
                left -= set(gang)
                self.running[job_id] = gang
                job = self.search.jobs[job_id]
                job.gpus = gang
                self.search.turn(job, JobState.STARTING)
                self.search.turn(job, JobState.RUNNING)
                job.profile.started(len(gang), CLUSTER.level_of_gpus(gang))
                job.profile.look(float(now_s))


def play(apps, until_s, policy="fair_finish", lease_s=LEASE_S, lead_s=LEAD_S):
    """Run rounds for so many seconds. Returns the GPUs by app, second by second."""
    rule, memory, seen, attained = make_policy(policy), None, [], Counter()
    for now_s in range(until_s):
        for app in apps:
            app.run(now_s)
        present = [app for app in apps if app.submitted_s <= now_s and not app.over]
        lease_ends = now_s % lease_s == lease_s - lead_s
        free = set(GPUS) - {gpu for app in present for gpu in app.gpus}
        if present and (lease_ends or free):
            memory = _round(rule, memory, present, attained, free, now_s, lease_ends, lease_s)
        held = {app.name: len(app.gpus) for app in apps}
        attained.update(held)
        seen.append(held)
    return seen


def _round(rule, memory, present, attained, free, now_s, lease_ends, lease_s):
    reports = {app.name: app.report(len(present), now_s, lease_ends) for app in present}
    offered = set(GPUS) if lease_ends else free
    nothing = Allocation()
    standings = tuple(
        AppStanding(
            app_id=app.name,
            submitted_at_s=float(app.submitted_s),
            ended_gpu_s=float(attained[app.name]),
            kept=nothing if lease_ends else Allocation.of_gpus(app.gpus),
            renewable=Allocation.of_gpus(app.gpus) if lease_ends else nothing,
        )
        for app in present
    )
    snapshot = RoundSnapshot(
        round_id=now_s + 1,
        now_s=float(now_s),
        lease_s=float(lease_s),
        cluster=CLUSTER,
        machines=tuple(
            FreeMachine(
                machine_id=machine.machine_id,
                rack_id=machine.rack_id,
                free_slots=(sum(gpu.machine_id == machine.machine_id for gpu in offered),),
            )
            for machine in CLUSTER.machines
        ),
        apps=standings,
        settings=RoundSettings(),
        seed=1,
        reports=reports,
        memory=memory,
    )
    decision = rule.decide(snapshot)
    grants = {
        name: sum((gang.gpus for gang in gangs), Allocation()).by_machine() for name, gangs in decision.grants().items()
    }
    # What an app holds already on a machine stays with it.
    kept = {app.name: (set() if lease_ends else set(app.gpus)) for app in present}
    taken = {name: set(gpus) for name, gpus in kept.items()}
    for same in (True, False):
        for app in present:
            for machine_id, count in grants.get(app.name, {}).items():
                here = [gpu for gpu in sorted(offered) if gpu.machine_id == machine_id]
                own = [gpu for gpu in here if gpu in app.gpus] if same else here
                won = sum(gpu.machine_id == machine_id for gpu in taken[app.name] - kept[app.name])
                chosen = set(own[: count - won])
                taken[app.name] |= chosen
                offered -= chosen
    for app in present:
        app.take(taken[app.name], now_s)
    return decision.memory


def stay_of(seen, app):
    """When an app got its first GPUs, the longest time that it had none from its submission to its end, and its end."""
    held = [second for second, gpus in enumerate(seen) if gpus[app.name]]
    assert held, f"{app.name} had no GPUs"
    steps = [app.submitted_s, *held]
    return held[0], max(later - former for former, later in pairwise(steps)), held[-1] + 1
