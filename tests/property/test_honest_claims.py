"""An honest app master is never cut: the reports and bids of production agents, over random simulated runs."""

from random import Random

import pytest
from test_simulation_properties import COSTS, FREE, SMALL, cluster, random_app, settings, workload

from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.arbiter.round_values import AskReports
from rm_plugin.service.claims import WITHIN_APP, AppFacts, checked_bid, checked_report
from themis.apps import AppSpec, ProgramSpec
from themis.choices import BundleRule, LeaseEnds
from themis_lab.simulator.settings import NodeOutage
from themis_lab.simulator.simulation import Simulation

TIGHT = cluster((2,), (1,), (1,))


class Checked(Simulation):
    """A run that checks every answer as the live service does, and keeps what is cut."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.claimed, self.believed, self.cuts, self.seen = {}, {}, [], {"reports": 0, "bids": 0}

    def _answer(self, snapshot, question):
        answers = super()._answer(snapshot, question)
        if isinstance(question, AskReports):
            for report in answers.values():
                self._check_report(report, snapshot)
        elif isinstance(answers, dict):
            for bid in answers.values():
                _, cuts = checked_bid(bid, self.believed[bid.app_id], self._facts(snapshot, bid.app_id))
                self.seen["bids"] += 1
                self.cuts += cuts
        return answers

    def _check_report(self, report, snapshot):
        believed, cuts = checked_report(report, self._facts(snapshot, report.app_id))
        if report.phases_left:
            self.claimed.setdefault(report.app_id, report.work_left_gpu_s)
        self.seen["reports"] += 1
        assert cuts or believed is report
        self.cuts += [cut for cut in cuts if WITHIN_APP not in cut]
        self.believed[report.app_id] = believed

    def _facts(self, snapshot, app_id):
        standing, trace = snapshot.standing(app_id), self.apps[app_id].trace
        jobs = tuple(job.spec for job in trace.jobs)
        return AppFacts(
            spec=AppSpec(name=app_id, tuner=trace.tuner, program=ProgramSpec(command="train"), jobs=jobs),
            cluster=snapshot.cluster,
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
        reports, bids = reports + run.seen["reports"], bids + run.seen["bids"]
    assert reports > 250
    assert bids > 50 or policy != "themis"
