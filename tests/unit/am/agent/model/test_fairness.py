"""Ideal times, declarations to the fluid cluster, and the worth of a bundle under the three rules; all by hand."""

import math

import pytest
from agent_cases import CRUDE_SLOWDOWN, app_of, cluster_of, cluster_view_of, jobs_of

from am.agent.model.fairness import Valuer, cluster_time_s, declaration_of, ideal_times_s, rho_by_definition
from am.tuners.port import Phase
from themis.apps import JobShape
from themis.choices import BundleRule
from themis.fluid_cluster import FluidPhase
from themis.rho import SCHEDULE_DEFINITIONS, RhoDefinition

CLUSTER = cluster_of((2, 2), (2, 2), (2, 2), (2, 2), racks=("r0", "r1"))


def valuer(rule, elapsed_s=0.0, ideal_s=1000.0, share_s=2000.0, lease_s=600.0):
    return Valuer(elapsed_s=elapsed_s, ideal_s=ideal_s, share_s=share_s, lease_s=lease_s, rule=rule)


class TestContinuation:
    RULE = BundleRule.CONTINUATION

    def test_a_bundle_that_outlasts_the_app_needs_no_continuation(self):
        assert valuer(self.RULE, elapsed_s=50.0).shared_s(600.0) == 650.0

    def test_a_bundle_faster_than_the_share_is_held_to_the_end(self):
        # 600 of 1500 s are done in the lease; the rest at the same pace
        assert valuer(self.RULE).shared_s(1500.0) == pytest.approx(1500.0)

    def test_a_bundle_slower_than_the_share_gives_way_to_it_after_the_lease(self):
        # a lease does 600 / 6000 of the work; the other 9 / 10 at the share's pace: 600 + 0.9 * 2000
        assert valuer(self.RULE, elapsed_s=100.0).shared_s(6000.0) == pytest.approx(100 + 600 + 1800)

    def test_the_empty_bundle_is_one_lease_of_waiting_then_the_share(self):
        assert valuer(self.RULE).shared_s(math.inf) == pytest.approx(2600.0)

    def test_it_is_the_formula_of_the_specification(self):
        for time_s in (10.0, 599.0, 601.0, 1999.0, 2001.0, 1e5):
            for share_s in (100.0, 700.0, 5000.0):
                done = min(1.0, 600.0 / time_s)
                continued = 600.0 + min(time_s, share_s) * (1.0 - done)
                expected = min(time_s, continued)
                assert valuer(self.RULE, share_s=share_s).shared_s(time_s) == pytest.approx(expected)


class TestOtherRules:
    def test_idle_then_share_waits_a_lease_only_with_nothing(self):
        one = valuer(BundleRule.IDLE_THEN_SHARE, elapsed_s=10.0)
        assert one.shared_s(math.inf) == 10 + 600 + 2000
        assert one.shared_s(9000.0) == 9010.0

    def test_known_limit_idle_then_share_can_value_a_bundle_below_the_empty_one(self):
        one = valuer(BundleRule.IDLE_THEN_SHARE)
        assert one.value(9000.0) < one.value(math.inf)

    def test_lexicographic_values_the_empty_bundle_at_0(self):
        one = valuer(BundleRule.LEXICOGRAPHIC)
        assert one.value(math.inf) == 0.0
        assert math.isinf(one.rho(math.inf))
        assert one.value(1e12) > 0.0


class TestAllRules:
    @pytest.mark.parametrize("rule", BundleRule)
    def test_a_switch_costs_its_seconds(self, rule):
        one = valuer(rule)
        assert one.shared_s(700.0, 40.0) == one.shared_s(700.0) + 40.0

    @pytest.mark.parametrize("rule", BundleRule)
    def test_value_is_one_over_rho(self, rule):
        one = valuer(rule, elapsed_s=300.0)
        assert one.value(500.0) == pytest.approx(1 / one.rho(500.0)) == pytest.approx(1000 / 800)

    def test_an_app_that_would_end_at_once_has_a_value_all_the_same(self):
        assert math.isfinite(valuer(BundleRule.CONTINUATION).value(0.0))


class TestValuerOf:
    def test_the_share_is_the_clusters_part_by_the_apps_active_now(self):
        app = app_of(jobs_of([1600.0], JobShape(tasks=16)), elapsed_s=7.0, contention=3.0)
        one = Valuer.of(app, cluster_view_of(CLUSTER, active_apps=4, lease_s=60.0))
        assert one.share_s == 1600.0 / 4
        assert one.ideal_s == 1600.0 / 16 * 3.0
        assert (one.elapsed_s, one.lease_s) == (7.0, 60.0)


class TestDefinitions:
    """One app: two jobs of 800 and 400 GPU s, gangs of up to 4; 16 GPUs, N_avg 4; then one job of 10 * 400."""

    APP = app_of(
        jobs_of([800.0, 400.0], JobShape(tasks=4), CRUDE_SLOWDOWN),
        later_phases=(Phase(jobs=1, iterations=10),),
        work_total_gpu_s=1200.0 + 10 * 800.0,
        restart_s=30.0,
        contention=4.0,
    )
    CLUSTER_VIEW = cluster_view_of(CLUSTER, active_apps=4)

    def test_the_cluster_time_is_capped_by_the_demand(self):
        assert cluster_time_s(self.APP, self.CLUSTER_VIEW) == 9200.0 / 8

    def test_each_by_hand(self):
        ideal = ideal_times_s(self.APP, self.CLUSTER_VIEW)
        assert ideal[RhoDefinition.THEMIS] == 1150.0 * 4
        # alone: 800 / 4, then 8000 / 4; the app could run 16 / 8 = 2 times at once, so N / G = 2
        assert ideal[RhoDefinition.ISOLATED_SHARE] == (200.0 + 2000.0) * 2
        # a gang of 4 fits in a machine, where S is 1
        assert ideal[RhoDefinition.PLACEMENT_AWARE] == 4600.0
        # on 4 of its own: two gangs of 2, then one of 4
        assert ideal[RhoDefinition.PRIVATE_CLUSTER] == 400.0 + 2000.0
        assert ideal[RhoDefinition.ATTAINABLE] == 4600.0
        assert set(ideal) == set(SCHEDULE_DEFINITIONS)

    def test_declaration_has_the_times_of_the_phases_and_the_gpus_that_they_keep_busy(self):
        declared = declaration_of(self.APP, self.CLUSTER_VIEW)
        # 8 GPUs do 1200 GPU s of four jobs in 200 s; the second phase is one job of 8000 GPU s on four GPUs
        assert declared.phases == (FluidPhase(200.0, 6.0), FluidPhase(2000.0, 4.0))
        assert declared.whole_time_s == 2200.0
        assert declared.cluster_time_s == 1150.0
        assert declared.share_demand == 8 / 16

    def test_declared_gpus_are_no_more_than_a_rigid_gang_uses(self):
        wide = app_of(jobs_of([800.0], JobShape(tasks=6), CRUDE_SLOWDOWN), demand_max_gpus=6)
        (phase,) = declaration_of(wide, self.CLUSTER_VIEW).phases
        assert phase.gpus == pytest.approx(6.0)
        assert phase.time_s == pytest.approx(800 * 1.1 / 6)

    def test_an_app_of_small_demand_cannot_be_isolated_below_its_own_time(self):
        lone = app_of(jobs_of([800.0]), contention=4.0)
        ideal = ideal_times_s(lone, self.CLUSTER_VIEW)
        assert ideal[RhoDefinition.ISOLATED_SHARE] == 800.0
        assert ideal[RhoDefinition.THEMIS] == 3200.0

    def test_the_attainable_ideal_includes_the_restart(self):
        hurried = app_of(jobs_of([800.0]), restart_s=30.0)
        alone = cluster_view_of(CLUSTER)
        assert ideal_times_s(hurried, alone)[RhoDefinition.ATTAINABLE] == 830.0

    def test_best_placement_is_that_of_the_largest_gang(self):
        wide = app_of(jobs_of([800.0], JobShape(tasks=6), CRUDE_SLOWDOWN), contention=4.0)
        ideal = ideal_times_s(wide, self.CLUSTER_VIEW)
        assert ideal[RhoDefinition.PLACEMENT_AWARE] == pytest.approx(ideal[RhoDefinition.THEMIS] * 1.1)

    def test_rho_is_the_time_from_submission_over_each(self):
        rho = rho_by_definition(self.APP, 2300.0, self.CLUSTER_VIEW)
        assert rho[RhoDefinition.THEMIS] == 0.5
        assert rho[RhoDefinition.PRIVATE_CLUSTER] == pytest.approx(2300 / 2400)
