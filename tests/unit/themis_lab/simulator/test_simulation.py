"""Whole runs with results computed by hand."""

import pytest
from msgspec.structs import replace
from sim_cases import COSTS, FAR, FREE, app, cluster, job, run, settings, workload

from rm_plugin.arbiter.core import LeasePolicy
from themis.apps import JobShape, TunerSpec
from themis.choices import LeaseEnds
from themis.errors import InputError
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.settings import NodeOutage, Settings
from themis_lab.simulator.simulation import Simulation
from themis_lab.simulator.workloads.registry import workload_named

ONE = cluster((1,))
TWO = cluster((1,), (1,))


def of(record, name):
    return next(each for each in record.apps if each.name == name)


class TestOneApp:
    def test_a_job_alone_pays_for_one_start_and_keeps_its_gpu_over_lease_ends(self):
        record = run(ONE, app("a", job(iterations=2000)))
        assert of(record, "a").completion_s == pytest.approx(30 + 5 + 2000)
        assert of(record, "a").restarts == 0
        assert record.counts.renewed_gpus == 3

    def test_gpu_time_is_the_leases_and_running_time_the_iterations(self):
        outcome = of(run(ONE, app("a", job(iterations=2000))), "a")
        assert outcome.gpu_time_s == pytest.approx(2035)
        assert outcome.running_gpu_s == pytest.approx(2000)
        assert outcome.ideal_gpu_s == pytest.approx(2000)

    def test_nothing_is_asked_of_an_app_before_its_master_is_up(self):
        late = replace(app("a", job(iterations=2000)), startup_s=70.0)
        outcome = of(run(ONE, late), "a")
        assert outcome.completion_s == pytest.approx(70 + 35 + 2000)
        assert outcome.bound == pytest.approx(outcome.rho["themis"])

    def test_an_app_may_have_costs_of_its_own(self):
        own = replace(app("a", job(iterations=2000)), costs=FREE)
        assert of(run(ONE, own), "a").completion_s == pytest.approx(2000)

    def test_a_job_may_take_its_time_to_leave(self):
        outcome = of(run(ONE, app("a", job(iterations=2000)), costs=replace(COSTS, finish_s=7.0)), "a")
        assert outcome.completion_s == pytest.approx(35 + 2000 + 7)
        assert outcome.running_gpu_s == pytest.approx(2000)

    def test_a_gang_over_machines_runs_at_its_slowdown(self):
        record = run(TWO, app("a", job(iterations=1000, gpus=2, slowdown=FAR)), costs=FREE)
        assert of(record, "a").completion_s == pytest.approx(1000 * 2.0 / 2)
        assert of(record, "a").placement_score == pytest.approx(0.5)

    def test_jobs_queue_on_gpus_longest_first(self):
        jobs = [job("long", 900), job("mid", 500), job("short", 400)]
        record = run(TWO, app("a", *jobs), costs=FREE)
        assert of(record, "a").completion_s == pytest.approx(900)

    def test_a_promoted_job_goes_on_where_it_was(self):
        jobs = [job("j0", 300, floor=0.2), job("j1", 300, floor=0.1)]
        halving = TunerSpec(name="successive_halving", settings={"phases": "2x100,1x200"})
        record = run(ONE, app("a", *jobs, tuner=halving), costs=FREE)
        assert of(record, "a").completion_s == pytest.approx(100 + 100 + 200)
        assert of(record, "a").ideal_gpu_s == pytest.approx(400)

    def test_a_promotion_without_a_barrier_asks_for_a_round(self):
        jobs = [job("j0", 300), job("j1", 300, serial_s=3.0, floor=0.1)]
        halving = TunerSpec(name="asynchronous_halving", settings={"first_iterations": 100})
        record = run(TWO, app("a", *jobs, tuner=halving), costs=FREE, record_rounds=True)
        # At 300 s the second job comes to the barrier of the first, which goes on at once; a GPU is free beside it.
        assert [(each.now_s, each.reasons) for each in record.rounds if "demand" in each.reasons] == [
            (300, ("demand",))
        ]

    def test_rho_compares_with_the_ideal_time(self):
        outcome = of(run(TWO, app("a", job(iterations=1000)), costs=FREE), "a")
        assert outcome.rho["themis"] == pytest.approx(1.0)
        assert outcome.bound == pytest.approx(1.0)


class TestContention:
    def test_two_apps_take_turns_on_one_gpu_and_pay_for_each(self):
        record = run(ONE, app("a", job(iterations=1000)), app("b", job(iterations=1000)))
        assert of(record, "a").restarts + of(record, "b").restarts >= 1
        total_s = record.makespan_s
        starts = 2 + of(record, "a").restarts + of(record, "b").restarts
        stops = of(record, "a").restarts + of(record, "b").restarts
        assert total_s == pytest.approx(2000 + 35 * starts + 5 * stops, abs=2 * stops)

    def test_work_lost_is_the_iteration_that_a_stop_interrupts(self):
        jobs = [app("a", job(iterations=10, serial_s=150.0)), app("b", job(iterations=10, serial_s=150.0))]
        record = run(ONE, *jobs)
        for outcome in record.apps:
            assert outcome.restarts > 0
            assert 0 < outcome.lost_gpu_s <= 150 * outcome.restarts
            assert outcome.running_gpu_s == pytest.approx(1500 + outcome.lost_gpu_s)

    def test_staggered_leases_last_their_full_length(self):
        leases = LeasePolicy(duration_s=600, ends=LeaseEnds.STAGGERED, checkpoint_lead_s=5)
        record = run(ONE, app("a", job(iterations=2500)), leases=leases, policy="tiresias", record_rounds=True)
        # Renewed five seconds early, a lease lasts from end to end.
        assert [each.now_s for each in record.rounds] == pytest.approx([0.0, 595.0, 1195.0, 1795.0, 2395.0])
        assert [each.later_ends_s for each in record.rounds] == [
            {},
            *({"a": pytest.approx(end_s)} for end_s in (1200.0, 1800.0, 2400.0, 3000.0)),
        ]

    def test_aligned_leases_end_on_one_grid(self):
        apps = (app("a", job(iterations=5000)), app("b", job(iterations=300), at_s=100))
        record = run(ONE, *apps, policy="tiresias", record_rounds=True)
        assert record.rounds
        assert all(each.lease_end_s % 600 == pytest.approx(0, abs=1e-6) for each in record.rounds)

    @pytest.mark.parametrize("before_s", [1e-10, 1e-7, 9e-7, 1e-5])
    def test_an_event_just_before_a_due_round_adds_no_endless_rounds(self, before_s):
        apps = (app("a", job(iterations=5000)), app("b", job(iterations=300), at_s=595.0 - before_s))
        record = run(ONE, *apps)
        assert not record.counts.violations
        assert record.counts.rounds == pytest.approx(
            run(ONE, apps[0], app("b", job(iterations=300), at_s=595.0)).counts.rounds, abs=1
        )


class TestMachines:
    def test_a_job_on_a_lost_machine_falls_back_to_its_newest_checkpoint(self):
        outage = NodeOutage(machine_id="m0", lost_at_s=250.0, back_at_s=400.0)
        record = run(ONE, app("a", job(iterations=1000)), outages=(outage,))
        # Ready at 35, saved at 135 and 235: 15 iterations are lost, and the second start is at 400.
        assert of(record, "a").completion_s == pytest.approx(400 + 35 + 800)
        assert of(record, "a").lost_gpu_s == pytest.approx(15)
        assert of(record, "a").restarts == 1

    def test_elsewhere_it_goes_on_at_once(self):
        outage = NodeOutage(machine_id="m0", lost_at_s=250.0, back_at_s=9000.0)
        record = run(TWO, app("a", job(iterations=1000)), outages=(outage,))
        assert of(record, "a").completion_s == pytest.approx(250 + 35 + 800)

    def test_an_app_that_ends_while_a_machine_is_away_is_measured_by_the_whole_cluster(self):
        away = NodeOutage(machine_id="m1", lost_at_s=500.0, back_at_s=9000.0)
        jobs = [job("j0", 1000), job("j1", 1000)]
        outcome = of(run(TWO, app("a", *jobs), costs=FREE, outages=(away,)), "a")
        assert outcome.rho["themis"] == pytest.approx(outcome.completion_s / 1000)
        assert outcome.rho["themis"] >= outcome.bound

    def test_a_pending_save_is_lost_with_its_machine(self):
        outage = NodeOutage(machine_id="m0", lost_at_s=597.0, back_at_s=700.0)
        apps = (app("a", job(iterations=2000)), app("b", job(iterations=10), at_s=400.0))
        record = run(ONE, *apps, outages=(outage,), policy="tiresias")
        # It stopped at 595 with its newest save at 535.
        assert of(record, "a").lost_gpu_s == pytest.approx(60)

    def test_saves_on_the_way_count_however_a_run_ends(self):
        assert of(run(ONE, app("a", job(iterations=950))), "a").checkpoints == 9 + 1

    def test_the_loss_of_an_unused_machine_changes_nothing(self):
        outage = NodeOutage(machine_id="m1", lost_at_s=250.0, back_at_s=300.0)
        record = run(TWO, app("a", job(iterations=1000)), outages=(outage,))
        assert of(record, "a").completion_s == pytest.approx(1035)

    def test_the_order_of_outages_changes_nothing(self):
        """One begins as the other ends: the machine is back and lost again, in that order."""
        outages = [NodeOutage(machine_id="m0", lost_at_s=at_s, back_at_s=at_s + 300.0) for at_s in (250.0, 550.0)]
        for reported in (outages, outages[::-1]):
            record = run(ONE, app("a", job(iterations=1000)), outages=tuple(reported))
            assert of(record, "a").completion_s == pytest.approx(850 + 35 + 800)

    def test_a_job_that_never_made_an_iteration_is_not_restarted(self):
        outages = [NodeOutage(machine_id="m0", lost_at_s=at_s, back_at_s=at_s + 10.0) for at_s in (10.0, 30.0)]
        outcome = of(run(ONE, app("a", job(iterations=100)), outages=tuple(outages)), "a")
        assert (outcome.restarts, outcome.lost_gpu_s) == (0, 0.0)


class TestWrongInput:
    def test_a_job_larger_than_the_cluster_is_named(self):
        with pytest.raises(InputError, match="job j0 of app a can never run"):
            Simulation(workload(app("a", job(gpus=3))), settings(TWO))

    def test_tasks_that_fit_on_no_machine_together(self):
        shape = JobShape(tasks=2, min_tasks=2, gpus_per_task=4)
        wide = app("a", replace(job(), shape=shape))
        with pytest.raises(InputError, match="can never run"):
            Simulation(workload(wide), settings(cluster((4,), (2,), (2,))))

    def test_a_checkpoint_that_takes_longer_than_a_lease_allows(self):
        leases = LeasePolicy(duration_s=600, checkpoint_lead_s=5, grace_s=30)
        with pytest.raises(InputError, match="raise the lead"):
            Simulation(workload(app("a")), settings(ONE, costs=replace(COSTS, checkpoint_s=60.0), leases=leases))

    def test_a_machine_that_is_lost_while_it_is_away(self):
        outages = (
            NodeOutage(machine_id="m0", lost_at_s=10.0, back_at_s=90.0),
            NodeOutage(machine_id="m0", lost_at_s=50.0, back_at_s=200.0),
        )
        with pytest.raises(InputError, match="make one outage of both"):
            Simulation(workload(app("a")), settings(ONE, outages=outages))

    def test_an_outage_of_an_unknown_machine(self):
        outage = NodeOutage(machine_id="m7", lost_at_s=1.0, back_at_s=2.0)
        with pytest.raises(InputError, match="m7"):
            Simulation(workload(app("a")), settings(ONE, outages=(outage,)))


def test_a_run_does_not_depend_on_earlier_runs():
    apps = [app(f"a{place}", *(job(f"j{n}", 300 + 50 * n) for n in range(4)), at_s=40.0 * place) for place in range(5)]
    one, two = (run(cluster((2, 2), (2,), (1,)), *apps, record_rounds=True) for _ in range(2))
    assert replace(one, wall_s=0, counts=None) == replace(two, wall_s=0, counts=None)


def test_restart_cost_sums_the_costs_of_a_move():
    assert COSTS.restart_s == 40.0


def test_jobs_whose_moves_are_free_do_not_move_without_end():
    jobs = [[job(f"j{n}", 900 + 100 * n, gpus=4, least=1, slowdown=FAR) for n in range(2)] for _ in range(3)]
    apps = [app(f"a{place}", *two, at_s=150.0 * place) for place, two in enumerate(jobs)]
    record = run(cluster((2, 2), (2,), (1,), racks=("r0", "r1")), *apps, costs=FREE, lease_s=100.0)
    leases = max(each.ended_at_s for each in record.apps) / 100.0
    moves = sum(each.restarts for each in record.apps)
    assert 0 < moves <= 6 * leases, "more than one a job and lease"


@pytest.mark.parametrize(("policy", "seed"), [("drf", 1), ("themis", 3), ("gandiva", 3)])
def test_truthful_agents_give_no_gpu_straight_back_that_they_asked_for(policy, seed):
    on = cluster_named("4x2+1x4")
    options = {"tuner": "median_stopping", "apps": 6, "load": 2.0, "task_gpu_s": 900.0, "sigma": 0.7}
    record = Simulation(
        workload_named("synthetic", seed, on, **options), Settings(cluster=on, policy=policy, seed=seed)
    ).run()
    assert record.counts.declined == 0
