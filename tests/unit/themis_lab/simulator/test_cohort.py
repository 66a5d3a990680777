"""The cohort of a run: an app is evaluated again if it changed, and only then."""

from collections import Counter

import pytest
from sim_cases import COSTS, FAR, app, cluster, job, settings, workload

from am.app_view import make_cluster_view
from rm_plugin.arbiter.core import Arbiter, LeasePolicy
from themis.apps import TunerSpec
from themis.bids import RhoOf
from themis.choices import BundleRule
from themis.cluster import GpuId
from themis.leases import Lease, LeaseChange, LeaseChangeKind
from themis_lab.simulator.agents import HonestAgent, LyingAgent, lie_about_rho
from themis_lab.simulator.app import SimApp
from themis_lab.simulator.cohort import Cohort
from themis_lab.simulator.simulation import Simulation

ON = cluster((2, 2))
LEAD_S = 5.0
LEASE_S = 600.0


class Rounds:
    """Apps that wait, and a cohort that is asked for reports. `viewed` counts the evaluations of each app."""

    def __init__(self, monkeypatch, *names, lying=()):
        settled = settings(ON)
        self.arbiter = Arbiter(ON, LeasePolicy(), settled.rounds, seed=1, grid_origin_s=0.0)
        cluster_view = make_cluster_view(ON, active_apps=1, lease_s=LEASE_S, rule=BundleRule.CONTINUATION)
        self.apps = {name: SimApp(name, app(name, job(gpus=2)), ON, COSTS, 0.0) for name in names}
        self.cohort = Cohort(self.apps, cluster_view, LEAD_S)
        self.viewed = Counter()
        for name in names:
            agent = HonestAgent()
            self.cohort.enter(name, LyingAgent(agent, lie_about_rho(2.0)) if name in lying else agent)
            self.arbiter.add_app(name, now_s=0.0)
        view = SimApp.view

        def count(sim, *arguments):
            self.viewed[sim.app_id] += 1
            return view(sim, *arguments)

        monkeypatch.setattr(SimApp, "view", count)

    def evaluated_at(self, now_s, rho_of=RhoOf.APPS_WITH_DEMAND):
        """The apps that a round at this time evaluates."""
        self.viewed.clear()
        snapshot, _ = self.arbiter.begin_round(now_s)
        self.reports = self.cohort.reports(snapshot, self.apps, rho_of)
        return self.viewed

    def grant(self, name, gpus, until_s):
        """Give an app leases, on which its job starts."""
        for index in gpus:
            gpu = GpuId("m0", index)
            lease = Lease(lease_id=index + 1, gpu=gpu, app_id=name, granted_at_s=0.0, expires_at_s=until_s)
            self.apps[name].on_lease_change(LeaseChange(kind=LeaseChangeKind.GRANTED, lease=lease))
        self.apps[name].act(0.0)


def test_waiting_app_is_evaluated_once(monkeypatch):
    rounds = Rounds(monkeypatch, "a", "b")
    assert rounds.evaluated_at(10.0) == {"a": 1, "b": 1}
    assert rounds.evaluated_at(20.0) == {}


def test_waiting_app_ages_without_evaluation(monkeypatch):
    rounds = Rounds(monkeypatch, "a", "b")
    rounds.evaluated_at(10.0, RhoOf.EVERY_APP)
    before = rounds.reports["a"].t_shared_s
    assert rounds.evaluated_at(110.0, RhoOf.EVERY_APP) == {}
    assert rounds.reports["a"].t_shared_s == pytest.approx(before + 100.0)


def test_only_changed_app_is_evaluated_again(monkeypatch):
    rounds = Rounds(monkeypatch, "a", "b")
    rounds.evaluated_at(10.0)
    rounds.cohort.mark_changed("b")
    assert rounds.evaluated_at(20.0) == {"b": 1}


def test_satisfied_app_is_evaluated_again_when_its_lease_is_renewable(monkeypatch):
    rounds = Rounds(monkeypatch, "a")
    rounds.grant("a", (0, 1), until_s=600.0)
    assert rounds.evaluated_at(10.0) == {"a": 1}
    assert rounds.evaluated_at(594.0) == {}
    assert rounds.evaluated_at(595.0) == {"a": 1}


def test_app_that_wants_more_gpus_is_evaluated_every_round(monkeypatch):
    rounds = Rounds(monkeypatch, "a")
    rounds.apps["a"] = SimApp("a", app("a", job("j0"), job("j1")), ON, COSTS, 0.0)
    rounds.grant("a", (0,), until_s=600.0)
    assert rounds.evaluated_at(10.0) == rounds.evaluated_at(20.0) == {"a": 1}


def test_lying_app_is_evaluated_every_round(monkeypatch):
    rounds = Rounds(monkeypatch, "a", "b", lying="b")
    rounds.evaluated_at(10.0)
    assert rounds.evaluated_at(20.0) == {"b": 1}


def test_forgotten_change_leaves_a_stale_report(monkeypatch):
    """Why the caller must mark what changed."""
    rounds = Rounds(monkeypatch, "a")
    rounds.evaluated_at(10.0)
    assert rounds.reports["a"].demand_gpus == 2
    rounds.grant("a", (0, 1), until_s=600.0)
    rounds.evaluated_at(20.0)
    assert rounds.reports["a"].demand_gpus == 2, "stale"
    rounds.cohort.mark_changed("a")
    rounds.evaluated_at(30.0)
    assert rounds.reports["a"].demand_gpus == 0


# ---- in runs --------------------------------------------------------------------------------------------------------


def differing_reports(monkeypatch):
    """The number of a run's reports, and of those that differ from the ones of a cohort that remembers nothing."""
    reports, counts = Cohort.reports, Counter()

    def compare(cohort, snapshot, app_ids, rho_of):
        app_ids = list(app_ids)
        answers = reports(cohort, snapshot, app_ids, rho_of)
        fresh = Cohort(cohort._apps, cohort.cluster_view, cohort._lead_s)
        for app_id in app_ids:
            fresh.enter(app_id, HonestAgent())
        afresh = reports(fresh, snapshot, app_ids, rho_of)
        counts["reports"] += len(app_ids)
        # As text, in which one NaN is like another.
        counts["different"] += sum(repr(answers[app_id]) != repr(afresh[app_id]) for app_id in app_ids)
        return answers

    with monkeypatch.context() as patched:
        patched.setattr(Cohort, "reports", compare)
        halving = TunerSpec(name="successive_halving", settings={"eta": 2})
        jobs = [job(f"j{place}", 900 + 300 * place, gpus=2, least=1, slowdown=FAR) for place in range(4)]
        apps = [
            app(name, *jobs[: 1 + place % 4], at_s=70.0 * place, tuner=halving if place % 2 else None)
            for place, name in enumerate("abcdefg")
        ]
        Simulation(workload(*apps), settings(cluster((2, 2), (2,)), lease_s=120.0)).run()
    assert counts["reports"] > 100
    return counts["different"]


def test_cached_reports_equal_uncached_reports(monkeypatch):
    assert differing_reports(monkeypatch) == 0


def test_run_that_marks_no_changes_has_stale_reports(monkeypatch):
    monkeypatch.setattr(Cohort, "mark_changed", lambda *_: None)
    assert differing_reports(monkeypatch) > 0
