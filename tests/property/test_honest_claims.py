"""An honest app master is never cut: the reports and bids of production agents, over random simulated runs."""

import math
from random import Random

import pytest
from agent_cases import app_of, cluster_of, job
from msgspec.structs import replace
from test_simulation_properties import COSTS, FREE, SMALL, cluster, random_app, settings, workload

from am.agent.bids.reports import make_report
from am.app_view import make_cluster_view
from am.tuners.port import Phase
from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.arbiter.round_values import AskReports
from rm_plugin.service.claims import (
    SLACK_GPU_S,
    WITHIN_APP,
    AppFacts,
    checked_bid,
    checked_report,
    is_declared_anew,
    metered_gpu_s,
)
from themis.apps import AppSpec, JobShape, JobSpec, ProgramSpec, Slowdown, TunerSpec
from themis.choices import BundleRule, LeaseEnds
from themis.cluster import Allocation
from themis_lab.simulator.settings import NodeOutage
from themis_lab.simulator.simulation import Simulation

TIGHT = cluster((2,), (1,), (1,))


class Checked(Simulation):
    """A run that checks every answer as the live service does, and keeps what is cut."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.wasteful, self.first, self.claimed, self.believed, self.cuts, self.seen = (
            set(),
            {},
            {},
            {},
            [],
            {"reports": 0, "bids": 0},
        )

    def _answer(self, snapshot, question):
        answers = super()._answer(snapshot, question)
        if isinstance(question, AskReports):
            for report in answers.values():
                self._check_report(report, snapshot)
        elif isinstance(answers, dict):
            for bid in answers.values():
                _, cuts = checked_bid(bid, self.believed[bid.app_id], self._facts(snapshot, bid.app_id))
                self.seen["bids"] += 1
                if bid.app_id not in self.wasteful:
                    self.cuts += cuts
        return answers

    def _check_report(self, report, snapshot):
        facts = self._facts(snapshot, report.app_id)
        believed, cuts = checked_report(report, facts)
        if report.work_left_gpu_s:
            used_gpu_s = metered_gpu_s(facts, believed.demands)
            left_gpu_s = believed.work_left_gpu_s
            if is_declared_anew(self.claimed.get(report.app_id), used_gpu_s, left_gpu_s):
                self.claimed[report.app_id] = used_gpu_s + left_gpu_s
        self.seen["reports"] += 1
        assert cuts or believed is report
        first_gpu_s = self.first.setdefault(report.app_id, report.work_left_gpu_s)
        # Of an app that lost more than half of its GPU time, the service believes that it has more work left.
        if facts.attained_gpu_s > 2.0 * (first_gpu_s - report.work_left_gpu_s) + SLACK_GPU_S:
            self.wasteful.add(report.app_id)
        if report.app_id not in self.wasteful:
            self.cuts += [cut for cut in cuts if WITHIN_APP not in cut]
        self.believed[report.app_id] = believed

    def _facts(self, snapshot, app_id):
        standing, trace = snapshot.standing(app_id), self.apps[app_id].trace
        jobs = tuple(job.spec for job in trace.jobs)
        return AppFacts(
            spec=AppSpec(name=app_id, tuner=trace.tuner, program=ProgramSpec(command="train"), jobs=jobs),
            cluster=snapshot.cluster,
            available_gpus=self.arbiter.gpus_available,
            free_gpus=snapshot.free_gpus,
            kept=standing.kept,
            elapsed_s=snapshot.now_s - standing.submitted_at_s,
            attained_gpu_s=standing.attained_gpu_s(snapshot.now_s),
            contention=snapshot.contentions.of(app_id),
            active_apps=len(snapshot.apps),
            lease_s=snapshot.lease_s,
            rule=self.settings.bundle_rule,
            claimed_gpu_s=self.claimed.get(app_id),
        )


@pytest.mark.parametrize(
    "rule", [BundleRule.CONTINUATION, *[pytest.param(rule, marks=pytest.mark.slow) for rule in list(BundleRule)[1:]]]
)
@pytest.mark.parametrize("ends", list(LeaseEnds))
@pytest.mark.parametrize("policy", ["themis", "srtf"])
def test_reports_and_bids_of_honest_agents_are_believed(policy, ends, rule):
    reports = bids = 0
    for seed in range(3):
        rng = Random(seed)
        on, costs = (SMALL, TIGHT)[seed % 2 and policy != "themis"], rng.choice([COSTS, FREE])
        apps = [random_app(rng, f"a{place}", rng.choice([0, 0, 100, 2000]) * place, True) for place in range(8)]
        outages = (NodeOutage(machine_id="m1", lost_at_s=1500.0, back_at_s=4000.0),) if seed % 3 == 1 else ()
        leases = LeasePolicy(duration_s=rng.choice([60.0, 600.0]), ends=ends, checkpoint_lead_s=costs.checkpoint_s)
        choices = settings(
            on,
            policy=policy,
            seed=seed,
            outages=outages,
            leases=leases,
            costs=costs,
            bundle_rule=rule,
            record_rounds=True,
        )
        run = Checked(workload(*apps), choices)
        run.run()
        assert not run.cuts
        assert len(run.wasteful) < 2
        reports, bids = reports + run.seen["reports"], bids + run.seen["bids"]
    assert reports > 250
    assert bids > 50 or policy != "themis"


CLUSTERS = (
    cluster_of((4,), (2, 2)),
    cluster_of(*[(2, 2)] * 6, racks=("r0", "r1")),
    replace(
        cluster_of((4,), (4,), (1,), (2, 2)),
        machines=tuple(
            replace(machine, device=device)
            for machine, device in zip(
                cluster_of((4,), (4,), (1,), (2, 2)).machines, ("v100", "k80", "k80", "t4"), strict=True
            )
        ),
    ),
)


def random_shape(rng):
    tasks = rng.randint(1, 4)
    return JobShape(tasks=tasks, min_tasks=rng.randint(1, tasks), gpus_per_task=rng.choice([1, 1, 2]))


def random_view(rng):
    """An app without GPUs: jobs of one shape or of several, S that grows with the distance, and later phases."""
    shapes = [random_shape(rng)] * 4 if rng.random() < 0.6 else [random_shape(rng) for _ in range(4)]
    levels = [1.0, *sorted(rng.uniform(1.0, 4.0) for _ in range(3))]
    far = Slowdown(*levels)
    jobs = [
        job(f"j{place}", rng.choice([1.0, 50.0, 500.0, 9000.0]) * rng.uniform(0.5, 2.0), shapes[place % 4], far)
        for place in range(rng.randint(1, 8))
    ]
    phases = [Phase(jobs=rng.randint(1, len(jobs)), iterations=1) for _ in range(rng.choice([0, 0, 2]))]
    whole = app_of(jobs, later_phases=tuple(phases), elapsed_s=rng.uniform(0.0, 1e4))
    later_gpu_s = sum(phase.jobs * whole.median_job.serial_iteration_s for phase in phases)
    return replace(whole, work_total_gpu_s=whole.work_total_gpu_s + later_gpu_s, restart_s=rng.choice([0.0, 40.0]))


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("rule", list(BundleRule))
def test_rho_of_waiting_apps_of_any_shape_is_believed(cluster, rule):
    rng, checked = Random(1), 0
    for _ in range(300):
        view, active_apps, lease_s = random_view(rng), rng.randint(1, 30), rng.choice([20.0, 600.0])
        view = replace(view, contention=rng.uniform(1.0, active_apps))
        jobs = tuple(JobSpec(job_id=each.job_id, shape=each.shape, iterations_total=1) for each in view.jobs)
        if max(each.shape.demand_min_gpus for each in jobs) > cluster.gpus:
            continue
        report = make_report(view, make_cluster_view(cluster, active_apps=active_apps, lease_s=lease_s, rule=rule), 1)
        if math.isinf(report.rho) and rule is not BundleRule.LEXICOGRAPHIC:
            continue  # No device type has GPUs for its smallest gang on the fair share.
        checked += 1
        facts = AppFacts(
            spec=AppSpec(name="x", tuner=TunerSpec(name="single"), program=ProgramSpec(command="train"), jobs=jobs),
            cluster=cluster,
            available_gpus=cluster.gpus,
            free_gpus=cluster.gpus,
            kept=Allocation(),
            elapsed_s=view.elapsed_s,
            attained_gpu_s=0.0,
            contention=view.contention,
            active_apps=active_apps,
            lease_s=lease_s,
            rule=rule,
        )
        assert checked_report(report, facts) == (report, ()), view
    assert checked > 200
